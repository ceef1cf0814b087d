//! Columns below each other, and comments behind lines. Pure text.

use super::scan::{Style, scan};
use crate::columns::columns;
use hierlock_engine::lexer::OpenToken;

/// Rows of cells as lines: ` | ` between the cells, which stand below each other.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..most)
        .map(|column| rows.iter().filter_map(|row| row.get(column)).map(|c| columns(c)).max())
        .map(Option::unwrap_or_default)
        .collect();
    rows.iter()
        .map(|row| {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width)).collect();
            cells.join(" | ").trim_end().to_owned()
        })
        .collect()
}

fn padded(cell: &str, width: usize) -> String {
    let blanks = width.saturating_sub(columns(cell));
    format!("{cell}{}", " ".repeat(blanks))
}

/// A line and its comment: where the comment stood, or two blanks behind the line if that is longer.
pub(crate) fn commented(line: String, comment: Option<(&str, usize)>) -> String {
    let Some((comment, column)) = comment else { return line };
    let width = columns(&line);
    let blanks = (column - 1).max(width + 2) - width;
    format!("{line}{}{comment}", " ".repeat(blanks))
}

/// One blank where there were several, outside of quotes.
pub(crate) fn squeezed(text: &str) -> String {
    let mut blanks = Vec::new();
    scan(text, Style::Words, &mut OpenToken::Nothing, |at, c, quoted| {
        if c.is_whitespace() && !quoted {
            blanks.push(at);
        }
    });
    let mut squeezed = String::with_capacity(text.len());
    let mut blanks = blanks.into_iter().peekable();
    for (at, c) in text.trim_end().char_indices() {
        let blank = blanks.next_if_eq(&at).is_some();
        if !blank {
            squeezed.push(c);
        } else if !squeezed.is_empty() && !squeezed.ends_with(' ') {
            squeezed.push(' ');
        }
    }
    squeezed
}
