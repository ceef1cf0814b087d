//! One attempt at a job, in a task of its own.

use crate::error::Result;
use crate::queue::Claimed;
use crate::queue::claimed::Settled;
use futures_util::FutureExt as _;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The handler is happy; the job is still to be completed.
    Done,
    /// The handler has completed it.
    Completed,
    /// A failure was counted.
    Failed,
    /// The handler gave it back.
    GivenBack,
    /// It was no longer ours.
    Lost,
}

pub(super) async fn attempt<F, W, E>(handler: Arc<F>, job: Claimed) -> (Claimed, Outcome)
where
    F: Fn(Claimed) -> W,
    W: Future<Output = Result<(), E>>,
    E: fmt::Display,
{
    let run = async {
        let ran = handler(job.clone()).await;
        ran.map_err(|error| error.to_string())
    };
    // What a panic leaves behind is dropped with the handler's future.
    let error = match AssertUnwindSafe(run).catch_unwind().await {
        Ok(Ok(())) => {
            let outcome = match job.settled() {
                None => Outcome::Done,
                Some(Settled::Completed) => Outcome::Completed,
                Some(Settled::Failed) => Outcome::Failed,
                Some(Settled::GivenBack) => Outcome::GivenBack,
            };
            return (job, outcome);
        }
        Ok(Err(error)) => error,
        Err(panic) => format!("panicked: {}", said(&*panic)),
    };
    let outcome = match (job.fail(error).await, job.settled()) {
        (Ok(_), _) => Outcome::Failed,
        (Err(error), Some(Settled::Completed)) if error.is_lost() => Outcome::Completed,
        (Err(error), Some(Settled::Failed)) if error.is_lost() => Outcome::Failed,
        (Err(error), _) => {
            tracing::warn!(%error, job = job.id(), "a failure is not counted");
            Outcome::Lost
        }
    };
    (job, outcome)
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
