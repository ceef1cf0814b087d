//! Which leases are listed.

use crate::target::Target;

/// All live leases, unless told which.
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
    pub fn within(mut self, target: Target) -> Self {
        self.within = Some(target);
        self
    }

    /// Of this owner.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// Of this session.
    pub fn session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Also those whose time is over, as long as nobody has removed them.
    pub fn also_expired(mut self) -> Self {
        self.also_expired = true;
        self
    }
}
