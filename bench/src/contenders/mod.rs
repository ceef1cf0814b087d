//! The contenders. Each locks a resource of an account of a user, with shared locks on the ancestors if it supports
//! them.
//!
//! Each is written as for production: a cancelled wait and a release leave no memory in use, several resources are locked in
//! one order, and keys are created inside the measured work.

mod hierlock;
mod lockable;
mod rwlock_map;
#[cfg(test)]
mod tests;

pub use hierlock::Memory;
pub use lockable::Pool;
pub use rwlock_map::RwLockMap;

/// The IDs of a resource, from the root.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// The user, which is the root.
    pub user: &'a str,
    /// An account of the user.
    pub account: &'a str,
    /// A resource of the account.
    pub resource: &'a str,
}

/// A lock manager to compare. Dropping a guard releases its locks.
pub trait Contender: Send + Sync + Sized + 'static {
    /// The name in tables.
    const NAME: &'static str;
    /// Whether ancestors are locked shared, so that two holders below one account do not wait for each other.
    const SHARES_ANCESTORS: bool;
    /// The guard of one resource.
    type OneGuard<'a>: Send;
    /// The guard of several resources.
    type ManyGuard<'a>: Send;

    /// Creates a lock manager without locks.
    fn new() -> impl Future<Output = Self>;

    /// Locks one resource. Waits without a limit.
    fn acquire<'a>(&'a self, path: Path<'_>) -> impl Future<Output = Self::OneGuard<'a>> + Send;

    /// Locks several resources of one account, given in any order.
    fn acquire_resources<'a>(
        &'a self,
        user: &str,
        account: &str,
        resources: &[String],
    ) -> impl Future<Output = Self::ManyGuard<'a>> + Send;

    /// Returns whether no lock is held and no node is in memory.
    fn is_idle(&self) -> bool;
}

/// Keys of nodes, for contenders that lock by string. The IDs contain no `/`.
mod keys {
    pub(super) fn account(user: &str, account: &str) -> String {
        [user, "/", account].concat()
    }

    pub(super) fn resource(user: &str, account: &str, resource: &str) -> String {
        [user, "/", account, "/", resource].concat()
    }

    /// Returns the resources of an account in the order in which all callers lock them.
    pub(super) fn sorted(resources: &[String]) -> Vec<&str> {
        let mut ids: Vec<&str> = resources.iter().map(String::as_str).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
