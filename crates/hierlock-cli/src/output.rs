//! Standard output has the result, as text or JSON; standard error has messages.

use crate::exit::{self, CommandResult, Failure};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Prints a result. A reader that has closed the pipe is no failure.
pub(crate) fn print(text: impl AsRef<str>) -> CommandResult {
    match write(text.as_ref()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::unavailable(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(exit::SUCCESS),
    }
}

/// Writes to standard output, for callers that must know whether it was written.
pub(crate) fn write(text: &str) -> io::Result<()> {
    io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
}

/// Prints `hierlock: …` on standard error.
pub(crate) fn print_message(text: impl Display) {
    let line = format!("hierlock: {}\n", escape_controls(&text.to_string()));
    // If nobody can read it, the exit code still tells.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Whether results are coloured: on a terminal, unless `NO_COLOR` is set.
pub(crate) fn has_colour() -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !unwanted
}

pub(crate) fn json(result: &impl Serialize) -> String {
    // Numbers, names and texts always become JSON.
    serde_json::to_string(result).unwrap_or_default() + "\n"
}

/// Returns an array of JSON with a line for each item.
pub(crate) fn json_list<T: Serialize>(items: impl IntoIterator<Item = T>) -> String {
    let lines: Vec<_> = items.into_iter().map(|item| json(&item).trim_end().to_owned()).collect();
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

/// Returns the text of others on one line, no longer than `max_chars`, without control characters.
pub(crate) fn cell(text: &str, max_chars: usize) -> String {
    let cell: String = text.chars().take(max_chars).collect();
    let end = if cell.len() < text.len() { "…" } else { "" };
    format!("{}{end}", hierlock_engine::printable(&cell))
}

/// Escapes control characters, which a terminal would obey: a message may quote anything. Line feeds stay.
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
    fn lists() {
        assert_eq!(json_list(Vec::<u8>::new()), "[]\n");
        assert_eq!(json_list([1, 2]), "[1,\n 2]\n");
        assert_eq!(table(["a"], [], "nothing"), "nothing\n");
    }
}
