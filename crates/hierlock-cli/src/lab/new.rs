//! `hierlock lab new`: a scenario to begin with.

use super::args;
use crate::exit;
use crate::show::say;
use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

pub(super) const SQL: &str = include_str!("new_sql.lab");
pub(super) const TREE: &str = include_str!("new_tree.lab");

pub(super) fn new(args: &args::New) -> ExitCode {
    let text = if args.tree { TREE } else { SQL };
    let made = OpenOptions::new().write(true).create_new(true).open(&args.file);
    let file = args.file.display();
    match made.and_then(|mut made| made.write_all(text.as_bytes())) {
        Ok(()) => {
            say(format!("{file} is made; run it with: hierlock lab run {file}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(format!("{file} cannot be made: {error}"));
            exit::USAGE.into()
        }
    }
}
