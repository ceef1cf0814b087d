//! The tokio runtime of a command, and the signals that it handles.

use crate::exit::{CommandError, CommandResult};
use std::io;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The time that blocking threads have to finish at the end of a command. A thread may wait for a name server.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(100);

/// Runs `work` on the main thread. The kernel ends a child process together with the thread that started it.
pub(crate) fn block_on<T>(work: impl Future<Output = CommandResult<T>>) -> CommandResult<T> {
    block_on_runtime(Builder::new_current_thread(), work)
}

/// Runs `work` on several threads.
pub(crate) fn block_on_threads(work: impl Future<Output = CommandResult>) -> CommandResult {
    block_on_runtime(Builder::new_multi_thread(), work)
}

/// Runs `work` on the main thread; fails with the exit code of a signal that arrives before `work` is done.
pub(crate) fn block_on_until_signal<T>(
    work: impl Future<Output = CommandResult<T>>,
) -> CommandResult<T> {
    block_on(async { Signals::listen()?.run_until_signal(work).await? })
}

fn block_on_runtime<T>(
    mut builder: Builder,
    work: impl Future<Output = CommandResult<T>>,
) -> CommandResult<T> {
    let runtime = builder.enable_all().build().map_err(CommandError::cannot("start"))?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    result
}

/// The signals that end a command or that it forwards. Signals that were ignored at the start stay ignored.
pub(crate) struct Signals {
    signals: Vec<(i32, Signal)>,
    pub(crate) any_received: bool,
}

impl Signals {
    pub(crate) fn listen() -> Result<Self, CommandError> {
        use nix::libc::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
        let ignored = ignored_signals();
        let signals = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2].into_iter();
        let signals = signals
            .filter(|number| ignored >> (number - 1) & 1 == 0)
            .map(|number| Ok((number, signal(SignalKind::from_raw(number))?)))
            .collect::<io::Result<_>>()
            .map_err(CommandError::cannot("listen to signals"))?;
        Ok(Self { signals, any_received: false })
    }

    /// Waits for the next signal; returns its number.
    ///
    /// # Cancel safety
    /// If the future is dropped, no signal is lost.
    pub(crate) async fn next(&mut self) -> i32 {
        let number = std::future::poll_fn(|context| {
            let mut signals = self.signals.iter_mut();
            let received = signals.find_map(|(number, signal)| {
                signal.poll_recv(context).is_ready().then_some(*number)
            });
            received.map_or(Poll::Pending, Poll::Ready)
        });
        let number = number.await;
        self.any_received = true;
        number
    }

    /// Runs `work`; fails with the exit code of a signal that arrives before `work` is done.
    pub(crate) async fn run_until_signal<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, CommandError> {
        tokio::select! {
            result = work => Ok(result),
            signal = self.next() => Err(CommandError::signal(signal)),
        }
    }
}

/// Returns the ignored signals as a bit set: bit n-1 is signal n. Returns 0 if `/proc` is not available.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}
