//! Trees on servers. Their creation takes far longer than a case, so cases that only lock nodes reuse them.

use super::connection::LabConnection;
use super::namespace::NamespaceGuard;
use super::{LabError, LabResult, TestServer};
use crate::engine::BackendKind;
use crate::scenario::{Action, Case};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Hierlock, Target};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The number of idle databases per shape: each has connections, and servers limit those.
const MAX_IDLE_DATABASES: usize = 2;

/// The tree that a case needs.
pub(crate) struct TreeSpec {
    pub(crate) backend: BackendKind,
    pub(crate) buckets: u32,
    pub(crate) targets: Vec<Target>,
}

/// A database and a client for the tree in it.
pub(super) struct TreeDatabase {
    guard: NamespaceGuard,
    /// While this is held, no case has the server to itself.
    permit: Option<OwnedSemaphorePermit>,
    pub(super) locks: Hierlock,
    shape: TreeShape,
}

/// The backend and the number of buckets: databases of one shape serve the same cases.
type TreeShape = (BackendKind, u32);

#[derive(Default)]
pub(crate) struct TreeDatabases(Mutex<HashMap<TreeShape, Vec<TreeDatabase>>>);

impl TreeDatabases {
    pub(super) async fn take(
        &self,
        spec: &TreeSpec,
        server: &Arc<TestServer>,
    ) -> LabResult<TreeDatabase> {
        let idle = self.0.lock().get_mut(&(spec.backend, spec.buckets)).and_then(Vec::pop);
        let Some(mut database) = idle else { return TreeDatabase::create(server, spec).await };
        database.permit = server.occupy(false).await;
        if spec.backend.strategy == Some(Strategy::PerId) {
            spec.add_rows(&spec.url(&database.guard)).await?;
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
                database.permit = None;
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
    async fn create(server: &Arc<TestServer>, spec: &TreeSpec) -> LabResult<Self> {
        let permit = server.occupy(false).await;
        // Advisory keys belong to the database.
        let is_database = spec.backend.strategy == Some(Strategy::Advisory);
        let guard = server.create_namespace(is_database).await?;
        let locks = spec.provision(&guard).await?;
        Ok(Self { guard, permit, locks, shape: (spec.backend, spec.buckets) })
    }

    pub(super) async fn remove(self) -> LabResult<()> {
        let Self { mut guard, locks, .. } = self;
        // Its connections would block the removal.
        drop(locks);
        let mut connection = LabConnection::open(&guard.server.address).await?;
        let removed = guard.namespace.remove(&mut connection).await;
        connection.close().await;
        // If the removal failed, the drop of the guard tries again.
        guard.is_removed = removed.is_ok();
        removed
    }
}

impl TreeSpec {
    pub(super) fn of(case: &Case) -> Self {
        let targets = case.steps.iter().filter_map(|step| match &step.action {
            Action::Lock(action, _) => Some(&action.request()?.targets),
            _ => None,
        });
        let targets = targets.flatten().cloned().collect();
        Self { backend: case.backend, buckets: case.buckets, targets }
    }

    /// Creates the rows of the nodes in a namespace, and connects a client to it.
    pub(super) async fn provision(&self, guard: &NamespaceGuard) -> LabResult<Hierlock> {
        let url = self.url(guard);
        self.add_rows(&url).await?;
        Hierlock::connect(&url).await.map_err(tree_error)
    }

    fn url(&self, guard: &NamespaceGuard) -> String {
        let mut url = guard.url();
        if let Some(strategy) = self.backend.strategy {
            url.query_pairs_mut().append_pair("strategy", strategy.name());
        }
        if self.backend.strategy == Some(Strategy::Striped) {
            url.query_pairs_mut().append_pair("buckets", &self.buckets.to_string());
        }
        url.into()
    }

    /// Creates the rows that the strategy needs and that do not exist yet.
    async fn add_rows(&self, url: &str) -> LabResult<()> {
        let is_per_id = self.backend.strategy == Some(Strategy::PerId);
        if is_per_id || self.backend.strategy == Some(Strategy::Striped) {
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
