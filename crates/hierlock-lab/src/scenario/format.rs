//! The one layout of scenario files: `hierlock lab fmt`. Changes blanks and nothing else, so what a
//! file means stays what it was; doing it twice is doing it once.

use super::file::Scenario;
use super::layout::{aligned, commented, squeezed};
use super::mistake::Mistake;
use super::outline::{Expect, LineKind, Part, SourceLine, outline};
use super::scan::split;
use crate::columns::columns;

/// See [`Scenario::format`].
pub(super) fn format(file: &str, text: &str) -> Result<String, Vec<Mistake>> {
    Scenario::parse(file, file, text)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = outline(text);
    Ok(spaced(&lines, &bodies(&lines)))
}

/// Every line in its new form; comments and blank lines stay as they are.
fn bodies(lines: &[SourceLine<'_>]) -> Vec<String> {
    let mut bodies: Vec<String> = Vec::with_capacity(lines.len());
    // The least indentation of the block that a line is in.
    let mut margin = 1;
    // Lines of a table or of rows that were laid out together with the one above them.
    let mut ahead: Vec<(usize, String)> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let body = match &line.kind {
            LineKind::Blank => String::new(),
            LineKind::Comment => match line.raw.starts_with(char::is_whitespace) && margin > 1 {
                true => shifted(line.raw, margin),
                false => line.raw.to_owned(),
            },
            LineKind::Header { key, guard, rest } => {
                margin = least_column(&lines[index + 1..]);
                header(*key, *guard, *rest)
            }
            LineKind::Step { who, looks, guard, rest } => {
                margin = 1;
                step(*who, *looks, *guard, *rest)
            }
            LineKind::Sql(part) | LineKind::Prose(part) => {
                format!("{}{}", " ".repeat(2 + part.spot.column - margin), part.text)
            }
            LineKind::Expect(expect) => {
                if !ahead.iter().any(|(known, _)| *known == index) {
                    ahead = together(lines, index);
                }
                match ahead.iter().find(|(known, _)| *known == index) {
                    Some((_, cells)) => format!(" {} {cells}", expect.mark),
                    None => format!(" {}", expectation(expect)),
                }
            }
            LineKind::Continued(part) => {
                let indent: String = line.raw.chars().take(part.spot.column - 1).collect();
                format!("{indent}{}", part.text)
            }
            // A file with such a line is not laid out.
            LineKind::Stray(_) | LineKind::Unknown(_) => line.raw.to_owned(),
        };
        bodies.push(body);
    }
    bodies
}

