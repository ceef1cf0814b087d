//! What every backend does: take a plan, and give it back. Which one it is, only this module and
//! the client know.

use crate::error::{LockError, Result};
use crate::file::{FileBackend, FileHold};
use crate::memory::{MemoryBackend, MemoryHold, Obstacle};
use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan};
use crate::snapshot::{Holder, Statistics};
use crate::sql::{SqlBackend, SqlHold};
use crate::target::Target;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long to wait for what is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as it takes.
    Forever,
    /// Until then; `asked` is when the wait began.
    Until { asked: Instant, deadline: Instant },
    /// Not at all; the error says what is in the way.
    Never,
    /// Not at all, and nobody asks what is in the way.
    Try,
}

impl Patience {
    /// From now on. A span too long for the clock is for ever.
    pub(crate) fn within(span: Duration) -> Self {
        let asked = Instant::now();
        match asked.checked_add(span) {
            Some(deadline) => Patience::Until { asked, deadline },
            None => Patience::Forever,
        }
    }

    pub(crate) fn waits(self) -> bool {
        matches!(self, Patience::Forever | Patience::Until { .. })
    }

    /// Has the deadline passed?
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Patience::Until { deadline, .. } if deadline <= Instant::now())
    }

    /// Comes back at the deadline, with how long the wait was; without one, never.
    pub(crate) async fn expired(self) -> Duration {
        match self {
            Patience::Until { asked, deadline } => {
                tokio::time::sleep_until(deadline).await;
                asked.elapsed()
            }
            Patience::Forever | Patience::Never | Patience::Try => std::future::pending().await,
        }
    }

    /// Runs a wait to its end or to the deadline: then, how long it had waited.
    ///
    /// # Cancel safety
    /// That of the wait. One that is over at the deadline has won.
    pub(crate) async fn limit<T>(self, wait: impl Future<Output = T>) -> Result<T, Duration> {
        match self {
            Patience::Until { asked, deadline } => {
                tokio::time::timeout_at(deadline, wait).await.map_err(|_| asked.elapsed())
            }
            Patience::Forever | Patience::Never | Patience::Try => Ok(wait.await),
        }
    }
}

/// What is asked of a backend.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) claims: SmallVec<[Claim; 1]>,
    pub(crate) patience: Patience,
    /// Shown in listings.
    pub(crate) name: Option<Arc<String>>,
}

/// A way to lock.
pub(crate) trait Backend {
    type Hold: Hold;

    /// The plan of an acquire, without touching anything.
    fn plan(&self, claims: SmallVec<[Claim; 1]>) -> Result<Plan>;

    /// Takes all that is demanded, or nothing.
    ///
    /// # Cancel safety
    /// Dropping the future gives up: what was taken is given back, at once or within milliseconds.
    async fn acquire(&self, demand: Demand) -> Result<Self::Hold>;

    /// Who holds what and who waits for whom, as far as this process can tell.
    fn holders(&self) -> Vec<Holder>;
}

/// What a backend keeps while locked; dropping it frees everything.
pub(crate) trait Hold {
    /// Takes more, or the same more strongly. After an error, or dropped before its end, it holds
    /// what it held before.
    async fn extend(&mut self, demand: Demand) -> Result<()>;

    /// Frees, and says if it could not.
    async fn release(self) -> Result<()>;

    /// What was asked for.
    fn claims(&self) -> BTreeMap<Target, Mode>;

    /// What is really taken.
    fn modes(&self) -> BTreeMap<Target, SlotMode>;

    /// Its name in a listing.
    fn id(&self) -> u64;

    /// What its acquire went through.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    /// A number greater than that of everyone who held the same before.
    async fn token(&self) -> Result<u64>;

    /// Comes back only when the lock is no longer there.
    async fn lost(&self) -> crate::Error;
}

/// Every backend there is.
#[derive(Debug)]
pub(crate) enum AnyBackend {
    Memory(MemoryBackend),
    File(FileBackend),
    Sql(SqlBackend),
}

/// Every hold there is.
#[derive(Debug)]
pub(crate) enum AnyHold {
    Memory(MemoryHold),
    File(Box<FileHold>),
    Sql(Box<SqlHold>),
}

