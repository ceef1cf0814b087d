//! A `tokio::sync::RwLock` for each node, in a concurrent map.
//!
//! 1. A lock is cloned out of the map under the lock of its shard, so the reference count read under that lock
//!    includes every user.
//! 2. A release removes the entry if it has the last reference. Otherwise the last user removes it.
//! 3. The map does not distinguish waiting from holding, so a cancelled wait cleans up in the same way.

use super::{Contender, Path, keys};
use dashmap::DashMap;
use std::sync::Arc;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

type Locks = DashMap<String, Arc<RwLock<()>>>;
type Read<'a> = Node<'a, OwnedRwLockReadGuard<()>>;
type Write<'a> = Node<'a, OwnedRwLockWriteGuard<()>>;

/// The locks of all nodes in use.
#[derive(Debug, Default)]
pub struct RwLockMap {
    locks: Locks,
}

/// A node that is held, or for which a caller waits.
#[derive(Debug)]
struct Node<'a, Guard> {
    locks: &'a Locks,
    key: String,
    guard: Option<Guard>,
}

/// The guard of one resource. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct OneGuard<'a> {
    resource: Write<'a>,
    account: Read<'a>,
    user: Read<'a>,
}

/// The guard of several resources. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct ManyGuard<'a> {
    resources: Vec<Write<'a>>,
    account: Read<'a>,
    user: Read<'a>,
}

impl RwLockMap {
    fn insert<Guard>(&self, key: String) -> (Arc<RwLock<()>>, Node<'_, Guard>) {
        let lock = self.locks.entry(key.clone()).or_default().clone();
        (lock, Node { locks: &self.locks, key, guard: None })
    }

    async fn read(&self, key: String) -> Read<'_> {
        let (lock, mut node) = self.insert(key);
        node.guard = Some(lock.read_owned().await);
        node
    }

    async fn write(&self, key: String) -> Write<'_> {
        let (lock, mut node) = self.insert(key);
        node.guard = Some(lock.write_owned().await);
        node
    }
}

impl<Guard> Drop for Node<'_, Guard> {
    fn drop(&mut self) {
        // The guard counts as a reference to the lock, so it is dropped first.
        self.guard = None;
        self.locks.remove_if(&self.key, |_, lock| Arc::strong_count(lock) == 1);
    }
}

impl Contender for RwLockMap {
    const NAME: &'static str = "tokio RwLock map";
    const SHARES_ANCESTORS: bool = true;
    type OneGuard<'a> = OneGuard<'a>;
    type ManyGuard<'a> = ManyGuard<'a>;

    async fn new() -> Self {
        Self::default()
    }

    async fn acquire<'a>(&'a self, path: Path<'_>) -> OneGuard<'a> {
        let Path { user, account, resource } = path;
        let resource_key = keys::resource(user, account, resource);
        let account_key = keys::account(user, account);
        let user = self.read(user.to_owned()).await;
        let account = self.read(account_key).await;
        let resource = self.write(resource_key).await;
        OneGuard { resource, account, user }
    }

    async fn acquire_resources<'a>(
        &'a self,
        user: &str,
        account: &str,
        resources: &[String],
    ) -> ManyGuard<'a> {
        let sorted = keys::sorted(resources);
        let user_node = self.read(user.to_owned()).await;
        let account_node = self.read(keys::account(user, account)).await;
        let mut held = Vec::with_capacity(sorted.len());
        for resource in sorted {
            held.push(self.write(keys::resource(user, account, resource)).await);
        }
        ManyGuard { resources: held, account: account_node, user: user_node }
    }

    fn is_idle(&self) -> bool {
        self.locks.is_empty()
    }
}
