//! Trees on servers. Making one takes far longer than a case, so cases that only lock nodes hand theirs on.

use super::requirements::Requirements;
use super::test_database::TestDatabase;
use super::{LabError, LabResult, TestServer};
use crate::place::Place;
use crate::scenario::{Action, Case};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Hierlock, Target};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use url::Url;

/// How many idle databases of a shape are kept: each has connections, of which a server has not too many.
const MAX_IDLE_DATABASES: usize = 2;

/// The tree that a database must have.
pub(crate) struct TreeSpec {
    pub(crate) place: Place,
    pub(crate) buckets: u32,
    pub(crate) targets: Vec<Target>,
}

/// A database of its own, and a client for the tree in it.
pub(super) struct TreeDatabase {
    database: TestDatabase,
    url: String,
    pub(super) locks: Hierlock,
    shape: TreeShape,
}

/// Databases of one shape serve the same cases: place and number of buckets.
type TreeShape = (Place, u32);

#[derive(Default)]
pub(crate) struct TreeDatabases(Mutex<HashMap<TreeShape, Vec<TreeDatabase>>>);

impl TreeDatabases {
    pub(super) async fn take(
        &self,
        spec: &TreeSpec,
        server: &Arc<TestServer>,
    ) -> LabResult<TreeDatabase> {
        let idle = self.idle().get_mut(&(spec.place, spec.buckets)).and_then(Vec::pop);
        let Some(database) = idle else { return TreeDatabase::create(server, spec).await };
        if spec.place.strategy == Some(Strategy::PerId) {
            provision(&database.url, spec).await?;
        }
        Ok(database)
    }

    /// Keeps a database for the next case, or removes it.
    pub(super) async fn put_back(&self, database: TreeDatabase) -> LabResult<()> {
        // Rows that were made on demand are there from then on, so the next case would not meet the same.
        let is_as_before = database.locks.holders().is_empty()
            && database.shape.0.strategy != Some(Strategy::OnDemand);
        {
            let mut all = self.idle();
            let idle = all.entry(database.shape).or_default();
            if is_as_before && idle.len() < MAX_IDLE_DATABASES {
                idle.push(database);
                return Ok(());
            }
        }
        database.remove().await
    }

    pub(crate) async fn clear(&self) -> LabResult<()> {
        let databases: Vec<TreeDatabase> =
            self.idle().drain().flat_map(|(_, databases)| databases).collect();
        let mut cleared = Ok(());
        for database in databases {
            cleared = cleared.and(database.remove().await);
        }
        cleared
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<TreeShape, Vec<TreeDatabase>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TreeDatabase {
    pub(super) async fn create(server: &Arc<TestServer>, spec: &TreeSpec) -> LabResult<Self> {
        // Sessions are guards of the client: they need no connections of their own here.
        let database = TestDatabase::create(server, Requirements::of_tree(spec.place)).await?;
        let (mut database, url, locks) = spec.provision(database).await?;
        // While no case uses it, it is in nobody's way.
        database.occupancy = None;
        Ok(Self { database, url, locks, shape: (spec.place, spec.buckets) })
    }

    pub(super) async fn remove(self) -> LabResult<()> {
        let Self { database, locks, .. } = self;
        // Its connections would be in the way.
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

    /// Makes the rows that the nodes need in a database; returns it with its URL and a client for them.
    pub(super) async fn provision(
        &self,
        database: TestDatabase,
    ) -> LabResult<(TestDatabase, String, Hierlock)> {
        let url = self.url(&database);
        let connect = async {
            provision(&url, self).await?;
            Hierlock::connect(&url).await.map_err(cannot_lock)
        };
        match connect.await {
            Ok(locks) => Ok((database, url, locks)),
            Err(error) => {
                // The first error is the one to report.
                let _ = database.close().await;
                Err(error)
            }
        }
    }

    fn url(&self, database: &TestDatabase) -> String {
        let bare = database.url();
        // It was parsed before.
        let Ok(mut url) = Url::parse(&bare) else { return bare };
        if let Some(strategy) = self.place.strategy {
            url.query_pairs_mut().append_pair("strategy", strategy.name());
        }
        if self.place.strategy == Some(Strategy::Striped) {
            url.query_pairs_mut().append_pair("buckets", &self.buckets.to_string());
        }
        url.into()
    }
}

/// Makes the rows that the strategy needs and that are not there yet.
async fn provision(url: &str, spec: &TreeSpec) -> LabResult<()> {
    let is_per_id = spec.place.strategy == Some(Strategy::PerId);
    if !is_per_id && spec.place.strategy != Some(Strategy::Striped) {
        return Ok(());
    }
    let provision = Provision::connect(url, Hierarchy::default()).await.map_err(cannot_lock)?;
    provision.run(|_| ()).await.map_err(cannot_lock)?;
    if is_per_id {
        provision.add(&spec.targets).await.map_err(cannot_lock)?;
    }
    Ok(())
}

fn cannot_lock(error: hierlock::Error) -> LabError {
    LabError(format!("nodes cannot be locked there: {error}"))
}
