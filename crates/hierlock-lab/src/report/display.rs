//! The texts that all reports use for the parts of a record, in the syntax of scenario files so that they can be
//! copied.

use crate::observation::{
    Answer, Failure, FailureKind, LockTarget, Observation, SessionName, SessionWait,
};
use crate::record::{Record, StepRecord, Verdict};
use crate::scenario::quoted;
use crate::text::{join, listed};
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns a duration such as `0.4 ms`, `12 ms`, `1.23 s`.
pub(crate) fn duration(took: Duration) -> String {
    let millis = took.as_secs_f64() * 1000.0;
    match millis {
        ..9.95 => format!("{millis:.1} ms"),
        ..999.5 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

/// Joins the parts that are not empty, with commas between them.
pub(crate) fn list<const N: usize>(parts: [String; N]) -> String {
    join(parts.into_iter().filter(|part| !part.is_empty()), ", ")
}

/// Replaces control characters, which a terminal would execute and XML cannot contain. Line feeds stay.
pub(crate) fn printable(text: &str) -> String {
    let printable = |c: char| match c {
        '\n' => '\n',
        '\t' => ' ',
        '\u{fffe}' | '\u{ffff}' | '\0'..' ' | '\u{7f}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(printable).collect()
}

/// Like [`printable`], on one line and with single blanks.
pub(crate) fn one_line(text: &str) -> String {
    join(printable(text).split_whitespace(), " ")
}

/// Returns at most `max` characters; the last is an ellipsis if some were cut off.
pub(crate) fn truncate(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let start: String = text.chars().take(max.saturating_sub(1)).collect();
    format!("{}…", start.trim_end())
}

/// Splits a text into lines of at most `width` columns, between words, or within a word that is longer than a line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![];
    let (mut line, mut used) = (String::new(), 0);
    for word in text.split_whitespace() {
        if used > 0 && used + 1 + word.width() > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        } else if used > 0 {
            line.push(' ');
            used += 1;
        }
        for c in word.chars() {
            let columns = c.width().unwrap_or(0);
            if used + columns > width {
                lines.push(std::mem::take(&mut line));
                used = 0;
            }
            line.push(c);
            used += columns;
        }
    }
    lines.push(line);
    lines
}

pub(crate) fn paragraphs(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let paragraphs = lines.split(|line| line.is_empty()).filter(|lines| !lines.is_empty());
    paragraphs.map(|lines| lines.join(" ")).collect()
}

/// Returns `deadlock/cycle [read committed] on mysql striped, round 2`; the round only from the second on.
pub(crate) fn run_name(record: &Record) -> String {
    let name = format!("{} on {}", one_line(&record.case_name()), record.backend);
    list([name, round(record)])
}

/// Returns `round 2`; an empty text for the first.
pub(crate) fn round(record: &Record) -> String {
    if record.round > 1 { format!("round {}", record.round) } else { String::new() }
}

/// Returns the values of a variant: `read committed, u1`; an empty text without axes.
pub(crate) fn variant(record: &Record) -> String {
    one_line(&join(record.variant.iter().map(|(_, value)| value), ", "))
}

/// Returns the name of a verdict, as in the JSON report.
pub(crate) fn verdict(record: &Record) -> &'static str {
    match record.verdict {
        Verdict::Agrees => "agrees",
        Verdict::Disagrees { .. } => "disagrees",
        Verdict::Failed { .. } => "failed",
    }
}

pub(crate) fn check_mark(agrees: bool) -> &'static str {
    if agrees { "✓" } else { "✗" }
}

/// Returns the file and, unless the record agrees, the line at which the run disagrees or ended.
pub(crate) fn location(record: &Record) -> String {
    let ended = record.steps.last().filter(|_| matches!(record.verdict, Verdict::Failed { .. }));
    let step = differing_step(record).or(ended);
    let file = one_line(&record.file);
    step.map_or(file.clone(), |step| format!("{file}:{}", step.line))
}

pub(crate) fn differing_step(record: &Record) -> Option<&StepRecord> {
    let Verdict::Disagrees { step, .. } = record.verdict else { return None };
    record.steps.get(step)
}

pub(crate) fn why(record: &Record) -> Option<&str> {
    match &record.verdict {
        Verdict::Agrees => None,
        Verdict::Disagrees { why, .. } | Verdict::Failed { why } => Some(why),
    }
}

/// Returns the expectation of a step; `done` if the file has none.
pub(crate) fn expected(step: &StepRecord) -> &str {
    match step.expected.trim() {
        "" => "done",
        expected => expected,
    }
}

