//! One attempt at a job, in a task of its own.

use super::stop::{RECORD_LIMIT, RETRY_PAUSE, STOP_GRACE};
use crate::error::Result;
use crate::queue::{ClaimedJob, FailureOutcome, JobOutcome};
use futures_util::FutureExt as _;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::time::{Instant, sleep, timeout};

/// A job whose handler has come back.
pub(super) struct Attempt {
    pub(super) job: ClaimedJob,
    /// None: the handler is happy, and the job is still to be completed.
    pub(super) outcome: Option<JobOutcome>,
    /// When the handler came back.
    pub(super) ended_at: Instant,
}

pub(super) async fn attempt<F, W, E>(handler: Arc<F>, job: ClaimedJob) -> Attempt
where
    F: Fn(ClaimedJob) -> W,
    W: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    // What a panic leaves behind is dropped with the handler's future.
    let run = async { handler(job.clone()).await.map_err(|error| error.to_string()) };
    let ran = AssertUnwindSafe(run).catch_unwind().await;
    let ended_at = Instant::now();
    let outcome = match ran {
        Ok(Ok(())) => job.outcome().cloned(),
        Ok(Err(error)) => Some(fail(&job, error).await),
        Err(panic) => Some(fail(&job, format!("panicked: {}", message(&*panic))).await),
    };
    Attempt { job, outcome, ended_at }
}

/// Counts a failure.
async fn fail(job: &ClaimedJob, error: String) -> JobOutcome {
    // The end of its lease counts one, too.
    let is_expired = job.is_expired();
    let limit = if is_expired { STOP_GRACE } else { RECORD_LIMIT };
    match timeout(limit, fail_until_answered(job, &error)).await {
        Ok(Ok(next)) => JobOutcome::Failed { error, next },
        Ok(Err(error)) if error.is_lost() => job.outcome().cloned().unwrap_or(JobOutcome::Lost),
        _ if is_expired => JobOutcome::Lost,
        _ => JobOutcome::Unrecorded,
    }
}

async fn fail_until_answered(job: &ClaimedJob, error: &str) -> Result<FailureOutcome> {
    loop {
        match job.fail(error).await {
            Err(error) if !error.is_lost() && !error.is_unfit() => {
                tracing::warn!(%error, job = job.id(), "a failure is not counted yet");
                sleep(RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
