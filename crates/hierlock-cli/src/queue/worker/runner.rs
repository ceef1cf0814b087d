//! One job: the command is started, fed and waited for, and what became of it is written down.

use super::report::{Event, Run};
use super::tail::Tail;
use crate::child::{Child, Ended};
use crate::exit::Stop;
use crate::report::Reporter;
use hierlock::queue::{Claimed, Queue, WorkerHandle};
use std::ffi::OsString;
use std::process::ChildStdin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::sleep;

/// How often a job is offered that nobody takes back, because somebody else looks at it just then.
const OFFERS: u32 = 5;
const BETWEEN_OFFERS: Duration = Duration::from_millis(20);

pub(super) struct Runner {
    queue: Queue,
    command: Vec<OsString>,
    reporter: Reporter,
    worker: WorkerHandle,
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
        let (ending, unstartable) = (watch::Sender::new(false), Mutex::default());
        Self { queue, command, reporter, worker, ending, unstartable }
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

    /// Runs the command for a job. An error is a failure that the worker counts; otherwise the job is
    /// settled here, or is to be completed.
    pub(super) async fn run(&self, job: &Claimed) -> Result<(), String> {
        let (run, begun) = (Run::from(job), Instant::now());
        match self.attempt(job).await {
            Verdict::Done => match job.complete().await {
                Err(error) if error.is_lost() => {
                    self.tell(&Event::Lost(run));
                    Err(error.to_string())
                }
                // The worker goes on to try what the database could not do just now.
                _ => {
                    let elapsed_ms = begun.elapsed().as_millis();
                    self.tell(&Event::Done { run, elapsed_ms });
                    Ok(())
                }
            },
            Verdict::Failed(error) => match job.fail(&error).await {
                Ok(failed) => {
                    self.tell(&Event::failed(run, &error, failed));
                    Ok(())
                }
                Err(_) => Err(error),
            },
            Verdict::Undone => {
                self.give_back(job).await?;
                self.tell(&Event::GivenBack(run));
                Ok(())
            }
            Verdict::Lost => {
                self.tell(&Event::Lost(run));
                // Should it still be ours after all, it has failed.
                Err("the lease could not be extended, and the command was ended".to_owned())
            }
        }
    }

    async fn give_back(&self, job: &Claimed) -> Result<(), String> {
        for _ in 1..OFFERS {
            if job.give_back().await.is_ok() {
                return Ok(());
            }
            sleep(BETWEEN_OFFERS).await;
        }
        job.give_back().await.map_err(|error| format!("it was ended, and not given back: {error}"))
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

/// Writes the payload, and closes the pipe. A command need not read it.
async fn feed(input: Option<ChildStdin>, payload: &str) {
    if let Some(Ok(mut input)) = input.map(tokio::process::ChildStdin::from_std) {
        let _ = input.write_all(payload.as_bytes()).await;
    }
}

fn verdict(ended: Ended, said: &str) -> Verdict {
    let how = match ended {
        Ended { code: 0, .. } => return Verdict::Done,
        Ended { signal: Some(signal), .. } => format!("signal {signal}"),
        Ended { code, .. } => format!("exit code {code}"),
    };
    Verdict::Failed(match said {
        "" => how,
        said => format!("{how}\n{said}"),
    })
}
