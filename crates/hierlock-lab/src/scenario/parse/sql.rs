//! SQL of a file: the statements of `setup:` and `teardown:`, which end with `;`, and quotes that are
//! never closed. Knows nothing else of SQL.

use crate::scenario::mistake::Mistakes;
use crate::scenario::outline::{LineKind, Part, SourceLine};
use crate::scenario::scan::{Style, scan};
use crate::scenario::text::Text;
use hierlock_engine::lexer::OpenToken;

/// The statements of a block, each without its `;`.
pub(super) fn statements(below: &[SourceLine<'_>], mistakes: &mut Mistakes<'_>) -> Vec<Text> {
    let parts: Vec<Part<'_>> = below
        .iter()
        .filter_map(|line| match &line.kind {
            LineKind::Sql(part) => Some(*part),
            _ => None,
        })
        .collect();
    let whole = Text::joined(None, &parts);
    let mut statements = Vec::new();
    let mut from = 0;
    // The first character that is no comment: without one there is no statement.
    let mut begins = None;
    let closed = walk(&whole.text, |at, c, quoted| {
        if c != ';' || quoted {
            if !c.is_whitespace() {
                begins.get_or_insert(at);
            }
            return;
        }
        match begins.take() {
            Some(_) => statements.push(whole.piece(from, at)),
            None => mistakes.at(whole.spot(at), "there is no statement before this `;`"),
        }
        from = at + 1;
    });
    if let Err((at, message)) = closed {
        mistakes.at(whole.spot(at), message);
    } else if let Some(begins) = begins {
        let end = whole.text.trim_end().len();
        let line = whole.spot(begins).line;
        mistakes.at(
            whole.spot(end),
            format!("the statement that begins on line {line} has no `;` at its end"),
        );
    }
    statements
}

/// Notes a quote that is never closed; a server would wait for its end.
pub(super) fn check_quotes(statement: &Text, mistakes: &mut Mistakes<'_>) {
    if let Err((at, message)) = walk(&statement.text, |_, _, _| {}) {
        mistakes.at(statement.spot(at), message);
    }
}

/// Goes through SQL of several lines; where and how it stays open, if it does.
fn walk(sql: &str, mut each: impl FnMut(usize, char, bool)) -> Result<(), (usize, String)> {
    let mut open = OpenToken::Nothing;
    let mut opened = None;
    let mut line_at = 0;
    for line in sql.split_inclusive('\n') {
        scan(line, Style::Sql, &mut open, |at, c, quoted| {
            match quoted {
                true => _ = opened.get_or_insert(line_at + at),
                false => opened = None,
            }
            each(line_at + at, c, quoted);
        });
        line_at += line.len();
    }
    match open.mark() {
        None => Ok(()),
        Some(mark) => {
            let message = match open {
                OpenToken::Quote { .. } => {
                    format!("this {mark} is not closed; a quote inside of quotes is written twice")
                }
                _ => format!("{mark} is not closed"),
            };
            Err((opened.unwrap_or_default(), message))
        }
    }
}
