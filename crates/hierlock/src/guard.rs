//! The guard of held locks.

use crate::backend::{AnyHold, FencingHold, Hold};
use crate::{Error, Mode, Request, Result, SlotMode, Statistics, Target};
use std::collections::BTreeMap;

/// Locks that are held. Dropping the guard releases them.
///
/// A lock that depends on something outside the process can be lost, and is never reacquired under the same guard: await
/// [`lost`](Self::lost) beside long work. `H` is the hold of the backend; by default that of any URL. Some guards have
/// more methods: [`token`](Self::token), [`transaction`](Self::transaction).
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct Guard<H: Hold = AnyHold> {
    pub(crate) hold: H,
}

impl<H: Hold> Guard<H> {
    /// Releases all locks and, unlike dropping, waits until the server confirms it.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost): the locks were not held any more, or the server has not confirmed the release. The
    /// work that was done is done, but another client may have held the lock meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future releases the locks as well.
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }

    /// Locks more nodes under this guard, exclusively.
    ///
    /// This can deadlock with others that hold those nodes and wait for a node of this guard. Request all nodes at once
    /// where possible: [`acquire_all`](crate::Hierlock::acquire_all) never deadlocks.
    ///
    /// # Errors
    /// [`is_deadlock`](Error::is_deadlock): release the guard, which still holds what it held before, and begin again.
    ///
    /// # Cancel safety
    /// Dropping the future gives up; the guard holds what it held before.
    pub async fn extend(&mut self, targets: impl IntoIterator<Item = Target>) -> Result<()> {
        self.request_all(targets).acquire().await
    }

    /// Changes the mode of all targets of this guard to exclusive.
    ///
    /// From [`Mode::Update`] the upgrade waits for readers and cannot deadlock with another such upgrade. From
    /// [`Mode::Shared`] two guards that upgrade wait for each other, and one of them fails.
    ///
    /// # Errors, and cancel safety
    /// As [`extend`](Self::extend).
    pub async fn upgrade(&mut self) -> Result<()> {
        let targets: Vec<Target> = self.targets().into_keys().collect();
        self.extend(targets).await
    }

    /// Returns a request for one more node, to which a mode and a deadline can be added.
    pub fn request(&mut self, target: Target) -> Request<&mut Guard<H>> {
        self.request_all([target])
    }

    /// Returns a request for more nodes.
    pub fn request_all(
        &mut self,
        targets: impl IntoIterator<Item = Target>,
    ) -> Request<&mut Guard<H>> {
        Request::new(self, targets)
    }

    getters! { self:
        /// Returns the requested targets and modes.
        targets -> BTreeMap<Target, Mode> = self.hold.targets();
        /// Returns the nodes and modes that are really locked, ancestors included: never weaker than requested, sometimes
        /// stronger.
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
        modes -> BTreeMap<Target, SlotMode> = self.hold.modes();
        /// Returns the id of this guard in [`Hierlock::holders`](crate::Hierlock::holders).
        id -> u64 = self.hold.id();
        /// Returns how often the acquire had to start again.
        statistics -> Statistics = self.hold.statistics();
    }

    /// Waits until the lock is lost, and returns the reason. Waits for ever if the lock is never lost.
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
    /// Returns a fencing token, which is greater than the tokens of all earlier holders of the same node. Send it with
    /// every write, and let the storage refuse a token that is smaller than the last one: then a holder that has lost its
    /// lock without noticing can do no harm. Call it again after [`extend`](Self::extend).
    ///
    /// The cost is one round trip to MySQL or MariaDB, or two to PostgreSQL and a write to its WAL.
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
