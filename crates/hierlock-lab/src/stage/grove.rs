//! Trees on servers, with the rows that their strategy needs. Making one takes far longer than a case
//! does, so cases that only lock nodes hand theirs on, once everything in it is free again.

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
        let kind = (case.place, case.buckets);
        let free = self.free().get_mut(&kind).and_then(Vec::pop);
        let grove = match free {
            Some(grove) => grove,
            None => Grove::plant(case, server, kind).await?,
        };
        if case.place.strategy == Some(Strategy::PerId) {
            let added = add(&grove.url, &targets(case)).await;
            added.map_err(|error| StageError(error.to_string()))?;
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
            Some(Grove { home, locks, .. }) => {
                drop(locks);
                home.close().await
            }
            None => Ok(()),
        }
    }

    /// Removes all of them.
    pub(crate) async fn clear(&self) -> Result<(), StageError> {
        let groves: Vec<Grove> = self.free().drain().flat_map(|(_, groves)| groves).collect();
        let mut cleared = Ok(());
        for Grove { home, locks, .. } in groves {
            drop(locks);
            cleared = cleared.and(home.close().await);
        }
        cleared
    }

    fn free(&self) -> MutexGuard<'_, HashMap<Kind, Vec<Grove>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Grove {
    async fn plant(case: &Case, server: &Server, kind: Kind) -> Result<Self, StageError> {
        // Its sessions are guards of the client: they need no connections of their own here.
        let bare = Case { sessions: Default::default(), ..case.clone() };
        let home = server.open(&bare).await?;
        match client(&home, case).await {
            Ok((url, locks)) => Ok(Self { home, url, locks, kind }),
            Err(error) => {
                // What went wrong first is what is told.
                let _ = home.close().await;
                Err(error)
            }
        }
    }
}

/// Makes the rows that the nodes of a case need in a place, and a client for them.
pub(super) async fn client(home: &SqlStage, case: &Case) -> Result<(String, Hierlock), StageError> {
    let url = with_parameters(home.url(), case);
    let made = async {
        match case.place.strategy {
            Some(Strategy::Striped) => {
                Provision::connect(&url, Hierarchy::default()).await?.run(|_| ()).await?;
            }
            Some(Strategy::PerId) => add(&url, &targets(case)).await?,
            // Made by whoever comes first, or not at all.
            _ => {}
        }
        Hierlock::connect(&url).await
    };
    match made.await {
        Ok(locks) => Ok((url, locks)),
        Err(error) => Err(StageError(format!("nodes cannot be locked there: {error}"))),
    }
}

/// Rows by ID, for these nodes and all above them.
async fn add(url: &str, targets: &[Target]) -> hierlock::Result<()> {
    let provision = Provision::connect(url, Hierarchy::default()).await?;
    provision.run(|_| ()).await?;
    provision.add(targets).await.map(|_| ())
}

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

fn only_locks(case: &Case) -> bool {
    let has_sql = case.steps.iter().any(|step| matches!(step.deed, CaseDeed::Sql(_)));
    !has_sql && case.setup.is_empty() && case.teardown.is_empty()
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
