//! The threads that a command of ours runs on.

use crate::exit::Stop;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// For so long threads may finish what they write. One that asks a name server which does not answer
/// keeps nobody here.
const LAST_LINES: Duration = Duration::from_millis(100);

/// Runs it on the main thread. A command that we run must be the child of a thread that lives as long as we
/// do, for the kernel ends the command when that thread is gone.
pub(crate) fn on_one_thread(work: impl Future<Output = ExitCode>) -> ExitCode {
    match made(Builder::new_current_thread().enable_all().build()) {
        Ok(runtime) => {
            let ended = runtime.block_on(work);
            runtime.shutdown_timeout(LAST_LINES);
            ended
        }
        Err(stop) => stop.end(),
    }
}

/// For work that uses all processors.
pub(crate) fn of_threads() -> Result<Runtime, Stop> {
    made(Builder::new_multi_thread().enable_all().build())
}

fn made(runtime: io::Result<Runtime>) -> Result<Runtime, Stop> {
    runtime.map_err(|error| Stop::unavailable(format!("cannot start: {error}")))
}
