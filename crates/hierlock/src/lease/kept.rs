//! A lease that a task renews.

use super::error::LostLease;
use super::lost::Known;
use super::{Lease, LeaseInfo, Leases};
use crate::database::heartbeat_within;
use crate::error::{Error, Result};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

/// A lease that is renewed every third of its time. **Dropping it stops that and releases the lease**, in
/// the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> hierlock::Result<()> {
/// # use hierlock::{Target, database::Database, lease::{LeaseRequest, Leases}};
/// # let directory = tempfile::tempdir().unwrap();
/// # let file = directory.path().join("app.db");
/// # let database = Database::connect(&format!("sqlite:{}", file.display())).await?;
/// # let leases = Leases::new(database.clone());
/// # leases.provision().await?;
/// # async fn long_work() {}
/// let kept = leases.acquire(LeaseRequest::new(Target::user("u1")?, "nightly")).await?.keep();
/// tokio::select! {
///     () = long_work() => {}
///     lost = kept.lost() => return Err(lost),
/// }
/// kept.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping it releases the lease"]
pub struct KeptLease {
    /// Not there any more only while it is being dropped.
    lease: Option<Lease>,
    pulse: watch::Receiver<Pulse>,
    heartbeat: AbortHandle,
    runtime: Handle,
}

/// What the task has found last.
#[derive(Clone, Debug)]
struct Pulse {
    expires: SystemTime,
    held_until: Instant,
    lost: Option<LostLease>,
}

impl KeptLease {
    pub(super) fn new(lease: Lease) -> Self {
        let runtime = Handle::current();
        let (expires, held_until) = (lease.expires_at(), lease.held_until);
        let (sender, pulse) = watch::channel(Pulse { expires, held_until, lost: None });
        let heart =
            Heart { leases: lease.leases.clone(), info: lease.info.clone(), ttl: lease.ttl() };
        let heartbeat = runtime.spawn(heart.beat(sender)).abort_handle();
        Self { lease: Some(lease), pulse, heartbeat, runtime }
    }

    /// The lease as it was when it was kept; [`check_in`](Lease::check_in) can be called on it.
    pub fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("it is there until it is dropped")
    }

    /// Until when it is held if nobody renews it any more, by the database's clock.
    pub fn expires_at(&self) -> SystemTime {
        self.pulse.borrow().expires
    }

    /// Comes back when the lease is lost, and says why: somebody has ended it, or it could not be renewed
    /// before its time was over by our own clock (one that only goes forward).
    ///
    /// # Cancel safety
    /// Dropped, it changes nothing.
    pub async fn lost(&self) -> Error {
        let mut pulse = self.pulse.clone();
        let lost = pulse.wait_for(|pulse| pulse.lost.is_some()).await;
        let ended = || LostLease::NotRenewed { why: "its runtime has ended".to_owned() };
        let cause = lost.ok().and_then(|pulse| pulse.lost.clone()).unwrap_or_else(ended);
        Known::Info(self.lease().info.clone()).lost(cause)
    }

    /// Stops renewing and releases it: `false` if it was not held any more.
    ///
    /// # Errors
    /// What the database says. It is no longer renewed then either.
    ///
    /// # Cancel safety
    /// Dropped, it is released all the same.
    pub async fn release(self) -> Result<bool> {
        self.leave().release().await
    }

    /// Stops renewing; the lease stays until it is released or expires.
    pub fn leave(mut self) -> Lease {
        let mut lease = self.lease.take().expect("it is there until it is dropped");
        let pulse = self.pulse.borrow();
        (lease.info.expires, lease.held_until) = (pulse.expires, pulse.held_until);
        // What is left of the guard is dropped, and the heartbeat stops.
        lease
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        self.heartbeat.abort();
        if let Some(lease) = self.lease.take() {
            let tasks = lease.leases.database().tasks().clone();
            tasks.spawn(&self.runtime, async move { drop(lease.release().await) });
        }
    }
}

/// What the task needs.
struct Heart {
    leases: Leases,
    info: LeaseInfo,
    ttl: Duration,
}

impl Heart {
    async fn beat(mut self, pulse: watch::Sender<Pulse>) {
        loop {
            let Pulse { held_until, .. } = *pulse.borrow();
            // One that was resumed may have less left than that.
            let due = held_until.checked_sub(self.ttl * 2 / 3).unwrap_or_else(Instant::now);
            sleep_until(due).await;
            match self.renew(held_until).await {
                Ok((expires, held_until)) => {
                    self.info.expires = expires;
                    pulse.send_replace(Pulse { expires, held_until, lost: None });
                }
                Err(lost) => {
                    pulse.send_modify(|pulse| pulse.lost = Some(lost));
                    return;
                }
            }
        }
    }

    /// Renews it, trying until its time is over.
    async fn renew(&self, held_until: Instant) -> Result<(SystemTime, Instant), LostLease> {
        let pause = (self.ttl / 30).min(Duration::from_secs(1));
        let mut why = String::new();
        let mut asked = Instant::now();
        while asked < held_until {
            let answers_by = held_until.min(asked + heartbeat_within(self.ttl));
            match timeout_at(answers_by, self.leases.renew_row(&self.info)).await {
                Ok(Ok(expires)) => return Ok((expires, asked + self.ttl)),
                Ok(Err(error)) => match error.lost_lease() {
                    Some(lost) => return Err(lost.clone()),
                    None => why = error.to_string(),
                },
                Err(_) => why = "the database did not answer".to_owned(),
            }
            tracing::warn!(token = self.info.token, why, "cannot renew a lease; trying again");
            sleep_until((Instant::now() + pause).min(held_until)).await;
            asked = Instant::now();
        }
        Err(LostLease::NotRenewed { why })
    }
}
