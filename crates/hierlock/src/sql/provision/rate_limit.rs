//! A limit of rows per second.

use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Delays chunks, so that their rows do not exceed a rate. After a chunk, the next one waits for the time that its rows take
/// at that rate.
pub(super) struct RateLimit {
    rows_per_second: Option<u64>,
    next: Mutex<Instant>,
}

impl RateLimit {
    pub(super) fn new(rows_per_second: Option<u64>) -> Self {
        Self { rows_per_second, next: Mutex::new(Instant::now()) }
    }

    /// Waits until the next chunk may start, and reserves the time for its `rows`.
    pub(super) async fn wait(&self, rows: u64) {
        let Some(rate) = self.rows_per_second else { return };
        let mut next = self.next.lock().await;
        sleep_until(*next).await;
        let worth = Duration::from_secs_f64(rows as f64 / rate.max(1) as f64);
        *next = Instant::now().max(*next) + worth;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_callers_share_one_rate_limit() {
        let limit = RateLimit::new(Some(1000));
        let begun = Instant::now();
        let ten_chunks = async || {
            for _ in 0..10 {
                limit.wait(100).await;
            }
        };
        // Two callers run at the same time.
        tokio::join!(ten_chunks(), ten_chunks());
        assert_eq!(begun.elapsed().as_millis(), 1900, "the last of 20 chunks leaves after 19");
        let begun = Instant::now();
        RateLimit::new(None).wait(u64::MAX).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
