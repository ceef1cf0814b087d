//! `hierlock locks`: lists holders and waiters, and ends a session that blocks others.
//!
//! ```text
//!   URL ──► source: snapshot of a server (hierlock::sql::lock_report), or of a lock file (file)
//!             │ snapshot_view: which sessions, in which order
//!             ├─► text: a tree by root blocker      json: the same, flat
//!             └─► kill: shown again, confirmed, checked, ended, logged
//! ```
//!
//! `hierlock top` and `hierlock hot` use the same snapshots.

mod args;
mod confirm;
mod file;
pub(crate) mod json;
pub(crate) mod kill;
mod kill_log;
pub(crate) mod snapshot_view;
mod source;
pub(crate) mod text;

pub(crate) use args::LocksArgs;
pub(crate) use source::{LockBackend, LockSource};

use crate::exit::CommandResult;
use crate::output::{json_line, print};
use crate::signals::block_on_until_signal;
use args::LocksCommand;
use snapshot_view::SnapshotView;

pub(crate) fn locks(args: &LocksArgs) -> CommandResult {
    block_on_until_signal(async {
        match &args.command {
            Some(LocksCommand::Kill(kill)) => kill::kill(args, kill).await,
            None => list(args).await,
        }
    })
}

async fn list(args: &LocksArgs) -> CommandResult {
    let backend = LockBackend::of(args.url.as_ref())?;
    let mut source = LockSource::new(backend);
    source.path.clone_from(&args.path);
    let snapshot = source.snapshot().await?;
    let filter = args.path.as_ref().map(|path| source.filter(&snapshot, path));
    let view = SnapshotView::new(&snapshot, filter.as_ref(), args.all);
    if args.json {
        return print(json_line(&json::snapshot_json(&view)));
    }
    print(text::snapshot_text(&view, args.path.as_ref()))
}
