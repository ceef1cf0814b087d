//! Runs cases: on which servers, how many at a time, in which order. What is observed is reported as it comes.

use crate::environment::{CaseEnvironment, LabError, TestServer, TreeDatabases};
use crate::place::Engine;
use crate::record::{Interruption, Record, Report, StepRecord, Verdict};
use crate::runner::run_steps;
use crate::scenario::Case;
use futures_util::{StreamExt, stream};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How often [`Lab::close`] looks whether a server is still in use.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs cases on the servers that are connected, in memory and on files.
pub struct Lab {
    pub(crate) tree_databases: TreeDatabases,
    servers: BTreeMap<Engine, Arc<TestServer>>,
    directory: TempDir,
}

/// How cases are run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// How many at a time.
    pub jobs: usize,
    /// How often each.
    pub rounds: u32,
    /// Record the locks of all sessions after each step.
    pub locks: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { jobs: 1, rounds: 1, locks: false }
    }
}

/// What happens during a run, in the order in which it happens.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'a> {
    /// The run begins.
    RunStarted {
        /// How many cases will be run, each repetition counted.
        planned: usize,
    },
    /// A case begins.
    CaseStarted(&'a Case),
    /// A step was observed and judged.
    StepObserved(&'a StepRecord),
    /// A case is over.
    CaseFinished(&'a Record),
    /// All cases are over.
    RunFinished,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").field("servers", &self.servers.keys()).finish_non_exhaustive()
    }
}

impl Lab {
    /// Returns a lab without servers: it runs what locks nodes in memory and on files.
    ///
    /// # Errors
    /// A temporary directory cannot be made.
    pub fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("hierlock-lab-").tempdir()?;
        Ok(Self { tree_databases: TreeDatabases::default(), servers: BTreeMap::new(), directory })
    }

    /// Adds a server.
    ///
    /// # Errors
    /// It cannot be reached, or is another engine.
    pub async fn connect(&mut self, engine: Engine, url: &str) -> Result<(), LabError> {
        let server = TestServer::connect(engine, url).await?;
        self.servers.insert(engine, server);
        Ok(())
    }

    /// Returns what earlier runs have left on the servers and what cannot be removed, in sentences.
    pub fn leftovers(&self) -> Vec<String> {
        self.servers.values().flat_map(|server| server.leftovers()).collect()
    }

    /// Returns whether cases can be run there.
    pub fn has(&self, engine: Engine) -> bool {
        engine.server().is_none() || self.servers.contains_key(&engine)
    }

    pub(crate) fn server(&self, engine: Engine) -> Option<&Arc<TestServer>> {
        self.servers.get(&engine)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs cases, except those of places that are not there. The report has the record of each case as soon as
    /// that is over, in the order of the cases, then of the rounds; until all are over, it is marked as
    /// interrupted. `on_event` is called with what happens, as it happens.
    ///
    /// # Cancel safety
    /// Dropped, it cancels what it has begun, on the servers too, and the report has what was over by then. What
    /// is under way is removed in the background; [`close`](Self::close) waits for that.
    pub async fn run(
        &self,
        cases: &[Case],
        options: RunOptions,
        report: &mut Report,
        on_event: impl Fn(RunEvent<'_>) + Sync,
    ) {
        let started = Instant::now();
        let cases: Vec<(usize, &Case)> =
            cases.iter().enumerate().filter(|(_, case)| self.has(case.place.engine)).collect();
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
        while let Some((place, record)) = runs.next().await {
            on_event(RunEvent::CaseFinished(&record));
            let at = order.partition_point(|before| *before < place);
            order.insert(at, place);
            report.records.insert(at, record);
            let finished = order.len();
            report.interruption =
                (finished < planned).then_some(Interruption { finished, planned });
            report.took = started.elapsed();
        }
        // What cannot be removed now is removed by the next run on that server.
        let _ = self.tree_databases.clear().await;
        report.took = started.elapsed();
        on_event(RunEvent::RunFinished);
    }

    /// Removes what was made on the servers, and waits until nothing that was begun there is under way.
    ///
    /// # Cancel safety
    /// Dropped, it leaves the rest to threads; what they do not get done is removed by the next run.
    pub async fn close(self) {
        let Self { tree_databases, servers, .. } = self;
        drop(tree_databases);
        for server in servers.into_values() {
            // A query that nobody waits for any more runs to its end in a task, which has the server too.
            while Arc::strong_count(&server) > 1 {
                sleep(CLOSE_POLL_INTERVAL).await;
            }
            // Waits for the threads that remove databases. One that has panicked has said so.
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
        let server = self.server(case.place.engine);
        let idle = &self.tree_databases;
        let environment = match CaseEnvironment::open(case, server, idle, self.directory()).await {
            Ok(environment) => environment,
            Err(LabError(why)) => {
                let verdict = Verdict::Failed { why };
                return Record { verdict, ..self.new_record(case, round) };
            }
        };
        let mut record = self.run_in(&environment, case, round, options.locks, on_event).await;
        match environment.close(Some(idle)).await {
            Ok(notes) => record.notes = notes,
            Err(LabError(why)) if record.agrees() => record.verdict = Verdict::Failed { why },
            Err(LabError(why)) => record.notes.push(why),
        }
        record
    }

    /// Runs a case in an environment that is there already.
    pub(crate) async fn run_in(
        &self,
        environment: &CaseEnvironment,
        case: &Case,
        round: u32,
        keep_locks: bool,
        on_event: &(impl Fn(RunEvent<'_>) + Sync),
    ) -> Record {
        let mut record = self.new_record(case, round);
        on_event(RunEvent::CaseStarted(case));
        let on_step = |step: &StepRecord| on_event(RunEvent::StepObserved(step));
        run_steps(environment, case, &mut record, keep_locks, on_step).await;
        record
    }

    fn new_record(&self, case: &Case, round: u32) -> Record {
        let server = match (self.server(case.place.engine), case.place.engine) {
            (Some(server), _) => server.version(),
            (None, Engine::File) => "file locks of this host",
            (None, _) => "memory of this process",
        };
        let (variant, server) = (case.variant.clone(), server.to_owned());
        Record { variant, server, round, ..Record::new(&case.scenario, case.place) }
    }
}
