//! `hierlock run`: holds a lock while a command runs.
//!
//! ```text
//!   connect ──► acquire ──► start the command ──► it ends ──► release ──► its exit code
//!                 │ signal: give up                │ signal: forwarded to its group
//!                 │ not free (in time): 75         │ lock lost: its group is ended, 76
//! ```

mod report;

use crate::args;
use crate::child::{Child, Ended};
use crate::exit::{self, Exit};
use crate::report::Reporter;
use crate::runtime::on_one_thread;
use crate::signals::Signals;
use hierlock::{Guard, Hierlock, Target};
use report::Event;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A wait longer than this is worth a word.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn run(args: args::Run) -> ExitCode {
    on_one_thread(Run::new(args).go())
}

struct Run {
    args: args::Run,
    reporter: Reporter,
}

/// Why the command did not run to its own end.
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
            Ok(ended) => {
                self.reporter.tell(&Event::Exited { code: ended.code, signal: ended.signal });
                return ExitCode::from(ended.code);
            }
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
            exit::LOST => Event::Lost { message, exit: exit.0 },
            _ => Event::Failed { message, exit: exit.0 },
        });
        exit.into()
    }

    async fn hold_and_run(&self) -> Result<Ended, Failure> {
        let url = self.url()?;
        let mut signals = Signals::listen().map_err(|error| Failure::Io {
            doing: "listen to signals",
            error,
            exit: exit::UNAVAILABLE,
        })?;
        let locks = Hierlock::connect_with(&url, self.args.what.levels.clone())
            .await
            .map_err(Failure::Lock)?;
        for warning in locks.warnings() {
            self.reporter.tell(&Event::Warning { message: warning.clone() });
        }
        let guard = self.acquire(&locks, &url, &mut signals).await?;
        let ended = self.run_under(&guard, &url, &mut signals).await?;
        // A lock that was lost just before the end was lost all the same.
        guard.release().await.map_err(Failure::Lock)?;
        Ok(ended)
    }

    fn url(&self) -> Result<String, Failure> {
        match &self.args.url {
            None => {
                let path = hierlock::default_path().map_err(Failure::Lock)?;
                Ok(format!("file:{}", path.display()))
            }
            Some(url) if url.starts_with("memory:") => Err(Failure::Usage(format!(
                "`{url}` is of no use here: it locks within one process only; use file:PATH"
            ))),
            Some(url) => Ok(url.clone()),
        }
    }

    async fn acquire(
        &self,
        locks: &Hierlock,
        url: &str,
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

    async fn run_under(
        &self,
        guard: &Guard,
        url: &str,
        signals: &mut Signals,
    ) -> Result<Ended, Failure> {
        let variables =
            [("HIERLOCK_TARGETS", self.targets().join("\n")), ("HIERLOCK_URL", url.into())];
        let mut child = Child::start(&self.args.command, variables)
            .map_err(|(error, exit)| Failure::Io { doing: "run the command", error, exit })?;
        let lost = guard.lost();
        tokio::pin!(lost);
        loop {
            tokio::select! {
                ended = child.ended() => return Ok(ended),
                signal = signals.next() => child.signal(signal),
                error = &mut lost => {
                    child.end().await;
                    return Err(Failure::Lock(error));
                }
            }
        }
    }

    fn targets(&self) -> Vec<String> {
        self.args.what.targets.iter().map(Target::to_string).collect()
    }
}

/// The target that a `hierlock run` around this one says it holds: then this would wait for itself.
fn held_around(url: &str, targets: &[Target]) -> Option<String> {
    if std::env::var("HIERLOCK_URL").ok()? != url {
        return None;
    }
    let held = std::env::var("HIERLOCK_TARGETS").ok()?;
    held.lines()
        .filter_map(|path| path.parse::<Target>().ok())
        .find(|held| targets.iter().any(|wanted| held.contains(wanted) || wanted.contains(held)))
        .map(|held| held.to_string())
}
