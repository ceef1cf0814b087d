//! Slot statistics as text.

use crate::output::{cell, counted, short_list, table};
use crate::time::duration_text;
use hierlock::Target;
use hierlock::sql::lock_report::{FalseContention, SlotSummary};
use std::collections::BTreeSet;

/// The number of paths that are printed for a slot.
const MAX_PATHS: usize = 4;

/// Returns a table of slots.
pub(super) fn slot_table(slots: &[SlotSummary], empty: &str) -> String {
    let rows = slots.iter().map(|slot| {
        [
            cell(&slot.slot.to_string(), 100),
            slot.waits.to_string(),
            format!("{}, {:.1}", slot.max_waiting, slot.mean_waiting),
            duration_text(slot.waited),
            false_contention(slot),
            paths(&slot.wanted),
            paths(&slot.held),
        ]
    });
    let header = [
        "slot",
        "waits",
        "waiting (max, mean)",
        "waited",
        "false contention",
        "wanted",
        "blocked by",
    ];
    table(header, rows, empty)
}

/// Returns one line per slot: `bucket 2/7  2 waits (at most 1 at once), 4 s: u1/a1/r1 behind u1/a1/r1`.
pub(crate) fn slot_lines(slots: &[SlotSummary], limit: usize) -> Vec<String> {
    let line = |slot: &SlotSummary| {
        let contention = match slot.false_contention() {
            FalseContention::Yes => ", false contention",
            FalseContention::No | FalseContention::Unknown => "",
        };
        format!(
            "{}  {} (at most {} at once), {}{contention}: {} behind {}",
            cell(&slot.slot.to_string(), 100),
            counted(slot.waits, "wait"),
            slot.max_waiting,
            duration_text(slot.waited),
            paths(&slot.wanted),
            paths(&slot.held)
        )
    };
    slots.iter().take(limit).map(line).collect()
}

/// Returns `no`, or `yes: 3 of 4 waits`.
fn false_contention(slot: &SlotSummary) -> String {
    let name = slot.false_contention().name();
    if slot.false_waits > 0 {
        format!("{name}: {} of {}", slot.false_waits, counted(slot.waits, "wait"))
    } else {
        name.to_owned()
    }
}

fn paths(paths: &BTreeSet<Target>) -> String {
    if paths.is_empty() {
        return "an unknown path".to_owned();
    }
    let paths: Vec<String> = paths.iter().map(|path| cell(&path.to_string(), 80)).collect();
    short_list(&paths, MAX_PATHS)
}
