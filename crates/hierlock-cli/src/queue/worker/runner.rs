//! One job: its command is started, gets the payload and is waited for.

use super::GIVE_BACK_LIMIT;
use super::event::{Attempt, WorkEvent};
use super::tail::StderrTail;
use crate::child::{Child, ChildExit};
use crate::event::Reporter;
use crate::exit::Failure;
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

/// How often it is tried to give a job back while somebody else has its row locked.
const GIVE_BACK_ATTEMPTS: u32 = 5;
const GIVE_BACK_DELAY: Duration = Duration::from_millis(20);

pub(super) struct JobRunner {
    queue: Queue,
    command: Vec<OsString>,
    pub(super) reporter: Reporter,
    worker: WorkerHandle,
    /// When jobs started whose end was not reported yet.
    started: Mutex<HashMap<(i64, i64), Instant>>,
    pub(super) terminating: watch::Sender<bool>,
    start_failure: Mutex<Option<Failure>>,
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

    pub(super) fn take_start_failure(&self) -> Option<Failure> {
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
                // It would be the same for every job.
                lock(&self.start_failure).get_or_insert(failure);
                self.worker.stop();
                return give_back(job).await;
            }
        };
        self.reporter.report(&WorkEvent::Started(Attempt::from(job)));
        let mut tail = StderrTail::follow(child.stderr.take());
        let mut feed = pin!(feed(child.stdin.take(), job.payload()));
        let mut lost = pin!(job.lost());
        // The sender is ours.
        let mut terminating =
            pin!(async { _ = self.terminating.subscribe().wait_for(|it| *it).await });
        let mut is_fed = false;
        loop {
            tokio::select! {
                exit = child.wait() => return result_of(exit, &tail.lines().await),
                () = &mut feed, if !is_fed => is_fed = true,
                () = &mut lost => {
                    child.terminate().await;
                    // The database may be away, and the worker not know for sure for a while.
                    self.report_end(job, &JobOutcome::Lost);
                    // Should it still be ours after all, it has failed.
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

    /// Reports how a job ended, once.
    pub(super) fn report_end(&self, job: &ClaimedJob, ended: &JobOutcome) {
        let since = lock(&self.started).remove(&run_key(job));
        if let Some(event) = since.and_then(|since| WorkEvent::ended(job, ended, since.elapsed())) {
            self.reporter.report(&event);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// ID and claim: a job may run again before its last run has ended.
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
    let in_time = timeout(GIVE_BACK_LIMIT, attempts).await;
    let result = in_time.unwrap_or_else(|_| Err("the database does not answer".to_owned()));
    result.map_err(|why| format!("it was ended, and not given back: {why}"))
}

/// Writes the payload, and closes the pipe. A command need not read it.
async fn feed(stdin: Option<ChildStdin>, payload: &str) {
    if let Some(Ok(mut stdin)) = stdin.map(tokio::process::ChildStdin::from_std) {
        let _ = stdin.write_all(payload.as_bytes()).await;
    }
}

fn result_of(exit: ChildExit, stderr: &str) -> Result<(), String> {
    let exit = match exit {
        ChildExit { code: 0, .. } => return Ok(()),
        ChildExit { signal: Some(signal), .. } => format!("signal {signal}"),
        ChildExit { code, .. } => format!("exit code {code}"),
    };
    Err(if stderr.is_empty() { exit } else { format!("{exit}\n{stderr}") })
}
