//! One job: the command is started, fed and waited for, and what became of it is told.

use super::PATIENCE;
use super::report::{Event, Run};
use super::tail::Tail;
use crate::child::{self, Child};
use crate::exit::Stop;
use crate::report::Reporter;
use hierlock::queue::{Claimed, Ended, Queue, WorkerHandle};
use std::collections::HashMap;
use std::ffi::OsString;
use std::process::ChildStdin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// How often a job is offered that nobody takes back, because somebody else looks at it just then.
const OFFERS: u32 = 5;
const BETWEEN_OFFERS: Duration = Duration::from_millis(20);

pub(super) struct Runner {
    queue: Queue,
    command: Vec<OsString>,
    reporter: Reporter,
    worker: WorkerHandle,
    /// Since when jobs run whose end was not told yet, by ID and claim.
    begun: Mutex<HashMap<(i64, i64), Instant>>,
    /// Are commands to be ended?
    ending: watch::Sender<bool>,
    unstartable: Mutex<Option<Stop>>,
}

/// How a run of the command went.
enum Verdict {
    Done,
    Failed(String),
    /// We have ended it, or it was never begun.
    Undone,
    Lost,
}

impl Runner {
    pub(super) fn new(
        queue: Queue,
        command: Vec<OsString>,
        reporter: Reporter,
        worker: WorkerHandle,
    ) -> Self {
        let (begun, unstartable) = (Mutex::default(), Mutex::default());
        let ending = watch::Sender::new(false);
        Self { queue, command, reporter, worker, begun, ending, unstartable }
    }

    pub(super) fn tell(&self, event: &Event<'_>) {
        self.reporter.tell(event);
    }

    /// Ends all commands.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
    }

    /// Why the command could not be started, if it could not.
    pub(super) fn unstartable(&self) -> Option<Stop> {
        self.unstartable.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs the command for a job. The worker writes down what came of it, unless it was given back.
    pub(super) async fn run(&self, job: &Claimed) -> Result<(), String> {
        self.begun().insert(name(job), Instant::now());
        match self.attempt(job).await {
            Verdict::Done => Ok(()),
            Verdict::Failed(error) => Err(error),
            Verdict::Undone => self.give_back(job).await,
            Verdict::Lost => {
                // The database may be away, and the worker not know for sure for a while.
                self.ended(job, &Ended::Lost);
                // Should it still be ours after all, it has failed.
                Err("the lease could not be extended, and the command was ended".to_owned())
            }
        }
    }

    /// Tells what became of a job, once.
    pub(super) fn ended(&self, job: &Claimed, ended: &Ended) {
        let begun = self.begun().remove(&name(job));
        if let Some(event) = begun.and_then(|begun| Event::ended(job, ended, begun.elapsed())) {
            self.tell(&event);
        }
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<(i64, i64), Instant>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn give_back(&self, job: &Claimed) -> Result<(), String> {
        let offers = async {
            for _ in 1..OFFERS {
                if job.give_back().await.is_ok() {
                    return Ok(());
                }
                sleep(BETWEEN_OFFERS).await;
            }
            job.give_back().await.map_err(|error| error.to_string())
        };
        let offered = timeout(PATIENCE, offers).await;
        let given = offered.unwrap_or_else(|_| Err("the database does not answer".to_owned()));
        given.map_err(|why| format!("it was ended, and not given back: {why}"))
    }

    async fn attempt(&self, job: &Claimed) -> Verdict {
        let variables = [
            ("HIERLOCK_QUEUE", self.queue.name().to_owned()),
            ("HIERLOCK_JOB", job.id().to_string()),
            ("HIERLOCK_ATTEMPT", job.attempt().to_string()),
        ];
        let (mut child, pipes) = match Child::start_piped(&self.command, variables) {
            Ok(started) => started,
            Err((error, exit)) => {
                // It would be the same for every job.
                let why = format!("cannot run the command: {error}");
                let mut unstartable =
                    self.unstartable.lock().unwrap_or_else(PoisonError::into_inner);
                unstartable.get_or_insert(Stop::new(exit, why));
                self.worker.stop();
                return Verdict::Undone;
            }
        };
        self.tell(&Event::Started(Run::from(job)));
        let mut tail = Tail::follow(pipes.errors);
        let (feed, lost, told) = (feed(pipes.input, job.payload()), job.lost(), self.told_to_end());
        tokio::pin!(feed, lost, told);
        let mut is_fed = false;
        loop {
            tokio::select! {
                ended = child.ended() => {
                    let said = tail.lines().await;
                    return verdict(ended, &said);
                }
                () = &mut feed, if !is_fed => is_fed = true,
                () = &mut lost => {
                    child.end().await;
                    return Verdict::Lost;
                }
                () = &mut told => {
                    child.end().await;
                    return match child.ended().await.code {
                        0 => Verdict::Done,
                        _ => Verdict::Undone,
                    };
                }
            }
        }
    }

    async fn told_to_end(&self) {
        // We have the other end, too.
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }
}

/// A job may run again before its last run has ended.
fn name(job: &Claimed) -> (i64, i64) {
    (job.id(), job.claim_number())
}

/// Writes the payload, and closes the pipe. A command need not read it.
async fn feed(input: Option<ChildStdin>, payload: &str) {
    if let Some(Ok(mut input)) = input.map(tokio::process::ChildStdin::from_std) {
        let _ = input.write_all(payload.as_bytes()).await;
    }
}

fn verdict(ended: child::Ended, said: &str) -> Verdict {
    let how = match ended {
        child::Ended { code: 0, .. } => return Verdict::Done,
        child::Ended { signal: Some(signal), .. } => format!("signal {signal}"),
        child::Ended { code, .. } => format!("exit code {code}"),
    };
    Verdict::Failed(match said {
        "" => how,
        said => format!("{how}\n{said}"),
    })
}
