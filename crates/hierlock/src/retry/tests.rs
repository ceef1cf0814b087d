//! Tests of the policy with a paused clock. Tests on servers check the error codes.

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed: {0:?}")]
struct TestError(Option<RetryCause>);

impl Retryable for TestError {
    fn retry_cause(&self) -> Option<RetryCause> {
        self.0
    }
}

/// Retries work that fails `failures` times and then succeeds. Returns the number of the successful attempt.
async fn run(
    policy: RetryPolicy,
    failures: u32,
    cause: Option<RetryCause>,
) -> Result<u32, RetryError<TestError>> {
    let work = async |n| if n > failures { Ok(n) } else { Err(TestError(cause)) };
    retry(policy, work).await
}

#[tokio::test(start_paused = true)]
async fn deadlocks_conflicts_and_busy_databases_are_retried() {
    for cause in [RetryCause::Deadlock, RetryCause::Conflict, RetryCause::Busy] {
        assert_eq!(run(RetryPolicy::default(), 4, Some(cause)).await.unwrap(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn other_errors_are_retried_only_if_the_policy_says_so() {
    let error = run(RetryPolicy::default(), 9, None).await.unwrap_err();
    assert_eq!((error.attempts, error.reason), (1, GiveUpReason::NotRetryable));
    assert_eq!(error.paused, Duration::ZERO);
    assert_eq!(error.to_string(), "failed: None");

    let policy = RetryPolicy::default();
    for (cause, retrying) in [
        (RetryCause::NotGranted, policy.also_if_not_granted()),
        (RetryCause::Stale, policy.also_if_stale()),
    ] {
        let error = run(policy, 9, Some(cause)).await.unwrap_err();
        assert_eq!((error.attempts, error.reason), (1, GiveUpReason::NotRetryable));
        assert_eq!(run(retrying, 2, Some(cause)).await.unwrap(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_has_the_attempts_and_the_last_cause() {
    let policy = RetryPolicy::default().attempts(3);
    let error = run(policy, 9, Some(RetryCause::Deadlock)).await.unwrap_err();
    assert_eq!((error.attempts, error.reason), (3, GiveUpReason::MaxAttempts));
    let message = error.to_string();
    assert!(message.starts_with("given up after 3 attempts and "), "{message}");
    assert!(message.ends_with("failed: Some(Deadlock)"), "{message}");
    assert_eq!(error.source().unwrap().to_string(), "failed: Some(Deadlock)");

    let once = RetryPolicy::default().attempts(0);
    let error = run(once, 9, Some(RetryCause::Deadlock)).await.unwrap_err();
    assert_eq!(error.to_string(), "given up after 1 attempt: failed: Some(Deadlock)");
}

#[tokio::test(start_paused = true)]
async fn no_attempt_starts_after_the_time_limit() {
    let limit = Duration::from_millis(200);
    let policy = RetryPolicy::default().attempts(u32::MAX).within(limit);
    let started = Instant::now();
    let error = run(policy, u32::MAX, Some(RetryCause::Busy)).await.unwrap_err();
    assert_eq!(error.reason, GiveUpReason::TimeLimit);
    assert!(started.elapsed() <= limit && error.paused <= limit, "{error}");
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
