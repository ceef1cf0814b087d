//! `hierlock queue work`: runs a command for each job.
//!
//! ```text
//!   Worker ──job──► JobRunner: start the command, feed it, wait ──► exit code 0: done ──► Worker: records
//!      ▲                       │  │                                 anything else: failed   and reports it
//!      │ first signal: stop    │  └ lost: its group is ended
//!      └ second signal ────────┘ its group is ended, the job given back
//! ```

mod event;
mod runner;
mod tail;
mod warnings;

use super::args::WorkArgs;
use crate::database::DatabaseArgs;
use crate::event::Reporter;
use crate::exit::{self, CommandError, CommandResult};
use crate::signals::Signals;
use event::WorkEvent;
use hierlock::queue::Queue;
use runner::JobRunner;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use warnings::WarningSubscriber;

/// The time limit for giving jobs back after a second signal. Their commands have ended by then.
const GIVE_BACK_LIMIT: Duration = Duration::from_secs(10);

/// The minimum length of a job's lease. A lease is extended three times before it ends, so a shorter one would cause constant
/// load.
const MIN_LEASE: Duration = Duration::from_millis(100);

pub(super) fn work(database_args: &DatabaseArgs, args: WorkArgs) -> CommandResult {
    if args.lease < MIN_LEASE {
        return Err(CommandError::usage("the lease of a job must be at least 100ms"));
    }
    WarningSubscriber::install(args.json);
    database_args.run_with_signals(async |database, signals| {
        let queue = Queue::new(database, &args.queue)?;
        if database_args.is_sqlite() {
            signals.run_until_signal(queue.provision()).await??;
        }
        run_jobs(queue, args, signals).await
    })
}

async fn run_jobs(queue: Queue, args: WorkArgs, signals: &mut Signals) -> CommandResult {
    let worker = queue
        .worker(&worker_name())
        .concurrency(args.concurrency.into())
        .batch(args.batch.unwrap_or(args.concurrency).into())
        .lease(args.lease)
        .poll_every(args.poll);
    let worker = if args.until_empty { worker.until_empty() } else { worker };
    let (handle, reporter) = (worker.handle(), Reporter::new(args.json, false));
    let runner = Arc::new(JobRunner::new(queue, args.command, reporter, handle.clone()));
    let (reporting, running) = (runner.clone(), runner.clone());
    let worker = worker.on_end(move |job, outcome| reporting.report_end(job, outcome));
    let mut work = pin!(worker.run(move |job| {
        let runner = running.clone();
        async move { runner.run(&job).await }
    }));
    let (mut received, mut unrecorded) = (Vec::new(), 0);
    let mut give_up = pin!(sleep(Duration::MAX));
    loop {
        tokio::select! {
            summary = &mut work => {
                let summary = summary?;
                unrecorded = summary.unrecorded;
                runner.reporter.report(&WorkEvent::from(summary));
                break;
            }
            signal = signals.next() => {
                received.push(signal);
                match received.len() {
                    1 => handle.stop(),
                    2 => {
                        runner.terminating.send_replace(true);
                        give_up.as_mut().reset(Instant::now() + GIVE_BACK_LIMIT);
                    }
                    _ => give_up.as_mut().reset(Instant::now()),
                }
                runner.reporter.report(&WorkEvent::Stopping { at_once: received.len() > 1 });
            }
            () = &mut give_up => {
                let message = "jobs that were not given back return to the queue when their leases end";
                runner.reporter.report(&WorkEvent::Warning { message });
                break;
            }
        }
    }
    if let Some(failure) = runner.take_start_failure() {
        return Err(failure);
    }
    Ok(match received.get(1) {
        Some(signal) => exit::of_signal(*signal),
        None if unrecorded > 0 => exit::UNAVAILABLE,
        None => exit::SUCCESS,
    })
}

/// Returns `host:pid`, the name of this worker in the table of jobs.
fn worker_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let host: String = host.chars().filter(is_plain).take(40).collect();
    format!("{host}:{}", std::process::id())
}
