//! Runs one setup: starts processes in its slots, injects faults, and checks the history at the end.

use super::check::{Fault, Findings, History, JobCounts, Rules, Violation, check};
use super::driver_log::{Counts, DriverLog};
use super::history::{self, Event, Reason, Recorder, VisitId};
use super::proxy::Proxy;
use super::random::Random;
use super::server::{Server, SetupDatabase};
use super::setup::{Part, Setup, SoakBackend};
use super::slot::{Program, WorkerSlot};
use super::worker::WorkerArgs;
use super::{Options, Result, clock, faults, final_check, tree};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The time limit for a worker to end after its input was closed. No faults are injected any more.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for a new event in the history.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the driver checks whether a process has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// The allowed exit codes of `hierlock run`: done, not acquired in time, no server, lock lost.
const EXPECTED_EXIT_CODES: [i32; 4] = [0, NOT_ACQUIRED, UNAVAILABLE, 76];
const NOT_ACQUIRED: i32 = 75;
const UNAVAILABLE: i32 = 69;

/// The phase of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// No new processes are started, and the running ones are stopped.
    Ending,
}

/// The run of one setup.
pub struct SetupRun {
    /// The setup.
    pub setup: Setup,
    /// The slots in which processes run.
    pub slots: Vec<Arc<WorkerSlot>>,
    /// The log of the driver.
    pub log: DriverLog,
    /// The server, if there is one.
    pub server: Option<Arc<Server>>,
    /// The locks or tables, with URLs that do not use a proxy.
    pub database: SetupDatabase,
    history: PathBuf,
    recorder: Recorder,
    phase: watch::Sender<Phase>,
    options: Arc<Options>,
}

/// The result of a setup.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The name of the setup.
    pub name: String,
    /// The time during which faults were injected.
    pub duration: Duration,
    /// The counts of the driver.
    pub counts: Counts,
    /// The findings of the check of the history.
    pub findings: Findings,
    /// The counts of the jobs.
    pub jobs: JobCounts,
    /// All violations.
    pub violations: Vec<Violation>,
}

impl SetupRun {
    /// Runs a setup and injects faults for `length`.
    ///
    /// # Errors
    /// Fails if the setup cannot be prepared.
    pub async fn run(
        setup: Setup,
        server: Option<Arc<Server>>,
        options: Arc<Options>,
        length: Duration,
    ) -> Result<Outcome> {
        let seed = Random::derive(options.seed, index_of(setup)).next_u64();
        let run = Arc::new(Self::new(setup, server, options).await?);
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for slot in &run.slots {
            let random = Random::derive(seed, 100 + slot.number as u64);
            tasks.spawn(run.clone().run_processes(slot.clone(), random, seed));
        }
        let (stop_producer, stop) = watch::channel(false);
        let producer = match setup.part {
            Part::Queue => Some(tokio::spawn(final_check::produce(run.clone(), stop))),
            Part::Locks { .. } | Part::Leases => None,
        };
        let watcher = tokio::spawn(run.clone().watch_progress());
        let random = Random::derive(seed, 7);
        // In a separate task, so that setups on different servers do not wait for each other.
        tokio::spawn(faults::inject(run.clone(), random, length)).await?;
        let duration = started.elapsed();
        watcher.abort();
        let mut added = final_check::AddedJobs::new();
        if let Some(producer) = producer {
            stop_producer.send_replace(true);
            added = producer.await??;
            final_check::wait_until_empty(&run).await?;
        }
        run.phase.send_replace(Phase::Ending);
        while tasks.join_next().await.is_some() {}
        if !run.is_interrupted() {
            final_check::check_everything_is_free(&run).await;
        }
        run.outcome(duration, added).await
    }

    async fn new(setup: Setup, server: Option<Arc<Server>>, options: Arc<Options>) -> Result<Self> {
        let directory = options.directory.join(setup.to_string());
        std::fs::create_dir_all(&directory)?;
        let database = SetupDatabase::create(setup, server.as_deref(), &directory).await?;
        let mut slots = Vec::new();
        for (number, program) in programs(setup).into_iter().enumerate() {
            let (proxy, url) = match &server {
                Some(server) => {
                    let proxy = Proxy::start(server.address()).await?;
                    let url = database.url_through(proxy.port);
                    (Some(proxy), url)
                }
                None => (None, database.url.clone()),
            };
            let mut slot = WorkerSlot::new(number, program, proxy, url);
            let is_alone = setup.backend == SoakBackend::Memory;
            slot.broken = options.broken && (is_alone || number % 2 == 1);
            slots.push(Arc::new(slot));
        }
        let history = directory.join("history");
        let recorder = Recorder::open(&history)?;
        let phase = watch::Sender::new(Phase::Running);
        let log = DriverLog::default();
        Ok(Self { setup, slots, log, server, database, history, recorder, phase, options })
    }

