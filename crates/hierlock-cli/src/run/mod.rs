//! `hierlock run`: holds a lock while a command runs.
//!
//! ```text
//!   connect ──► acquire ──► start the command ──► it ends ──► release ──► its exit code
//!                 │ signal: give up                │ signal: forwarded   │ not confirmed: lost, 76
//!                 │ not free (in time): 75         │ lock lost: its group is ended, 76
//! ```
//!
//! Before `hierlock run` ends, it waits until the server has released its locks and ended its waits.
//!
//! Once the command has started, the exit code is that of the command or 76. After other exit codes a script may try again.

mod event;

use crate::args::{TargetArgs, lock_url, with};
use crate::child::{Child, ChildExit};
use crate::event::Reporter;
use crate::exit::{self, CommandError, CommandResult};
use crate::signals::{Signals, block_on};
use clap::Parser as _;
use event::CommandEvent;
use hierlock::{Guard, Hierlock, Request, ServerUrl, Target, parse_duration};
use std::ffi::OsString;
use std::path::Path;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A wait longer than this is reported.
const WAIT_NOTICE_DELAY: Duration = Duration::from_secs(1);

/// The time limit for releasing locks and closing sessions at the end.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Hold a lock while a command runs
///
/// Waits until the targets are free, runs the command, and releases when it ends. There is no shell
/// in between, the exit code is that of the command, and signals are forwarded to it. Two shells that
/// run it on the same target take turns; on two resources of one account they run side by side.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Where the lock is: file:PATH, mysql://…, mariadb://… or postgres://…; by default a file in your runtime or state
    /// directory
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    url: Option<ServerUrl>,
    /// Leave the password in the HIERLOCK_URL that the command sees
    #[arg(long)]
    keep_password: bool,
    /// Wait no longer than this, such as 300ms, 5s, 2m, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    within: Option<Duration>,
    /// Do not wait at all
    #[arg(long = "try", conflicts_with = "within")]
    no_wait: bool,
    #[command(flatten)]
    lock: TargetArgs,
    /// Report what happens as lines of JSON on standard error
    #[arg(long)]
    json: bool,
    /// Do not report waits, or that the lock was not free; the exit code reports it
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  hierlock run u1/a1 -- ./rebuild-index a1        # one at a time per account
  hierlock run --within 5s u1/a1/r1 -- make       # give up after 5 seconds (exit code 75)
  hierlock run --try nightly -- backup.sh         # skip if it is still running
  hierlock run --mode shared u1 -- report u1      # beside other readers of u1
  hierlock run u1/a1/r1 u7 -- ./move r1 u7        # several together, never a deadlock

The command sees HIERLOCK_TARGETS (one path a line) and HIERLOCK_URL, without its password unless
--keep-password is given.";

pub(crate) fn run(args: RunArgs) -> CommandResult {
    let reporter = Reporter::new(args.json, args.quiet);
    let targets = args.lock.targets.iter().map(Target::to_string).collect();
    block_on(RunCommand { args, reporter, targets }.run())
}

/// Returns the targets of a command line of `hierlock run`; none for other command lines.
pub(crate) fn targets_of(arguments: &[String]) -> Vec<Target> {
    match crate::Args::try_parse_from(arguments) {
        Ok(crate::Args { command: crate::Command::Run(args) }) => args.lock.targets,
        _ => Vec::new(),
    }
}

struct RunCommand {
    args: RunArgs,
    reporter: Reporter,
    targets: Vec<String>,
}

impl RunCommand {
    async fn run(&self) -> CommandResult {
        let CommandError { code, message } = match self.hold_and_run().await {
            Err(failure) if !failure.message.is_empty() => failure,
            result => return result,
        };
        self.reporter.report(&match code {
            exit::NOT_ACQUIRED => CommandEvent::NotAcquired { message, exit: code },
            _ => CommandEvent::Failed { message, exit: code },
        });
        Ok(code)
    }

    async fn hold_and_run(&self) -> CommandResult {
        let url = self.url()?;
        let mut signals = Signals::listen()?;
        // The label of the session on the server names the command, not `hierlock`.
        let command = Path::new(&self.args.command[0]).file_name().unwrap_or_default();
        let connect = Hierlock::builder()
            .hierarchy(self.args.lock.tree.levels.clone())
            .program(command.to_string_lossy())
            .connect(url.expose());
        let locks = signals.run_until_signal(connect).await??;
        locks.warnings().iter().for_each(|warning| self.report_warning(warning));
        let result = match self.acquire(&locks, &url, &mut signals).await {
            Ok(guard) => self.run_command(guard, &url, &mut signals).await,
            Err(failure) => Err(failure),
        };
        // Leaves no wait, lock or session on the server, unless another signal ends the wait for it.
        if let Ok(Err(error)) = signals.run_until_signal(locks.close(CLOSE_LIMIT)).await {
            self.report_warning(&error);
        }
        result
    }

