//! What a holder has in hand.

use crate::backend::{AnyHold, FencingHold, Hold};
use crate::{Error, Mode, Request, Result, SlotMode, Statistics, Target};
use std::collections::BTreeMap;

/// Locks that are held. Dropping it frees them.
///
/// A lock that depends on something outside the process can be lost, and is never taken again behind a guard's back:
/// await [`lost`](Self::lost) beside long work. `H` is what its backend keeps; by default that of any URL. Some guards can
/// do more: [`token`](Self::token), [`transaction`](Self::transaction).
#[derive(Debug)]
#[must_use = "dropping the guard frees the lock"]
pub struct Guard<H: Hold = AnyHold> {
    pub(crate) hold: H,
}

impl<H: Hold> Guard<H> {
    pub(crate) fn new(hold: H) -> Self {
        Self { hold }
    }

    /// Frees everything and, unlike dropping, waits until that is confirmed.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost): it was not held any more, or the server has not confirmed the release. What was done
    /// under the lock was done, but perhaps not under the lock alone.
    ///
    /// # Cancel safety
    /// Dropping the future frees as well.
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }

    /// Locks more nodes under this guard, exclusively.
    ///
    /// This can deadlock with others who hold those and wait for what this guard has. Ask for everything at once where
    /// you can: [`acquire_all`](crate::Hierlock::acquire_all) never deadlocks.
    ///
    /// # Errors
    /// [`is_deadlock`](Error::is_deadlock): release the guard, which keeps what it had, and begin again.
    ///
    /// # Cancel safety
    /// Dropping the future gives up; the guard keeps what it had.
    pub async fn extend(&mut self, targets: impl IntoIterator<Item = Target>) -> Result<()> {
        self.request_all(targets).acquire().await
    }

    /// Turns all targets of this guard exclusive.
    ///
    /// From [`Mode::Update`] it waits for readers and cannot deadlock with another such upgrade; from [`Mode::Shared`] two
    /// guards that upgrade wait for each other, and one of them fails.
    ///
    /// # Errors, and cancel safety
    /// As [`extend`](Self::extend).
    pub async fn upgrade(&mut self) -> Result<()> {
        let targets: Vec<Target> = self.targets().into_keys().collect();
        self.extend(targets).await
    }

    /// Begins a request for one more node: another mode, a deadline.
    pub fn request(&mut self, target: Target) -> Request<&mut Guard<H>> {
        self.request_all([target])
    }

    /// Begins a request for more nodes.
    pub fn request_all(
        &mut self,
        targets: impl IntoIterator<Item = Target>,
    ) -> Request<&mut Guard<H>> {
        Request::new(self, targets)
    }

    /// Returns what was asked for.
    pub fn targets(&self) -> BTreeMap<Target, Mode> {
        self.hold.targets()
    }

    /// Returns what was really taken, ancestors included: never weaker than asked, sometimes stronger.
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

    /// Returns the number of this guard in [`Hierlock::holders`](crate::Hierlock::holders).
    pub fn id(&self) -> u64 {
        self.hold.id()
    }

    /// Returns how often a server made the acquire begin again.
    pub fn statistics(&self) -> Statistics {
        self.hold.statistics()
    }

    /// Waits until the lock is lost, and returns why; for ever if it never is.
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

impl<H: FencingHold> Guard<H> {
    /// Returns a fencing token: greater than that of everyone who held the same node before. Send it along with every
    /// write, and let whoever stores it refuse a smaller one than it has seen: then a holder that has lost its lock
    /// without noticing can do no harm. Call it again after [`extend`](Self::extend).
    ///
    /// This is one round trip to MySQL or MariaDB, two to PostgreSQL and a write to its log.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
    /// # use hierlock::{Hierlock, Target};
    /// # let locks = Hierlock::connect("memory:").await?;
    /// let first = locks.acquire(Target::user("u1")?).await?;
    /// let token = first.token().await?;
    /// first.release().await?;
    /// let second = locks.acquire(Target::user("u1")?).await?;
    /// assert!(second.token().await? > token);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost), or a file beside the lock file that cannot be written.
    pub async fn token(&self) -> Result<u64> {
        self.hold.token().await
    }
}
