//! The policy, on a clock of its own; that servers are understood is shown on servers.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed: {0:?}")]
struct Fails(Option<RetryCause>);

impl Retryable for Fails {
    fn retry_cause(&self) -> Option<RetryCause> {
        self.0
    }
}

type Cause = Option<RetryCause>;

/// Fails so often, then succeeds; how often it was called comes back with the result.
async fn run(policy: RetryPolicy, failures: u32, cause: Cause) -> Result<u32, RetryError<Fails>> {
    let work = async |n| if n > failures { Ok(n) } else { Err(Fails(cause)) };
    retry(policy, work).await
}

#[tokio::test(start_paused = true)]
async fn what_lost_a_race_is_tried_again() {
    for cause in [RetryCause::Deadlock, RetryCause::Conflict, RetryCause::Busy] {
        assert_eq!(run(RetryPolicy::default(), 4, Some(cause)).await.unwrap(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn what_would_fail_again_is_not() {
    let error = run(RetryPolicy::default(), 9, None).await.unwrap_err();
    assert_eq!((error.attempts, error.reason), (1, GiveUpReason::NotRetryable));
    assert_eq!(error.paused, Duration::ZERO);
    assert_eq!(error.to_string(), "failed: None");

    let policy = RetryPolicy::default();
    for (cause, asked) in [
        (RetryCause::NotGranted, policy.also_if_not_granted()),
        (RetryCause::Stale, policy.also_if_stale()),
    ] {
        let error = run(policy, 9, Some(cause)).await.unwrap_err();
        assert_eq!((error.attempts, error.reason), (1, GiveUpReason::NotRetryable));
        assert_eq!(run(asked, 2, Some(cause)).await.unwrap(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_error_tells_how_it_went() {
    let policy = RetryPolicy::default().attempts(3);
    let error = run(policy, 9, Some(RetryCause::Deadlock)).await.unwrap_err();
    assert_eq!((error.attempts, error.reason), (3, GiveUpReason::MaxAttempts));
    let said = error.to_string();
    assert!(said.starts_with("given up after 3 attempts and "), "{said}");
    assert!(said.ends_with("failed: Some(Deadlock)"), "{said}");
    assert_eq!(error.source().unwrap().to_string(), "failed: Some(Deadlock)");

    let once = RetryPolicy::default().attempts(0);
    let error = run(once, 9, Some(RetryCause::Deadlock)).await.unwrap_err();
    assert_eq!(error.to_string(), "given up after 1 attempt: failed: Some(Deadlock)");
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_the_limit() {
    let limit = Duration::from_millis(200);
    let policy = RetryPolicy::default().attempts(u32::MAX).within(limit);
    let begun = Instant::now();
    let error = run(policy, u32::MAX, Some(RetryCause::Busy)).await.unwrap_err();
    assert_eq!(error.reason, GiveUpReason::TimeLimit);
    assert!(begun.elapsed() <= limit && error.paused <= limit, "{error}");
}

#[test]
fn pauses_grow_up_to_the_longest() {
    let (first, longest) = (Duration::from_millis(10), Duration::from_millis(70));
    let RetryPolicy { backoff, .. } = RetryPolicy::default().pauses(first, longest);
    let longest = [1, 2, 3, 4, 5, u32::MAX].map(|n| backoff.longest_after(n).as_millis());
    assert_eq!(longest, [10, 20, 40, 70, 70, 70]);
    for _ in 0..1000 {
        assert!(backoff.pause_after(3) <= 4 * first);
    }
}
