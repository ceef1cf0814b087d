//! The loop of a worker.

use super::{Worked, Worker};
use crate::error::Result;
use crate::queue::Claimed;

pub(super) async fn run<F, W, E>(worker: Worker, handler: F) -> Result<Worked>
where
    F: Fn(Claimed) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), E>> + Send + 'static,
    E: std::fmt::Display + Send + 'static,
{
    let _ = (worker, handler);
    std::future::pending().await
}
