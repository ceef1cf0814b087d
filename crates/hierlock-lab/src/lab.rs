//! All cases of one call: on which servers, how many at a time, in which order.

use crate::place::{Engine, Place};
use crate::record::{Record, Verdict};
use crate::run::{Options, play};
use crate::scenario::Case;
use crate::stage::{CaseStage, Server, Stage, StageError, TreeDatabases};
use futures_util::{StreamExt, stream};
use std::collections::BTreeMap;
use std::io;
use tempfile::TempDir;

/// What runs cases: the servers that are there, and a directory for the locks of `file:`.
pub struct Lab {
    tree_databases: TreeDatabases,
    servers: BTreeMap<Engine, Server>,
    directory: TempDir,
}

/// RunOptions cases are run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// RunOptions many at a time.
    pub jobs: usize,
    /// RunOptions often each.
    pub rounds: u32,
    /// Record the locks of all sessions after each step.
    pub locks: bool,
}

impl std::fmt::Debug for Lab {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lab").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { jobs: 1, rounds: 1, locks: false }
    }
}

impl Lab {
    /// A lab without servers: it runs what locks nodes in memory and on files.
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
    /// It cannot be reached, or is another engine than is said.
    pub async fn connect(&mut self, engine: Engine, url: &str) -> Result<(), StageError> {
        let server = Server::connect(engine, url).await?;
        self.servers.insert(engine, server);
        Ok(())
    }

    /// What earlier runs have left on the servers and what cannot be removed, in sentences.
    pub fn leftovers(&self) -> Vec<String> {
        self.servers.values().flat_map(Server::leftovers).collect()
    }

    /// Can cases be run there?
    pub fn has(&self, engine: Engine) -> bool {
        engine.server().is_none() || self.servers.contains_key(&engine)
    }

    /// The server of an engine, if there is one.
    pub(crate) fn server(&self, engine: Engine) -> Option<&Server> {
        self.servers.get(&engine)
    }

    /// Runs cases, those of places that are not there excepted. `tell` hears of each when it is over.
    /// The records come in the order of the cases, then of the rounds.
    ///
    /// # Cancel safety
    /// Dropped, it ends what it has begun, on the servers too.
    pub async fn run(
        &self,
        cases: &[Case],
        how: RunOptions,
        tell: impl Fn(&Record),
    ) -> Vec<Record> {
        self.run_until(cases, how, tell, std::future::pending()).await
    }

    /// RunOptions many records [`run`](Self::run) makes.
    pub fn planned(&self, cases: &[Case], how: RunOptions) -> usize {
        let there = cases.iter().filter(|case| self.has(case.place.engine)).count();
        there * how.rounds as usize
    }

    /// The same, until `stop` comes: then the cases under way are ended, on the servers too, and the
    /// records of those that were over are returned. What is under way is removed in the background; that is
    /// done when the lab has been dropped.
    ///
    /// # Cancel safety
    /// As of [`run`](Self::run).
    pub async fn run_until(
        &self,
        cases: &[Case],
        how: RunOptions,
        tell: impl Fn(&Record),
        stop: impl Future<Output = ()>,
    ) -> Vec<Record> {
        let rounds = (1..=how.rounds).flat_map(|round| {
            let cases = cases.iter().enumerate();
            let cases = cases.filter(|(_, case)| self.has(case.place.engine));
            cases.map(move |(index, case)| (index, round, case))
        });
        let runs = stream::iter(rounds).map(|(index, round, case)| async move {
            (index, self.run_case(case, round, how).await)
        });
        let mut records = Vec::new();
        let finished = async {
            let mut runs = std::pin::pin!(runs.buffer_unordered(how.jobs.max(1)));
            while let Some((index, record)) = runs.next().await {
                tell(&record);
                records.push((index, record));
            }
            // Whatever cannot be removed now is removed by the next who come there.
            let _ = self.tree_databases.clear().await;
        };
        tokio::select! {
            () = finished => {}
            () = stop => {}
        }
        records.sort_by_key(|(index, record)| (*index, record.round));
        records.into_iter().map(|(_, record)| record).collect()
    }

    async fn run_case(&self, case: &Case, round: u32, how: RunOptions) -> Record {
        let mut record = Record {
            scenario: case.scenario.name.clone(),
            file: case.scenario.file.clone(),
            title: case.scenario.title.clone(),
            variant: case.variant.clone(),
            place: case.place,
            server: self.server_name(case.place),
            round,
            took: Default::default(),
            steps: Vec::new(),
            deadlocks: Vec::new(),
            circles: Vec::new(),
            notes: Vec::new(),
            verdict: Verdict::Agrees,
            anomaly: None,
        };
        let server = self.server(case.place.engine);
        let stage = match CaseStage::open(case, server, &self.tree_databases, self.directory.path())
            .await
        {
            Ok(stage) => stage,
            Err(StageError(why)) => {
                record.verdict = Verdict::Failed { why };
                return record;
            }
        };
        let played = play(&stage, case, Options { locks: how.locks }).await;
        record.took = played.took;
        record.steps = played.steps;
        record.deadlocks = played.deadlocks;
        record.circles = played.circles;
        record.verdict = played.verdict;
        record.anomaly = case.scenario.anomaly.is_some().then_some(played.anomaly);
        match stage.close().await {
            Ok(notes) => record.notes = notes,
            Err(StageError(why)) if record.verdict == Verdict::Agrees => {
                record.verdict = Verdict::Failed { why };
            }
            Err(StageError(why)) => record.notes.push(why),
        }
        record
    }

    fn server_name(&self, place: Place) -> String {
        match (self.servers.get(&place.engine), place.engine) {
            (Some(server), _) => server.version().to_owned(),
            (None, Engine::File) => "file locks of this host".to_owned(),
            (None, _) => "memory of this process".to_owned(),
        }
    }
}
