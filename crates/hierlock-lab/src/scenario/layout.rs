//! Columns below each other, and comments behind lines. Pure text.

use crate::text::join;
use unicode_width::UnicodeWidthStr;

/// Rows of cells as lines: ` | ` between the cells, which stand below each other.
pub(crate) fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let most = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..most).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let padded = cells.map(|(cell, width)| format!("{cell}{}", blanks(width - cell.width())));
        join(padded, " | ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A line and its comment: where the comment stood, or two blanks behind the line if that is longer.
pub(crate) fn commented(line: String, comment: Option<(&str, usize)>) -> String {
    let Some((comment, column)) = comment else { return line };
    let width = line.width();
    format!("{line}{}{comment}", blanks((column - 1).max(width + 2) - width))
}

pub(crate) fn blanks(count: usize) -> String {
    " ".repeat(count)
}
