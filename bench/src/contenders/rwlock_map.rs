//! By hand: a `tokio::sync::RwLock` for each node, in a concurrent map.
//!
//! 1. A lock is cloned out of the map under the lock of its shard, so whoever counts under that
//!    same lock sees every user of it.
//! 2. On release an entry that only the map knows is removed; otherwise another user will do it.
//! 3. Waiting and holding are the same to the map, so a wait that is cancelled cleans up alike.

use super::{Contender, Path, keys};
use dashmap::DashMap;
use std::sync::Arc;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

type Locks = DashMap<String, Arc<RwLock<()>>>;
type Read<'a> = Node<'a, OwnedRwLockReadGuard<()>>;
type Write<'a> = Node<'a, OwnedRwLockWriteGuard<()>>;

/// The locks of all nodes that somebody uses.
#[derive(Debug, Default)]
pub struct RwLockMap {
    locks: Locks,
}

/// A node that is waited for or held.
#[derive(Debug)]
struct Node<'a, Guard> {
    locks: &'a Locks,
    key: String,
    guard: Option<Guard>,
}

/// One resource, held. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct One<'a> {
    resource: Write<'a>,
    account: Read<'a>,
    user: Read<'a>,
}

/// Several resources, held. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct Many<'a> {
    resources: Vec<Write<'a>>,
    account: Read<'a>,
    user: Read<'a>,
}

impl RwLockMap {
    fn enter<Guard>(&self, key: String) -> (Arc<RwLock<()>>, Node<'_, Guard>) {
        let lock = self.locks.entry(key.clone()).or_default().clone();
        (lock, Node { locks: &self.locks, key, guard: None })
    }

    async fn read(&self, key: String) -> Read<'_> {
        let (lock, mut node) = self.enter(key);
        node.guard = Some(lock.read_owned().await);
        node
    }

    async fn write(&self, key: String) -> Write<'_> {
        let (lock, mut node) = self.enter(key);
        node.guard = Some(lock.write_owned().await);
        node
    }
}

impl<Guard> Drop for Node<'_, Guard> {
    fn drop(&mut self) {
        // The guard has a reference to the lock too.
        self.guard = None;
        self.locks.remove_if(&self.key, |_, lock| Arc::strong_count(lock) == 1);
    }
}

impl Contender for RwLockMap {
    const NAME: &'static str = "tokio RwLock map";
    const SHARES_ANCESTORS: bool = true;
    type One<'a> = One<'a>;
    type Many<'a> = Many<'a>;

    async fn new() -> Self {
        Self::default()
    }

    async fn acquire<'a>(&'a self, path: Path<'_>) -> One<'a> {
        let Path { user, account, resource } = path;
        let resource_key = keys::resource(user, account, resource);
        let account_key = keys::account(user, account);
        let user = self.read(user.to_owned()).await;
        let account = self.read(account_key).await;
        let resource = self.write(resource_key).await;
        One { resource, account, user }
    }

    async fn acquire_resources<'a>(
        &'a self,
        user: &str,
        account: &str,
        resources: &[String],
    ) -> Many<'a> {
        let ordered = keys::ordered(resources);
        let user_node = self.read(user.to_owned()).await;
        let account_node = self.read(keys::account(user, account)).await;
        let mut held = Vec::with_capacity(ordered.len());
        for resource in ordered {
            held.push(self.write(keys::resource(user, account, resource)).await);
        }
        Many { resources: held, account: account_node, user: user_node }
    }

    fn is_idle(&self) -> bool {
        self.locks.is_empty()
    }
}
