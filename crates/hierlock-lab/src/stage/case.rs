//! The stage of one case: SQL sessions, sessions that lock nodes, or both in one place.

use super::tree::TreeSessions;
use super::{Reply, Server, SqlStage, Stage, StageError};
use crate::observation::{Failure, Lock, Name, Wait};
use crate::place::Engine;
use crate::record::Link;
use crate::scenario::{Case, CaseDeed, LockDeed};
use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Hierlock, Target};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::oneshot;
use url::Url;

/// Where a case is played.
pub(crate) struct CaseStage {
    sql: Option<SqlStage>,
    tree: Option<TreeSessions>,
}

impl CaseStage {
    /// Makes it: on a server a database of its own, elsewhere a tree of its own.
    pub(crate) async fn open(
        case: &Case,
        server: Option<&Server>,
        directory: &Path,
    ) -> Result<Self, StageError> {
        let sql = match (case.place.engine.server(), server) {
            (None, _) => None,
            (Some(_), Some(server)) => Some(server.open(case).await?),
            (Some(engine), None) => return Err(StageError(format!("there is no {engine} server"))),
        };
        let mut stage = Self { sql, tree: None };
        match stage.plant(case, directory).await {
            Ok(tree) => {
                stage.tree = tree;
                Ok(stage)
            }
            Err(error) => {
                // What went wrong first is what is told.
                let _ = stage.close().await;
                Err(StageError(format!("nodes cannot be locked there: {error}")))
            }
        }
    }

    /// A client for the lock steps, if there are any.
    async fn plant(&self, case: &Case, directory: &Path) -> hierlock::Result<Option<TreeSessions>> {
        let targets = targets(case);
        if !case.steps.iter().any(|step| matches!(step.deed, CaseDeed::Lock(..))) {
            return Ok(None);
        }
        let url = match (&self.sql, case.place.engine) {
            (Some(sql), _) => {
                let url = with_parameters(sql.url(), case);
                provision(&url, case.place.strategy, &targets).await?;
                url
            }
            (None, Engine::File) => {
                static FILES: AtomicUsize = AtomicUsize::new(0);
                let number = FILES.fetch_add(1, Ordering::Relaxed);
                format!("file:{}", directory.join(format!("{number}.lock")).display())
            }
            (None, _) => "memory:".to_owned(),
        };
        let locks = Hierlock::connect(&url).await?;
        Ok(Some(TreeSessions::new(locks, case.sessions.keys())))
    }
}

impl Stage for CaseStage {
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

    async fn locks(&self) -> Result<Vec<Lock>, StageError> {
        let mut locks = self.tree.as_ref().map(TreeSessions::locks).unwrap_or_default();
        if let Some(sql) = &self.sql {
            locks.extend(sql.locks().await?);
        }
        Ok(locks)
    }

    async fn circle(&self, victim: &Name, failure: &Failure) -> Option<Vec<Link>> {
        match &self.sql {
            Some(sql) => sql.circle(victim, failure).await,
            None => None,
        }
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

    async fn close(self) -> Result<(), StageError> {
        if let Some(tree) = self.tree {
            tree.close().await;
        }
        match self.sql {
            Some(sql) => sql.close().await,
            None => Ok(()),
        }
    }
}

/// Every node that a case locks.
fn targets(case: &Case) -> Vec<Target> {
    let deeds = case.steps.iter().filter_map(|step| match &step.deed {
        CaseDeed::Lock(
            LockDeed::Lock { targets, .. }
            | LockDeed::Try { targets, .. }
            | LockDeed::Extend { targets, .. },
            _,
        ) => Some(targets),
        _ => None,
    });
    deeds.flatten().cloned().collect()
}

/// A connection for each session, another for each extension, and what the place is.
fn with_parameters(url: String, case: &Case) -> String {
    // It was read before.
    let Ok(mut url) = Url::parse(&url) else { return url };
    if let Some(strategy) = case.place.strategy {
        url.query_pairs_mut().append_pair("strategy", strategy.name());
    }
    if case.place.strategy == Some(Strategy::Striped) {
        url.query_pairs_mut().append_pair("buckets", &case.buckets.to_string());
    }
    url.into()
}

/// Makes the rows that the strategy needs.
async fn provision(
    url: &str,
    strategy: Option<Strategy>,
    targets: &[Target],
) -> hierlock::Result<()> {
    match strategy {
        Some(Strategy::Striped) => {
            Provision::connect(url, Hierarchy::default()).await?.run(|_| ()).await?;
        }
        Some(Strategy::PerId) => {
            let provision = Provision::connect(url, Hierarchy::default()).await?;
            provision.run(|_| ()).await?;
            provision.add(targets).await?;
        }
        // Made by whoever comes first, or not at all.
        _ => {}
    }
    Ok(())
}
