//! `hierlock plan`: what a lock would take.

use crate::args;
use crate::exit::Stop;
use crate::generate::print;
use crate::runtime::on_one_thread;
use comfy_table::{Table, presets};
use hierlock::sql::{Dialect, Scheme};
use hierlock::{Claim, Plan, Preview, ServerUrl, Slots, Step};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::ExitCode;

/// One slot, as a program reads it: what it is depends on where the lock is.
#[derive(Serialize)]
struct Slot {
    level: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<u64>,
    /// How many there are at each level, if the server was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advisory_key: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    row_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    byte: Option<u64>,
    mode: &'static str,
    target: String,
}

pub(crate) fn plan(args: &args::Plan) -> ExitCode {
    let shown = async {
        match &args.url {
            Some(url) => for_client(args, url).await,
            None => for_each_dialect(args),
        }
    };
    on_one_thread(async {
        match shown.await {
            Ok(text) => print(text.as_bytes()),
            Err(stop) => stop.end(),
        }
    })
}

fn claims(args: &args::Plan) -> impl Iterator<Item = Claim> {
    let mode = args.what.mode();
    args.what.targets.iter().map(move |target| Claim { target: target.clone(), mode })
}

/// What a client of that URL would take.
async fn for_client(args: &args::Plan, url: &ServerUrl) -> Result<String, Stop> {
    if args.buckets.is_some() {
        return Err(Stop::usage(
            "--buckets is for a plan without a URL: a server says itself how many buckets it has, and ?buckets=N in \
             the URL compares; leave --buckets out, or --url (HIERLOCK_URL)",
        ));
    }
    let preview = Preview::of(url.expose(), args.what.levels.clone()).await?;
    let plan = preview.plan(claims(args))?;
    if args.json {
        return Ok(json(&plan, preview.scheme().is_some()));
    }
    let mut text = format!("{url}: {}\n{}\n", place(&plan, preview.scheme()), table(args, &plan));
    if let Some(scheme) = preview.scheme() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{}:\n{}", scheme.dialect(), scheme.lock(&plan));
    }
    Ok(text)
}

/// Without a URL: buckets, and the SQL of each server with its own default.
fn for_each_dialect(args: &args::Plan) -> Result<String, Stop> {
    let scheme = |dialect| {
        let buckets = args.buckets.unwrap_or_default();
        Scheme::new(dialect).buckets(buckets).hierarchy(args.what.levels.clone())
    };
    let plan = scheme(Dialect::Mysql).plan(claims(args))?;
    if args.json {
        return Ok(json(&plan, false));
    }
    let mut text = format!("{}\n", table(args, &plan));
    for dialect in Dialect::ALL {
        let scheme = scheme(dialect);
        let plan = scheme.plan(claims(args))?;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "\n{dialect}:\n{}", scheme.lock(&plan));
    }
    Ok(text)
}

/// What the slots of a plan are.
fn place(plan: &Plan, scheme: Option<&Scheme>) -> String {
    match (plan.slots(), scheme) {
        (Slots::Buckets(buckets), Some(scheme)) => {
            format!("rows of {}, {} buckets a level", scheme.rows_table(), buckets.count())
        }
        (Slots::Keys, _) => "advisory keys".to_owned(),
        (Slots::Bytes, _) => "bytes of the file".to_owned(),
        (_, Some(scheme)) => format!("rows of {}, by key", scheme.rows_table()),
        (_, None) => "the nodes themselves".to_owned(),
    }
}

fn json(plan: &Plan, is_of_server: bool) -> String {
    let slots = plan.slots();
    let mut lines = Vec::new();
    for Step { level, slot, mode, target, .. } in plan.steps() {
        let mut shown = Slot {
            level,
            bucket: None,
            buckets: None,
            advisory_key: None,
            row_key: None,
            byte: None,
            mode: mode.name(),
            target: target.to_string(),
        };
        match slots {
            Slots::Buckets(buckets) => {
                shown.bucket = Some(slot);
                shown.buckets = is_of_server.then_some(buckets.count());
            }
            Slots::Keys => shown.advisory_key = Some(slot.cast_signed()),
            Slots::Bytes => shown.byte = Some(slot),
            _ if is_of_server => shown.row_key = Some(target.key()),
            _ => {}
        }
        // Numbers and strings always become JSON.
        lines.extend(serde_json::to_string(&shown));
    }
    format!("[{}]\n", lines.join(",\n "))
}

fn table(args: &args::Plan, plan: &Plan) -> Table {
    let slots = plan.slots();
    let name = match slots {
        Slots::Buckets(_) => "bucket",
        Slots::Keys => "advisory key",
        Slots::Bytes => "byte",
        _ => "key",
    };
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["level", "target", name, "mode"]);
    for Step { level, slot, mode, target, .. } in plan.steps() {
        let level = format!("{level} {}", args.what.levels.level_name(level));
        let slot = match slots {
            Slots::Keys => slot.cast_signed().to_string(),
            Slots::Buckets(_) | Slots::Bytes => slot.to_string(),
            _ => target.key(),
        };
        table.add_row([level, target.to_string(), slot, mode.to_string()]);
    }
    table
}
