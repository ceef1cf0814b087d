//! Runs cases in parallel on the connected servers, and reports results as they arrive.

use crate::engine::Engine;
use crate::environment::{CaseEnvironment, LabError, TestServer, TreeDatabases};
use crate::record::{Interruption, Record, Report, StepRecord, Verdict};
use crate::runner::run_steps;
use crate::scenario::Case;
use futures_util::{StreamExt, stream};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

/// Runs cases on connected servers, in memory and on files.
pub struct Lab {
    pub(crate) tree_databases: TreeDatabases,
    servers: BTreeMap<Engine, Arc<TestServer>>,
    pub(crate) directory: TempDir,
}

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// The number of cases that run at the same time.
    pub jobs: usize,
    /// The number of times that each case runs.
    pub rounds: u32,
    /// Whether the locks of all sessions are recorded after each step.
    pub locks: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { jobs: 1, rounds: 1, locks: false }
    }
}

/// An event of a run.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'a> {
    /// The run begins.
    RunStarted {
        /// The number of cases to run, each repetition counted.
        planned: usize,
    },
    /// A case begins.
    CaseStarted(&'a Case),
    /// A step was observed and compared with its expectation.
    StepObserved(&'a StepRecord),
    /// A case has ended.
    CaseFinished(&'a Record),
    /// All cases have ended.
    RunFinished,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").field("servers", &self.servers.keys()).finish_non_exhaustive()
    }
}

impl Lab {
    /// Returns a lab without servers: it runs cases in memory and on files.
    ///
    /// # Errors
    /// A temporary directory cannot be created.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("hierlock-lab-").tempdir()?;
        Ok(Self { tree_databases: TreeDatabases::default(), servers: BTreeMap::new(), directory })
    }

    /// Adds a server.
    ///
    /// # Errors
    /// The server cannot be reached, or is of another engine.
    pub async fn connect(&mut self, engine: Engine, url: &str) -> Result<(), LabError> {
        let server = TestServer::connect(engine, url).await?;
        self.servers.insert(engine, server);
        Ok(())
    }

    /// Returns a sentence for each leftover of earlier runs on the servers that cannot be removed.
    pub fn leftovers(&self) -> Vec<String> {
        self.servers.values().flat_map(|server| server.leftovers.clone()).collect()
    }

    /// Returns whether the lab can run cases on `engine`.
    pub fn has(&self, engine: Engine) -> bool {
        engine.server().is_none() || self.servers.contains_key(&engine)
    }

    pub(crate) fn server(&self, engine: Engine) -> Result<&Arc<TestServer>, LabError> {
        let server = self.servers.get(&engine);
        server.ok_or_else(|| LabError(format!("there is no {engine} server")))
    }

    /// Runs cases, except those whose engine is not available. The report contains the record of each case as soon as
    /// the case has ended, in the order of the cases, then of the rounds; until all have ended, it is marked as
    /// interrupted. `on_event` is called for each event as it happens.
    ///
    /// # Cancel safety
    /// If the future is dropped, it cancels the running cases, on the servers too, and the report contains those that
    /// have ended. The databases of running cases are removed in the background; [`close`](Self::close) waits for that.
    pub async fn run(
        &self,
        cases: &[Case],
        options: RunOptions,
        report: &mut Report,
        on_event: impl Fn(RunEvent<'_>) + Sync,
    ) {
        let started = Instant::now();
        let cases: Vec<(usize, &Case)> =
            cases.iter().enumerate().filter(|(_, case)| self.has(case.backend.engine)).collect();
        let planned = cases.len() * options.rounds as usize;
        let (mut order, on_event) = (Vec::new(), &on_event);
        report.records.clear();
        report.interruption = (planned > 0).then_some(Interruption { finished: 0, planned });
        on_event(RunEvent::RunStarted { planned });
        let rounds = (1..=options.rounds)
            .flat_map(|round| cases.iter().map(move |(index, case)| (*index, round, *case)));
        let runs = stream::iter(rounds).map(|(index, round, case)| async move {
            ((index, round), self.run_case(case, round, options, on_event).await)
        });
        let mut runs = std::pin::pin!(runs.buffer_unordered(options.jobs.max(1)));
        while let Some((position, record)) = runs.next().await {
            on_event(RunEvent::CaseFinished(&record));
            let at = order.partition_point(|before| *before < position);
            order.insert(at, position);
            report.records.insert(at, record);
            let finished = order.len();
            report.interruption =
                (finished < planned).then_some(Interruption { finished, planned });
            report.took = started.elapsed();
        }
        self.tree_databases.clear().await;
        report.took = started.elapsed();
        on_event(RunEvent::RunFinished);
    }

    /// Removes the lab's databases from the servers, and waits until all work on the servers has ended.
    ///
    /// # Cancel safety
    /// If the future is dropped, threads do the rest; the next run removes whatever they leave.
    pub async fn close(self) {
        let Self { tree_databases, servers, .. } = self;
        drop(tree_databases);
        for server in servers.into_values() {
            // A query that was dropped runs to its end in a task.
            server.in_use.wait().await;
            // Waits for the threads that remove databases. A panic there is already printed.
            _ = spawn_blocking(move || drop(server)).await;
        }
    }

    async fn run_case(
        &self,
        case: &Case,
        round: u32,
        options: RunOptions,
        on_event: &(impl Fn(RunEvent<'_>) + Sync),
    ) -> Record {
        let environment = match CaseEnvironment::open(self, case).await {
            Ok(environment) => environment,
            Err(LabError(why)) => {
                let verdict = Verdict::Failed { why };
                return Record { verdict, ..self.new_record(case, round) };
            }
        };
        let mut record = self.run_in(&environment, case, round, options.locks, on_event).await;
        match environment.close(Some(&self.tree_databases)).await {
            Ok(notes) => record.notes = notes,
            Err(LabError(why)) if record.agrees() => record.verdict = Verdict::Failed { why },
            Err(LabError(why)) => record.notes.push(why),
        }
        record
    }

    pub(crate) async fn run_in(
        &self,
        environment: &CaseEnvironment,
        case: &Case,
        round: u32,
        record_locks: bool,
        on_event: &(impl Fn(RunEvent<'_>) + Sync),
    ) -> Record {
        let mut record = self.new_record(case, round);
        on_event(RunEvent::CaseStarted(case));
        let on_step = |step: &StepRecord| on_event(RunEvent::StepObserved(step));
        run_steps(environment, case, &mut record, record_locks, on_step).await;
        record
    }

    fn new_record(&self, case: &Case, round: u32) -> Record {
        let server = match (self.servers.get(&case.backend.engine), case.backend.engine) {
            (Some(server), _) => &server.version,
            (None, Engine::File) => "file locks of this host",
            (None, _) => "memory of this process",
        };
        let (variant, server) = (case.variant.clone(), server.to_owned());
        Record { variant, server, round, ..Record::new(&case.scenario, case.backend) }
    }
}
