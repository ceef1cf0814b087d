//! Runs one job: starts its command, writes the payload to it, and waits for its end.

use super::GIVE_BACK_LIMIT;
use super::event::{Attempt, WorkEvent};
use super::tail::StderrTail;
use crate::child::{Child, ChildExit};
use crate::event::Reporter;
use crate::exit::CommandError;
use hierlock::queue::{ClaimedJob, JobOutcome, Queue, WorkerHandle};
use std::collections::HashMap;
use std::ffi::OsString;
use std::pin::pin;
use std::process::{ChildStdin, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The number of attempts to give a job back. An attempt fails while another session has locked the row.
const GIVE_BACK_ATTEMPTS: u32 = 5;
const GIVE_BACK_DELAY: Duration = Duration::from_millis(20);

pub(super) struct JobRunner {
    queue: Queue,
    command: Vec<OsString>,
    pub(super) reporter: Reporter,
    worker: WorkerHandle,
    /// The start times of jobs whose end was not reported yet.
    started: Mutex<HashMap<(i64, i64), Instant>>,
    pub(super) terminating: watch::Sender<bool>,
    start_failure: Mutex<Option<CommandError>>,
}

impl JobRunner {
    pub(super) fn new(
        queue: Queue,
        command: Vec<OsString>,
        reporter: Reporter,
        worker: WorkerHandle,
    ) -> Self {
        let (started, start_failure) = (Mutex::default(), Mutex::default());
        let terminating = watch::Sender::new(false);
        Self { queue, command, reporter, worker, started, terminating, start_failure }
    }

    pub(super) fn take_start_failure(&self) -> Option<CommandError> {
        lock(&self.start_failure).take()
    }

    /// Runs the command for a job. The worker records the result, unless the job was given back.
    pub(super) async fn run(&self, job: &ClaimedJob) -> Result<(), String> {
        lock(&self.started).insert(run_key(job), Instant::now());
        let variables = [
            ("HIERLOCK_QUEUE", self.queue.name().to_owned()),
            ("HIERLOCK_JOB", job.id().to_string()),
            ("HIERLOCK_ATTEMPT", job.attempt().to_string()),
        ];
        let mut child = match Child::spawn(&self.command, &variables, Stdio::piped) {
            Ok(child) => child,
            Err(failure) => {
                // Every other job would fail in the same way.
                lock(&self.start_failure).get_or_insert(failure);
                self.worker.stop();
                return give_back(job).await;
            }
        };
        self.reporter.report(&WorkEvent::Started(Attempt::from(job)));
        let mut tail = StderrTail::follow(child.stderr.take());
        let mut write = pin!(write_payload(child.stdin.take(), job.payload()));
        let mut lost = pin!(job.lost());
        // The wait cannot fail: `self` owns the sender.
        let mut terminating =
            pin!(async { _ = self.terminating.subscribe().wait_for(|it| *it).await });
        let mut is_written = false;
        loop {
            tokio::select! {
                exit = child.wait() => return job_result(exit, &tail.lines().await),
                () = &mut write, if !is_written => is_written = true,
                () = &mut lost => {
                    child.terminate().await;
                    // Reported here, because the worker may not learn it until the database is back.
                    self.report_end(job, &JobOutcome::Lost);
                    // If the worker still has the job, the job has failed.
                    return Err("the lease could not be extended, and the command was ended".to_owned());
                }
                () = &mut terminating => {
                    child.terminate().await;
                    let is_done = child.wait().await.code == 0;
                    return if is_done { Ok(()) } else { give_back(job).await };
                }
            }
        }
    }

    /// Reports the end of a job. Does nothing if it was reported before.
    pub(super) fn report_end(&self, job: &ClaimedJob, outcome: &JobOutcome) {
        let Some(started) = lock(&self.started).remove(&run_key(job)) else { return };
        if let Some(event) = WorkEvent::from_outcome(job, outcome, started.elapsed()) {
            self.reporter.report(&event);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns job id and claim number: the job may be claimed and run again before this run has ended.
fn run_key(job: &ClaimedJob) -> (i64, i64) {
    (job.id(), job.claim_number())
}

async fn give_back(job: &ClaimedJob) -> Result<(), String> {
    let attempts = async {
        for _ in 1..GIVE_BACK_ATTEMPTS {
            if job.give_back().await.is_ok() {
                return Ok(());
            }
            sleep(GIVE_BACK_DELAY).await;
        }
        job.give_back().await.map_err(|error| error.to_string())
    };
    let result = timeout(GIVE_BACK_LIMIT, attempts).await;
    let result = result.unwrap_or_else(|_| Err("the database does not answer".to_owned()));
    result.map_err(|why| format!("the command was ended, and the job was not given back: {why}"))
}

/// Writes the payload to the command, and closes the pipe. Errors are ignored, because a command need not read it.
async fn write_payload(stdin: Option<ChildStdin>, payload: &str) {
    if let Some(Ok(mut stdin)) = stdin.map(tokio::process::ChildStdin::from_std) {
        let _ = stdin.write_all(payload.as_bytes()).await;
    }
}

fn job_result(exit: ChildExit, stderr: &str) -> Result<(), String> {
    let exit = match exit {
        ChildExit { code: 0, .. } => return Ok(()),
        ChildExit { signal: Some(signal), .. } => format!("signal {signal}"),
        ChildExit { code, .. } => format!("exit code {code}"),
    };
    Err(if stderr.is_empty() { exit } else { format!("{exit}\n{stderr}") })
}
