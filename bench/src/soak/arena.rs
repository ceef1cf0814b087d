//! One setup under fire: its slots, what is done to them, and what is found in the end.

use super::check::{Disturbance, Findings, History, JobCounts, Rules, Violation, check};
use super::history::{self, Event, Reason, Recorder, VisitId};
use super::ledger::{Counts, Ledger};
use super::proxy::Proxy;
use super::random::Random;
use super::server::{Database, Server};
use super::setup::{Part, Place, Setup};
use super::slot::{Program, Slot};
use super::worker::WorkerArgs;
use super::{Options, Result, clock, faults, finish, tree};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How long a worker may take to end when it is told to stop and nothing is done to anybody any more.
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// How long it may be that nobody records anything.
const QUIET_FOR: Duration = Duration::from_secs(60);
/// How often processes are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(4);
/// Exit codes of `hierlock run` that say what happened to it: done, not acquired in time, no server, lost.
const EXITS: [i32; 4] = [0, NOT_ACQUIRED, UNAVAILABLE, 76];
const NOT_ACQUIRED: i32 = 75;
const UNAVAILABLE: i32 = 69;

/// How far a setup is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// No new processes; those that run are to end.
    Ending,
}

/// One setup under fire.
pub struct Arena {
    /// What is tried.
    pub setup: Setup,
    /// Where processes run.
    pub slots: Vec<Arc<Slot>>,
    /// What was done.
    pub ledger: Ledger,
    /// The server, if there is one.
    pub server: Option<Arc<Server>>,
    /// Where its tables are, past all networks.
    pub database: Database,
    history: PathBuf,
    recorder: Recorder,
    phase: watch::Sender<Phase>,
    options: Arc<Options>,
}

/// What came of a setup.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// For how long it was under fire.
    pub lasted: Duration,
    /// What was done to it.
    pub counts: Counts,
    /// What its history has in it.
    pub findings: Findings,
    /// What became of its jobs.
    pub jobs: JobCounts,
    /// What must not be.
    pub violations: Vec<Violation>,
}

