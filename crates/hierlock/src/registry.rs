//! Who in this process holds or waits, where the backend itself keeps no list.

use crate::plan::{SlotId, add_claims};
use crate::{Holder, Mode, Plan, SlotMode, Step, Target, Wait};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Slots and how they are held.
type SlotModes = BTreeMap<SlotId, (Target, SlotMode)>;

#[derive(Debug, Default)]
pub(crate) struct Registry {
    last_id: AtomicU64,
    records: Mutex<BTreeMap<u64, Record>>,
}

/// One hold, or one on its way.
#[derive(Debug)]
pub(crate) struct Record {
    name: Option<Arc<String>>,
    since: Instant,
    /// What was taken last, as it was planned: most holds end before anybody asks what they hold.
    planned: Option<Plan>,
    claims: BTreeMap<Target, Mode>,
    slots: SlotModes,
    wait: Option<SlotWait>,
}

/// A wait under way.
#[derive(Debug)]
struct SlotWait {
    slot: SlotId,
    step: Step,
    since: Instant,
    /// What the same acquire has taken already: held, though its caller does not know yet.
    taken: SlotModes,
}

impl Record {
    /// Expands the plan into what is held, for whoever asks.
    fn expand(&mut self) {
        if let Some(plan) = self.planned.take() {
            plan.steps().for_each(|step| self.take(&plan, &step));
            add_claims(&mut self.claims, plan.claims());
        }
    }

    /// Every slot that is kept from others by now, also while the rest is waited for. A slot may come twice.
    fn kept(&self) -> impl Iterator<Item = (&SlotId, &(Target, SlotMode))> {
        self.slots.iter().chain(self.wait.iter().flat_map(|wait| &wait.taken))
    }

    /// Is this in the way of someone else who wants the slot in that mode?
    fn conflicts_with(&self, slot: &SlotId, mode: SlotMode) -> bool {
        self.kept().any(|(kept, (_, held))| kept == slot && !held.is_compatible_with(mode))
    }

    /// The mode in which the slot of a step is held.
    pub(crate) fn held(&self, plan: &Plan, step: &Step) -> Option<SlotMode> {
        self.slots.get(&plan.id(step)).map(|(_, mode)| *mode)
    }

    /// Does the slot of a step come after all that is held?
    pub(crate) fn is_after_all(&self, plan: &Plan, step: &Step) -> bool {
        self.slots.last_key_value().is_none_or(|(last, _)| *last < plan.id(step))
    }

    /// Notes that a step was taken, beside what was held there before.
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
        let record = Record { name, since, planned, claims, slots, wait };
        self.records.lock().insert(id, record);
        RegistryEntry { registry: self.clone(), id }
    }

    /// Oldest first.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let now = Instant::now();
        let mut records = self.records.lock();
        records.values_mut().for_each(Record::expand);
        let wait_of = |id: &u64, SlotWait { slot, step, since, .. }: &SlotWait| {
            let others = records.iter().filter(|(other, _)| *other != id);
            let blockers = others.filter(|(_, other)| other.conflicts_with(slot, step.mode));
            Wait {
                target: step.target.clone(),
                mode: step.mode,
                waited: now.saturating_duration_since(*since),
                blocked_by: blockers.map(|(other, _)| *other).collect(),
            }
        };
        let holder = |(id, record): (&u64, &Record)| {
            let mut holder = Holder::new(*id);
            holder.name = record.name.as_deref().cloned();
            holder.age = now.saturating_duration_since(record.since);
            for (_, (target, mode)) in record.kept() {
                let held = holder.holds.entry(target.clone()).or_insert(*mode);
                *held = held.join(*mode);
            }
            holder.waits = record.wait.as_ref().map(|wait| wait_of(id, wait));
            holder
        };
        records.iter().map(holder).collect()
    }
}

/// A place in the registry; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct RegistryEntry {
    registry: Arc<Registry>,
    pub(crate) id: u64,
}

impl RegistryEntry {
    /// Looks at, or changes, the record.
    pub(crate) fn with<T: Default>(&self, f: impl FnOnce(&mut Record) -> T) -> T {
        let mut records = self.registry.records.lock();
        // It is there until the entry is dropped.
        let Some(record) = records.get_mut(&self.id) else { return T::default() };
        record.expand();
        f(record)
    }

    /// Notes that a plan was taken.
    pub(crate) fn note(&self, plan: Plan) {
        self.with(|record| record.planned = Some(plan));
    }

    /// What was asked for.
    pub(crate) fn claims(&self) -> BTreeMap<Target, Mode> {
        self.with(|record| record.claims.clone())
    }

    /// What is really taken, by node.
    pub(crate) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.with(|record| record.slots.values().cloned().collect())
    }

    /// Lists it as waiting for a step until the guard is dropped. The steps before it in the same acquire are
    /// taken by then.
    pub(crate) fn waits(&self, plan: &Plan, before: &[Step], step: &Step) -> WaitGuard<'_> {
        let taken = |step: &Step| (plan.id(step), (step.target.clone(), step.mode));
        let wait = SlotWait {
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

/// A wait that is listed until this is dropped.
#[derive(Debug)]
pub(crate) struct WaitGuard<'a>(&'a RegistryEntry);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.with(|record| record.wait = None);
    }
}
