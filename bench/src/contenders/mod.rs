//! Who is compared: one way each to lock a resource of an account of a user, ancestors shared where
//! the contender can share.
//!
//! Each is written as one would write it for production: cancelling a wait and releasing leave
//! nothing behind, several resources are taken in one order, and keys are made inside the work that
//! is measured.

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
    /// The root.
    pub user: &'a str,
    /// One of the user's.
    pub account: &'a str,
    /// One of the account's.
    pub resource: &'a str,
}

/// A way to lock. Dropping what was acquired releases it.
pub trait Contender: Send + Sync + Sized + 'static {
    /// In tables.
    const NAME: &'static str;
    /// Two holders below one account do not wait for each other.
    const SHARES_ANCESTORS: bool;
    /// One resource, held.
    type One<'a>: Send;
    /// Several resources, held.
    type Many<'a>: Send;

    /// With nothing locked.
    fn new() -> impl Future<Output = Self>;

    /// Locks one resource; waits as long as it takes.
    fn acquire<'a>(&'a self, path: Path<'_>) -> impl Future<Output = Self::One<'a>> + Send;

    /// Locks several resources of one account, given in any order.
    fn acquire_resources<'a>(
        &'a self,
        user: &str,
        account: &str,
        resources: &[String],
    ) -> impl Future<Output = Self::Many<'a>> + Send;

    /// Nothing is held, and no node is remembered.
    fn is_idle(&self) -> bool;
}

/// Keys of nodes, for contenders that need one text for each. The IDs here contain no `/`.
mod keys {
    pub(super) fn account(user: &str, account: &str) -> String {
        [user, "/", account].concat()
    }

    pub(super) fn resource(user: &str, account: &str, resource: &str) -> String {
        [user, "/", account, "/", resource].concat()
    }

    /// The one order in which everybody takes the resources of an account.
    pub(super) fn ordered(resources: &[String]) -> Vec<&str> {
        let mut ids: Vec<&str> = resources.iter().map(String::as_str).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}
