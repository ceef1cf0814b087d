//! The crate `lockable`: a pool of locks by key. All its locks are exclusive, also those of ancestors.

use super::{Contender, Path, keys};
use lockable::{LockPool, Lockable};

type Node<'a> = <LockPool<String> as Lockable<String, ()>>::Guard<'a>;

/// A pool with a lock for each node in use.
#[derive(Default)]
pub struct Pool(LockPool<String>);

/// The guard of one resource. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct OneGuard<'a> {
    resource: Node<'a>,
    account: Node<'a>,
    user: Node<'a>,
}

/// The guard of several resources. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct ManyGuard<'a> {
    resources: Vec<Node<'a>>,
    account: Node<'a>,
    user: Node<'a>,
}

impl Contender for Pool {
    const NAME: &'static str = "lockable";
    const SHARES_ANCESTORS: bool = false;
    type OneGuard<'a> = OneGuard<'a>;
    type ManyGuard<'a> = ManyGuard<'a>;

    async fn new() -> Self {
        Self::default()
    }

    async fn acquire<'a>(&'a self, path: Path<'_>) -> OneGuard<'a> {
        let Path { user, account, resource } = path;
        let resource_key = keys::resource(user, account, resource);
        let account_key = keys::account(user, account);
        let user = self.0.async_lock(user.to_owned()).await;
        let account = self.0.async_lock(account_key).await;
        let resource = self.0.async_lock(resource_key).await;
        OneGuard { resource, account, user }
    }

    async fn acquire_resources<'a>(
        &'a self,
        user: &str,
        account: &str,
        resources: &[String],
    ) -> ManyGuard<'a> {
        let sorted = keys::sorted(resources);
        let user_node = self.0.async_lock(user.to_owned()).await;
        let account_node = self.0.async_lock(keys::account(user, account)).await;
        let mut held = Vec::with_capacity(sorted.len());
        for resource in sorted {
            held.push(self.0.async_lock(keys::resource(user, account, resource)).await);
        }
        ManyGuard { resources: held, account: account_node, user: user_node }
    }

    fn is_idle(&self) -> bool {
        self.0.num_locked() == 0
    }
}
