//! `hierlock hot`: the slots with the most waits, and their paths.

mod json;
pub(crate) mod text;

pub(crate) use json::slot_summary_json;

use crate::exit::{self, CommandResult};
use crate::locks::json::missing_json;
use crate::locks::text::missing_texts;
use crate::output::{json_line, print, print_message};
use crate::progress;
use crate::signals::{Signals, block_on};
use crate::time::{duration_text, timestamp};
use crate::top::{BackendArgs, interval};
use hierlock::parse_duration;
use hierlock::sql::lock_report::{LockSnapshot, SlotStatistics};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until};

/// List the slots with the most waits, and the paths that use them
///
/// Takes snapshots of a server for some time. If sessions that lock different paths wait for each other because these paths
/// share a bucket, the slot is marked as false contention: with more buckets (`hierlock size`) they would not wait. Changes
/// nothing. Ctrl-C prints the results so far.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HotArgs {
    #[command(flatten)]
    backend: BackendArgs,
    /// How long to take snapshots
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// The time between two snapshots; at least 200ms. Shorter waits may not be seen
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = interval)]
    interval: Duration,
    /// Print at most N slots
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hierlock hot --url mysql://…                      # for 10 seconds
  hierlock hot --for 5m --interval 1s --limit 20
  hierlock hot --json | jq '.slots[] | select(.false_contention == \"yes\")'";

pub(crate) fn hot(args: &HotArgs) -> CommandResult {
    block_on(async {
        let mut signals = Signals::listen()?;
        let mut source = args.backend.source()?;
        let mut statistics = SlotStatistics::default();
        let mut last = signals.run_until_signal(source.snapshot()).await??;
        statistics.add(&last);
        let bar = progress::bar("taking snapshots for {msg} {wide_bar} {pos}/{len} s", args.json);
        bar.set_length(args.duration.as_secs());
        bar.set_message(duration_text(args.duration));
        let sampling = async {
            let started = Instant::now();
            while started.elapsed() + args.interval <= args.duration {
                sleep(args.interval).await;
                last = source.snapshot().await?;
                statistics.add(&last);
                bar.set_position(started.elapsed().as_secs());
            }
            sleep_until((started + args.duration).into()).await;
            CommandResult::Ok(exit::SUCCESS)
        };
        // After a signal or a failure, the results so far are printed.
        let result = signals.run_until_signal(sampling).await.unwrap_or(Ok(exit::SUCCESS));
        bar.finish_and_clear();
        report(args, &statistics, &last)?;
        result
    })
}

fn report(args: &HotArgs, statistics: &SlotStatistics, last: &LockSnapshot) -> CommandResult {
    let mut slots = statistics.hottest();
    let all = slots.len();
    slots.truncate(args.limit as usize);
    let (from, to) = statistics.period().unwrap_or((last.taken, last.taken));
    let samples = statistics.samples();
    if args.json {
        return print(json_line(&json!({
            "server": last.server,
            "from": timestamp(from),
            "to": timestamp(to),
            "samples": samples,
            "slots": slots.iter().map(slot_summary_json).collect::<Value>(),
            "missing_privileges": missing_json(last),
            "notes": last.notes,
        })));
    }
    let period = duration_text(to.duration_since(from).unwrap_or_default());
    print_message(format!("took {samples} snapshots of {} in {period}", last.server));
    missing_texts(last).for_each(print_message);
    print(text::slot_table(&slots, "no session waited for a slot of hierlock"))?;
    if all > slots.len() {
        print_message(format!("{} more slots: --limit lists them", all - slots.len()));
    }
    Ok(exit::SUCCESS)
}
