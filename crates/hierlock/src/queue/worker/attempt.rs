//! One attempt at a job, in a task of its own.

use super::Ended;
use super::stop::{AGAIN, MOMENT, PATIENCE};
use crate::error::Result;
use crate::queue::claimed::Settled;
use crate::queue::{Claimed, Failed};
use futures_util::FutureExt as _;
use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::time::{Instant, sleep, timeout};

/// What came of it.
pub(super) struct Attempt {
    pub(super) job: Claimed,
    /// None: the handler is happy, and the job is still to be completed.
    pub(super) ended: Option<Ended>,
    /// When the handler came back.
    pub(super) at: Instant,
}

pub(super) async fn attempt<F, W, E>(handler: Arc<F>, job: Claimed) -> Attempt
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
    let ran = AssertUnwindSafe(run).catch_unwind().await;
    let at = Instant::now();
    let ended = match ran {
        Ok(Ok(())) => job.settled().map(Ended::from),
        Ok(Err(error)) => Some(failed(&job, error).await),
        Err(panic) => Some(failed(&job, format!("panicked: {}", said(&*panic))).await),
    };
    Attempt { job, ended, at }
}

/// Counts a failure.
async fn failed(job: &Claimed, error: String) -> Ended {
    // The end of its lease counts one, too.
    let is_over = job.is_over();
    let patience = if is_over { MOMENT } else { PATIENCE };
    match timeout(patience, counted(job, &error)).await {
        Ok(Ok(next)) => Ended::Failed { error, next },
        Ok(Err(error)) if error.is_lost() => job.settled().map_or(Ended::Lost, Ended::from),
        _ if is_over => Ended::Lost,
        _ => Ended::Unrecorded,
    }
}

/// Tries until the database has an answer.
async fn counted(job: &Claimed, error: &str) -> Result<Failed> {
    loop {
        match job.fail(error).await {
            Err(error) if !error.is_lost() && !error.is_unfit() => {
                tracing::warn!(%error, job = job.id(), "a failure is not counted yet");
                sleep(AGAIN).await;
            }
            answer => return answer,
        }
    }
}

impl From<&Settled> for Ended {
    fn from(settled: &Settled) -> Self {
        match settled {
            Settled::Completed => Ended::Done,
            Settled::Failed { error, next } => Ended::Failed { error: error.clone(), next: *next },
            Settled::GivenBack => Ended::GivenBack,
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
