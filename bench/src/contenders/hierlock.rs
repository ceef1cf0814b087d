//! hierlock with `memory:`.

use super::{Contender, Path};
use hierlock::{Guard, Hierlock, Target};

/// A client of `memory:` with a lock manager of its own.
#[derive(Debug)]
pub struct Memory(Hierlock);

impl Contender for Memory {
    const NAME: &'static str = "hierlock";
    const SHARES_ANCESTORS: bool = true;
    type OneGuard<'a> = Guard;
    type ManyGuard<'a> = Guard;

    async fn new() -> Self {
        Self(Hierlock::connect("memory:").await.expect("connecting to memory: cannot fail"))
    }

    async fn acquire(&self, path: Path<'_>) -> Guard {
        let Path { user, account, resource } = path;
        let target = Target::resource(user, account, resource).expect("the IDs are short");
        self.0.acquire(target).await.expect("an acquire without a deadline only waits")
    }

    async fn acquire_resources(&self, user: &str, account: &str, resources: &[String]) -> Guard {
        let account = Target::account(user, account).expect("the IDs are short");
        let guard = self.0.acquire_children(&account, resources).await;
        guard.expect("an acquire without a deadline only waits")
    }

    fn is_idle(&self) -> bool {
        self.0.holders().is_empty()
    }
}
