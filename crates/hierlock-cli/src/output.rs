//! Results go to standard output, as text or JSON. Messages go to standard error.

use crate::exit::{self, CommandError, CommandResult};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::fmt::Display;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// Prints a result. A closed pipe is not a failure.
pub(crate) fn print(text: impl AsRef<str>) -> CommandResult {
    match write(text.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::unavailable(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(exit::SUCCESS),
    }
}

/// Writes to standard output; fails also if the pipe is closed.
pub(crate) fn write(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
}

/// Writes a report to a file, if one was named.
pub(crate) fn write_file(file: Option<&Path>, text: impl FnOnce() -> String) -> CommandResult {
    if let Some(file) = file {
        let written = fs::write(file, text());
        written.map_err(CommandError::cannot(format!("write {}", file.display())))?;
    }
    Ok(exit::SUCCESS)
}

/// Prints `hierlock: …` on standard error.
pub(crate) fn print_message(text: impl Display) {
    let line = format!("hierlock: {}\n", escape_controls(&text.to_string()));
    // If standard error cannot be written, the exit code still reports the result.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Returns whether results are coloured: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn has_colour() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !unwanted
}

/// Returns one line of JSON.
pub(crate) fn json_line(result: &impl Serialize) -> String {
    // Serialization of these types cannot fail: all keys are strings.
    serde_json::to_string(result).unwrap_or_default() + "\n"
}

/// Returns a JSON array with one line per item.
pub(crate) fn json_list<T: Serialize>(items: impl IntoIterator<Item = T>) -> String {
    let lines: Vec<_> =
        items.into_iter().map(|item| json_line(&item).trim_end().to_owned()).collect();
    format!("[{}]\n", lines.join(",\n "))
}

/// Returns a table, or `empty` if it would have no rows.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    empty: &str,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    table.add_rows(rows);
    if table.is_empty() { format!("{empty}\n") } else { format!("{table}\n") }
}

/// Returns the width of the terminal, if standard output is one.
pub(crate) fn table_width() -> Option<usize> {
    Table::new().width().map(usize::from).filter(|_| io::stdout().is_terminal())
}

/// Returns untrusted text on one line, cut to `max_chars`, with control characters escaped.
pub(crate) fn cell(text: &str, max_chars: usize) -> String {
    let cell: String = text.chars().take(max_chars).collect();
    let end = if cell.len() < text.len() { "…" } else { "" };
    format!("{}{end}", hierlock_engine::printable(&cell))
}

/// Returns a statement on one line, with single spaces, cut to `max_chars`.
pub(crate) fn statement_cell(statement: &str, max_chars: usize) -> String {
    cell(&statement.split_whitespace().collect::<Vec<_>>().join(" "), max_chars)
}

/// Returns `a, b and 3 more`: at most `max` of the items.
pub(crate) fn short_list(items: &[String], max: usize) -> String {
    let list = items[..items.len().min(max)].join(", ");
    match items.len().saturating_sub(max) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

/// Escapes control characters except line feeds. A message may quote untrusted text, and a terminal would execute its
/// escape sequences.
pub(crate) fn escape_controls(text: &str) -> String {
    text.split('\n').map(hierlock_engine::printable).collect::<Vec<_>>().join("\n")
}

/// Returns `1 job`, `3 jobs`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_short_line_without_control_characters() {
        assert_eq!(cell("two\nlines \u{1b}[2J", 40), "two\\nlines \\u{1b}[2J");
        assert_eq!(cell("ääää", 4), "ääää");
        assert_eq!(cell("äääää", 4), "ääää…");
    }

    #[test]
    fn empty_and_short_lists_are_printed() {
        assert_eq!(json_list(Vec::<u8>::new()), "[]\n");
        assert_eq!(json_list([1, 2]), "[1,\n 2]\n");
        assert_eq!(table(["a"], [], "nothing"), "nothing\n");
    }
}
