//! Errors of `retry` convert with `?`, whichever error types the work and the caller use.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::optimistic::until_current;
use hierlock::retry::{RetryCause, RetryError, RetryPolicy, Retryable, cause_of, retry};
use hierlock::{Hierlock, Target};
use std::error::Error;
use std::time::Duration;

type BoxError = Box<dyn Error + Send + Sync>;

/// Returns the error of a node that is held, which is retried if the policy says so.
async fn would_block_error() -> hierlock::Error {
    let locks = Hierlock::connect("memory:").await.unwrap();
    let _held = locks.acquire(Target::user("u1").unwrap()).await.unwrap();
    locks.request(Target::user("u1").unwrap()).no_wait().acquire().await.unwrap_err()
}

fn two_attempts() -> RetryPolicy {
    let short = Duration::from_millis(1);
    RetryPolicy::default().attempts(2).pauses(short, short).also_if_not_granted()
}

#[derive(Debug, thiserror::Error)]
#[error("the transfer failed")]
struct TransferError(#[from] hierlock::Error);

impl Retryable for TransferError {
    fn retry_cause(&self) -> Option<RetryCause> {
        self.0.retry_cause()
    }
}

async fn typed_into_box() -> Result<(), BoxError> {
    retry(two_attempts(), async |_| Err::<(), TransferError>(would_block_error().await.into()))
        .await?;
    Ok(())
}

async fn typed_into_anyhow() -> anyhow::Result<()> {
    retry(two_attempts(), async |_| Err::<(), TransferError>(would_block_error().await.into()))
        .await?;
    Ok(())
}

async fn boxed_into_box() -> Result<(), BoxError> {
    retry(two_attempts(), async |_| Err::<(), BoxError>(would_block_error().await.into())).await?;
    Ok(())
}

async fn boxed_into_anyhow() -> anyhow::Result<()> {
    retry(two_attempts(), async |_| Err::<(), BoxError>(would_block_error().await.into())).await?;
    Ok(())
}

async fn anyhow_into_box() -> Result<(), BoxError> {
    retry(two_attempts(), async |_| Err::<(), _>(anyhow::Error::from(would_block_error().await)))
        .await?;
    Ok(())
}

async fn anyhow_into_anyhow() -> anyhow::Result<()> {
    let work = async |_| {
        let error = anyhow::Error::from(would_block_error().await);
        Err::<(), _>(error.context("the transfer failed"))
    };
    retry(two_attempts(), work).await?;
    Ok(())
}

/// Checks that there were two attempts, and that the source of the error is found.
fn assert_given_up(error: &(dyn Error + 'static)) {
    assert!(error.to_string().starts_with("given up after 2 attempts"), "{error}");
    assert_eq!(cause_of(error), Some(RetryCause::NotGranted), "{error:?}");
}

#[tokio::test]
async fn the_error_of_retry_converts_with_a_question_mark() {
    assert_given_up(&*typed_into_box().await.unwrap_err());
    assert_given_up(typed_into_anyhow().await.unwrap_err().as_ref());
    assert_given_up(&*boxed_into_box().await.unwrap_err());
    assert_given_up(boxed_into_anyhow().await.unwrap_err().as_ref());
    assert_given_up(&*anyhow_into_box().await.unwrap_err());
    assert_given_up(anyhow_into_anyhow().await.unwrap_err().as_ref());
}

#[tokio::test]
async fn the_last_error_keeps_its_type() {
    let typed: RetryError<TransferError> =
        retry(two_attempts(), async |_| Err::<(), _>(TransferError(would_block_error().await)))
            .await
            .unwrap_err();
    assert!(typed.last.0.is_would_block());
    let error: RetryError<anyhow::Error> = retry(two_attempts(), async |_| {
        Err::<(), _>(anyhow::Error::from(would_block_error().await))
    })
    .await
    .unwrap_err();
    assert!(error.last.downcast_ref::<hierlock::Error>().unwrap().is_would_block());
    let stale = until_current(2, async |_| Err::<(), _>(anyhow::anyhow!("no"))).await;
    assert_eq!(stale.unwrap_err().attempts, 1);
}

/// A retry inside a retry finds the cause of the inner one.
#[tokio::test]
async fn nested_retries_find_the_inner_cause() {
    let outer = retry(two_attempts(), async |_| boxed_into_box().await).await.unwrap_err();
    assert_eq!(outer.attempts, 2);
}