    fn report_warning(&self, warning: &impl ToString) {
        self.reporter.report(&CommandEvent::Warning { message: warning.to_string() });
    }

    fn url(&self) -> Result<ServerUrl, CommandError> {
        match &self.args.url {
            Some(url) if url.expose().starts_with("memory:") => Err(CommandError::usage(format!(
                "`{url}` cannot be used: it locks within one process only; use file:PATH"
            ))),
            url => lock_url(url.as_ref()),
        }
    }

    async fn acquire(
        &self,
        locks: &Hierlock,
        url: &ServerUrl,
        signals: &mut Signals,
    ) -> Result<Guard, CommandError> {
        let lock = &self.args.lock;
        let request = locks.request_all(lock.targets.clone()).mode(lock.mode);
        let request = with(request, self.args.within, Request::within);
        let request = if self.args.no_wait { request.no_wait() } else { request };
        let started = Instant::now();
        let mut acquire = pin!(request.acquire());
        let mut notice = pin!(sleep(WAIT_NOTICE_DELAY));
        let mut after_notice = false;
        let guard = loop {
            tokio::select! {
                guard = &mut acquire => break guard?,
                signal = signals.next() => return Err(CommandError::signal(signal)),
                () = &mut notice, if !after_notice => {
                    after_notice = true;
                    let hint = held_by_outer_run(url, &lock.targets);
                    self.reporter.report(&CommandEvent::Waiting { targets: &self.targets, hint });
                }
            }
        };
        let (targets, waited_ms) = (&self.targets, started.elapsed().as_millis());
        self.reporter.report(&CommandEvent::Acquired { targets, waited_ms, after_notice });
        Ok(guard)
    }

    /// Runs the command; reports its exit and whether the lock was lost. Fails only if the command did not start.
    async fn run_command(
        &self,
        guard: Guard,
        url: &ServerUrl,
        signals: &mut Signals,
    ) -> CommandResult {
        let url =
            if self.args.keep_password { url.expose().into() } else { url.without_password() };
        let variables = [("HIERLOCK_TARGETS", self.targets.join("\n")), ("HIERLOCK_URL", url)];
        let mut child = Child::start(&self.args.command, &variables)?;
        let mut lost = Box::pin(guard.lost());
        let exit = loop {
            tokio::select! {
                biased;
                exit = child.wait() => break exit,
                signal = signals.next() => child.signal(signal),
                error = &mut lost => {
                    self.report_lost(&error, None);
                    child.terminate().await;
                    self.reporter.report(&CommandEvent::Exited(child.wait().await));
                    return Ok(exit::LOST);
                }
            }
        };
        drop(lost);
        self.reporter.report(&CommandEvent::Exited(exit));
        // If the release is not confirmed, the lock may have been lost while the command ran.
        if let Err(error) = guard.release().await {
            self.report_lost(&error, Some(exit));
            return Ok(exit::LOST);
        }
        Ok(exit.code)
    }

    fn report_lost(&self, error: &hierlock::Error, child_exit: Option<ChildExit>) {
        let message = error.to_string();
        self.reporter.report(&CommandEvent::Lost { message, exit: exit::LOST, child_exit });
    }
}

/// Returns a conflicting target that an outer `hierlock run` holds. The outer one may wait for this one, which would then
/// wait forever.
fn held_by_outer_run(url: &ServerUrl, targets: &[Target]) -> Option<String> {
    // The outer `hierlock run` removes the password from the variable by default.
    let outer_url = ServerUrl::new(std::env::var("HIERLOCK_URL").ok()?);
    if outer_url.without_password() != url.without_password() {
        return None;
    }
    let held = std::env::var("HIERLOCK_TARGETS").ok()?;
    held.lines()
        .filter_map(|path| path.parse::<Target>().ok())
        .find(|held| targets.iter().any(|wanted| held.contains(wanted) || wanted.contains(held)))
        .map(|held| held.to_string())
}
