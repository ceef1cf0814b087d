//! `hierlock plan`: what a lock would take.

use crate::args;
use crate::exit;
use crate::generate::print;
use comfy_table::{Table, presets};
use hierlock::sql::{Dialect, Scheme};
use hierlock::{Claim, Plan, Result, Step};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

/// One slot, as a program reads it.
#[derive(Serialize)]
struct Slot<'a> {
    level: usize,
    bucket: u64,
    mode: &'static str,
    target: &'a str,
}

pub(crate) fn plan(args: &args::Plan) -> ExitCode {
    let shown = if args.json { json(args) } else { text(args) };
    match shown {
        Ok(text) => print(text.as_bytes()),
        Err(error) => exit::fail(&error),
    }
}

fn scheme(args: &args::Plan, dialect: Dialect) -> Scheme {
    Scheme::new(dialect).buckets(args.buckets).hierarchy(args.what.levels.clone())
}

fn planned(args: &args::Plan, scheme: &Scheme) -> Result<Plan> {
    let mode = args.what.mode();
    scheme.plan(args.what.targets.iter().map(|target| Claim { target: target.clone(), mode }))
}

fn rows(args: &args::Plan) -> Result<Plan> {
    planned(args, &scheme(args, Dialect::Mysql))
}

fn json(args: &args::Plan) -> Result<String> {
    let mut lines = Vec::new();
    for Step { level, slot, mode, target, .. } in rows(args)?.steps() {
        let target = target.to_string();
        let slot = Slot { level, bucket: slot, mode: mode.name(), target: &target };
        // Numbers and strings always become JSON.
        lines.extend(serde_json::to_string(&slot));
    }
    Ok(format!("[{}]\n", lines.join(",\n ")))
}

fn text(args: &args::Plan) -> Result<String> {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["level", "target", "bucket", "mode"]);
    for Step { level, slot, mode, target, .. } in rows(args)?.steps() {
        let level = format!("{level} {}", args.what.levels.level_name(level));
        table.add_row([level, target.to_string(), slot.to_string(), mode.to_string()]);
    }
    let mut text = format!("{table}\n");
    for dialect in Dialect::ALL {
        let scheme = scheme(args, dialect);
        let plan = planned(args, &scheme)?;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{dialect}:\n{}", scheme.lock(&plan));
    }
    Ok(text)
}
