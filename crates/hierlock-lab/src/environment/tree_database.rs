//! Trees on servers. Their creation takes far longer than a case, so cases that only lock nodes reuse them.

use super::requirements::Requirements;
use super::test_database::TestDatabase;
use super::{LabError, LabResult, TestServer};
use crate::place::Place;
use crate::scenario::{Action, Case};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Hierlock, Target};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The number of idle databases per shape: each has connections, and servers limit those.
const MAX_IDLE_DATABASES: usize = 2;

/// The tree that a case needs.
pub(crate) struct TreeSpec {
    pub(crate) place: Place,
    pub(crate) buckets: u32,
    pub(crate) targets: Vec<Target>,
}

/// A database and a client for the tree in it.
pub(super) struct TreeDatabase {
    database: TestDatabase,
    pub(super) locks: Hierlock,
    shape: TreeShape,
}

/// The place and the number of buckets: databases of one shape serve the same cases.
type TreeShape = (Place, u32);

#[derive(Default)]
pub(crate) struct TreeDatabases(Mutex<HashMap<TreeShape, Vec<TreeDatabase>>>);

impl TreeDatabases {
    pub(super) async fn take(
        &self,
        spec: &TreeSpec,
        server: &Arc<TestServer>,
    ) -> LabResult<TreeDatabase> {
        let idle = self.0.lock().get_mut(&(spec.place, spec.buckets)).and_then(Vec::pop);
        let Some(mut database) = idle else { return TreeDatabase::create(server, spec).await };
        database.database.occupancy = server.occupy(false).await;
        if spec.place.strategy == Some(Strategy::PerId) {
            spec.add_rows(&spec.url(&database.database)).await?;
        }
        Ok(database)
    }

    /// Stores a database for the next case, or removes it.
    pub(super) async fn put_back(&self, mut database: TreeDatabase) -> LabResult<()> {
        // Rows that were created on demand stay, so the next case would not start with the same state.
        let is_unchanged = database.locks.holders().is_empty()
            && database.shape.0.strategy != Some(Strategy::OnDemand);
        {
            let mut all = self.0.lock();
            let idle = all.entry(database.shape).or_default();
            if is_unchanged && idle.len() < MAX_IDLE_DATABASES {
                // Other cases may have the server to themselves while this database is idle.
                database.database.occupancy = None;
                idle.push(database);
                return Ok(());
            }
        }
        database.remove().await
    }

    pub(crate) async fn clear(&self) {
        let databases = std::mem::take(&mut *self.0.lock());
        for database in databases.into_values().flatten() {
            // If this fails, the next run on that server removes the database.
            _ = database.remove().await;
        }
    }
}

impl TreeDatabase {
    pub(super) async fn create(server: &Arc<TestServer>, spec: &TreeSpec) -> LabResult<Self> {
        // The sessions are guards of the client, so they need no connections of their own.
        let database = TestDatabase::create(server, Requirements::of_tree(spec.place)).await?;
        let locks = spec.provision(&database).await?;
        Ok(Self { database, locks, shape: (spec.place, spec.buckets) })
    }

    pub(super) async fn remove(self) -> LabResult<()> {
        let Self { database, locks, .. } = self;
        // Its connections would block the removal.
        drop(locks);
        database.close().await.map(|_| ())
    }
}

impl TreeSpec {
    pub(super) fn of(case: &Case) -> Self {
        let targets = case.steps.iter().filter_map(|step| match &step.action {
            Action::Lock(action, _) => Some(&action.request()?.targets),
            _ => None,
        });
        let targets = targets.flatten().cloned().collect();
        Self { place: case.place, buckets: case.buckets, targets }
    }

    /// Creates the rows of the nodes in a database, and connects a client to it.
    pub(super) async fn provision(&self, database: &TestDatabase) -> LabResult<Hierlock> {
        let url = self.url(database);
        self.add_rows(&url).await?;
        Hierlock::connect(&url).await.map_err(tree_error)
    }

    fn url(&self, database: &TestDatabase) -> String {
        let mut url = database.url();
        if let Some(strategy) = self.place.strategy {
            url.query_pairs_mut().append_pair("strategy", strategy.name());
        }
        if self.place.strategy == Some(Strategy::Striped) {
            url.query_pairs_mut().append_pair("buckets", &self.buckets.to_string());
        }
        url.into()
    }

    /// Creates the rows that the strategy needs and that do not exist yet.
    async fn add_rows(&self, url: &str) -> LabResult<()> {
        let is_per_id = self.place.strategy == Some(Strategy::PerId);
        if is_per_id || self.place.strategy == Some(Strategy::Striped) {
            let provision = Provision::connect(url, Hierarchy::default());
            let provision = provision.await.map_err(tree_error)?;
            provision.run(|_| ()).await.map_err(tree_error)?;
            if is_per_id {
                provision.add(&self.targets).await.map_err(tree_error)?;
            }
        }
        Ok(())
    }
}

fn tree_error(error: hierlock::Error) -> LabError {
    LabError(format!("nodes cannot be locked there: {error}"))
}
