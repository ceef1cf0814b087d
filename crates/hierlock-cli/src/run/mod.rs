//! `hierlock run`: holds a lock while a command runs.
//!
//! ```text
//!   connect ──► acquire ──► start the command ──► it ends ──► release ──► its exit code
//!                 │ signal: give up                │ signal: forwarded   │ not confirmed: lost, 76
//!                 │ not free (in time): 75         │ lock lost: its group is ended, 76
//! ```
//!
//! Before it ends, on every way, it waits for the server to be told what it has given up.
//!
//! Once the command has begun, the exit code is its own or 76. A code such as 69 says that it did not run, so a
//! script may try again.

mod report;

use crate::args;
use crate::child::{Child, Ended};
use crate::exit::{self, Exit};
use crate::report::Reporter;
use crate::runtime::on_one_thread;
use crate::signals::Signals;
use hierlock::{Guard, Hierlock, ServerUrl, Target};
use report::Event;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A wait longer than this is worth a word.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// How long the end is put off for a server that is to be told what we have given up.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: args::Run) -> ExitCode {
    on_one_thread(Run::new(args).go())
}

struct Run {
    args: args::Run,
    reporter: Reporter,
}

/// Why the command did not run.
enum Failure {
    /// hierlock was told to stop while it waited.
    Signal(i32),
    Lock(hierlock::Error),
    Io {
        doing: &'static str,
        error: std::io::Error,
        exit: Exit,
    },
    Usage(String),
}

impl Run {
    fn new(args: args::Run) -> Self {
        let reporter = Reporter::new(args.json, args.quiet);
        Self { args, reporter }
    }

    async fn go(&self) -> ExitCode {
        let failure = match self.hold_and_run().await {
            Ok(code) => return code,
            Err(failure) => failure,
        };
        let (exit, message) = match failure {
            Failure::Signal(signal) => return ExitCode::from(exit::of_signal(signal)),
            Failure::Usage(message) => (exit::USAGE, message),
            Failure::Io { doing, error, exit } => (exit, format!("cannot {doing}: {error}")),
            Failure::Lock(error) => (Exit::from(&error), error.to_string()),
        };
        self.reporter.tell(&match exit {
            exit::NOT_ACQUIRED => Event::NotAcquired { message, exit: exit.0 },
            _ => Event::Failed { message, exit: exit.0 },
        });
        exit.into()
    }

    async fn hold_and_run(&self) -> Result<ExitCode, Failure> {
        let url = self.url()?;
        let mut signals = Signals::listen().map_err(|error| Failure::Io {
            doing: "listen to signals",
            error,
            exit: exit::UNAVAILABLE,
        })?;
        let locks = tokio::select! {
            locks = Hierlock::connect_with(url.expose(), self.args.what.levels.clone()) => {
                locks.map_err(Failure::Lock)?
            }
            signal = signals.next() => return Err(Failure::Signal(signal)),
        };
        for warning in locks.warnings() {
            self.reporter.tell(&Event::Warning { message: warning.clone() });
        }
        let ended = match self.acquire(&locks, &url, &mut signals).await {
            Ok(guard) => self.run_under(guard, &url, &mut signals).await,
            Err(failure) => Err(failure),
        };
        self.close(&locks, &mut signals).await;
        ended
    }

    /// Leaves nothing on the server: no wait that was given up, no lock, no session that only we know to be lost.
    async fn close(&self, locks: &Hierlock, signals: &mut Signals) {
        tokio::select! {
            closed = locks.close(CLOSE_LIMIT) => if let Err(error) = closed {
                self.reporter.tell(&Event::Warning { message: error.to_string() });
            },
            // Whoever is in a hurry.
            _ = signals.next() => {}
        }
    }

    fn url(&self) -> Result<ServerUrl, Failure> {
        match &self.args.url {
            None => {
                let path = hierlock::default_path().map_err(Failure::Lock)?;
                Ok(format!("file:{}", path.display()).into())
            }
            Some(url) if url.expose().starts_with("memory:") => Err(Failure::Usage(format!(
                "`{url}` is of no use here: it locks within one process only; use file:PATH"
            ))),
            Some(url) => Ok(url.clone()),
        }
    }