impl Arena {
    /// Puts a setup under fire for so long.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub async fn run(
        setup: Setup,
        server: Option<Arc<Server>>,
        options: Arc<Options>,
        length: Duration,
    ) -> Result<Outcome> {
        let seed = Random::derive(options.seed, number_of(setup)).number();
        let arena = Arc::new(Self::new(setup, server, options).await?);
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for slot in &arena.slots {
            let random = Random::derive(seed, 100 + slot.number as u64);
            tasks.spawn(arena.clone().keep_running(slot.clone(), random, seed));
        }
        let (enough, told) = watch::channel(false);
        let producer = match setup.part {
            Part::Queue => Some(tokio::spawn(finish::produce(arena.clone(), told))),
            Part::Locks { .. } | Part::Leases => None,
        };
        let quiet = tokio::spawn(arena.clone().watch_for_quiet());
        let random = Random::derive(seed, 7);
        // In a task of its own, so that lanes do not wait for each other.
        tokio::spawn(faults::disturb(arena.clone(), random, length)).await?;
        let lasted = begun.elapsed();
        quiet.abort();
        let mut added = finish::Added::new();
        if let Some(producer) = producer {
            enough.send_replace(true);
            added = producer.await??;
            finish::until_empty(&arena).await?;
        }
        arena.phase.send_replace(Phase::Ending);
        while tasks.join_next().await.is_some() {}
        if !arena.is_interrupted() {
            finish::everything_is_free(&arena).await;
        }
        arena.outcome(lasted, added).await
    }

    async fn new(setup: Setup, server: Option<Arc<Server>>, options: Arc<Options>) -> Result<Self> {
        let directory = options.directory.join(setup.to_string());
        std::fs::create_dir_all(&directory)?;
        let database = Database::make(setup, server.as_deref(), &directory).await?;
        let mut slots = Vec::new();
        for (number, program) in programs(setup).into_iter().enumerate() {
            let (proxy, url) = match &server {
                Some(server) => {
                    let proxy = Proxy::before(server.address()).await?;
                    let url = database.through(proxy.port);
                    (Some(proxy), url)
                }
                None => (None, database.url.clone()),
            };
            let mut slot = Slot::new(number, program, proxy, url);
            let is_alone = setup.place == Place::Memory;
            slot.broken = options.broken && (is_alone || number % 2 == 1);
            slots.push(Arc::new(slot));
        }
        let history = directory.join("history");
        let recorder = Recorder::open(&history)?;
        let phase = watch::Sender::new(Phase::Running);
        let ledger = Ledger::default();
        Ok(Self { setup, slots, ledger, server, database, history, recorder, phase, options })
    }

    /// Was the whole run told to end at once?
    pub fn is_interrupted(&self) -> bool {
        *self.options.interrupted.borrow()
    }

    /// Waits for so long, unless the run is interrupted.
    pub async fn pause(&self, span: Duration) {
        let mut interrupted = self.options.interrupted.clone();
        tokio::select! {
            () = sleep(span) => {}
            _ = interrupted.wait_for(|is| *is) => {}
        }
    }

    /// Restarts the server, in good order or by a kill.
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
            self.ledger.violation(format!("the server did not come back: {error}"));
        }
        let mut entries = self.ledger.entries();
        match gracefully {
            true => entries.counts.restarts += 1,
            false => entries.counts.crashes += 1,
        }
        let until = clock::now();
        entries.disturbances.push(Disturbance { slot: None, since, until, severs: true });
    }

    /// Has one process after the other run in a slot.
    async fn keep_running(self: Arc<Self>, slot: Arc<Slot>, mut random: Random, seed: u64) {
        while *self.phase.borrow() == Phase::Running && !self.is_interrupted() {
            let worker = self.ledger.start(slot.number);
            if let Err(error) = self.start(&slot, worker, &mut random, seed) {
                self.ledger.violation(format!("a process could not be started: {error}"));
                return;
            }
            let (worker, status) = self.until_it_ends(&slot).await;
            self.ended(&slot, worker, status);
            if status.code() == Some(UNAVAILABLE) {
                // The server comes back no sooner if it is asked more often.
                self.pause(Duration::from_millis(200)).await;
            }
        }
    }

    fn start(&self, slot: &Slot, worker: u32, random: &mut Random, seed: u64) -> Result<()> {
        let mut command = match slot.program {
            Program::Library => {
                let args = WorkerArgs {
                    part: WorkerArgs::name_of(self.setup.part).to_owned(),
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
        // Ctrl-C is for the driver, which ends them.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        slot.start(worker, &mut command)?;
        Ok(())
    }

    /// A `hierlock run` whose command records a visit.
    fn run_command(&self, slot: &Slot, worker: u32, random: &mut Random) -> Result<Command> {
        let mode = tree::mode(random);
        let mut claims = tree::claims(random);
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
            command.arg(tree::locked(&claim.target, slot.broken).to_string());
        }
        command.arg("--").arg(std::env::current_exe()?).arg("--visit");
        command.arg(&self.history).arg(worker.to_string()).arg(history::written(&claims));
        command.arg(millis.to_string()).stdin(Stdio::null());
        Ok(command)
    }

    async fn until_it_ends(&self, slot: &Slot) -> (u32, ExitStatus) {
        let mut told: Option<Instant> = None;
        loop {
            if let Some(ended) = slot.reap() {
                return ended;
            }
            sleep(LOOK_EVERY).await;
            let is_late = told.is_some_and(|told| told.elapsed() > ENDS_WITHIN);
            if is_late {
                self.ledger.violation(format!(
                    "stuck: a process of slot {} has not ended {ENDS_WITHIN:?} after it was told to",
                    slot.number
                ));
            }
            if is_late || self.is_interrupted() {
                slot.signal(nix::sys::signal::Signal::SIGKILL, |worker| {
                    if let Some(process) = self.ledger.entries().processes.get_mut(&worker) {
                        process.killed = process.killed.or(Some(clock::now()));
                    }
                });
                told = Some(Instant::now());
            } else if told.is_none() && *self.phase.borrow() == Phase::Ending {
                slot.close_input();
                told = Some(Instant::now());
            }
        }
    }

    fn ended(&self, slot: &Slot, worker: u32, status: ExitStatus) {
        let mut entries = self.ledger.entries();
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
                EXITS.contains(&code)
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

    /// Notices if nobody gets anywhere any more.
    async fn watch_for_quiet(self: Arc<Self>) {
        let (mut size, mut since) = (0, Instant::now());
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = std::fs::metadata(&self.history).map_or(0, |file| file.len());
            if now != size {
                (size, since) = (now, Instant::now());
            } else if since.elapsed() > QUIET_FOR {
                self.ledger.violation(format!("stuck: nothing happened for {QUIET_FOR:?}"));
                since = Instant::now();
            }
        }
    }

    async fn outcome(&self, lasted: Duration, added: finish::Added) -> Result<Outcome> {
        let entries = self.ledger.entries().clone();
        let lines = history::read(&self.history)?;
        let (processes, disturbances) = (entries.processes, entries.disturbances);
        let history = History { lines, processes, disturbances };
        let done = format!("{:#?}\n{:#?}\n", history.processes, history.disturbances);
        std::fs::write(self.history.with_file_name("done"), done)?;
        let rules = match self.setup.part {
            Part::Leases => Rules::Leases,
            Part::Locks { .. } | Part::Queue => Rules::Locks,
        };
        let mut outcome = Outcome {
            name: self.setup.to_string(),
            lasted,
            counts: entries.counts,
            violations: entries.violations,
            ..Outcome::default()
        };
        match self.setup.part {
            Part::Queue if !self.is_interrupted() => {
                let (jobs, found) = finish::jobs(self, &history, added).await?;
                outcome.jobs = jobs;
                outcome.violations.extend(found);
            }
            Part::Queue => {}
            Part::Leases | Part::Locks { .. } => {
                outcome.findings = check(&history, rules);
                let found = std::mem::take(&mut outcome.findings.violations);
                outcome.violations.extend(found);
            }
        }
        if self.setup.part == Part::Leases && !self.is_interrupted() {
            let found = finish::writes(self, &outcome.findings.writes_by_token).await?;
            outcome.violations.extend(found);
        }
        Ok(outcome)
    }
}

/// What runs in the slots of a setup.
fn programs(setup: Setup) -> Vec<Program> {
    use Program::{Library, Run};
    match (setup.place, setup.part) {
        (Place::Memory, _) => vec![Library],
        (_, Part::Locks { .. }) => vec![Library, Library, Run, Run, Library, Run],
        (_, Part::Leases | Part::Queue) => vec![Library; 4],
    }
}

fn number_of(setup: Setup) -> u64 {
    Setup::all().iter().position(|one| *one == setup).unwrap_or(0) as u64
}
