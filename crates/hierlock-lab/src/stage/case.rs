//! The stage of one case: SQL sessions, sessions that lock nodes, or both in one place.

use super::sql::SharedServer;
use super::tree::TreeSessions;
use super::tree_database::{TreeDatabase, TreeDatabases, TreeSpec};
use super::{LockList, Reply, Server, SqlStage, Stage, StageError};
use crate::ledger::Incomplete;
use crate::observation::{Failure, Name, Wait};
use crate::place::Engine;
use crate::record::Link;
use crate::scenario::{Case, CaseDeed};
use hierlock::Hierlock;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Where a case is played.
pub(crate) struct CaseStage<'a> {
    sql: Option<SqlStage>,
    tree: Option<TreeSessions>,
    /// Where the tree is, if it is to be handed on.
    tree_database: Option<(&'a TreeDatabases, TreeDatabase)>,
    /// While it is used, nobody has the server to itself.
    _shared: Option<SharedServer>,
}

impl<'a> CaseStage<'a> {
    /// Makes it: on a server a database of its own, elsewhere a tree of its own.
    pub(crate) async fn open(
        case: &Case,
        server: Option<&Server>,
        tree_databases: &'a TreeDatabases,
        directory: &Path,
    ) -> Result<Self, StageError> {
        let names = || case.sessions.keys();
        let Some(engine) = case.place.engine.server() else {
            let locks = Hierlock::connect(&url(case.place.engine, directory)).await;
            let locks = locks.map_err(|error| StageError(error.to_string()))?;
            let tree = Some(TreeSessions::new(locks, names()));
            return Ok(Self { sql: None, tree, tree_database: None, _shared: None });
        };
        let server = server.ok_or_else(|| StageError(format!("there is no {engine} server")))?;
        if let Some(tree_database) = tree_databases.take(case, server).await? {
            let tree = Some(TreeSessions::new(tree_database.locks.clone(), names()));
            let _shared = Some(server.share().await);
            return Ok(Self {
                sql: None,
                tree,
                tree_database: Some((tree_databases, tree_database)),
                _shared,
            });
        }
        let sql = server.open(case).await?;
        if !case.steps.iter().any(|step| matches!(step.deed, CaseDeed::Lock(..))) {
            return Ok(Self { sql: Some(sql), tree: None, tree_database: None, _shared: None });
        }
        match TreeSpec::of(case).client(&sql).await {
            Ok((_, locks)) => {
                let tree = Some(TreeSessions::new(locks, names()));
                Ok(Self { sql: Some(sql), tree, tree_database: None, _shared: None })
            }
            Err(error) => {
                // What went wrong first is what is told.
                let _ = sql.close().await;
                Err(error)
            }
        }
    }
}

/// A tree without a server, that nobody else has.
fn url(engine: Engine, directory: &Path) -> String {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    match engine {
        Engine::File => {
            let number = FILES.fetch_add(1, Ordering::Relaxed);
            format!("file:{}", directory.join(format!("{number}.lock")).display())
        }
        _ => "memory:".to_owned(),
    }
}

impl Stage for CaseStage<'_> {
    fn begin(&self, session: &Name, deed: &CaseDeed) -> Reply {
        match (deed, &self.tree, &self.sql) {
            (CaseDeed::Lock(deed, _), Some(tree), _) => tree.begin(session, deed),
            (CaseDeed::Sql(_), _, Some(sql)) => sql.begin(session, deed),
            // A case is made for a place that can do what it asks for.
            _ => oneshot::channel().1,
        }
    }

    /// Of sessions that lock nodes it is told by the library in the words of the tree; all others by the
    /// server.
    async fn waits(&self) -> Result<Vec<Wait>, StageError> {
        let mut waits = self.tree.as_ref().map(TreeSessions::waits).unwrap_or_default();
        if let Some(sql) = &self.sql {
            let others = sql.waits().await?;
            let is_told = |wait: &Wait| waits.iter().any(|told| told.waiter == wait.waiter);
            let others: Vec<Wait> = others.into_iter().filter(|wait| !is_told(wait)).collect();
            waits.extend(others);
        }
        Ok(waits)
    }

    async fn locks(&self) -> Result<LockList, StageError> {
        let mut locks = self.tree.as_ref().map(TreeSessions::locks).unwrap_or_default();
        let mut incomplete = Incomplete::new();
        if let Some(sql) = &self.sql {
            let told = sql.locks().await?;
            locks.extend(told.locks);
            incomplete = told.incomplete;
        }
        Ok(LockList { locks, incomplete })
    }

    async fn circle(&self, victim: &Name, failure: &Failure) -> Option<Vec<Link>> {
        match &self.sql {
            Some(sql) => sql.circle(victim, failure).await,
            None => None,
        }
    }

    fn circle_limit(&self) -> Duration {
        self.sql.as_ref().map_or(super::CIRCLE_LIMIT, SqlStage::circle_limit)
    }

    fn next_deadlock_check(&self) -> Duration {
        self.sql.as_ref().map_or(Duration::ZERO, SqlStage::next_deadlock_check)
    }

    async fn cancel(&self, session: &Name) -> Result<(), StageError> {
        if let Some(tree) = &self.tree {
            tree.cancel(session);
        }
        match &self.sql {
            Some(sql) => sql.cancel(session).await,
            None => Ok(()),
        }
    }

    async fn close(self) -> Result<Vec<String>, StageError> {
        if let Some(tree) = self.tree {
            tree.close().await;
        }
        match (self.sql, self.tree_database) {
            (Some(sql), _) => sql.close().await,
            (None, Some((tree_databases, tree_database))) => {
                tree_databases.put_back(tree_database).await.map(|()| Vec::new())
            }
            (None, None) => Ok(Vec::new()),
        }
    }
}
