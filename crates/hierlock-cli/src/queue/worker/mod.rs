//! `hierlock queue work`: runs a command for each job.
//!
//! ```text
//!   Worker ──job──► Runner: start the command, feed it, wait ──► exit code 0: done ──► Worker: records
//!      ▲                       │  │                              anything else: failed   it, and tells
//!      │ first signal: stop    │  └ lost: its group is ended
//!      └ second signal ────────┘ its group is ended, the job given back
//! ```

mod report;
mod runner;
mod tail;
mod warnings;

use crate::exit::{self, Stop};
use crate::queue::args;
use crate::report::Reporter;
use crate::signals::Signals;
use crate::store::Store;
use hierlock::database::Database;
use hierlock::queue::Queue;
use report::Event;
use runner::Runner;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use warnings::Warnings;

/// After a second signal nobody waits longer for a database that does not answer. Commands have ended by
/// then.
const PATIENCE: Duration = Duration::from_secs(10);

/// Extending a lease three times in less than that would be all that is done.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

pub(super) fn work(store: &Store, args: args::Work) -> ExitCode {
    if args.lease < SHORTEST_LEASE {
        return Stop::usage("a lease of a job is at least 100ms").end();
    }
    Warnings::tell(args.json);
    let is_file = store.is_file();
    store.run_with(async |database, signals| go(database, is_file, args, signals).await)
}

async fn go(
    database: Database,
    is_file: bool,
    args: args::Work,
    signals: &mut Signals,
) -> Result<ExitCode, Stop> {
    let queue = Queue::new(database, &args.queue)?;
    if is_file {
        tokio::select! {
            provisioned = queue.provision() => provisioned?,
            signal = signals.next() => return Ok(ExitCode::from(exit::of_signal(signal))),
        }
    }
    let batch = args.batch.map_or(args.concurrency, |batch| batch as usize);
    let mut worker = queue
        .worker(&worker_name())
        .concurrency(args.concurrency)
        .batch(batch)
        .lease(args.lease)
        .poll_every(args.poll);
    if args.until_empty {
        worker = worker.until_empty();
    }
    let (stop, reporter) = (worker.handle(), Reporter::new(args.json, false));
    let runner = Arc::new(Runner::new(queue, args.command, reporter, stop.clone()));
    let (teller, handler) = (runner.clone(), runner.clone());
    let worker = worker.on_end(move |job, ended| teller.ended(job, ended));
    let working = worker.run(move |job| {
        let runner = handler.clone();
        async move { runner.run(&job).await }
    });
    tokio::pin!(working);
    let (mut stopped_by, mut unrecorded) = (Vec::new(), 0);
    let mut leave = pin!(sleep(Duration::MAX));
    loop {
        tokio::select! {
            worked = &mut working => {
                let worked = worked?;
                unrecorded = worked.unrecorded;
                runner.tell(&Event::from(worked));
                break;
            }
            signal = signals.next() => {
                stopped_by.push(signal);
                match stopped_by.len() {
                    1 => stop.stop(),
                    2 => {
                        runner.end();
                        leave.as_mut().reset(Instant::now() + PATIENCE);
                    }
                    _ => leave.as_mut().reset(Instant::now()),
                }
                runner.tell(&Event::Stopping { at_once: stopped_by.len() > 1 });
            }
            () = &mut leave => {
                runner.tell(&Event::Warning { message: "what was not given back comes back when its lease ends" });
                break;
            }
        }
    }
    if let Some(stop) = runner.unstartable() {
        return Err(stop);
    }
    Ok(match stopped_by.get(1) {
        Some(signal) => ExitCode::from(exit::of_signal(*signal)),
        None if unrecorded > 0 => exit::UNAVAILABLE.into(),
        None => ExitCode::SUCCESS,
    })
}

/// Whose jobs they are, for a person who looks at the table: host and process.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let host: String = host.chars().filter(is_plain).take(40).collect();
    format!("{host}:{}", std::process::id())
}
