//! What a holder has in hand.

use crate::backend::{AnyHold, FencingHold, Hold};
#[cfg(feature = "_server")]
use crate::backend::{SqlHold, TransactionHold};
use crate::error::{Error, Result};
use crate::mode::{Mode, SlotMode};
use crate::request::Request;
use crate::snapshot::Statistics;
#[cfg(feature = "_server")]
use crate::sql;
use crate::target::Target;
use std::collections::BTreeMap;

/// Locks that are held. Dropping it frees them.
///
/// A guard is **not** a proof for ever: a lock that stands on something outside the process can be
/// lost. Await [`lost`](Self::lost) beside long work. Nothing ever takes a lost lock again behind a
/// guard's back.
///
/// `H` is what its backend keeps; that of a client which was opened with a URL is the default. What a guard can do besides
/// depends on it: [`token`](Self::token), [`transaction`](Self::transaction).
#[derive(Debug)]
#[must_use = "dropping the guard frees the lock"]
pub struct Guard<H: Hold = AnyHold> {
    pub(crate) hold: H,
}

#[cfg(feature = "_server")]
impl From<Guard<SqlHold>> for Guard {
    fn from(guard: Guard<SqlHold>) -> Self {
        Guard::new(guard.hold.into())
    }
}

impl<H: Hold> Guard<H> {
    pub(crate) fn new(hold: H) -> Self {
        Self { hold }
    }

    /// Frees everything; unlike dropping, says if that could not be confirmed.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost): it was not held any more, or nobody can tell, because the server has not
    /// confirmed the release. What was done under the lock was done, but perhaps not under the lock alone.
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

    /// What was asked for.
    pub fn targets(&self) -> BTreeMap<Target, Mode> {
        self.hold.targets()
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

/// Where the backend counts: see [`backend`](crate::backend).
impl<H: FencingHold> Guard<H> {
    /// A fencing token: greater than that of everyone who held the same node before, on the same server
    /// (or in the same process, or on the same host). Send it along with every write, and let whoever
    /// stores it refuse a smaller one than it has seen: then a holder that has lost its lock without
    /// noticing can do no harm.
    ///
    /// Asking MySQL or MariaDB is one round trip, asking PostgreSQL two and a write to its log. Asked again, it may be
    /// greater; it is never smaller. Ask again after [`extend`](Self::extend).
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

/// Where the backend is a database, and its client was opened as one
/// ([`connect_sql`](crate::Hierlock::connect_sql), [`beside`](crate::Hierlock::beside)).
#[cfg(feature = "_server")]
impl<H: TransactionHold> Guard<H> {
    /// Lends the transaction that holds the locks, for the work to be done under them: then lock and
    /// data live and die together, and the work needs no second connection. `C` is
    /// [`sqlx::MySqlConnection`] (also for MariaDB) or [`sqlx::PgConnection`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use hierlock::{Hierlock, Target};
    /// use sqlx::PgConnection;
    ///
    /// let locks = Hierlock::connect_sql("postgres://me@localhost/app").await?;
    /// let mut guard = locks.acquire(Target::account("u1", "a1")?).await?;
    /// let mut work = guard.transaction::<PgConnection>().await?;
    /// sqlx::query("UPDATE accounts SET balance = balance - 10 WHERE id = 'a1'")
    ///     .execute(&mut *work)
    ///     .await?;
    /// drop(work);
    /// guard.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// Meanwhile [`lost`](Self::lost) cannot notice anything: the statements of the work do. If the work
    /// ends the transaction itself, the lock is lost.
    ///
    /// # Errors
    /// The connection of another database, a lock with `scope=session`, which has no transaction of its own, or
    /// [`is_lost`](Error::is_lost).
    pub async fn transaction<C: sql::Connection>(&mut self) -> Result<sql::Work<'_, C>> {
        self.hold.transaction().await
    }

    /// Commits what was done in the lock's own transaction, and frees the lock with it. Releasing or
    /// dropping the guard instead undoes the work.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction); also work that failed (then nothing is committed), and a
    /// connection that ends during COMMIT (then it is not known).
    ///
    /// # Cancel safety
    /// Once begun, it commits whether the future is dropped or not.
    pub async fn commit(self) -> Result<()> {
        self.hold.commit().await
    }
}
