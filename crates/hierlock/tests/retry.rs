//! `retry` fits `?`, whatever the work and the caller use for errors.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::optimistic::until_current;
use hierlock::retry::{RetryCause, RetryError, RetryPolicy, Retryable, cause_of, retry};
use hierlock::{Hierlock, Target};
use std::error::Error;
use std::time::Duration;

type BoxError = Box<dyn Error + Send + Sync>;

/// A row that is not free: worth another try, if the policy says so.
async fn refused() -> hierlock::Error {
    let locks = Hierlock::connect("memory:").await.unwrap();
    let _held = locks.acquire(Target::user("u1").unwrap()).await.unwrap();
    locks.request(Target::user("u1").unwrap()).no_wait().acquire().await.unwrap_err()
}

fn twice() -> RetryPolicy {
    let short = Duration::from_millis(1);
    RetryPolicy::default().attempts(2).pauses(short, short).also_if_not_granted()
}

#[derive(Debug, thiserror::Error)]
#[error("the transfer failed")]
struct Typed(#[from] hierlock::Error);

impl Retryable for Typed {
    fn retry_cause(&self) -> Option<RetryCause> {
        self.0.retry_cause()
    }
}

async fn typed_into_box() -> Result<(), BoxError> {
    retry(twice(), async |_| Err::<(), Typed>(refused().await.into())).await?;
    Ok(())
}

async fn typed_into_anyhow() -> anyhow::Result<()> {
    retry(twice(), async |_| Err::<(), Typed>(refused().await.into())).await?;
    Ok(())
}

async fn boxed_into_box() -> Result<(), BoxError> {
    retry(twice(), async |_| Err::<(), BoxError>(refused().await.into())).await?;
    Ok(())
}

async fn boxed_into_anyhow() -> anyhow::Result<()> {
    retry(twice(), async |_| Err::<(), BoxError>(refused().await.into())).await?;
    Ok(())
}

async fn anyhow_into_box() -> Result<(), BoxError> {
    retry(twice(), async |_| Err::<(), _>(anyhow::Error::from(refused().await))).await?;
    Ok(())
}

async fn anyhow_into_anyhow() -> anyhow::Result<()> {
    let work = async |_| {
        let error = anyhow::Error::from(refused().await);
        Err::<(), _>(error.context("the transfer failed"))
    };
    retry(twice(), work).await?;
    Ok(())
}

/// Tried twice, and what failed is still to be found below it.
fn told(error: &(dyn Error + 'static)) {
    assert!(error.to_string().starts_with("given up after 2 attempts"), "{error}");
    assert_eq!(cause_of(error), Some(RetryCause::NotGranted), "{error:?}");
}

#[tokio::test]
async fn an_error_of_retry_fits_a_question_mark() {
    told(&*typed_into_box().await.unwrap_err());
    told(typed_into_anyhow().await.unwrap_err().as_ref());
    told(&*boxed_into_box().await.unwrap_err());
    told(boxed_into_anyhow().await.unwrap_err().as_ref());
    told(&*anyhow_into_box().await.unwrap_err());
    told(anyhow_into_anyhow().await.unwrap_err().as_ref());
}

#[tokio::test]
async fn the_last_error_keeps_its_type() {
    let typed: RetryError<Typed> =
        retry(twice(), async |_| Err::<(), _>(Typed(refused().await))).await.unwrap_err();
    assert!(typed.last.0.is_would_block());
    let error: RetryError<anyhow::Error> =
        retry(twice(), async |_| Err::<(), _>(anyhow::Error::from(refused().await)))
            .await
            .unwrap_err();
    assert!(error.last.downcast_ref::<hierlock::Error>().unwrap().is_would_block());
    let stale = until_current(2, async |_| Err::<(), _>(anyhow::anyhow!("no"))).await;
    assert_eq!(stale.unwrap_err().attempts, 1);
}

/// A retry inside a retry: the cause of the inner one is found.
#[tokio::test]
async fn retries_nest() {
    let outer = retry(twice(), async |_| boxed_into_box().await).await.unwrap_err();
    assert_eq!(outer.attempts, 2);
}