pub(crate) fn observation(observation: &Observation) -> String {
    match observation {
        Observation::Done(done) => answer(done),
        Observation::Blocked(blocked) => wait(blocked),
        Observation::Failed(failed) => failure(failed),
        Observation::Stuck => "stuck: neither finished nor seen to wait".to_owned(),
    }
}

/// Returns `done`, `changed 1`, `no rows`, `rows 30 10` or `rows (1, 30) (2, 10)`.
fn answer(answer: &Answer) -> String {
    let Some(rows) = &answer.rows else {
        return match answer.changed {
            0 => "done".to_owned(),
            matched if answer.is_matched => format!("matched {matched}"),
            changed => format!("changed {changed}"),
        };
    };
    if rows.is_empty() {
        return "no rows".to_owned();
    }
    let row = |row: &Vec<Option<String>>| match row.as_slice() {
        [one] => {
            let bare = cell(one);
            let is_bare = !bare.contains([' ', '(', ',']) || bare.starts_with('\'');
            if is_bare { bare } else { format!("'{bare}'") }
        }
        cells => format!("({})", join(cells.iter().map(cell), ", ")),
    };
    format!("rows {}", join(rows.iter().map(row), " "))
}

/// Returns `| 1 | 30`.
pub(crate) fn row(cells: &[Option<String>]) -> String {
    join(cells.iter().map(|value| format!("| {}", cell(value))), " ")
}

fn cell(value: &Option<String>) -> String {
    let Some(value) = value else { return "null".to_owned() };
    let value = printable(value).replace('\n', "⏎");
    let is_quoted = matches!(value.as_str(), "" | "null" | "*")
        || value.trim() != value
        || value.contains(['|', '\'', '#']);
    if is_quoted { quoted(&value) } else { value }
}

/// Returns `blocked by A and B on row 1 of numbers (PRIMARY), X`.
pub(crate) fn wait(wait: &SessionWait) -> String {
    let mut text = "blocked".to_owned();
    if let Some(blockers) = blockers(wait) {
        text += &format!(" by {blockers}");
    }
    if let Some(object) = &wait.target {
        text += &format!(" on {}", locked_object(object));
    }
    text
}

/// Returns `A and B`; `None` if no blocker is known.
pub(crate) fn blockers(wait: &SessionWait) -> Option<String> {
    let mut blockers: Vec<&str> = wait.blockers.iter().map(SessionName::as_str).collect();
    blockers.extend(wait.has_outside_blocker.then_some("a session outside of the scenario"));
    (!blockers.is_empty()).then(|| listed(blockers, "and"))
}

/// Returns `row 1 of numbers (PRIMARY), X`.
pub(crate) fn locked_object(object: &LockTarget) -> String {
    one_line(&object.to_string())
}

/// Returns `deadlock`, `timed out` or `error 1062`.
fn failure(failure: &Failure) -> String {
    let text = match failure.kind {
        FailureKind::Deadlock => "deadlock",
        FailureKind::TimedOut => "timed out",
        FailureKind::Refused => "refused",
        FailureKind::Conflict => "conflict",
        FailureKind::Cancelled => "cancelled",
        FailureKind::Other => &format!("error {}", one_line(&failure.code)),
    };
    text.trim_end().to_owned()
}

/// Returns the engine's message, after its code unless [`observation`] contains the code.
pub(crate) fn engine_message(failure: &Failure) -> String {
    let message = one_line(&failure.message);
    if failure.kind == FailureKind::Other || failure.code.is_empty() {
        return message;
    }
    format!("{}: {message}", one_line(&failure.code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded() {
        let shown =
            [300, 9_949, 12_400, 999_400, 1_234_000].map(Duration::from_micros).map(duration);
        assert_eq!(shown, ["0.3 ms", "9.9 ms", "12 ms", "999 ms", "1.23 s"]);
    }

    #[test]
    fn cells_are_quoted_where_the_syntax_needs_it() {
        assert_eq!(cell(&None), "null");
        for (value, written) in [
            ("30.00", "30.00"),
            ("null", "'null'"),
            (" x ", "' x '"),
            ("a | b", "'a | b'"),
            ("", "''"),
        ] {
            assert_eq!(cell(&Some(value.to_owned())), written);
        }
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(wrap("select あいうえお from t", 10), ["select", "あいうえお", "from t"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(wrap("", 8), [""]);
    }

    #[test]
    fn control_characters_of_a_server_are_replaced() {
        assert_eq!(one_line("a\u{1b}[2Jb\r\nc"), "a\u{fffd}[2Jb\u{fffd} c");
    }
}
