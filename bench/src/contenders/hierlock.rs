//! hierlock with `memory:`.

use super::{Contender, Path};
use hierlock::{Guard, Hierlock, Target};

/// A lock manager of its own.
#[derive(Debug)]
pub struct Memory(Hierlock);

impl Contender for Memory {
    const NAME: &'static str = "hierlock";
    const SHARES_ANCESTORS: bool = true;
    type One<'a> = Guard;
    type Many<'a> = Guard;

    async fn new() -> Self {
        Self(Hierlock::connect("memory:").await.expect("memory: needs nothing that could fail"))
    }

    async fn acquire(&self, path: Path<'_>) -> Guard {
        let Path { user, account, resource } = path;
        let target = Target::resource(user, account, resource).expect("IDs here are short");
        self.0.acquire(target).await.expect("a plain acquire only waits")
    }

    async fn acquire_resources(&self, user: &str, account: &str, resources: &[String]) -> Guard {
        let account = Target::account(user, account).expect("IDs here are short");
        let guard = self.0.acquire_children(&account, resources).await;
        guard.expect("a plain acquire only waits")
    }

    fn is_idle(&self) -> bool {
        self.0.holders().is_empty()
    }
}
