//! A server that is gone for a while. An acquire that waits holds nothing yet and has nothing to lose, so it connects
//! again and begins anew. Its old session is ended on the server meanwhile, so that it does not wait for itself.

use super::{AcquireError, Acquirer};
use crate::backend::WaitLimit;
use hierlock_engine::ErrorClass;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The pause before the next try, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The tries of one acquire since its server went away.
#[derive(Default)]
pub(super) struct Outage {
    since: Option<Instant>,
    pauses: u32,
}

impl Outage {
    /// Returns whether to try again, after a try that began then and failed with this.
    pub(super) fn should_retry(
        &mut self,
        acquirer: &Acquirer,
        why: &AcquireError,
        begun: Instant,
    ) -> bool {
        let Acquirer { pool, wait_limit, .. } = acquirer;
        let reconnect = pool.settings.reconnect;
        if !wait_limit.waits() || reconnect.is_zero() || !is_connection_lost(why) {
            return false;
        }
        // A try that has lasted longer than this had found its server.
        if begun.elapsed() > 2 * pool.answer_limit() {
            *self = Self::default();
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let has_deadline = matches!(wait_limit, WaitLimit::Until { .. });
        if has_deadline { !wait_limit.is_over() } else { since.elapsed() < reconnect }
    }

    /// Waits before the next try, not beyond the deadline. Fails if the caller has gone.
    pub(super) async fn pause(&mut self, acquirer: &Acquirer) -> Result<(), AcquireError> {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.pauses)).min(MAX_PAUSE);
        self.pauses += 1;
        // Not all at the same moment: many may have waited on that server.
        let pause = sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        tokio::select! {
            () = acquirer.cancellation.cancelled() => Err(AcquireError::Abandoned),
            _ = acquirer.wait_limit.limit(pause) => Ok(()),
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
    error.is_some_and(|error| match error {
        sqlx::Error::Io(_) => true,
        // It shuts down, or starts.
        sqlx::Error::Database(_) => ErrorClass::of(error).is_connection_lost(),
        _ => false,
    })
}
