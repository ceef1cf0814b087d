//! Results, as lines of JSON for programs and as tables for persons.

use comfy_table::{Table, presets};
use serde::Serialize;

/// One line.
pub(crate) fn json(result: &impl Serialize) -> String {
    // Numbers, names and texts always become JSON.
    serde_json::to_string(result).unwrap_or_default() + "\n"
}

/// A list, with a line for each.
pub(crate) fn json_list<T: Serialize>(list: impl IntoIterator<Item = T>) -> String {
    let lines: Vec<String> = list.into_iter().map(|one| json(&one).trim_end().to_owned()).collect();
    format!("[{}]\n", lines.join(",\n "))
}

/// A table, unless there is nothing to show.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
    empty: &str,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(header);
    table.add_rows(rows);
    match table.is_empty() {
        true => format!("{empty}\n"),
        false => format!("{table}\n"),
    }
}

/// What others have written, on one line and no longer than a cell: a terminal does what it reads.
pub(crate) fn cell(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (at, c) in text.chars().enumerate() {
        if at == most {
            shown.push('…');
            break;
        }
        push(c, &mut shown);
    }
    shown
}

/// A message of ours, which may quote a person, a file or a server: with nothing in it that a terminal would
/// obey. Line feeds stay.
pub(crate) fn message(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' {
            shown.push(c);
        } else {
            push(c, &mut shown);
        }
    }
    shown
}

fn push(c: char, shown: &mut String) {
    if c.is_control() {
        shown.extend(c.escape_debug());
    } else {
        shown.push(c);
    }
}

/// Says something to a person, on standard error.
pub(crate) fn say(text: impl std::fmt::Display) {
    eprintln!("hierlock: {}", message(&text.to_string()));
}

/// `1 job`, `3 jobs`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_short_line_that_does_nothing_to_a_terminal() {
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
