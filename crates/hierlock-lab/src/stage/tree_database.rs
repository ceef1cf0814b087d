//! Trees on servers, with the rows that their strategy needs. Making one takes far longer than a case
//! does, so cases that only lock nodes hand theirs on, once everything in it is free again.

use super::needs::Needs;
use super::{Server, SqlStage, Stage, StageError};
use crate::place::Place;
use crate::scenario::{Case, CaseDeed, LockDeed};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Hierlock, Target};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use url::Url;

/// So many of a shape are kept: each has connections, of which a server has not too many.
const MAX_IDLE_DATABASES: usize = 2;
/// How long what a case still did may take to end.
const FREE_WITHIN: Duration = Duration::from_secs(5);
/// How often that is looked at.
const FREE_CHECK_PAUSE: Duration = Duration::from_millis(2);

/// The tree that a database is to have.
pub(crate) struct TreeSpec {
    /// On which engine, and how.
    pub(crate) place: Place,
    /// Striped over how many buckets.
    pub(crate) buckets: u32,
    /// The nodes that will be locked.
    pub(crate) targets: Vec<Target>,
}

/// A database of its own, and a client for the tree in it.
pub(crate) struct TreeDatabase {
    home: SqlStage,
    url: String,
    pub(crate) locks: Hierlock,
    shape: TreeShape,
}

/// Databases of one shape serve the same cases.
type TreeShape = (Place, u32);

/// Those that are free.
#[derive(Default)]
pub(crate) struct TreeDatabases(Mutex<HashMap<TreeShape, Vec<TreeDatabase>>>);

impl TreeDatabases {
    /// One for a case that only locks nodes; none for others.
    pub(crate) async fn take(
        &self,
        case: &Case,
        server: &Server,
    ) -> Result<Option<TreeDatabase>, StageError> {
        if !only_locks(case) {
            return Ok(None);
        }
        let spec = TreeSpec::of(case);
        let free = self.free().get_mut(&(spec.place, spec.buckets)).and_then(Vec::pop);
        let Some(tree_database) = free else {
            return TreeDatabase::create(server, &spec).await.map(Some);
        };
        if spec.place.strategy == Some(Strategy::PerId) {
            provision(&tree_database.url, &spec).await?;
        }
        Ok(Some(tree_database))
    }

    /// Takes one back, or removes it.
    pub(crate) async fn put_back(&self, tree_database: TreeDatabase) -> Result<(), StageError> {
        let begun = Instant::now();
        while !tree_database.locks.holders().is_empty() && begun.elapsed() < FREE_WITHIN {
            sleep(FREE_CHECK_PAUSE).await;
        }
        // Rows by ID that were made on demand are there from then on, so the next would not meet the same.
        let is_as_before = tree_database.locks.holders().is_empty()
            && tree_database.shape.0.strategy != Some(Strategy::OnDemand);
        let left = {
            let mut free = self.free();
            let idle = free.entry(tree_database.shape).or_default();
            match is_as_before && idle.len() < MAX_IDLE_DATABASES {
                true => {
                    idle.push(tree_database);
                    None
                }
                false => Some(tree_database),
            }
        };
        match left {
            Some(tree_database) => tree_database.remove().await,
            None => Ok(()),
        }
    }

    /// Removes all of them.
    pub(crate) async fn clear(&self) -> Result<(), StageError> {
        let tree_databases: Vec<TreeDatabase> =
            self.free().drain().flat_map(|(_, tree_databases)| tree_databases).collect();
        let mut cleared = Ok(());
        for tree_database in tree_databases {
            cleared = cleared.and(tree_database.remove().await);
        }
        cleared
    }

    fn free(&self) -> MutexGuard<'_, HashMap<TreeShape, Vec<TreeDatabase>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TreeDatabase {
    /// Makes it.
    pub(crate) async fn create(server: &Server, spec: &TreeSpec) -> Result<Self, StageError> {
        // Sessions are guards of the client: they need no connections of their own here.
        let mut home = SqlStage::make(server, Needs::of_tree(spec.place)).await?;
        match spec.client(&home).await {
            Ok((url, locks)) => {
                // While nobody uses it, it is in nobody's way.
                home.leave_server();
                Ok(Self { home, url, locks, shape: (spec.place, spec.buckets) })
            }
            Err(error) => {
                // What went wrong first is what is told.
                let _ = home.close().await;
                Err(error)
            }
        }
    }

    /// Nothing is left of it.
    pub(crate) async fn remove(self) -> Result<(), StageError> {
        let Self { home, locks, .. } = self;
        // Its connections would be in the way.
        drop(locks);
        home.close().await.map(|_| ())
    }
}

impl TreeSpec {
    /// What a case locks.
    pub(crate) fn of(case: &Case) -> Self {
        let deeds = case.steps.iter().filter_map(|step| match &step.deed {
            CaseDeed::Lock(
                LockDeed::Lock { targets, .. }
                | LockDeed::Try { targets, .. }
                | LockDeed::Extend { targets, .. },
                _,
            ) => Some(targets),
            _ => None,
        });
        let targets = deeds.flatten().cloned().collect();
        Self { place: case.place, buckets: case.buckets, targets }
    }

    /// Makes the rows that its nodes need in a place, and a client for them.
    pub(super) async fn client(&self, home: &SqlStage) -> Result<(String, Hierlock), StageError> {
        let url = self.url(home);
        provision(&url, self).await?;
        let locks = Hierlock::connect(&url).await.map_err(|error| cannot(&error))?;
        Ok((url, locks))
    }

    fn url(&self, home: &SqlStage) -> String {
        let bare = home.url();
        // It was read before.
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

/// Makes the rows that the strategy needs; those that are there already stay.
async fn provision(url: &str, spec: &TreeSpec) -> Result<(), StageError> {
    let (Some(Strategy::Striped | Strategy::PerId), by_id) =
        (spec.place.strategy, spec.place.strategy == Some(Strategy::PerId))
    else {
        // Made by whoever comes first, or not at all.
        return Ok(());
    };
    let made = async {
        let provision = Provision::connect(url, Hierarchy::default()).await?;
        provision.run(|_| ()).await?;
        if by_id {
            provision.add(&spec.targets).await?;
        }
        Ok(())
    };
    made.await.map_err(|error: hierlock::Error| cannot(&error))
}

fn cannot(error: &hierlock::Error) -> StageError {
    StageError(format!("nodes cannot be locked there: {error}"))
}

fn only_locks(case: &Case) -> bool {
    let has_sql = case.steps.iter().any(|step| matches!(step.deed, CaseDeed::Sql(_)));
    !has_sql && case.setup.is_empty() && case.teardown.is_empty()
}
