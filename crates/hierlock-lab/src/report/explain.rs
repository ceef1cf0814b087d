//! Explains a deadlock or a cycle of waits in sentences: which lock each session waits for, which lock blocks it, and
//! which statement took that.

use super::display::{locked_object, one_line, truncate};
use super::transcript::is_look;
use crate::record::{BlockingLock, Deadlock, Record, StepRecord, WaitCycle, WaitEdge};

pub(crate) const CYCLE: &str = "A cycle of waits that the engine does not resolve";

const MAX_STATEMENT: usize = 120;

/// Returns a sentence for every edge of the cycle, and one for the victim.
pub(crate) fn deadlock(record: &Record, deadlock: &Deadlock) -> Vec<String> {
    let Deadlock { step, victim, cycle } = deadlock;
    sentences(record, *step, cycle, &format!("The victim was {victim}."))
}

/// Returns a sentence for every edge of the cycle, and one about its end.
pub(crate) fn cycle(record: &Record, cycle: &WaitCycle) -> Vec<String> {
    let end = "It lasts until a wait times out or a session is ended from outside.";
    sentences(record, cycle.step, &cycle.links, end)
}

fn sentences(record: &Record, step: usize, cycle: &[WaitEdge], end: &str) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(closing) = record.steps.get(step) {
        // A session outside of the cycle may have ended the wait of a member, which then closed the cycle.
        let is_member = cycle.iter().any(|edge| edge.waiter == closing.session);
        let how = if is_member || cycle.is_empty() { "by" } else { "during" };
        sentences.push(format!("The cycle was closed {how} {}.", statement(closing)));
    }
    if cycle.is_empty() {
        sentences.push("The server does not report who waited for whom.".to_owned());
    }
    sentences.extend(cycle.iter().map(|edge| edge_text(record, step, edge)));
    sentences.push(end.to_owned());
    sentences
}

/// Returns `A wanted … in line 18; B held … since line 16 (B> select …).`
fn edge_text(record: &Record, closing: usize, edge: &WaitEdge) -> String {
    let WaitEdge { waiter, holder, wants, blocking, unknown } = edge;
    // The step in which the session waited when the cycle was closed: its last step that is more than a look.
    let mut steps = record.steps.get(..=closing).unwrap_or(&record.steps).iter().rev();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::report::fixtures;

    /// The failure this prevents: of an unresolved cycle, the facts that are not known were not named.
    #[test]
    fn an_unresolved_cycle_is_explained_like_a_deadlock() {
        let record = fixtures::cycle(Engine::Mysql, "A");
        let mut deadlock = record.deadlocks[0].clone();
        deadlock.cycle[0].unknown.push("the server does not report more".to_owned());
        let links = deadlock.cycle.clone();
        let unresolved = cycle(&record, &WaitCycle { step: deadlock.step, links });
        let mut resolved = super::deadlock(&record, &deadlock);
        assert_eq!(resolved.pop().unwrap(), "The victim was A.");
        assert!(unresolved.starts_with(&resolved), "{unresolved:?}");
        assert!(unresolved[1].ends_with("; the server does not report more."), "{unresolved:?}");
        assert!(unresolved[3].starts_with("It lasts until "), "{unresolved:?}");
    }
}
