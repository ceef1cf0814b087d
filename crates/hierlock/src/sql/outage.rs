//! A server that is gone for a while, as an acquire sees it that waits and holds nothing yet: it has nothing to lose, so
//! it connects again and begins anew. Its old session is ended on the server meanwhile (`abandoned`), so that it
//! does not wait for itself. Only holders are lost.

use super::acquirer::AcquireError;
use super::failure::LockFailure;
use super::pool::LockPool;
use crate::backend::WaitLimit;
use crate::handover::Interest;
use crate::retry::random;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The pause before the next try, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The tries of one acquire since the server went away.
pub(super) struct Outage {
    wait_limit: WaitLimit,
    /// How long a server may be away, for whoever has no deadline. Nothing: it is not waited for.
    limit: Duration,
    /// A try that has lasted longer than this had found its server.
    found_after: Duration,
    since: Option<Instant>,
    pause: Duration,
}

impl Outage {
    pub(super) fn new(pool: &LockPool, wait_limit: WaitLimit) -> Self {
        let settings = &pool.settings;
        let found_after = 2 * settings.answer_limit;
        Self { wait_limit, limit: settings.reconnect, found_after, since: None, pause: FIRST_PAUSE }
    }

    /// Is there to be another try, after one that began then and failed with this?
    pub(super) fn is_to_be_waited_out(&mut self, why: &AcquireError, begun: Instant) -> bool {
        if !self.wait_limit.waits() || self.limit.is_zero() || !is_connection_lost(why) {
            return false;
        }
        if begun.elapsed() > self.found_after {
            (self.since, self.pause) = (None, FIRST_PAUSE);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        match self.wait_limit {
            WaitLimit::Until { .. } => !self.wait_limit.is_over(),
            WaitLimit::Forever | WaitLimit::Never | WaitLimit::Try => since.elapsed() < self.limit,
        }
    }

    /// Waits before the next try, not beyond the deadline. False if nobody is interested any more.
    pub(super) async fn pause(&mut self, interest: &mut Interest) -> bool {
        // Not all at the same moment: many may have waited on that server.
        let pause = self.pause.mul_f64(0.5 + random() / 2.0);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        tokio::select! {
            () = interest.lost() => false,
            _ = self.wait_limit.limit(sleep(pause)) => true,
        }
    }
}

/// Has the connection ended, or was there none to be had? A server that answers and refuses is there.
fn is_connection_lost(why: &AcquireError) -> bool {
    let error = match why {
        AcquireError::ConnectionLost(error) => Some(error),
        AcquireError::Failed(error) => error.sql_source(),
        _ => None,
    };
    match error {
        Some(sqlx::Error::Io(_)) => true,
        // It shuts down, or starts.
        Some(error @ sqlx::Error::Database(_)) => {
            LockFailure::of(error) == LockFailure::ConnectionLost
        }
        _ => false,
    }
}
