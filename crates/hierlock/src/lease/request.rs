//! A lease in the making: on what, for whom, for how long.

use super::loss::LeaseError;
use crate::error::Result;
use crate::hierarchy::Hierarchy;
use crate::target::Target;
use std::time::Duration;

const DEFAULT_TTL: Duration = Duration::from_secs(5 * 60);
const MAX_TTL: Duration = Duration::from_secs(10 * 366 * 86_400);

/// What is asked of [`Leases::acquire`](super::Leases::acquire).
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
    /// Names a node and who wants it. By default the lease is for five minutes, and is not waited for.
    pub fn new(target: Target, owner: impl Into<String>) -> Self {
        let (owner, session, reason) = (owner.into(), None, None);
        Self { target, owner, session, reason, ttl: DEFAULT_TTL, wait: Duration::ZERO }
    }

    /// Sets the login, browser tab or process that it belongs to, which [`super::Leases::release_session`] ends.
    pub fn session(self, session: impl Into<String>) -> Self {
        Self { session: Some(session.into()), ..self }
    }

    /// Sets what it is for: others are told.
    pub fn reason(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// Sets how long it is valid after it was acquired or renewed: 1 ms to 10 years, in whole milliseconds.
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Asks again and again for so long, with random pauses. There is no queue: whoever asks at the right
    /// moment gets it, not whoever came first.
    pub fn wait_up_to(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    pub(super) fn check(&self, hierarchy: &Hierarchy) -> Result<()> {
        hierarchy.check(&self.target)?;
        // PostgreSQL cannot keep it as text.
        if self.target.ids().any(|id| id.contains('\0')) {
            return Err(LeaseError::Nul { target: self.target.clone() }.into());
        }
        check_name("owner", &self.owner)?;
        self.session.iter().try_for_each(|session| check_name("session", session))?;
        self.reason.iter().try_for_each(|reason| check_words("reason", reason))?;
        if !(Duration::from_millis(1)..=MAX_TTL).contains(&self.ttl) {
            return Err(LeaseError::Ttl { given: self.ttl }.into());
        }
        Ok(())
    }

    pub(super) fn ttl_ms(&self) -> i64 {
        // Checked: far less than 2⁶³.
        self.ttl.as_millis() as i64
    }
}

/// A name is compared, and servers do not agree about spaces at its end.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let is_good = name.trim() == name && !name.contains(char::is_control);
    let right = "1 to 255 characters, without spaces around them and without control characters";
    check_length(is_good, name, what, right)
}

/// Words are only read.
pub(super) fn check_words(what: &'static str, words: &str) -> Result<()> {
    check_length(!words.contains('\0'), words, what, "1 to 255 characters, and no NUL among them")
}

fn check_length(is_good: bool, text: &str, what: &'static str, right: &'static str) -> Result<()> {
    if !is_good || !(1..=255).contains(&text.chars().count()) {
        return Err(LeaseError::Text { what, right }.into());
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
    fn what_is_wrong_is_said_in_a_sentence() {
        let long = "é".repeat(256);
        let years = Duration::from_secs(11 * 366 * 86_400);
        let deep = LeaseRequest::new("1/2/3/4".parse().unwrap(), "ada");
        for (request, says) in [
            (LeaseRequest::new("u1".parse().unwrap(), ""), "the owner of a lease has 1 to 255"),
            (LeaseRequest::new("u1".parse().unwrap(), "ada "), "without spaces"),
            (LeaseRequest::new("u1".parse().unwrap(), "a\nb"), "control"),
            (request().session(&long), "the session"),
            (request().reason(&long), "the reason"),
            (request().reason("a\0"), "NUL"),
            (request().ttl(Duration::ZERO), "1 ms to 10 years, not for 0ns"),
            (request().ttl(Duration::from_micros(999)), "1 ms"),
            (request().ttl(years), "10 years"),
            (deep, "levels"),
            (LeaseRequest::new(Target::user("a\0b").unwrap(), "ada"), "`a\\0b` cannot be leased"),
        ] {
            let error = request.check(&Hierarchy::default()).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn the_longest_and_shortest_are_good() {
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