    /// Returns whether the whole run is interrupted.
    pub fn is_interrupted(&self) -> bool {
        *self.options.interrupted.borrow()
    }

    /// Waits for `duration`, or until the run is interrupted.
    pub async fn pause(&self, duration: Duration) {
        let mut interrupted = self.options.interrupted.clone();
        tokio::select! {
            () = sleep(duration) => {}
            _ = interrupted.wait_for(|is_interrupted| *is_interrupted) => {}
        }
    }

    /// Restarts the server, by an orderly shutdown or by SIGKILL.
    pub async fn restart(&self, gracefully: bool) {
        let Some(server) = self.server.clone() else { return };
        let since = clock::now();
        let restarted = tokio::task::spawn_blocking(move || server.restart(gracefully)).await;
        let failed = match restarted {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(error) = failed {
            self.log.add_violation(format!("the server did not come back: {error}"));
        }
        let mut entries = self.log.entries();
        if gracefully {
            entries.counts.restarts += 1;
        } else {
            entries.counts.crashes += 1;
        }
        let until = clock::now();
        entries.faults.push(Fault { slot: None, since, until, closes_connections: true });
    }

    /// Runs one process after the other in a slot.
    async fn run_processes(self: Arc<Self>, slot: Arc<WorkerSlot>, mut random: Random, seed: u64) {
        while *self.phase.borrow() == Phase::Running && !self.is_interrupted() {
            let worker = self.log.add_process(slot.number);
            if let Err(error) = self.start(&slot, worker, &mut random, seed) {
                self.log.add_violation(format!("a process could not be started: {error}"));
                return;
            }
            let (worker, status) = self.wait_for_exit(&slot).await;
            self.record_exit(&slot, worker, status);
            if status.code() == Some(UNAVAILABLE) {
                // The server is down, so the next attempt is delayed.
                self.pause(Duration::from_millis(200)).await;
            }
        }
    }

    fn start(&self, slot: &WorkerSlot, worker: u32, random: &mut Random, seed: u64) -> Result<()> {
        let mut command = match slot.program {
            Program::Library => {
                let args = WorkerArgs {
                    part: self.setup.part.name().to_owned(),
                    url: slot.url.clone(),
                    history: self.history.clone(),
                    worker,
                    seed,
                    broken: slot.broken,
                };
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("--worker").args(args.words()).stdin(Stdio::piped());
                command
            }
            Program::Run => self.run_command(slot, worker, random)?,
        };
        let errors = self.history.with_file_name("errors");
        let errors = std::fs::File::options().append(true).create(true).open(errors)?;
        command.stdout(Stdio::null()).stderr(errors);
        // Ctrl-C reaches only the driver, which then ends its processes.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        slot.start(worker, &mut command)?;
        Ok(())
    }

    /// Returns a `hierlock run` whose command records a visit.
    fn run_command(&self, slot: &WorkerSlot, worker: u32, random: &mut Random) -> Result<Command> {
        let mode = tree::random_mode(random);
        let mut claims = tree::random_claims(random);
        claims.iter_mut().for_each(|claim| claim.mode = mode);
        let visit = VisitId { worker, task: 0, number: 0 };
        self.recorder.record(visit, Event::Ask(claims.clone()));
        let millis = if random.chance(10) { random.between(200, 1500) } else { random.below(30) };
        let mut command = Command::new(&self.options.hierlock);
        command.args(["run", "--quiet", "--url", &slot.url, "--mode", &mode.to_string()]);
        match random.below(4) {
            0 => command.arg("--try"),
            _ => command.args(["--within".to_owned(), format!("{}ms", random.between(100, 4000))]),
        };
        for claim in &claims {
            command.arg(tree::node_to_lock(&claim.target, slot.broken).to_string());
        }
        command.arg("--").arg(std::env::current_exe()?).arg("--visit");
        command.arg(&self.history).arg(worker.to_string()).arg(history::format_claims(&claims));
        command.arg(millis.to_string()).stdin(Stdio::null());
        Ok(command)
    }

    async fn wait_for_exit(&self, slot: &WorkerSlot) -> (u32, ExitStatus) {
        let mut stop_requested: Option<Instant> = None;
        loop {
            if let Some(exit) = slot.reap() {
                return exit;
            }
            sleep(POLL_INTERVAL).await;
            let is_late = stop_requested.is_some_and(|at| at.elapsed() > STOP_TIMEOUT);
            if is_late {
                self.log.add_violation(format!(
                    "stuck: a process of slot {} has not ended {STOP_TIMEOUT:?} after its input was closed",
                    slot.number
                ));
            }
            if is_late || self.is_interrupted() {
                slot.signal(nix::sys::signal::Signal::SIGKILL, |worker| {
                    if let Some(process) = self.log.entries().processes.get_mut(&worker) {
                        process.killed = process.killed.or(Some(clock::now()));
                    }
                });
                stop_requested = Some(Instant::now());
            } else if stop_requested.is_none() && *self.phase.borrow() == Phase::Ending {
                slot.close_input();
                stop_requested = Some(Instant::now());
            }
        }
    }

    fn record_exit(&self, slot: &WorkerSlot, worker: u32, status: ExitStatus) {
        let mut entries = self.log.entries();
        let Some(process) = entries.processes.get_mut(&worker) else { return };
        process.ended = true;
        if process.killed.is_some() {
            return;
        }
        let code = status.code();
        let is_run = slot.program == Program::Run;
        process.confirmed = is_run && code == Some(0);
        let is_good = match code {
            Some(code) if is_run => {
                *entries.counts.exits.entry(code).or_default() += 1;
                EXPECTED_EXIT_CODES.contains(&code)
            }
            code => code == Some(0),
        };
        if is_run && matches!(code, Some(UNAVAILABLE | NOT_ACQUIRED)) {
            let reason = if code == Some(NOT_ACQUIRED) { Reason::Timeout } else { Reason::Failed };
            let visit = VisitId { worker, task: 0, number: 0 };
            self.recorder.record(visit, Event::NotGranted(reason));
        }
        if !is_good {
            let errors = std::fs::read_to_string(self.history.with_file_name("errors"));
            let errors = errors.unwrap_or_default();
            let last: Vec<&str> = errors.lines().rev().take(3).collect();
            entries.violations.push(Violation::Other(format!(
                "process {worker} ({:?}) ended by itself with {status}: {}",
                slot.program,
                last.into_iter().rev().collect::<Vec<_>>().join(" | ")
            )));
        }
    }

    /// Records a violation if no event is recorded for too long.
    async fn watch_progress(self: Arc<Self>) {
        let (mut size, mut since) = (0, Instant::now());
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = std::fs::metadata(&self.history).map_or(0, |file| file.len());
            if now != size {
                (size, since) = (now, Instant::now());
            } else if since.elapsed() > PROGRESS_TIMEOUT {
                self.log.add_violation(format!(
                    "stuck: no event was recorded for {PROGRESS_TIMEOUT:?}"
                ));
                since = Instant::now();
            }
        }
    }

