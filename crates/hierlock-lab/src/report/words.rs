//! The words that all reports share: an observation, a cell, a duration as a person reads them. They are
//! those of the scenario files, so that what is read in a report can be written into a file.

use crate::columns::{columns, columns_of};
use crate::observation::{Answer, Failure, FailureKind, Name, Observation, Wait};
use std::borrow::Cow;
use std::time::Duration;

/// `0.4 ms`, `12 ms`, `1.23 s`.
pub(crate) fn duration(took: Duration) -> String {
    let millis = took.as_secs_f64() * 1000.0;
    match millis {
        ..9.95 => format!("{millis:.1} ms"),
        ..999.5 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

/// `1 case`, `2 cases`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// `A`, `A and B`, `A, B and C`.
pub(crate) fn names(names: &[Name]) -> String {
    match names {
        [] => String::new(),
        [one] => one.to_string(),
        [most @ .., last] => {
            let most: Vec<&str> = most.iter().map(Name::as_str).collect();
            format!("{} and {last}", most.join(", "))
        }
    }
}

/// A text with nothing in it that a terminal would obey: what a server says may hold anything. Line
/// feeds stay.
pub(crate) fn tame(text: &str) -> Cow<'_, str> {
    match text.contains(|c: char| c.is_control() && c != '\n') {
        false => Cow::Borrowed(text),
        true => text
            .chars()
            .map(|c| match c {
                '\t' => ' ',
                '\n' => '\n',
                c if c.is_control() => char::REPLACEMENT_CHARACTER,
                c => c,
            })
            .collect(),
    }
}

/// The same on one line, with single blanks.
pub(crate) fn one_line(text: &str) -> String {
    tame(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most so many characters, the rest an ellipsis.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        false => text.to_owned(),
        true => {
            let kept: String = text.chars().take(most.saturating_sub(1)).collect();
            format!("{}…", kept.trim_end())
        }
    }
}

/// Lines of at most `width` columns, broken between words, or within one that is too long for a line.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let wide = columns(word);
        if used > 0 && used + 1 + wide > width {
            lines.push(String::new());
            used = 0;
        }
        for (i, c) in word.chars().enumerate() {
            let line = lines.len() - 1;
            if i == 0 && used > 0 {
                lines[line].push(' ');
                used += 1;
            }
            if used + columns_of(c) > width {
                lines.push(String::new());
                used = 0;
            }
            let line = lines.len() - 1;
            lines[line].push(c);
            used += columns_of(c);
        }
    }
    lines
}

/// A cell as an expectation would write it.
pub(crate) fn cell(value: &Option<String>) -> String {
    let Some(value) = value else { return "null".to_owned() };
    let value = one_line_but_blanks(value);
    let bare = !value.is_empty()
        && value != "null"
        && value != "*"
        && value.trim() == value
        && !value.contains(['|', '\'', '#']);
    match bare {
        true => value,
        false => format!("'{}'", value.replace('\'', "''")),
    }
}

fn one_line_but_blanks(text: &str) -> String {
    tame(text).replace('\n', "⏎")
}

/// ` | 1 | 30`, without the first blank.
pub(crate) fn row(cells: &[Option<String>]) -> String {
    cells.iter().map(|value| format!("| {}", cell(value))).collect::<Vec<_>>().join(" ")
}

/// An answer in one line: `done`, `changed 1`, `no rows`, `rows 30 10`, `rows (1, 30) (2, 10)`.
pub(crate) fn answer(answer: &Answer) -> String {
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
    let rows: Vec<String> = rows
        .iter()
        .map(|row| match row.as_slice() {
            [one] => match cell(one) {
                bare if bare.contains([' ', '(', ',']) && !bare.starts_with('\'') => {
                    format!("'{bare}'")
                }
                fine => fine,
            },
            cells => format!("({})", cells.iter().map(cell).collect::<Vec<_>>().join(", ")),
        })
        .collect();
    format!("rows {}", rows.join(" "))
}

/// `blocked by A and B on row 1 of numbers (PRIMARY), X`
pub(crate) fn wait(wait: &Wait) -> String {
    let mut text = "blocked".to_owned();
    if !wait.blockers.is_empty() {
        text += &format!(" by {}", names(&wait.blockers));
    }
    if wait.strangers {
        text += match wait.blockers.is_empty() {
            true => " by something outside of the scenario",
            false => " and something outside of the scenario",
        };
    }
    if let Some(thing) = &wait.thing {
        text += &format!(" on {}", one_line(&thing.to_string()));
    }
    text
}

/// `deadlock`, `timed out`, `error 1062`.
pub(crate) fn failure(failure: &Failure) -> String {
    match failure.kind {
        FailureKind::Deadlock => "deadlock".to_owned(),
        FailureKind::TimedOut => "timed out".to_owned(),
        FailureKind::Refused => "refused".to_owned(),
        FailureKind::Conflict => "conflict".to_owned(),
        FailureKind::Cancelled => "cancelled".to_owned(),
        FailureKind::Other if failure.code.is_empty() => "error".to_owned(),
        FailureKind::Other => format!("error {}", one_line(&failure.code)),
    }
}

/// What the engine said of a failure, with its code if the words before did not have it.
pub(crate) fn said(failure: &Failure) -> String {
    let message = one_line(&failure.message);
    match failure.kind == FailureKind::Other || failure.code.is_empty() {
        true => message,
        false => format!("{}: {message}", one_line(&failure.code)),
    }
}

/// An observation in one line, without what the engine said.
pub(crate) fn observation(seen: &Observation) -> String {
    match seen {
        Observation::Done(done) => answer(done),
        Observation::Blocked(blocked) => wait(blocked),
        Observation::Failed(failed) => failure(failed),
        Observation::Stuck => "stuck: neither over nor seen to wait".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn durations_are_as_exact_as_a_person_wants_them() {
        let shown =
            [300, 9_949, 12_400, 999_400, 1_234_000].map(Duration::from_micros).map(duration);
        assert_eq!(shown, ["0.3 ms", "9.9 ms", "12 ms", "999 ms", "1.23 s"]);
    }

    #[test]
    fn cells_are_quoted_where_a_file_would_misread_them() {
        assert_eq!(cell(&None), "null");
        assert_eq!(cell(&some("30.00")), "30.00");
        assert_eq!(cell(&some("null")), "'null'");
        assert_eq!(cell(&some(" x ")), "' x '");
        assert_eq!(cell(&some("a | b")), "'a | b'");
        assert_eq!(cell(&some("")), "''");
    }

    #[test]
    fn wide_characters_count_twice_when_lines_are_broken() {
        assert_eq!(wrap("select あいうえお from t", 10), ["select", "あいうえお", "from t"]);
        assert_eq!(wrap("abcdefghijkl", 8), ["abcdefgh", "ijkl"]);
        assert_eq!(wrap("", 8), [""]);
    }

    #[test]
    fn a_server_cannot_command_the_terminal() {
        assert_eq!(one_line("a\u{1b}[2Jb\r\nc"), "a\u{fffd}[2Jb\u{fffd} c");
    }
}
