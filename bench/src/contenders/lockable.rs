//! The crate `lockable`: a pool of locks by key. All its locks are exclusive, so ancestors are too.

use super::{Contender, Path, keys};
use lockable::{LockPool, Lockable};

type Node<'a> = <LockPool<String> as Lockable<String, ()>>::Guard<'a>;

/// A pool with a lock for each node that somebody uses.
#[derive(Default)]
pub struct Pool(LockPool<String>);

/// One resource, held. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct One<'a> {
    resource: Node<'a>,
    account: Node<'a>,
    user: Node<'a>,
}

/// Several resources, held. The first field is released first.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub struct Many<'a> {
    resources: Vec<Node<'a>>,
    account: Node<'a>,
    user: Node<'a>,
}

impl Contender for Pool {
    const NAME: &'static str = "lockable";
    const SHARES_ANCESTORS: bool = false;
    type One<'a> = One<'a>;
    type Many<'a> = Many<'a>;

    async fn new() -> Self {
        Self::default()
    }

    async fn acquire<'a>(&'a self, path: Path<'_>) -> One<'a> {
        let Path { user, account, resource } = path;
        let resource_key = keys::resource(user, account, resource);
        let account_key = keys::account(user, account);
        let user = self.0.async_lock(user.to_owned()).await;
        let account = self.0.async_lock(account_key).await;
        let resource = self.0.async_lock(resource_key).await;
        One { resource, account, user }
    }

    async fn acquire_resources<'a>(
        &'a self,
        user: &str,
        account: &str,
        resources: &[String],
    ) -> Many<'a> {
        let ordered = keys::ordered(resources);
        let user_node = self.0.async_lock(user.to_owned()).await;
        let account_node = self.0.async_lock(keys::account(user, account)).await;
        let mut held = Vec::with_capacity(ordered.len());
        for resource in ordered {
            held.push(self.0.async_lock(keys::resource(user, account, resource)).await);
        }
        Many { resources: held, account: account_node, user: user_node }
    }

    fn is_idle(&self) -> bool {
        self.0.num_locked() == 0
    }
}
