//! Slot statistics as JSON.

use crate::locks::json::SlotJson;
use hierlock::Target;
use hierlock::sql::lock_report::SlotSummary;
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Serialize)]
pub(crate) struct SlotSummaryJson {
    slot: Option<SlotJson>,
    waits: u64,
    false_waits: u64,
    unknown_waits: u64,
    false_contention: &'static str,
    max_waiting: usize,
    mean_waiting: f64,
    waited_ms: u128,
    wanted: Vec<String>,
    held: Vec<String>,
}

impl SlotSummaryJson {
    pub(crate) fn new(slot: &SlotSummary) -> Self {
        let paths = |paths: &BTreeSet<Target>| paths.iter().map(Target::to_string).collect();
        Self {
            slot: SlotJson::new(&slot.slot),
            waits: slot.waits,
            false_waits: slot.false_waits,
            unknown_waits: slot.unknown_waits,
            false_contention: slot.false_contention().name(),
            max_waiting: slot.max_waiting,
            mean_waiting: slot.mean_waiting,
            waited_ms: slot.waited.as_millis(),
            wanted: paths(&slot.wanted),
            held: paths(&slot.held),
        }
    }
}
