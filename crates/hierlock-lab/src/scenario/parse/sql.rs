//! SQL in a file: the statements of `setup:` and `teardown:`, and quotes that are not closed.

use crate::scenario::diagnostic::Diagnostics;
use crate::scenario::scan::scan_sql;
use crate::scenario::source_line::{Block, LineKind, SourceLine, SourceSpan};
use crate::scenario::template::Template;
use hierlock_engine::lexer::OpenToken;

/// Returns the statements of a block, each without its `;`.
pub(super) fn statements(below: &[SourceLine<'_>], errors: &mut Diagnostics<'_>) -> Vec<Template> {
    let lines = below.iter().filter_map(|line| match &line.kind {
        LineKind::Indented(Block::Sql, span) => Some(*span),
        _ => None,
    });
    let whole = Template::statement(None, &lines.collect::<Vec<SourceSpan<'_>>>());
    let mut statements = Vec::new();
    let mut from = 0;
    // The first character outside of comments: without one there is no statement.
    let mut begin = None;
    let open = walk(&whole.text, |at, c, quoted| {
        if c != ';' || quoted {
            if !c.is_whitespace() {
                begin.get_or_insert(at);
            }
            return;
        }
        match begin.take() {
            Some(_) => statements.push(whole.piece(from, at)),
            None => errors.report(whole.position(at), "there is no statement before this `;`"),
        }
        from = at + 1;
    });
    if let Some((at, message)) = open {
        errors.report(whole.position(at), message);
    } else if let Some(begin) = begin {
        let end = whole.position(whole.text.trim_end().len());
        let line = whole.position(begin).line;
        errors
            .report(end, format!("the statement that begins on line {line} has no `;` at its end"));
    }
    statements
}

/// Reports a quote that is not closed; a server would wait for its end.
pub(super) fn check_quotes(statement: &Template, errors: &mut Diagnostics<'_>) {
    if let Some((at, message)) = walk(&statement.text, |_, _, _| {}) {
        errors.report(statement.position(at), message);
    }
}

/// Calls `each` for the characters of SQL. Returns the position and message of a quote or comment that is not closed.
fn walk(sql: &str, mut each: impl FnMut(usize, char, bool)) -> Option<(usize, String)> {
    let mut open = OpenToken::Nothing;
    let mut opened = None;
    let mut line_at = 0;
    for line in sql.split_inclusive('\n') {
        scan_sql(line, &mut open, |at, c, quoted| {
            if quoted {
                opened.get_or_insert(line_at + at);
            } else {
                opened = None;
            }
            each(line_at + at, c, quoted);
        });
        line_at += line.len();
    }
    let mark = open.mark()?;
    let message = match open {
        OpenToken::Quote { .. } => {
            format!("this {mark} is not closed; a quote inside of quotes is written twice")
        }
        _ => format!("{mark} is not closed"),
    };
    Some((opened.unwrap_or_default(), message))
}
