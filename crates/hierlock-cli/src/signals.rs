//! The runtime that a command runs on, and the signals that a person or a supervisor sends it.

use crate::exit::{CommandResult, Failure};
use std::io;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long blocking threads may take to finish when the command has ended. One that waits for a name server
/// delays nobody longer.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(100);

/// Runs `work` on the main thread. A command that we start must be the child of a thread that lives as long as
/// we do: the kernel ends it together with that thread.
pub(crate) fn block_on(work: impl Future<Output = CommandResult>) -> CommandResult {
    block_on_runtime(Builder::new_current_thread(), work)
}

/// Runs `work` on all processors.
pub(crate) fn block_on_threads(work: impl Future<Output = CommandResult>) -> CommandResult {
    block_on_runtime(Builder::new_multi_thread(), work)
}

fn block_on_runtime(
    mut builder: Builder,
    work: impl Future<Output = CommandResult>,
) -> CommandResult {
    let runtime = builder.enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::unavailable(format!("cannot start: {error}")))?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    result
}

/// The signals that end a command of ours, or that it forwards. One that was ignored when we were started (by
/// `nohup`, or by a shell that runs us in the background) stays ignored.
pub(crate) struct Signals {
    signals: Vec<(i32, Signal)>,
    any_received: bool,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let ignored = ignored_signals();
        let signals = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ]
        .into_iter()
        .filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0)
        .map(|kind| Ok((kind.as_raw_value(), signal(kind)?)))
        .collect::<io::Result<_>>();
        let failed = |error| Failure::unavailable(format!("cannot listen to signals: {error}"));
        Ok(Self { signals: signals.map_err(failed)?, any_received: false })
    }

    /// Whether [`next`](Self::next) has returned a signal.
    pub(crate) fn any_received(&self) -> bool {
        self.any_received
    }

    /// Waits for the next signal; returns its number.
    ///
    /// # Cancel safety
    /// No signal is lost.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.signals {
                if signal.poll_recv(context).is_ready() {
                    self.any_received = true;
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }

    /// Runs `work`; fails with the exit code of a signal that comes before it is done.
    pub(crate) async fn run_until_signal<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        tokio::select! {
            result = work => Ok(result),
            signal = self.next() => Err(Failure::signal(signal)),
        }
    }
}

/// Returns the set of ignored signals, bit n-1 for signal n; none where the kernel does not tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}
