//! A deadlock explained: who waited for what, which lock of whom was in the way, and which statement took it. As
//! much as is known, and what is not known is said.

use super::words;
use crate::observation::{LockedObject, Name};
use crate::record::{BlockingLock, Circle, Deadlock, Link, Record, StepRecord};

/// A statement with its place: `line 17 (B> select …)`.
fn statement(record: &Record, index: usize) -> Option<String> {
    let step = record.steps.get(index)?;
    let text = words::shorten(&words::one_line(&step.text), 120);
    Some(match text.is_empty() {
        true => format!("line {}", step.line),
        false => format!("line {} ({}> {text})", step.line, step.session),
    })
}

/// The step in which somebody waited when the circle closed: the last that was more than a look.
pub(crate) fn waiting_step<'a>(
    record: &'a Record,
    deadlock: &Deadlock,
    who: &Name,
) -> Option<(usize, &'a StepRecord)> {
    let upto = record.steps.get(..=deadlock.step).unwrap_or(&record.steps);
    upto.iter().enumerate().rev().find(|(_, step)| step.session == *who && !step.text.is_empty())
}

/// A sentence for every link, and one for the end.
pub(crate) fn deadlock(record: &Record, deadlock: &Deadlock) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(closed) = statement(record, deadlock.step) {
        // One who is not in the circle may have let others go on, into it.
        let by = record.steps.get(deadlock.step).map(|step| &step.session);
        let is_member = deadlock.circle.iter().any(|link| Some(&link.waiter) == by);
        let how = if is_member || deadlock.circle.is_empty() { "by" } else { "during" };
        told.push(format!("The circle was closed {how} {closed}."));
    }
    if deadlock.circle.is_empty() {
        told.push("Who waited for whom is not told.".to_owned());
    }
    told.extend(deadlock.circle.iter().map(|link| told_link(record, deadlock, link)));
    told.push(format!("{} was chosen to end it.", deadlock.victim));
    told
}

/// `A wanted … in line 18; B held … since line 16 (B> select …).`
fn told_link(record: &Record, deadlock: &Deadlock, link: &Link) -> String {
    let mut text = match &link.wants {
        Some(thing) => format!("{} wanted {}", link.waiter, told_thing(thing)),
        None => format!("{} waited for {}, for what was not seen,", link.waiter, link.holder),
    };
    if let Some((index, step)) = waiting_step(record, deadlock, &link.waiter) {
        match (&link.wants, statement(record, index)) {
            (None, Some(statement)) => text += &format!(" in {statement}"),
            _ => text += &format!(" in line {}", step.line),
        }
    }
    for lock in &link.blocking {
        text += &format!("; {} {}", link.holder, told_lock(record, lock, false));
    }
    if link.blocking.is_empty() && link.wants.is_some() {
        text += &format!("; {} was in its way", link.holder);
    }
    for unknown in &link.unknown {
        text += &format!("; {}", words::one_line(unknown));
    }
    text + "."
}

/// `held … since line 16 (B> select …)`, `was queued for … since line 17 (…)`
fn told_lock(record: &Record, lock: &BlockingLock, is_now: bool) -> String {
    let state = match (lock.granted, is_now) {
        (true, true) => "holds",
        (true, false) => "held",
        (false, true) => "is queued for",
        (false, false) => "was queued for",
    };
    let mut text = format!("{state} {}", told_thing(&lock.thing));
    match lock.statement.and_then(|index| statement(record, index)) {
        Some(statement) => text += &format!(" since {statement}"),
        None => {
            let unknown = lock.unknown.as_deref().unwrap_or("since when is not known");
            text += &format!(" ({})", words::one_line(unknown));
        }
    }
    if let (Some(asked), Some(granted)) = (lock.statement, lock.granted_in)
        && asked != granted
        && let Some(step) = record.steps.get(granted)
    {
        text += &format!(", granted in line {}", step.line);
    }
    text
}

/// The title of a circle that stays.
pub(crate) const CIRCLE: &str = "A circle of waits that the engine does not end";

/// A sentence for every link of a circle that stays.
pub(crate) fn circle(record: &Record, circle: &Circle) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(closed) = statement(record, circle.step) {
        told.push(format!("It was closed by {closed}."));
    }
    for Link { waiter, holder, wants, blocking, .. } in &circle.links {
        let wants = wants.as_ref().map(told_thing);
        let wants = wants.map_or_else(String::new, |thing| format!(" ({thing})"));
        let locks =
            blocking.iter().map(|lock| format!("; {holder} {}", told_lock(record, lock, true)));
        told.push(format!("{waiter} waits for {holder}{wants}{}.", locks.collect::<String>()));
    }
    told.push(
        "It stays until a wait runs out of time or a session is ended from outside.".to_owned(),
    );
    told
}

fn told_thing(thing: &LockedObject) -> String {
    words::one_line(&thing.to_string())
}
