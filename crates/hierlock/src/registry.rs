//! Who in this process holds or waits, where the backend itself keeps no list.

use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan, SlotId, Step};
use crate::snapshot::{Holder, Wait};
use crate::target::Target;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<Records>);

#[derive(Debug, Default)]
struct Records {
    entered: u64,
    records: BTreeMap<u64, Record>,
}

/// One hold, or one on its way.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    name: Option<Arc<String>>,
    since: Instant,
    /// What was taken first, as it was planned: most holds end before anybody asks what they hold.
    planned: Option<Plan>,
    claims: BTreeMap<Target, Mode>,
    slots: BTreeMap<SlotId, (Target, SlotMode)>,
    waits: Option<Waiting>,
}

/// A wait under way.
#[derive(Clone, Debug)]
struct Waiting {
    slot: SlotId,
    target: Target,
    mode: SlotMode,
    since: Instant,
    /// What the same statement has taken already: held, though nobody has been told yet.
    so_far: BTreeMap<SlotId, (Target, SlotMode)>,
}

impl Record {
    /// From the plan to what is held, for whoever asks.
    fn unfold(&mut self) {
        if let Some(plan) = self.planned.take() {
            self.add(&plan);
        }
    }

    fn add(&mut self, plan: &Plan) {
        for step in plan.steps() {
            self.take(plan, &step);
        }
        self.claim(plan.claims());
    }

    /// Notes what was asked for, each target once, in the strongest mode.
    pub(crate) fn claim(&mut self, claims: &[Claim]) {
        for Claim { target, mode } in claims {
            let strongest = self.claims.entry(target.clone()).or_insert(*mode);
            *strongest = (*strongest).max(*mode);
        }
    }

    /// The mode in which a slot is kept from others, also while the rest is waited for.
    fn keeps(&self, slot: &SlotId) -> Option<SlotMode> {
        let so_far = self.waits.as_ref().and_then(|waiting| waiting.so_far.get(slot));
        let held = self.slots.get(slot).into_iter().chain(so_far).map(|(_, mode)| *mode);
        held.reduce(SlotMode::join)
    }

    /// What is held by now.
    fn holds(&self) -> BTreeMap<Target, SlotMode> {
        let so_far = self.waits.iter().flat_map(|waiting| waiting.so_far.values());
        let mut holds: BTreeMap<Target, SlotMode> = self.slots.values().cloned().collect();
        for (target, mode) in so_far {
            let held = holds.entry(target.clone()).or_insert(*mode);
            *held = held.join(*mode);
        }
        holds
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
        let taken = self.slots.entry(plan.id(step)).or_insert(slot);
        taken.1 = taken.1.join(step.mode);
    }

    /// Notes that a step is held as it was before it was taken.
    pub(crate) fn put_back(&mut self, plan: &Plan, step: &Step, before: Option<SlotMode>) {
        let id = plan.id(step);
        match (before, self.slots.get_mut(&id)) {
            (Some(before), Some((_, mode))) => *mode = before,
            _ => drop(self.slots.remove(&id)),
        }
    }
}

/// A place in the registry; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    registry: Arc<Registry>,
    pub(crate) id: u64,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<Self>, name: Option<Arc<String>>) -> Entry {
        let mut records = self.lock();
        records.entered += 1;
        let id = records.entered;
        let (claims, slots) = Default::default();
        let since = Instant::now();
        let record = Record { name, since, planned: None, claims, slots, waits: None };
        records.records.insert(id, record);
        Entry { registry: self.clone(), id }
    }

    /// Oldest first.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let now = Instant::now();
        let Records { records, .. } = &mut *self.lock();
        records.values_mut().for_each(Record::unfold);
        let records = &*records;
        let in_the_way = |own: u64, slot: &SlotId, mode: SlotMode| {
            records
                .iter()
                .filter(|(id, record)| {
                    let kept = record.keeps(slot);
                    **id != own && kept.is_some_and(|kept| !kept.is_compatible_with(mode))
                })
                .map(|(id, _)| *id)
                .collect()
        };
        records
            .iter()
            .map(|(id, record)| Holder {
                id: *id,
                name: record.name.as_deref().cloned(),
                age: now.saturating_duration_since(record.since),
                holds: record.holds(),
                waits: record.waits.as_ref().map(|waiting| Wait {
                    target: waiting.target.clone(),
                    mode: waiting.mode,
                    waited: now.saturating_duration_since(waiting.since),
                    blocked_by: in_the_way(*id, &waiting.slot, waiting.mode),
                }),
            })
            .collect()
    }
}

impl Entry {
    /// Looks at, or changes, the record.
    pub(crate) fn with<T: Default>(&self, f: impl FnOnce(&mut Record) -> T) -> T {
        // It is there until the entry is dropped.
        let mut records = self.registry.lock();
        let record = records.records.get_mut(&self.id);
        record
            .map(|record| {
                record.unfold();
                f(record)
            })
            .unwrap_or_default()
    }

    #[cfg(feature = "_server")]
    /// Notes the first plan that was taken, for listings and for `modes`.
    pub(crate) fn begin(&self, plan: Plan) {
        if let Some(record) = self.registry.lock().records.get_mut(&self.id) {
            record.planned = Some(plan);
        }
    }

    #[cfg(feature = "_server")]
    /// Notes that another plan was taken.
    pub(crate) fn note(&self, plan: &Plan) {
        self.with(|record| record.add(plan));
    }

    /// What was asked for.
    pub(crate) fn claims(&self) -> BTreeMap<Target, Mode> {
        self.with(|record| record.claims.clone())
    }

    /// What is really taken, by node.
    pub(crate) fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.with(|record| record.slots.values().cloned().collect())
    }

    /// Shown as waiting for a step as long as what comes back lives. The steps before it in the same
    /// statement are taken by then.
    pub(crate) fn waits(&self, plan: &Plan, before: &[Step], step: &Step) -> Shown<'_> {
        let taken = |step: &Step| (plan.id(step), (step.target.clone(), step.mode));
        let waiting = Waiting {
            slot: plan.id(step),
            target: step.target.clone(),
            mode: step.mode,
            since: Instant::now(),
            so_far: before.iter().map(taken).collect(),
        };
        self.with(|record| record.waits = Some(waiting));
        Shown(self)
    }
}

/// A wait that is listed; no more when dropped.
#[derive(Debug)]
pub(crate) struct Shown<'a>(&'a Entry);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.with(|record| record.waits = None);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.registry.lock().records.remove(&self.id);
    }
}