    async fn acquire(
        &self,
        locks: &Hierlock,
        url: &ServerUrl,
        signals: &mut Signals,
    ) -> Result<Guard, Failure> {
        let args = &self.args;
        let mut request = locks.request_all(args.what.targets.clone()).mode(args.what.mode());
        if let Some(span) = args.within {
            request = request.within(span);
        }
        if args.no_wait {
            request = request.no_wait();
        }
        let asked = Instant::now();
        let acquire = request.acquire();
        tokio::pin!(acquire);
        let mut notice = Some(Box::pin(sleep(NOTICE_AFTER)));
        let guard = loop {
            let notice_due = async {
                match &mut notice {
                    Some(sleep) => sleep.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                guard = &mut acquire => break guard.map_err(Failure::Lock)?,
                signal = signals.next() => return Err(Failure::Signal(signal)),
                () = notice_due => {
                    notice = None;
                    let hint = held_around(url, &args.what.targets);
                    self.reporter.tell(&Event::Waiting { targets: self.targets(), hint });
                }
            }
        };
        self.reporter.tell(&Event::Acquired {
            targets: self.targets(),
            waited_ms: asked.elapsed().as_millis(),
            noticed: notice.is_none(),
        });
        Ok(guard)
    }

    /// Runs the command, and tells how it ended and what became of the lock. Fails only if it did not begin.
    async fn run_under(
        &self,
        guard: Guard,
        url: &ServerUrl,
        signals: &mut Signals,
    ) -> Result<ExitCode, Failure> {
        let passed = match self.args.keep_password {
            true => url.expose().to_owned(),
            false => url.without_password(),
        };
        let variables = [("HIERLOCK_TARGETS", self.targets().join("\n")), ("HIERLOCK_URL", passed)];
        let mut child = Child::start(&self.args.command, variables)
            .map_err(|(error, exit)| Failure::Io { doing: "run the command", error, exit })?;
        let mut lost = Box::pin(guard.lost());
        let ended = loop {
            tokio::select! {
                biased;
                ended = child.ended() => break ended,
                signal = signals.next() => child.signal(signal),
                error = &mut lost => {
                    self.tell_lost(&error, None);
                    child.end().await;
                    self.tell_exited(child.ended().await);
                    return Ok(exit::LOST.into());
                }
            }
        };
        drop(lost);
        self.tell_exited(ended);
        // A lock that was lost just before the end was lost all the same; and so it is if nobody can tell.
        if let Err(error) = guard.release().await {
            self.tell_lost(&error, Some(ended));
            return Ok(exit::LOST.into());
        }
        Ok(ExitCode::from(ended.code))
    }

    fn tell_exited(&self, Ended { code, signal }: Ended) {
        self.reporter.tell(&Event::Exited { code, signal });
    }

    /// `ended` is how the command ended, if it ran to its own end.
    fn tell_lost(&self, error: &hierlock::Error, ended: Option<Ended>) {
        let (code, signal) = (ended.map(|ended| ended.code), ended.and_then(|ended| ended.signal));
        let (message, exit) = (error.to_string(), exit::LOST.0);
        self.reporter.tell(&Event::Lost { message, exit, code, signal });
    }

    fn targets(&self) -> Vec<String> {
        self.args.what.targets.iter().map(Target::to_string).collect()
    }
}

/// The target that a `hierlock run` around this one says it holds: then this would wait for itself.
fn held_around(url: &ServerUrl, targets: &[Target]) -> Option<String> {
    // The one around this one may have kept its password to itself.
    let around = ServerUrl::new(std::env::var("HIERLOCK_URL").ok()?);
    if around.without_password() != url.without_password() {
        return None;
    }
    let held = std::env::var("HIERLOCK_TARGETS").ok()?;
    held.lines()
        .filter_map(|path| path.parse::<Target>().ok())
        .find(|held| targets.iter().any(|wanted| held.contains(wanted) || wanted.contains(held)))
        .map(|held| held.to_string())
}
