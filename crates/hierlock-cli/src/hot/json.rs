//! Slot statistics as JSON.

use crate::locks::json::{paths_json, slot_json};
use crate::time::millis;
use hierlock::sql::lock_report::SlotSummary;
use serde_json::{Value, json};

pub(crate) fn slot_summary_json(slot: &SlotSummary) -> Value {
    json!({
        "slot": slot_json(&slot.slot),
        "waits": slot.waits,
        "false_waits": slot.false_waits,
        "unknown_waits": slot.unknown_waits,
        "false_contention": slot.false_contention().name(),
        "max_waiting": slot.max_waiting,
        "mean_waiting": slot.mean_waiting,
        "waited_ms": millis(slot.waited),
        "wanted": paths_json(&slot.wanted),
        "held": paths_json(&slot.held),
    })
}
