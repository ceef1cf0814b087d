//! The holders and waiters of this process, for backends that have no list of their own.

use crate::plan::{SlotId, add_claims};
use crate::{Holder, Mode, Plan, SlotMode, Step, Target, Wait};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Slots, with a node of each and the mode in which it is held.
type SlotModes = BTreeMap<SlotId, (Target, SlotMode)>;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    last_id: AtomicU64,
    records: Mutex<BTreeMap<u64, RegistryRecord>>,
}

/// One hold, or one acquire that is not complete.
#[derive(Debug)]
pub(crate) struct RegistryRecord {
    name: Option<Arc<String>>,
    since: Instant,
    /// The plan that was locked last. It is expanded only when needed, since most holds end before that.
    planned: Option<Plan>,
    claims: BTreeMap<Target, Mode>,
    slots: SlotModes,
    wait: Option<AcquireWait>,
}

/// The current wait of an acquire.
#[derive(Debug)]
struct AcquireWait {
    slot: SlotId,
    step: Step,
    since: Instant,
    /// The slots that the same acquire has locked already.
    taken: SlotModes,
}

impl RegistryRecord {
    /// Moves the slots of the plan into the held slots.
    fn expand(&mut self) {
        if let Some(plan) = self.planned.take() {
            plan.steps().for_each(|step| self.take(&plan, &step));
            add_claims(&mut self.claims, plan.claims());
        }
    }

    /// Returns every locked slot, including those of an acquire that still waits. A slot may come twice.
    fn locked_slots(&self) -> impl Iterator<Item = (&SlotId, &(Target, SlotMode))> {
        self.slots.iter().chain(self.wait.iter().flat_map(|wait| &wait.taken))
    }

    /// Returns whether this record blocks another that wants the slot in that mode.
    fn conflicts_with(&self, slot: &SlotId, mode: SlotMode) -> bool {
        self.locked_slots().any(|(id, (_, held))| id == slot && !held.is_compatible_with(mode))
    }

    /// Returns the mode in which the slot of a step is held.
    pub(crate) fn held(&self, plan: &Plan, step: &Step) -> Option<SlotMode> {
        self.slots.get(&plan.id(step)).map(|(_, mode)| *mode)
    }

    /// Returns whether the slot of a step comes after all held slots.
    pub(crate) fn is_after_all(&self, plan: &Plan, step: &Step) -> bool {
        self.slots.last_key_value().is_none_or(|(last, _)| *last < plan.id(step))
    }

    /// Records that a step was locked, in addition to the mode that was held there before.
    pub(crate) fn take(&mut self, plan: &Plan, step: &Step) {
        let slot = (step.target.clone(), step.mode);
        let (_, mode) = self.slots.entry(plan.id(step)).or_insert(slot);
        *mode = mode.join(step.mode);
    }
}

impl Registry {
    pub(crate) fn enter(self: &Arc<Self>, name: Option<Arc<String>>) -> RegistryEntry {
        let (id, since) = (self.last_id.fetch_add(1, Relaxed) + 1, Instant::now());
        let (planned, claims, slots, wait) = Default::default();
        let record = RegistryRecord { name, since, planned, claims, slots, wait };
        self.records.lock().insert(id, record);
        RegistryEntry { registry: self.clone(), id }
    }

    /// Returns all holders and waiters, oldest first.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let now = Instant::now();
        let mut records = self.records.lock();
        records.values_mut().for_each(RegistryRecord::expand);
        let wait_of = |id: &u64, AcquireWait { slot, step, since, .. }: &AcquireWait| {
            let others = records.iter().filter(|(other, _)| *other != id);
            let blockers = others.filter(|(_, other)| other.conflicts_with(slot, step.mode));
            Wait {
                target: step.target.clone(),
                mode: step.mode,
                waited: now.saturating_duration_since(*since),
                blocked_by: blockers.map(|(other, _)| *other).collect(),
            }
        };
        let holder = |(id, record): (&u64, &RegistryRecord)| {
            let mut holder = Holder::new(*id);
            holder.name = record.name.as_deref().cloned();
            holder.age = now.saturating_duration_since(record.since);
            for (_, (target, mode)) in record.locked_slots() {
                let held = holder.holds.entry(target.clone()).or_insert(*mode);
                *held = held.join(*mode);
            }
            holder.waits = record.wait.as_ref().map(|wait| wait_of(id, wait));
            holder
        };
        records.iter().map(holder).collect()
    }
}

/// An entry of the registry, removed when dropped.
#[derive(Debug)]
pub(crate) struct RegistryEntry {
    registry: Arc<Registry>,
    pub(crate) id: u64,
}

impl RegistryEntry {
    pub(crate) fn with<T: Default>(&self, f: impl FnOnce(&mut RegistryRecord) -> T) -> T {
        let mut records = self.registry.records.lock();
        // The record exists until the entry is dropped.
        let Some(record) = records.get_mut(&self.id) else { return T::default() };
        record.expand();
        f(record)
    }

    /// Records that a plan was locked.
    pub(crate) fn record_plan(&self, plan: Plan) {
        self.with(|record| record.planned = Some(plan));
    }

    /// Returns the time since the request.
    #[cfg(feature = "_server")]
    pub(crate) fn age(&self) -> std::time::Duration {
        self.with(|record| record.since.elapsed())
    }

    pub(crate) fn claims(&self) -> BTreeMap<Target, Mode> {
        self.with(|record| record.claims.clone())
    }

    pub(crate) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.with(|record| record.slots.values().cloned().collect())
    }

    /// Shows the entry as waiting for a step until the guard is dropped. The steps `before` it in the same acquire are
    /// already locked.
    pub(crate) fn waits(&self, plan: &Plan, before: &[Step], step: &Step) -> WaitGuard<'_> {
        let taken = |step: &Step| (plan.id(step), (step.target.clone(), step.mode));
        let wait = AcquireWait {
            slot: plan.id(step),
            step: step.clone(),
            since: Instant::now(),
            taken: before.iter().map(taken).collect(),
        };
        self.with(|record| record.wait = Some(wait));
        WaitGuard(self)
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        self.registry.records.lock().remove(&self.id);
    }
}

/// A wait that is shown in the registry until this guard is dropped.
#[derive(Debug)]
pub(crate) struct WaitGuard<'a>(&'a RegistryEntry);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.with(|record| record.wait = None);
    }
}
