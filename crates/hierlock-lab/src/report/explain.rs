//! A deadlock explained: who held what, who wanted what, and which statement took it. As much as the engine
//! told, and no more.

use super::words;
use crate::observation::Name;
use crate::record::{Circle, Deadlock, Link, Record, StepRecord};

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
        told.push(format!("The circle was closed by {closed}."));
    }
    told.extend(deadlock.circle.iter().map(|link| told_link(record, deadlock, link)));
    told.push(format!("{} was chosen to end it.", deadlock.victim));
    told
}

/// `A held …, and wanted … in line 18, which B had since line 16 (B> select …).`
fn told_link(record: &Record, deadlock: &Deadlock, link: &Link) -> String {
    let holds: Vec<String> =
        link.holds.iter().map(|thing| words::one_line(&thing.to_string())).collect();
    let mut text = link.waiter.to_string();
    if !holds.is_empty() {
        text += &format!(" held {}, and", holds.join("; "));
    }
    match &link.wants {
        Some(thing) => text += &format!(" wanted {}", words::one_line(&thing.to_string())),
        None => text += &format!(" waited for {}", link.holder),
    }
    if let Some((_, step)) = waiting_step(record, deadlock, &link.waiter) {
        text += &format!(" in line {}", step.line);
    }
    let taken = link.taken_in.and_then(|index| statement(record, index));
    match (&link.wants, taken) {
        (Some(_), Some(taken)) => text += &format!(", which {} had since {taken}.", link.holder),
        (Some(_), None) => text += &format!(", which {} had.", link.holder),
        (None, Some(taken)) => text += &format!(", which had it since {taken}."),
        (None, None) => text.push('.'),
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
    for Link { waiter, holder, wants, .. } in &circle.links {
        let wants = wants.as_ref().map(|thing| words::one_line(&thing.to_string()));
        let wants = wants.map_or_else(String::new, |thing| format!(" ({thing})"));
        told.push(format!("{waiter} waits for {holder}{wants}."));
    }
    told.push(
        "It stays until a wait runs out of time or a session is ended from outside.".to_owned(),
    );
    told
}