/// The column of what is indented least in the block that begins here.
fn least_column(lines: &[SourceLine<'_>]) -> usize {
    lines
        .iter()
        .map_while(|line| match &line.kind {
            LineKind::Sql(part) | LineKind::Prose(part) => Some(Some(part.spot.column)),
            LineKind::Blank | LineKind::Comment => Some(None),
            _ => None,
        })
        .flatten()
        .min()
        .unwrap_or(1)
}

/// A comment in a block moves with the block.
fn shifted(raw: &str, margin: usize) -> String {
    let text = raw.trim_start();
    let column = raw.chars().count() - text.chars().count() + 1;
    format!("{}{text}", " ".repeat(2 + column.saturating_sub(margin)))
}

fn header(key: Part<'_>, guard: Option<Part<'_>>, rest: Part<'_>) -> String {
    let key = listed(&squeezed(key.text), ',', ", ");
    let value = match key.split(' ').next() {
        Some("engines" | "strategies") => {
            let words = rest.text.split(|c: char| c == ',' || c.is_whitespace());
            words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        }
        Some("for") => {
            let turns = split(rest.text, '|').into_iter();
            turns.map(|(_, turn)| turn_of(&key, turn)).collect::<Vec<_>>().join(" | ")
        }
        _ => squeezed(rest.text),
    };
    format!("{key}{}: {value}", brackets(" ", guard, "")).trim_end().to_owned()
}

fn turn_of(key: &str, turn: &str) -> String {
    if key.contains(',') { listed(turn, ',', ", ") } else { squeezed(turn) }
}

fn step(who: Part<'_>, looks: bool, guard: Option<Part<'_>>, rest: Part<'_>) -> String {
    let mark = if looks { '<' } else { '>' };
    let rest = match Expect::of(rest).filter(|_| looks) {
        Some(expect) => expectation(&expect),
        None => rest.text.to_owned(),
    };
    format!("{}{mark}{} {rest}", who.text, brackets(" ", guard, "")).trim_end().to_owned()
}

/// `= [mysql] done`, without what is before it.
fn expectation(expect: &Expect<'_>) -> String {
    let rest = match expect.mark {
        '|' | ':' => listed(expect.rest.text, '|', " | "),
        _ => squeezed(expect.rest.text),
    };
    format!("{}{} {rest}", expect.mark, brackets(" ", expect.guard, ""))
}

fn brackets(before: &str, guard: Option<Part<'_>>, after: &str) -> String {
    match guard {
        Some(guard) => format!("{before}[{}]{after}", listed(&squeezed(guard.text), ',', ", ")),
        None => String::new(),
    }
}

/// The parts of a list, with the same between all of them.
fn listed(text: &str, separator: char, by: &str) -> String {
    let parts: Vec<&str> =
        split(text, separator).into_iter().map(|(_, part)| part.trim()).collect();
    parts.join(by)
}

/// The cells of a table, or of rows below each other, from its first line on: each line by its index.
fn together(lines: &[SourceLine<'_>], first: usize) -> Vec<(usize, String)> {
    let LineKind::Expect(head) = &lines[first].kind else { return Vec::new() };
    let below = match head.mark {
        '|' => '|',
        '=' if head.rest.text == "by" || head.rest.text.starts_with("by ") => ':',
        _ => return Vec::new(),
    };
    let mut indices = vec![first];
    let mut rows = vec![cells(head, below == ':')];
    for (index, line) in lines.iter().enumerate().skip(first + 1) {
        match &line.kind {
            LineKind::Expect(expect) if expect.mark == below => {
                indices.push(index);
                rows.push(cells(expect, below == ':'));
            }
            LineKind::Blank | LineKind::Comment => {}
            _ => break,
        }
    }
    indices.into_iter().zip(aligned(&rows)).collect()
}

fn cells(expect: &Expect<'_>, squeeze: bool) -> Vec<String> {
    let cells = split(expect.rest.text, '|').into_iter().map(|(_, cell)| cell.trim());
    cells.map(|cell| if squeeze { squeezed(cell) } else { cell.to_owned() }).collect()
}

/// The lines with their comments, one blank line between the parts of the file and never two.
fn spaced(lines: &[SourceLine<'_>], bodies: &[String]) -> String {
    let mut out: Vec<String> = Vec::new();
    // Where a blank line goes if one is missing: behind the last line that says something.
    let mut after_content = 0;
    let mut steps = false;
    let mut prose = false;
    for (line, body) in lines.iter().zip(bodies) {
        let begins_part = match &line.kind {
            LineKind::Step { .. } => !std::mem::replace(&mut steps, true),
            LineKind::Header { key, .. } => {
                key.text == "advice" || (steps && key.text == "teardown")
            }
            _ => false,
        };
        if begins_part && after_content > 0 && !out[after_content..].iter().any(String::is_empty) {
            out.insert(after_content, String::new());
        }
        match &line.kind {
            LineKind::Blank => {
                // Prose is left as it is; what follows its end is cut off below.
                if prose || out.last().is_some_and(|last| !last.is_empty()) {
                    out.push(String::new());
                }
            }
            LineKind::Comment => out.push(body.clone()),
            kind => {
                prose = matches!(kind, LineKind::Prose(_));
                let comment = line.comment.map(|comment| {
                    let before: String = line.raw.chars().take(comment.spot.column - 1).collect();
                    (comment.text, columns(&before) + 1)
                });
                out.push(commented(body.clone(), comment));
                after_content = out.len();
            }
        }
    }
    while out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    let mut text = out.join("\n");
    text.push('\n');
    text
}
