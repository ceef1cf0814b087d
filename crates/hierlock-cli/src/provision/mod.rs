//! `hierlock provision`: makes the rows that clients of a server lock.
//!
//! ```text
//!   connect ──► say how large it becomes ──► fill, with a bar ──► what was done
//!           ├─► --check: what is missing ──► --repair: fill it
//!           ├─► --rebucket: another number of buckets, while clients lock
//!           └─► --print-sql: the same as SQL
//! ```

mod show;

use crate::args;
use crate::exit;
use crate::generate::print;
use crate::runtime::on_one_thread;
use crate::show::say;
use hierlock::sql::{Check, Provision, Report};
use show::{Shown, check_text, done_text, prediction_text};
use std::process::ExitCode;

pub(crate) fn provision(args: &args::Provision) -> ExitCode {
    on_one_thread(async { go(args).await.unwrap_or_else(|error| exit::fail(&error)) })
}

async fn go(args: &args::Provision) -> hierlock::Result<ExitCode> {
    let provision = Provision::connect(&url(args), args.levels.clone()).await?;
    let mut provision = provision.max_rows_per_second(args.max_rows_per_second);
    if let Some(connections) = args.connections {
        provision = provision.connections(connections);
    }
    for warning in provision.warnings() {
        say(warning);
    }
    if args.print_sql {
        return Ok(print(provision.print_sql().as_bytes()));
    }
    if args.check {
        return check(args, &provision).await;
    }
    let shown = Shown::new(args.json);
    let report = match args.rebucket {
        Some(buckets) => provision.rebucket(buckets, |progress| shown.tell(progress)).await?,
        None => {
            shown.say(prediction_text(provision.prediction()));
            let mut report = provision.run(|progress| shown.tell(progress)).await?;
            if !args.paths.is_empty() {
                report.inserted += provision.add(&args.paths).await?;
            }
            report
        }
    };
    shown.end();
    Ok(finish(args, &report))
}

async fn check(args: &args::Provision, provision: &Provision) -> hierlock::Result<ExitCode> {
    let shown = Shown::new(args.json);
    let found = provision.check(|progress| shown.tell(progress)).await?;
    shown.end();
    let is_worth_it = args.repair && (found.missing_rows > 0 || !found.is_ready);
    if !is_worth_it {
        print(check_shown(args, &found).as_bytes());
        return Ok(match found.is_clean() {
            true => ExitCode::SUCCESS,
            false => exit::INCOMPLETE.into(),
        });
    }
    shown.say(check_text(&found).trim_end().to_owned());
    let shown = Shown::new(args.json);
    let report = provision.repair(|progress| shown.tell(progress)).await?;
    shown.end();
    Ok(finish(args, &report))
}

fn check_shown(args: &args::Provision, check: &Check) -> String {
    match args.json {
        true => show::check_json(check),
        false => check_text(check),
    }
}

fn finish(args: &args::Provision, report: &Report) -> ExitCode {
    let text = match args.json {
        true => show::report_json(report),
        false => done_text(report),
    };
    print(text.as_bytes())
}

/// `--buckets` is part of the URL for everyone else.
fn url(args: &args::Provision) -> String {
    match args.buckets {
        None => args.url.expose().to_owned(),
        Some(buckets) => {
            let url = args.url.expose();
            let joint = if url.contains('?') { '&' } else { '?' };
            format!("{url}{joint}buckets={}", buckets.count())
        }
    }
}
