//! A complete backend outside of hierlock, written with the public API alone: one table behind one mutex. It passes the
//! same suite as the built-in backends.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::backend::{AcquireRequest, Backend, FencingHold, Hold, LockConflict};
use hierlock::{
    Blocker, Claim, Error, Hierarchy, Hierlock, Holder, Mode, ModeSet, Plan, Result, SlotMode,
    Slots, Target, Wait,
};
use hierlock_conformance::conformance;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

conformance!(
    async || Hierlock::with_backend(TableBackend::new(Hierarchy::default()));
    extensions never wait
);

/// Locks on the rows of one table in memory.
#[derive(Debug)]
struct TableBackend {
    hierarchy: Hierarchy,
    table: Arc<Table>,
}

#[derive(Debug, Default)]
struct Table {
    rows: Mutex<Rows>,
    /// Notified when a lock is released.
    released: Notify,
}

#[derive(Debug, Default)]
struct Rows {
    last_id: u64,
    last_token: u64,
    owners: BTreeMap<u64, Owner>,
}

/// The owner of a hold, or of an acquire in progress.
#[derive(Clone, Debug)]
struct Owner {
    name: Option<String>,
    since: Instant,
    targets: BTreeMap<Target, Mode>,
    holds: BTreeMap<Target, SlotMode>,
    waits: Option<(Target, SlotMode, Instant)>,
}

impl TableBackend {
    fn new(hierarchy: Hierarchy) -> Self {
        Self { hierarchy, table: Arc::default() }
    }
}

impl Table {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// Returns the owners that hold a node in a conflicting mode.
    fn blockers(&self, id: u64, node: &Target, mode: SlotMode) -> Vec<u64> {
        let others = self.owners.iter().filter(|(other, _)| **other != id);
        others
            .filter(|(_, owner)| {
                owner.holds.get(node).is_some_and(|held| !held.is_compatible_with(mode))
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Takes a node. If another owner conflicts, fails with the needed mode.
    fn take(&mut self, id: u64, node: &Target, mode: SlotMode) -> Result<(), SlotMode> {
        let held = self.owners[&id].holds.get(node).copied();
        let mode = held.map_or(mode, |held| held.join(mode));
        if !self.blockers(id, node, mode).is_empty() {
            return Err(mode);
        }
        self.owner(id).holds.insert(node.clone(), mode);
        Ok(())
    }

    fn owner(&mut self, id: u64) -> &mut Owner {
        self.owners.get_mut(&id).expect("the owner exists until its hold is dropped")
    }
}

impl Backend for TableBackend {
    type Hold = TableHold;

    fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    fn slots(&self) -> Slots {
        Slots::Paths
    }

    fn modes(&self) -> ModeSet {
        ModeSet::Intentions
    }

    async fn acquire(&self, request: AcquireRequest) -> Result<TableHold> {
        let plan = self.plan(request.claims())?;
        let mut hold = TableHold::new(self, request.name());
        hold.take(&plan, &request, OnConflict::Wait).await?;
        Ok(hold)
    }

    fn holders(&self) -> Vec<Holder> {
        let (rows, now) = (self.table.rows(), Instant::now());
        let holder = |(id, owner): (&u64, &Owner)| {
            let mut holder = Holder::new(*id);
            holder.name.clone_from(&owner.name);
            holder.age = now - owner.since;
            holder.holds.clone_from(&owner.holds);
            holder.waits = owner.waits.as_ref().map(|(node, mode, since)| {
                let mut wait = Wait::new(node.clone(), *mode);
                wait.waited = now - *since;
                wait.blocked_by = rows.blockers(*id, node, *mode);
                wait
            });
            holder
        };
        rows.owners.iter().map(holder).collect()
    }
}

/// The hold of an owner. Dropping it releases all locks.
#[derive(Debug)]
struct TableHold {
    hierarchy: Hierarchy,
    table: Arc<Table>,
    id: u64,
}

/// The action on a conflict. Acquires take nodes in one order, so they may wait. An extension may not, because this
/// backend does not detect deadlocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnConflict {
    Wait,
    Fail,
}

impl TableHold {
    fn new(backend: &TableBackend, name: Option<&str>) -> Self {
        let mut rows = backend.table.rows();
        rows.last_id += 1;
        let id = rows.last_id;
        let (targets, holds) = Default::default();
        let name = name.map(str::to_owned);
        rows.owners.insert(id, Owner { name, since: Instant::now(), targets, holds, waits: None });
        Self { hierarchy: backend.hierarchy.clone(), table: backend.table.clone(), id }
    }

    async fn take(
        &mut self,
        plan: &Plan,
        request: &AcquireRequest,
        on_conflict: OnConflict,
    ) -> Result<()> {
        let attempt = Attempt::begin(self);
        for step in plan.steps() {
            loop {
                let released = self.table.released.notified();
                let taken = self.table.rows().take(self.id, &step.target, step.mode);
                let Err(mode) = taken else { break };
                let conflict = LockConflict {
                    blocked_on: step.target.clone(),
                    wanted: request.targets(),
                    blocker: Blocker::Holder,
                    sessions: Vec::new(),
                };
                if !request.wait_limit().waits() {
                    return Err(Error::would_block(conflict));
                }
                if on_conflict == OnConflict::Fail {
                    return Err(Error::out_of_order(conflict));
                }
                let since = Instant::now();
                self.table.rows().owner(self.id).waits.get_or_insert((
                    step.target.clone(),
                    mode,
                    since,
                ));
                let waited = request.wait_limit().limit(released).await;
                waited.map_err(|waited| Error::timeout(conflict, waited))?;
            }
            self.table.rows().owner(self.id).waits = None;
        }
        attempt.succeed(plan.claims());
        Ok(())
    }
}

/// An acquire in progress. If it is dropped before its end, the owner keeps only the locks it held before.
struct Attempt<'a> {
    hold: &'a TableHold,
    before: Option<Owner>,
}

impl<'a> Attempt<'a> {
    fn begin(hold: &'a TableHold) -> Self {
        let before = hold.table.rows().owners[&hold.id].clone();
        Self { hold, before: Some(before) }
    }

