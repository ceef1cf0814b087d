//! `hierlock lab fmt` and `hierlock lab new`: scenario files.

use super::args::FmtArgs;
use super::invalid;
use crate::exit::{self, CommandError, CommandResult};
use crate::output::{escape_controls, print, print_message};
use hierlock_lab::Scenario;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

pub(super) fn fmt(args: &FmtArgs) -> CommandResult {
    let mut code = exit::SUCCESS;
    for file in &args.files {
        let changes = format(file, args.check)?;
        if changes && args.check {
            print(escape_controls(&format!("{}\n", file.display())))?;
            code = exit::DISAGREEMENT;
        }
    }
    Ok(code)
}

/// Formats a file; with `check` leaves it unchanged. Returns whether the formatted text is different.
fn format(file: &Path, check: bool) -> Result<bool, CommandError> {
    let name = file.display().to_string();
    let failed =
        |what: &str, error| CommandError::usage(format!("{name} cannot be {what}: {error}"));
    let is_stdin = name == "-";
    let text = if is_stdin { io::read_to_string(io::stdin()) } else { fs::read_to_string(file) };
    let text = text.map_err(|error| failed("read", error))?;
    let formatted = Scenario::format(&name, &text).map_err(invalid)?;
    let changes = formatted != text;
    if is_stdin && !check {
        print(&formatted)?;
    } else if changes && !check {
        fs::write(file, formatted).map_err(|error| failed("written", error))?;
    }
    Ok(changes)
}

/// Creates a scenario file from a template.
pub(super) fn new(file: &Path, tree: bool) -> CommandResult {
    let text = if tree { include_str!("new_tree.lab") } else { include_str!("new_sql.lab") };
    let created = OpenOptions::new().write(true).create_new(true).open(file);
    let file = file.display();
    created
        .and_then(|mut created| created.write_all(text.as_bytes()))
        .map_err(|error| CommandError::usage(format!("{file} cannot be created: {error}")))?;
    print_message(format!("created {file}; run it with: hierlock lab run {file}"));
    Ok(exit::SUCCESS)
}
