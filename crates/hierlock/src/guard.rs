//! What a holder has in hand.

use crate::backend::{AnyHold, Hold};
use crate::error::{Error, Result};
use crate::mode::{Mode, SlotMode};
use crate::request::Request;
use crate::snapshot::Statistics;
use crate::target::Target;
use std::collections::BTreeMap;

/// Locks that are held. Dropping it frees them.
///
/// A guard is **not** a proof for ever: a lock that stands on something outside the process can be
/// lost. Await [`lost`](Self::lost) beside long work. Nothing ever takes a lost lock again behind a
/// guard's back.
#[derive(Debug)]
#[must_use = "dropping the guard frees the lock"]
pub struct Guard {
    pub(crate) hold: AnyHold,
}

impl Guard {
    pub(crate) fn new(hold: AnyHold) -> Self {
        Self { hold }
    }

    /// Frees everything; unlike dropping, says if that could not be confirmed.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost): it had been freed before, by someone else.
    ///
    /// # Cancel safety
    /// Dropping the future frees as well.
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }

    /// Locks more nodes under this guard, exclusively.
    ///
    /// Others may hold those and wait for what this guard has: then waiting would be for ever. So
    /// ask for everything at once where you can ([`acquire_all`](crate::Hierlock::acquire_all) never
    /// deadlocks).
    ///
    /// # Errors
    /// [`is_deadlock`](Error::is_deadlock). The guard keeps what it had; release it and begin again.
    ///
    /// # Cancel safety
    /// Dropping the future gives up; the guard keeps what it had.
    pub async fn extend(&mut self, targets: impl IntoIterator<Item = Target>) -> Result<()> {
        self.request_all(targets).acquire().await
    }

    /// Turns all targets of this guard exclusive.
    ///
    /// From [`Mode::Update`] it waits for readers and cannot deadlock with another such upgrade;
    /// from [`Mode::Shared`] two guards that upgrade wait for each other, and one of them fails.
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    ///
    /// # Cancel safety
    /// As [`extend`](Self::extend).
    pub async fn upgrade(&mut self) -> Result<()> {
        let targets: Vec<Target> = self.targets().into_keys().collect();
        self.extend(targets).await
    }

    /// Begins a request for one more node: another mode, a deadline.
    pub fn request(&mut self, target: Target) -> Request<&mut Guard> {
        self.request_all([target])
    }

    /// Begins a request for more nodes.
    pub fn request_all(
        &mut self,
        targets: impl IntoIterator<Item = Target>,
    ) -> Request<&mut Guard> {
        Request::new(self, targets)
    }

    /// What was asked for.
    pub fn targets(&self) -> BTreeMap<Target, Mode> {
        self.hold.claims()
    }

    /// What was really taken, ancestors included: never weaker than asked, sometimes stronger.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Hierlock, SlotMode, Target};
    /// # let locks = Hierlock::connect("memory:").await?;
    /// let guard = locks.acquire(Target::account("u1", "a1")?).await?;
    /// assert_eq!(guard.modes()[&Target::user("u1")?], SlotMode::IntentExclusive);
    /// assert_eq!(guard.modes()[&Target::account("u1", "a1")?], SlotMode::Exclusive);
    /// # Ok(()) }
    /// ```
    pub fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.hold.modes()
    }

    /// Names this guard in [`Hierlock::holders`](crate::Hierlock::holders).
    pub fn id(&self) -> u64 {
        self.hold.id()
    }

    /// What the acquire went through: how often a server made it begin again.
    pub fn statistics(&self) -> Statistics {
        self.hold.statistics()
    }

    /// Comes back when the lock is no longer there, and says why; otherwise never.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Hierlock, Target};
    /// # let locks = Hierlock::connect("memory:").await?;
    /// # async fn work() -> u32 { 7 }
    /// let guard = locks.acquire(Target::user("u1")?).await?;
    /// let result = tokio::select! {
    ///     done = work() => done,
    ///     error = guard.lost() => return Err(error),
    /// };
    /// # assert_eq!(result, 7); Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) -> Error {
        self.hold.lost().await
    }
}
