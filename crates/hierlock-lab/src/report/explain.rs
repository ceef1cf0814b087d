//! Explains a deadlock or a cycle of waits in sentences: which lock each session waits for, which lock blocks it, and
//! which statement took that.

use super::display::{locked_object, one_line, truncate};
use super::transcript::is_look;
use crate::record::{BlockingLock, Deadlock, Record, StepRecord, WaitCycle, WaitEdge};

pub(crate) const CYCLE: &str = "A cycle of waits that the engine does not resolve";

const MAX_STATEMENT: usize = 120;

/// Returns a sentence for every edge of the cycle, and one for the victim.
pub(crate) fn deadlock(record: &Record, deadlock: &Deadlock) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(closing) = record.steps.get(deadlock.step) {
        // A session outside of the cycle may have ended the wait of a member, which then closed the cycle.
        let is_member = deadlock.cycle.iter().any(|edge| edge.waiter == closing.session);
        let how = if is_member || deadlock.cycle.is_empty() { "by" } else { "during" };
        sentences.push(format!("The cycle was closed {how} {}.", statement(closing)));
    }
    if deadlock.cycle.is_empty() {
        sentences.push("The server does not report who waited for whom.".to_owned());
    }
    sentences.extend(deadlock.cycle.iter().map(|edge| deadlock_edge(record, deadlock, edge)));
    sentences.push(format!("The victim was {}.", deadlock.victim));
    sentences
}

pub(crate) fn cycle(record: &Record, cycle: &WaitCycle) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(closing) = record.steps.get(cycle.step) {
        sentences.push(format!("It was closed by {}.", statement(closing)));
    }
    for WaitEdge { waiter, holder, wants, blocking, .. } in &cycle.links {
        let mut sentence = format!("{waiter} waits for {holder}");
        if let Some(object) = wants {
            sentence += &format!(" ({})", locked_object(object));
        }
        for lock in blocking {
            let state = if lock.granted { "holds" } else { "is queued for" };
            sentence += &format!("; {holder} {state} {}", blocking_lock(record, lock));
        }
        sentences.push(sentence + ".");
    }
    let end = "It lasts until a wait times out or a session is ended from outside.";
    sentences.push(end.to_owned());
    sentences
}

/// Returns `A wanted … in line 18; B held … since line 16 (B> select …).`
fn deadlock_edge(record: &Record, deadlock: &Deadlock, edge: &WaitEdge) -> String {
    let WaitEdge { waiter, holder, wants, blocking, unknown } = edge;
    // The step in which the session waited when the cycle was closed: its last step that is more than a look.
    let mut steps = record.steps.get(..=deadlock.step).unwrap_or(&record.steps).iter().rev();
    let step = steps.find(|step| step.session == *waiter && !is_look(step));
    let mut sentence = match wants {
        Some(object) => format!("{waiter} wanted {}", locked_object(object)),
        None => format!("{waiter} waited for {holder}, for an unknown lock,"),
    };
    match (step, wants) {
        (Some(step), Some(_)) => sentence += &format!(" in line {}", step.line),
        (Some(step), None) => sentence += &format!(" in {}", statement(step)),
        (None, _) => {}
    }
    for lock in blocking {
        let state = if lock.granted { "held" } else { "was queued for" };
        sentence += &format!("; {holder} {state} {}", blocking_lock(record, lock));
    }
    if blocking.is_empty() && wants.is_some() {
        sentence += &format!("; {holder} blocked it");
    }
    for unknown in unknown {
        sentence += &format!("; {}", one_line(unknown));
    }
    sentence + "."
}

/// Returns `row 1 of numbers (PRIMARY), X since line 16 (B> select …), granted in line 18`.
fn blocking_lock(record: &Record, lock: &BlockingLock) -> String {
    let BlockingLock { target, statement: asked, granted_in, unknown, .. } = lock;
    let step = |index: &Option<usize>| index.and_then(|index| record.steps.get(index));
    let mut text = locked_object(target);
    match step(asked) {
        Some(asked) => text += &format!(" since {}", statement(asked)),
        None => {
            let unknown = unknown.as_deref().unwrap_or("since an unknown statement");
            text += &format!(" ({})", one_line(unknown));
        }
    }
    if let Some(granted) = step(granted_in).filter(|_| asked.is_some() && asked != granted_in) {
        text += &format!(", granted in line {}", granted.line);
    }
    text
}

/// Returns a statement with its line: `line 17 (B> select …)`.
fn statement(step: &StepRecord) -> String {
    let StepRecord { line, session, .. } = step;
    match truncate(&one_line(&step.text), MAX_STATEMENT) {
        empty if empty.is_empty() => format!("line {line}"),
        text => format!("line {line} ({session}> {text})"),
    }
}
