//! The request for a lease: node, owner, and duration.

use super::loss::LeaseError;
use crate::{Hierarchy, Result, Target};
use std::time::Duration;

const DEFAULT_TTL: Duration = Duration::from_secs(5 * 60);
const MAX_TTL: Duration = Duration::from_secs(10 * 366 * 86_400);

/// The request for [`Leases::acquire`](super::Leases::acquire).
///
/// ```
/// use hierlock::Target;
/// use hierlock::lease::LeaseRequest;
/// use std::time::Duration;
///
/// let request = LeaseRequest::new(Target::account("u1", "a1")?, "ada")
///     .session("tab-7")
///     .reason("edits the address")
///     .ttl(Duration::from_secs(600));
/// # let _ = request;
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a request does nothing until it is acquired"]
pub struct LeaseRequest {
    pub(super) target: Target,
    pub(super) owner: String,
    pub(super) session: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) ttl: Duration,
    pub(super) wait: Duration,
}

impl LeaseRequest {
    /// Requests a node for an owner. By default the ttl is five minutes, and the acquire does not wait.
    pub fn new(target: Target, owner: impl Into<String>) -> Self {
        let (owner, session, reason) = (owner.into(), None, None);
        Self { target, owner, session, reason, ttl: DEFAULT_TTL, wait: Duration::ZERO }
    }

    setters! {
        /// Sets the login, browser tab or process that the lease belongs to; see [`super::Leases::release_session`].
        session(session: impl Into<String>) => session: Some(session.into());
        /// Sets the reason, which others see.
        reason(reason: impl Into<String>) => reason: Some(reason.into());
        /// Sets how long the lease is valid after the acquire and each renewal: 1 ms to 10 years, in whole milliseconds.
        ttl: Duration;
        /// Retries for up to `wait`, with random pauses. There is no queue: the first attempt after a release gets the
        /// lease, not the longest wait.
        wait_up_to(wait: Duration) => wait: wait;
    }

    pub(super) fn check(&self, hierarchy: &Hierarchy) -> Result<()> {
        hierarchy.check(&self.target)?;
        // PostgreSQL cannot store NUL in text.
        if self.target.ids().any(|id| id.contains('\0')) {
            return Err(LeaseError::Nul { target: self.target.clone() }.into());
        }
        check_name("owner", &self.owner)?;
        self.session.iter().try_for_each(|session| check_name("session", session))?;
        self.reason.iter().try_for_each(|reason| check_text("reason", reason))?;
        if !(Duration::from_millis(1)..=MAX_TTL).contains(&self.ttl) {
            return Err(LeaseError::Ttl { given: self.ttl }.into());
        }
        Ok(())
    }

    pub(super) fn ttl_ms(&self) -> i64 {
        // `check` limits it to far less than 2⁶³.
        self.ttl.as_millis() as i64
    }
}

/// Checks a name. Names are compared, and servers treat trailing spaces differently.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let is_valid = name.trim() == name && !name.contains(char::is_control);
    let rule = "1 to 255 characters, without spaces around them and without control characters";
    check_length(is_valid, name, what, rule)
}

/// Checks a text for people, which is never compared.
pub(super) fn check_text(what: &'static str, text: &str) -> Result<()> {
    check_length(!text.contains('\0'), text, what, "1 to 255 characters, and no NUL among them")
}

fn check_length(is_valid: bool, text: &str, what: &'static str, rule: &'static str) -> Result<()> {
    if !is_valid || !(1..=255).contains(&text.chars().count()) {
        return Err(LeaseError::Text { what, rule }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> LeaseRequest {
        LeaseRequest::new("u1/a1".parse().unwrap(), "ada")
    }

    #[test]
    fn an_invalid_request_is_a_usage_error() {
        let long = "é".repeat(256);
        let years = Duration::from_secs(11 * 366 * 86_400);
        let deep = LeaseRequest::new("1/2/3/4".parse().unwrap(), "ada");
        for (request, expected) in [
            (LeaseRequest::new("u1".parse().unwrap(), ""), "owner of a lease must have 1 to 255"),
            (LeaseRequest::new("u1".parse().unwrap(), "ada "), "without spaces"),
            (LeaseRequest::new("u1".parse().unwrap(), "a\nb"), "control"),
            (request().session(&long), "the session"),
            (request().reason(&long), "the reason"),
            (request().reason("a\0"), "NUL"),
            (request().ttl(Duration::ZERO), "1 ms to 10 years, not 0ns"),
            (request().ttl(Duration::from_micros(999)), "1 ms"),
            (request().ttl(years), "10 years"),
            (deep, "levels"),
            (LeaseRequest::new(Target::user("a\0b").unwrap(), "ada"), "`a\\0b` cannot be leased"),
        ] {
            let error = request.check(&Hierarchy::default()).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_longest_and_shortest_values_are_valid() {
        let long = "é".repeat(255);
        for request in [
            request().ttl(Duration::from_millis(1)),
            request().ttl(Duration::from_secs(10 * 366 * 86_400)),
            request().session(&long).reason("two\nlines"),
            LeaseRequest::new("u1".parse().unwrap(), long),
        ] {
            request.check(&Hierarchy::default()).unwrap();
        }
    }
}