    fn succeed(mut self, claims: &[Claim]) {
        self.before = None;
        let mut rows = self.hold.table.rows();
        for Claim { target, mode } in claims {
            let strongest = rows.owner(self.hold.id).targets.entry(target.clone()).or_insert(*mode);
            *strongest = (*strongest).max(*mode);
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            *self.hold.table.rows().owner(self.hold.id) = before;
            self.hold.table.released.notify_waiters();
        }
    }
}

impl Hold for TableHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        let claims = request.claims().iter().cloned();
        let plan = Plan::new(&self.hierarchy, claims, Slots::Paths, ModeSet::Intentions)?;
        self.take(&plan, &request, OnConflict::Fail).await
    }

    async fn release(self) -> Result<()> {
        Ok(())
    }

    fn targets(&self) -> BTreeMap<Target, Mode> {
        self.table.rows().owners[&self.id].targets.clone()
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.table.rows().owners[&self.id].holds.clone()
    }

    fn id(&self) -> u64 {
        self.id
    }
}

impl FencingHold for TableHold {
    async fn token(&self) -> Result<u64> {
        let mut rows = self.table.rows();
        rows.last_token += 1;
        Ok(rows.last_token)
    }
}

impl Drop for TableHold {
    fn drop(&mut self) {
        self.table.rows().owners.remove(&self.id);
        self.table.released.notify_waiters();
    }
}

/// The backend's own error type is the source of the error.
#[test]
fn an_error_of_the_backend_is_the_source() {
    let error = Error::backend(std::io::Error::other("the disk is full"));
    assert_eq!(error.to_string(), "the lock backend failed: the disk is full");
    assert!(std::error::Error::source(&error).is_some_and(|source| source.is::<std::io::Error>()));
    assert!(!error.is_retryable() && !error.is_usage());
    let lost = Error::lost(["u1".parse().unwrap()], "the disk is full");
    assert!(lost.is_lost() && lost.to_string().contains("`u1`"), "{lost}");
}
