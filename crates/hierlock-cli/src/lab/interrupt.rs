//! Ctrl-C and other signals. The first one ends the run, and the results so far are reported. The second one ends the
//! process at once.

use crate::exit::{self, CommandError, CommandResult};
use crate::signals::{Signals, block_on_threads};
use tokio::sync::watch;

/// The first signal, once it has arrived.
pub(super) struct Interrupt(watch::Receiver<Option<i32>>);

impl Interrupt {
    /// Waits for a signal; returns its number.
    pub(super) async fn signal(&self) -> i32 {
        match self.0.clone().wait_for(Option::is_some).await.as_deref() {
            Ok(Some(signal)) => *signal,
            // Does not happen: the sender lives as long as the process.
            _ => std::future::pending().await,
        }
    }

    /// Returns the exit code of the signal, if one has arrived.
    pub(super) fn exit_code(&self) -> Option<u8> {
        self.0.borrow().map(exit::of_signal)
    }

    /// Runs `work`; fails with the exit code of a signal that arrives before `work` is done.
    pub(super) async fn run_until_signal<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, CommandError> {
        tokio::select! {
            result = work => Ok(result),
            signal = self.signal() => Err(CommandError::signal(signal)),
        }
    }
}

/// Runs `work`, which handles the first signal. The second signal ends the process.
pub(super) fn run_interruptible(
    work: impl AsyncFnOnce(Interrupt) -> CommandResult,
) -> CommandResult {
    block_on_threads(async {
        let mut signals = Signals::listen()?;
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            sender.send_replace(Some(signals.next().await));
            let second = signals.next().await;
            std::process::exit(exit::of_signal(second).into());
        });
        work(Interrupt(receiver)).await
    })
}
