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

/// A lease that is renewed every third of its time. **Dropping it releases the lease**, in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// # use hierlock::{Target, database::Database, lease::{LeaseRequest, Leases}};
/// # let directory = tempfile::tempdir().unwrap();
/// # let url = format!("sqlite:{}", directory.path().join("app.db").display());
/// # let leases = Leases::new(Database::connect(&url).await?);
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
#[must_use = "dropping it releases the lease"]
pub struct LeaseGuard {
    /// Not there any more only while it is being dropped.
    lease: Option<Lease>,
    renewal: watch::Receiver<Renewal>,
    task: AbortHandle,
    runtime: Handle,
}

/// What the task has found last.
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

    /// Returns the lease as it was when `keep` was called; [`check_in`](Lease::check_in) can be called on it.
    pub fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("it is there until it is dropped")
    }

    /// Until when it is held if nobody renews it any more, by the database's clock.
    pub fn expires_at(&self) -> SystemTime {
        self.renewal.borrow().expires
    }

    /// Waits until the lease is lost, and returns why: somebody has ended it, or it could not be renewed in time by our
    /// own clock (one that only goes forward).
    ///
    /// # Cancel safety
    /// Dropped, it changes nothing.
    pub async fn lost(&self) -> Error {
        let mut renewal = self.renewal.clone();
        let lost = renewal.wait_for(|renewal| renewal.loss.is_some()).await;
        let no_runtime = || LeaseLoss::NotRenewed { why: "its runtime has ended".to_owned() };
        let cause = lost.ok().and_then(|renewal| renewal.loss.clone()).unwrap_or_else(no_runtime);
        loss::lost(self.lease().token(), Some(self.lease().info()), cause)
    }

    /// Stops renewing, also if it fails, and releases it: `false` if it was not held any more.
    ///
    /// # Cancel safety
    /// Dropped, it is released all the same.
    pub async fn release(self) -> Result<bool> {
        self.leave().release().await
    }

    /// Stops renewing; the lease stays until it is released or expires.
    pub fn leave(mut self) -> Lease {
        let mut lease = self.lease.take().expect("it is there until it is dropped");
        let renewal = self.renewal.borrow();
        (lease.info.expires, lease.held_until) = (renewal.expires, renewal.held_until);
        // What is left of the guard is dropped, and the task ends.
        lease
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        self.task.abort();
        if let Some(lease) = self.lease.take() {
            let tasks = lease.leases.database().tasks().clone();
            tasks.spawn(&self.runtime, async move { drop(lease.release().await) });
        }
    }
}

async fn keep_renewing(mut lease: Lease, renewal: watch::Sender<Renewal>) {
    loop {
        // One that was resumed may have less left than that.
        let due = lease.held_until.checked_sub(lease.ttl * 2 / 3).unwrap_or_else(Instant::now);
        sleep_until(due).await;
        if let Err(loss) = renew(&mut lease).await {
            renewal.send_modify(|renewal| renewal.loss = Some(loss));
            return;
        }
        renewal.send_replace(Renewal::of(&lease));
    }
}

/// Renews it, trying until its time is over.
async fn renew(lease: &mut Lease) -> Result<(), LeaseLoss> {
    let (held_until, pause) = (lease.held_until, (lease.ttl / 30).min(Duration::from_secs(1)));
    let mut why = String::new();
    let mut asked = Instant::now();
    while asked < held_until {
        let answers_by = held_until.min(asked + heartbeat_limit(lease.ttl));
        match timeout_at(answers_by, lease.renew()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => match error.lost_lease() {
                Some(loss) => return Err(loss.clone()),
                None => why = error.to_string(),
            },
            Err(_) => why = "the database did not answer".to_owned(),
        }
        tracing::warn!(token = lease.token(), why, "cannot renew a lease; trying again");
        sleep_until((Instant::now() + pause).min(held_until)).await;
        asked = Instant::now();
    }
    Err(LeaseLoss::NotRenewed { why })
}
