//! The layout of scenario files: `hierlock lab fmt`. Changes only whitespace, and is idempotent.

use super::scan::{split, with_single_blanks};
use super::source_line::{Block, LineHead, LineKind, SourceLine, SourceSpan};
use crate::text::join;
use unicode_width::UnicodeWidthStr;

pub(super) fn format(lines: &[SourceLine<'_>]) -> String {
    let mut out: Vec<String> = Vec::new();
    // The index after the last line that is neither blank nor a comment, where a missing blank line is inserted.
    let mut after_content = 0;
    let mut steps = false;
    let mut prose = false;
    for (line, body) in lines.iter().zip(bodies(lines)) {
        let begins_part = match &line.kind {
            LineKind::Step(_) => !std::mem::replace(&mut steps, true),
            LineKind::Header(head) => {
                head.name.text == "advice" || (steps && head.name.text == "teardown")
            }
            _ => false,
        };
        // There is exactly one blank line between the parts of the file.
        if begins_part && after_content > 0 && !out[after_content..].iter().any(String::is_empty) {
            out.insert(after_content, String::new());
        }
        match &line.kind {
            LineKind::Blank => {
                // Blank lines in prose stay; those at its end are removed below.
                if prose || out.last().is_some_and(|last| !last.is_empty()) {
                    out.push(String::new());
                }
            }
            LineKind::Comment => out.push(body),
            kind => {
                prose = matches!(kind, LineKind::Indented(Block::Prose, _));
                out.push(with_comment(body, line.comment));
                after_content = out.len();
            }
        }
    }
    while out.last().is_some_and(String::is_empty) {
        out.pop();
    }
    out.join("\n") + "\n"
}

/// Returns every line in its new form, without its comment; lines of comments and blank lines stay as they are.
fn bodies(lines: &[SourceLine<'_>]) -> Vec<String> {
    let mut bodies: Vec<String> = Vec::with_capacity(lines.len());
    // The least indentation of the current block.
    let mut margin = 1;
    // Lines of a table or of rows that were aligned together with a line above them.
    let mut ahead: Vec<(usize, String)> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        bodies.push(match &line.kind {
            LineKind::Blank => String::new(),
            // A comment in a block moves with the block.
            LineKind::Comment if line.is_indented() && margin > 1 => {
                let text = line.raw.trim_start();
                let column = line.raw.chars().count() - text.chars().count() + 1;
                format!("{}{text}", " ".repeat(2 + column.saturating_sub(margin)))
            }
            LineKind::Header(head) => {
                margin = least_column(&lines[index + 1..]);
                header(head)
            }
            LineKind::Step(head) => {
                margin = 1;
                step(head)
            }
            LineKind::Indented(Block::Sql | Block::Prose, span) => {
                format!("{}{}", " ".repeat(2 + span.position.column - margin), span.text)
            }
            LineKind::Expect(expect) => {
                if !ahead.iter().any(|(known, _)| *known == index) {
                    ahead = aligned_block(lines, index);
                }
                match ahead.iter().find(|(known, _)| *known == index) {
                    Some((_, cells)) => format!(" {} {cells}", expect.mark),
                    None => format!(" {}", expectation(expect)),
                }
            }
            LineKind::Indented(Block::Statement, span) => {
                let indent: String = line.raw.chars().take(span.position.column - 1).collect();
                format!("{indent}{}", span.text)
            }
            // A file with a line that belongs to nothing is not formatted.
            LineKind::Comment | LineKind::Indented(Block::Nothing, _) | LineKind::Unknown(_) => {
                line.raw.to_owned()
            }
        });
    }
    bodies
}

/// Returns the least column of the indented lines in the block that begins here.
pub(crate) fn least_column(lines: &[SourceLine<'_>]) -> usize {
    let columns = lines.iter().map_while(|line| match &line.kind {
        LineKind::Indented(Block::Sql | Block::Prose, span) => Some(Some(span.position.column)),
        LineKind::Blank | LineKind::Comment => Some(None),
        _ => None,
    });
    columns.flatten().min().unwrap_or(1)
}

fn header(head: &LineHead<'_>) -> String {
    let key = separated(&with_single_blanks(head.name.text), ',', ", ");
    let value = match key.split(' ').next() {
        Some("engines" | "strategies") => {
            let words = head.rest.text.split(|c: char| c == ',' || c.is_whitespace());
            join(words.filter(|word| !word.is_empty()), " ")
        }
        Some("for") => {
            let value_set = |value_set: SourceSpan<'_>| {
                if key.contains(',') {
                    separated(value_set.text, ',', ", ")
                } else {
                    with_single_blanks(value_set.text)
                }
            };
            join(head.rest.split('|').into_iter().map(value_set), " | ")
        }
        _ => with_single_blanks(head.rest.text),
    };
    format!("{key}{}: {value}", brackets(head)).trim_end().to_owned()
}

fn step(head: &LineHead<'_>) -> String {
    let rest = match LineHead::expectation(head.rest).filter(|_| head.is_look()) {
        Some(expect) => expectation(&expect),
        None => head.rest.text.to_owned(),
    };
    format!("{}{}{} {rest}", head.name.text, head.mark, brackets(head)).trim_end().to_owned()
}

/// Returns `= [mysql] done`.
fn expectation(expect: &LineHead<'_>) -> String {
    let rest = match expect.mark {
        '|' | ':' => separated(expect.rest.text, '|', " | "),
        _ => with_single_blanks(expect.rest.text),
    };
    format!("{}{} {rest}", expect.mark, brackets(expect))
}

fn brackets(head: &LineHead<'_>) -> String {
    let inside = head.guard.map(|guard| separated(&with_single_blanks(guard.text), ',', ", "));
    inside.map_or(String::new(), |inside| format!(" [{inside}]"))
}

/// Returns the parts of a list, joined with `by`.
fn separated(text: &str, separator: char, by: &str) -> String {
    join(split(text, separator).into_iter().map(|(_, part)| part.trim()), by)
}

/// Returns the aligned cells of a table, or of rows, from its first line on: each line with its index.
fn aligned_block(lines: &[SourceLine<'_>], first: usize) -> Vec<(usize, String)> {
    let LineKind::Expect(head) = &lines[first].kind else { return Vec::new() };
    let below = match head.mark {
        '|' => '|',
        '=' if head.is_table() => ':',
        _ => return Vec::new(),
    };
    let cell = |cell: SourceSpan<'_>| {
        if below == ':' { with_single_blanks(cell.text) } else { cell.text.to_owned() }
    };
    let mut indices = Vec::new();
    let mut rows = Vec::new();
    for (index, line) in lines.iter().enumerate().skip(first) {
        match &line.kind {
            LineKind::Expect(expect) if index == first || expect.mark == below => {
                indices.push(index);
                rows.push(expect.rest.split('|').into_iter().map(cell).collect());
            }
            LineKind::Blank | LineKind::Comment => {}
            _ => break,
        }
    }
    indices.into_iter().zip(aligned(&rows)).collect()
}

/// Returns rows of cells as lines, with ` | ` between the cells, aligned in columns.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded =
            cells.map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.width())));
        join(padded, " | ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Returns a line with its comment: at its old column, or two blanks after the line if that is longer.
pub(crate) fn with_comment(line: String, comment: Option<(&str, usize)>) -> String {
    let Some((comment, column)) = comment else { return line };
    let width = line.width();
    format!("{line}{}{comment}", " ".repeat((column - 1).max(width + 2) - width))
}
