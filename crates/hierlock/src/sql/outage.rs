//! Retries during an outage of the server. A waiting acquire holds nothing yet, so it reconnects and starts over. Its old
//! session is ended on the server, so that the acquire does not wait for itself.

use super::{AcquireError, Acquirer};
use crate::backend::WaitLimit;
use hierlock_engine::ErrorClass;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The first and the longest pause between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The attempts of one acquire since its connection was lost.
#[derive(Default)]
pub(super) struct Outage {
    since: Option<Instant>,
    pauses: u32,
}

impl Outage {
    /// Returns whether to try again, after an attempt that began at `begun` and failed with `why`.
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
        // An attempt that lasted longer had reached the server, so this is a new outage.
        if begun.elapsed() > 2 * pool.answer_limit() {
            *self = Self::default();
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        let has_deadline = matches!(wait_limit, WaitLimit::Until { .. });
        if has_deadline { !wait_limit.is_over() } else { since.elapsed() < reconnect }
    }

    /// Waits before the next attempt, at most until the deadline. Fails if the caller has gone.
    pub(super) async fn pause(&mut self, acquirer: &Acquirer) -> Result<(), AcquireError> {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.pauses)).min(MAX_PAUSE);
        self.pauses += 1;
        // Random, so that the clients of the server do not all reconnect at the same moment.
        let pause = sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        tokio::select! {
            () = acquirer.cancellation.cancelled() => Err(AcquireError::Abandoned),
            _ = acquirer.wait_limit.limit(pause) => Ok(()),
        }
    }
}

/// Returns whether the connection is lost or could not be opened. A server that answers with a refusal is reachable.
fn is_connection_lost(why: &AcquireError) -> bool {
    let error = match why {
        AcquireError::ConnectionLost(error) => Some(error),
        AcquireError::Failed(error) => error.sql_source(),
        _ => None,
    };
    error.is_some_and(|error| match error {
        sqlx::Error::Io(_) => true,
        // The server shuts down or starts.
        sqlx::Error::Database(_) => ErrorClass::of(error).is_connection_lost(),
        _ => false,
    })
}
