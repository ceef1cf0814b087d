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

/// So many of a kind are kept: each has connections, of which a server has not too many.
const KEPT: usize = 2;
/// How long what a case still did may take to end.
const FREE_WITHIN: Duration = Duration::from_secs(5);
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What is to be planted.
pub(crate) struct Plot {
    /// On which engine, and how.
    pub(crate) place: Place,
    /// Striped over how many buckets.
    pub(crate) buckets: u32,
    /// The nodes that will be locked.
    pub(crate) targets: Vec<Target>,
}

/// A database of its own, and a client for the tree in it.
pub(crate) struct Grove {
    home: SqlStage,
    url: String,
    pub(crate) locks: Hierlock,
    kind: Kind,
}

/// Groves of one kind serve the same cases.
type Kind = (Place, u32);

/// Those that are free.
#[derive(Default)]
pub(crate) struct Groves(Mutex<HashMap<Kind, Vec<Grove>>>);

impl Groves {
    /// One for a case that only locks nodes; none for others.
    pub(crate) async fn take(
        &self,
        case: &Case,
        server: &Server,
    ) -> Result<Option<Grove>, StageError> {
        if !only_locks(case) {
            return Ok(None);
        }
        let plot = Plot::of(case);
        let free = self.free().get_mut(&(plot.place, plot.buckets)).and_then(Vec::pop);
        let Some(grove) = free else { return Grove::plant(server, &plot).await.map(Some) };
        if plot.place.strategy == Some(Strategy::PerId) {
            provision(&grove.url, &plot).await?;
        }
        Ok(Some(grove))
    }

    /// Takes one back, or removes it.
    pub(crate) async fn put_back(&self, grove: Grove) -> Result<(), StageError> {
        let begun = Instant::now();
        while !grove.locks.holders().is_empty() && begun.elapsed() < FREE_WITHIN {
            sleep(LOOK_EVERY).await;
        }
        // Rows by ID that were made on demand are there from then on, so the next would not meet the same.
        let is_as_before =
            grove.locks.holders().is_empty() && grove.kind.0.strategy != Some(Strategy::OnDemand);
        let left = {
            let mut free = self.free();
            let kept = free.entry(grove.kind).or_default();
            match is_as_before && kept.len() < KEPT {
                true => {
                    kept.push(grove);
                    None
                }
                false => Some(grove),
            }
        };
        match left {
            Some(grove) => grove.remove().await,
            None => Ok(()),
        }
    }

    /// Removes all of them.
    pub(crate) async fn clear(&self) -> Result<(), StageError> {
        let groves: Vec<Grove> = self.free().drain().flat_map(|(_, groves)| groves).collect();
        let mut cleared = Ok(());
        for grove in groves {
            cleared = cleared.and(grove.remove().await);
        }
        cleared
    }

    fn free(&self) -> MutexGuard<'_, HashMap<Kind, Vec<Grove>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grove {
    /// Makes it.
    pub(crate) async fn plant(server: &Server, plot: &Plot) -> Result<Self, StageError> {
        // Sessions are guards of the client: they need no connections of their own here.
        let mut home = SqlStage::make(server, Needs::of_tree(plot.place)).await?;
        match plot.client(&home).await {
            Ok((url, locks)) => {
                // While nobody uses it, it is in nobody's way.
                home.leave_crowd();
                Ok(Self { home, url, locks, kind: (plot.place, plot.buckets) })
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

impl Plot {
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
async fn provision(url: &str, plot: &Plot) -> Result<(), StageError> {
    let (Some(Strategy::Striped | Strategy::PerId), by_id) =
        (plot.place.strategy, plot.place.strategy == Some(Strategy::PerId))
    else {
        // Made by whoever comes first, or not at all.
        return Ok(());
    };
    let made = async {
        let provision = Provision::connect(url, Hierarchy::default()).await?;
        provision.run(|_| ()).await?;
        if by_id {
            provision.add(&plot.targets).await?;
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
