//! Which leases are listed.

use super::node::{IS_WITHIN, within};
use crate::database::Value;
use crate::target::Target;

/// Which leases are listed; by default all that are live.
///
/// ```
/// use hierlock::Target;
/// use hierlock::lease::LeaseFilter;
///
/// let filter = LeaseFilter::default().within(Target::user("u1")?).owner("ada").also_expired();
/// # let _ = filter;
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a filter does nothing by itself"]
pub struct LeaseFilter {
    pub(super) within: Option<Target>,
    pub(super) owner: Option<String>,
    pub(super) session: Option<String>,
    pub(super) also_expired: bool,
}

impl LeaseFilter {
    /// On this node or below it.
    pub fn within(self, target: Target) -> Self {
        Self { within: Some(target), ..self }
    }

    /// Of this owner.
    pub fn owner(self, owner: impl Into<String>) -> Self {
        Self { owner: Some(owner.into()), ..self }
    }

    /// Of this session.
    pub fn session(self, session: impl Into<String>) -> Self {
        Self { session: Some(session.into()), ..self }
    }

    /// Also those whose time is over, as long as nobody has removed them.
    pub fn also_expired(self) -> Self {
        Self { also_expired: true, ..self }
    }

    /// As a condition, with the values for its places.
    pub(super) fn condition(&self, now: &str) -> (String, Vec<Value>) {
        let (mut conditions, mut values) = (vec!["1 = 1".to_owned()], Vec::new());
        if let Some(target) = &self.within {
            conditions.push(IS_WITHIN.to_owned());
            values.extend(within(target));
        }
        for (column, name) in [("owner", &self.owner), ("session", &self.session)] {
            if let Some(name) = name {
                conditions.push(format!("{column} = ?"));
                values.push(name.into());
            }
        }
        if !self.also_expired {
            conditions.push(format!("expires_ms > {now}"));
        }
        (conditions.join(" AND "), values)
    }
}