    async fn outcome(&self, duration: Duration, added: final_check::AddedJobs) -> Result<Outcome> {
        let entries = self.log.entries().clone();
        let lines = history::read(&self.history)?;
        let (processes, faults) = (entries.processes, entries.faults);
        let history = History { lines, processes, faults };
        let driver_log = format!("{:#?}\n{:#?}\n", history.processes, history.faults);
        std::fs::write(self.history.with_file_name("done"), driver_log)?;
        let rules = match self.setup.part {
            Part::Leases => Rules::Leases,
            Part::Locks { .. } | Part::Queue => Rules::Locks,
        };
        let mut outcome = Outcome {
            name: self.setup.to_string(),
            duration,
            counts: entries.counts,
            violations: entries.violations,
            ..Outcome::default()
        };
        match self.setup.part {
            Part::Queue if !self.is_interrupted() => {
                let (jobs, violations) =
                    final_check::check_jobs_left(self, &history, added).await?;
                outcome.jobs = jobs;
                outcome.violations.extend(violations);
            }
            Part::Queue => {}
            Part::Leases | Part::Locks { .. } => {
                outcome.findings = check(&history, rules);
                let violations = std::mem::take(&mut outcome.findings.violations);
                outcome.violations.extend(violations);
            }
        }
        if self.setup.part == Part::Leases && !self.is_interrupted() {
            let violations =
                final_check::check_writes_left(self, &outcome.findings.writes_by_token).await?;
            outcome.violations.extend(violations);
        }
        Ok(outcome)
    }
}

/// Returns the programs that run in the slots of a setup.
fn programs(setup: Setup) -> Vec<Program> {
    use Program::{Library, Run};
    match (setup.backend, setup.part) {
        (SoakBackend::Memory, _) => vec![Library],
        (_, Part::Locks { .. }) => vec![Library, Library, Run, Run, Library, Run],
        (_, Part::Leases | Part::Queue) => vec![Library; 4],
    }
}

fn index_of(setup: Setup) -> u64 {
    Setup::all().iter().position(|one| *one == setup).unwrap_or(0) as u64
}
