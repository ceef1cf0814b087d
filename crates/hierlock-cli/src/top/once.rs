//! `hierlock top --once`: figures, locks and slots as text or JSON.

use super::args::TopArgs;
use super::draw::figures_text;
use super::history::{History, LockSample};
use crate::exit::CommandResult;
use crate::hot::{slot_summary_json, text::slot_lines};
use crate::locks::json::snapshot_json;
use crate::locks::snapshot_view::SnapshotView;
use crate::locks::text::snapshot_text;
use crate::output::{json_line, print};
use serde_json::{Value, json};
use tokio::time::sleep;

/// The number of slots in the list.
const MAX_SLOTS: usize = 10;

/// Takes two observations, because rates need two, and prints the result.
pub(super) async fn once(args: &TopArgs) -> CommandResult {
    let mut source = args.backend.source()?;
    let mut history = History::default();
    history.add(&LockSample::take(&mut source).await?);
    sleep(args.interval).await;
    let sample = LockSample::take(&mut source).await?;
    history.add(&sample);
    let view = SnapshotView::new(&sample.snapshot, None, false);
    let slots = history.slots.hottest();
    if args.json {
        return print(json_line(&json!({
            "figures": history.figures,
            "locks": snapshot_json(&view),
            "hot_slots": slots.iter().take(MAX_SLOTS).map(slot_summary_json).collect::<Value>(),
        })));
    }
    let mut text = format!("{}\n\n", figures_text(&history.figures));
    text += &snapshot_text(&view, None);
    if !slots.is_empty() {
        let lines = slot_lines(&slots, MAX_SLOTS);
        text += &format!("\nhot slots:\n  {}\n", lines.join("\n  "));
    }
    print(text)
}