impl AnyBackend {
    /// Waits until nothing that was given up is still held anywhere.
    pub(crate) async fn close(&self, limit: Duration) -> Result<()> {
        match self {
            // Whatever is dropped there is free at once.
            AnyBackend::Memory(_) | AnyBackend::File(_) => Ok(()),
            AnyBackend::Sql(backend) => backend.close(limit).await,
        }
    }
}

impl Backend for AnyBackend {
    type Hold = AnyHold;

    fn plan(&self, claims: SmallVec<[Claim; 1]>) -> Result<Plan> {
        match self {
            AnyBackend::Memory(backend) => backend.plan(claims),
            AnyBackend::File(backend) => backend.plan(claims),
            AnyBackend::Sql(backend) => backend.plan(claims),
        }
    }

    #[inline]
    async fn acquire(&self, demand: Demand) -> Result<AnyHold> {
        match self {
            AnyBackend::Memory(backend) => backend.acquire(demand).await.map(AnyHold::Memory),
            AnyBackend::File(backend) => {
                backend.acquire(demand).await.map(|hold| AnyHold::File(Box::new(hold)))
            }
            // Boxed, so that the future of an acquire in memory stays small.
            AnyBackend::Sql(backend) => {
                Box::pin(backend.acquire(demand)).await.map(|hold| AnyHold::Sql(Box::new(hold)))
            }
        }
    }

    fn holders(&self) -> Vec<Holder> {
        match self {
            AnyBackend::Memory(backend) => backend.holders(),
            AnyBackend::File(backend) => backend.holders(),
            AnyBackend::Sql(backend) => backend.holders(),
        }
    }
}

impl Hold for AnyHold {
    async fn extend(&mut self, demand: Demand) -> Result<()> {
        match self {
            AnyHold::Memory(hold) => Hold::extend(hold, demand).await,
            AnyHold::File(hold) => hold.extend(demand).await,
            AnyHold::Sql(hold) => hold.extend(demand).await,
        }
    }

    async fn release(self) -> Result<()> {
        match self {
            AnyHold::Memory(hold) => hold.release().await,
            AnyHold::File(hold) => hold.release().await,
            AnyHold::Sql(hold) => hold.release().await,
        }
    }

    fn claims(&self) -> BTreeMap<Target, Mode> {
        match self {
            AnyHold::Memory(hold) => hold.claims(),
            AnyHold::File(hold) => hold.claims(),
            AnyHold::Sql(hold) => hold.claims(),
        }
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        match self {
            AnyHold::Memory(hold) => hold.modes(),
            AnyHold::File(hold) => hold.modes(),
            AnyHold::Sql(hold) => hold.modes(),
        }
    }

    fn id(&self) -> u64 {
        match self {
            AnyHold::Memory(hold) => hold.id(),
            AnyHold::File(hold) => hold.id(),
            AnyHold::Sql(hold) => hold.id(),
        }
    }

    fn statistics(&self) -> Statistics {
        match self {
            AnyHold::Memory(hold) => hold.statistics(),
            AnyHold::File(hold) => hold.statistics(),
            AnyHold::Sql(hold) => hold.statistics(),
        }
    }

    async fn token(&self) -> Result<u64> {
        match self {
            AnyHold::Memory(hold) => Hold::token(hold).await,
            AnyHold::File(hold) => hold.token().await,
            AnyHold::Sql(hold) => hold.token().await,
        }
    }

    async fn lost(&self) -> crate::Error {
        match self {
            AnyHold::Memory(hold) => hold.lost().await,
            AnyHold::File(hold) => hold.lost().await,
            AnyHold::Sql(hold) => hold.lost().await,
        }
    }
}

impl Obstacle {
    pub(crate) fn would_block(self) -> crate::Error {
        let Self { node: blocked_on, wanted, blocker } = self;
        LockError::WouldBlock { blocked_on, wanted, blocker }.into()
    }

    pub(crate) fn timeout(self, waited: Duration) -> crate::Error {
        let Self { node: blocked_on, wanted, blocker } = self;
        LockError::Timeout { blocked_on, wanted, blocker, waited }.into()
    }

    pub(crate) fn deadlock(self) -> crate::Error {
        LockError::Deadlock { blocked_on: self.node, wanted: self.wanted }.into()
    }
}
