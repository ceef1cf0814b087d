//! A lease that a task renews.

use super::Lease;
use super::loss::{self, LeaseLoss};
use crate::database::heartbeat_limit;
use crate::error::{Error, Result};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// A lease that a task renews after each third of its ttl. **Dropping the guard releases the lease**, in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// # use hierlock::{Target, database::Database, lease::{LeaseRequest, Leases}};
/// # let leases = Leases::new(Database::connect("sqlite::memory:").await?);
/// # leases.provision().await?;
/// # async fn long_work() {}
/// let guard = leases.acquire(LeaseRequest::new(Target::user("u1")?, "nightly")).await?.keep();
/// tokio::select! {
///     () = long_work() => {}
///     lost = guard.lost() => return Err(lost),
/// }
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard releases the lease"]
pub struct LeaseGuard {
    /// None only while the guard is being dropped.
    lease: Option<Lease>,
    renewal: watch::Receiver<Renewal>,
    task: AbortHandle,
    runtime: Handle,
}

/// The result of the task's last renewal.
#[derive(Clone, Debug)]
struct Renewal {
    expires: SystemTime,
    held_until: Instant,
    loss: Option<LeaseLoss>,
}

impl Renewal {
    fn of(lease: &Lease) -> Self {
        Self { expires: lease.info.expires, held_until: lease.held_until, loss: None }
    }
}

impl LeaseGuard {
    pub(super) fn new(lease: Lease) -> Self {
        let runtime = Handle::current();
        let (sender, renewal) = watch::channel(Renewal::of(&lease));
        let (leases, info) = (lease.leases.clone(), lease.info.clone());
        let renewed = Lease { leases, info, ..lease };
        let task = runtime.spawn(keep_renewing(renewed, sender)).abort_handle();
        Self { lease: Some(lease), renewal, task, runtime }
    }

    getters! { self:
        /// Returns the lease as it was when `keep` was called; [`check_in`](Lease::check_in) can be called on it.
        lease -> &Lease = self.lease.as_ref().expect("the lease is set until the guard is dropped");
        /// Returns the end of the lease by the database's clock, if it is not renewed again.
        expires_at -> SystemTime = self.renewal.borrow().expires;
    }

    /// Waits until the lease is lost, and returns the reason: a release, for example a forced one, or no renewal in time by
    /// the local monotonic clock.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn lost(&self) -> Error {
        let mut renewal = self.renewal.clone();
        let lost = renewal.wait_for(|renewal| renewal.loss.is_some()).await;
        let no_runtime = || LeaseLoss::NotRenewed { why: "its runtime has ended".to_owned() };
        let cause = lost.ok().and_then(|renewal| renewal.loss.clone()).unwrap_or_else(no_runtime);
        loss::lost(self.lease().token(), Some(self.lease().info()), cause)
    }

    /// Stops the renewal and releases the lease. Returns `false` if it was not held any more. The renewal stops even if the
    /// release fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lease is released all the same.
    pub async fn release(self) -> Result<bool> {
        self.leave().release().await
    }

    /// Stops the renewal. The lease is held until it is released or expires.
    pub fn leave(mut self) -> Lease {
        let mut lease = self.lease.take().expect("the lease is set until the guard is dropped");
        let renewal = self.renewal.borrow();
        (lease.info.expires, lease.held_until) = (renewal.expires, renewal.held_until);
        // Dropping the guard without its lease only ends the task.
        lease
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(lease) = self.lease.take() {
            let tasks = lease.leases.database.tasks.clone();
            tasks.spawn_on(async move { drop(lease.release().await) }, &self.runtime);
        }
    }
}

async fn keep_renewing(mut lease: Lease, renewal: watch::Sender<Renewal>) {
    loop {
        // A resumed lease may have less than two thirds of its ttl left.
        let due = lease.held_until.checked_sub(lease.ttl * 2 / 3).unwrap_or_else(Instant::now);
        sleep_until(due).await;
        if let Err(loss) = renew(&mut lease).await {
            renewal.send_modify(|renewal| renewal.loss = Some(loss));
            return;
        }
        renewal.send_replace(Renewal::of(&lease));
    }
}

/// Renews a lease, and retries until it expires.
async fn renew(lease: &mut Lease) -> Result<(), LeaseLoss> {
    let (held_until, pause) = (lease.held_until, (lease.ttl / 30).min(Duration::from_secs(1)));
    let mut why = String::new();
    let mut attempted_at = Instant::now();
    while attempted_at < held_until {
        let deadline = held_until.min(attempted_at + heartbeat_limit(lease.ttl));
        match timeout_at(deadline, lease.renew()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => match error.lost_lease() {
                Some(loss) => return Err(loss.clone()),
                None => why = error.to_string(),
            },
            Err(_) => why = "the database did not answer".to_owned(),
        }
        tracing::warn!(token = lease.token(), why, "cannot renew a lease; trying again");
        sleep_until((Instant::now() + pause).min(held_until)).await;
        attempted_at = Instant::now();
    }
    Err(LeaseLoss::NotRenewed { why })
}
