//! Ctrl-C and its kin: the first signal asks for an end, and what there is by then is reported; the second
//! ends the process at once.

use super::servers::Equipped;
use crate::exit::{self, Stop};
use crate::runtime;
use crate::signals::Signals;
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::watch;

/// How long removing what was made on the servers may take after a signal.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(15);

/// Whether a signal has come. Clones hear of the same signal.
#[derive(Clone)]
pub(super) struct Interrupt(watch::Receiver<Option<i32>>);

impl Interrupt {
    /// Waits for a signal; its number.
    pub(super) async fn came(&self) -> i32 {
        match self.0.clone().wait_for(Option::is_some).await.as_deref() {
            Ok(Some(signal)) => *signal,
            // Whoever listens lives as long as the process.
            _ => std::future::pending().await,
        }
    }

    /// The exit code, if a signal has come.
    pub(super) fn exit_code(&self) -> Option<ExitCode> {
        self.0.borrow().map(|signal| ExitCode::from(exit::of_signal(signal)))
    }

    /// Does the work, unless a signal comes first.
    pub(super) async fn or<T>(&self, work: impl Future<Output = T>) -> Result<T, InterruptSignal> {
        tokio::select! {
            done = work => Ok(done),
            signal = self.came() => Err(InterruptSignal(signal)),
        }
    }

    /// Removes what was made on the servers, and ends those that were started. After a signal for so long as
    /// a person waits; the next run removes what is left.
    pub(super) async fn close(&self, equipped: Equipped) {
        let closed = tokio::task::spawn_blocking(move || drop(equipped));
        if self.exit_code().is_none() {
            // One that has panicked has said so.
            _ = closed.await;
        } else if tokio::time::timeout(CLEAN_UP_LIMIT, closed).await.is_err() {
            eprintln!(
                "hierlock: a server has not removed everything within {CLEAN_UP_LIMIT:?}; what is left \
                 (hierlock_lab_…) is removed by the next run"
            );
        }
    }
}

/// A signal came before there was anything to report.
pub(super) struct InterruptSignal(i32);

impl InterruptSignal {
    pub(super) fn exit_code(&self) -> ExitCode {
        ExitCode::from(exit::of_signal(self.0))
    }
}

/// Runs work that hears of the first signal. The second one ends the process.
pub(super) fn with_interrupt<W>(work: impl FnOnce(Interrupt) -> W) -> ExitCode
where
    W: Future<Output = Result<ExitCode, Stop>>,
{
    let runtime = match runtime::of_threads() {
        Ok(runtime) => runtime,
        Err(stop) => return stop.end(),
    };
    let ended = runtime.block_on(async {
        let mut signals = Signals::listen().map_err(Stop::unavailable)?;
        let (tell, told) = watch::channel(None);
        tokio::spawn(async move {
            tell.send_replace(Some(signals.next().await));
            let second = signals.next().await;
            std::process::exit(exit::of_signal(second).into());
        });
        work(Interrupt(told)).await
    });
    runtime.shutdown_background();
    ended.unwrap_or_else(Stop::end)
}
