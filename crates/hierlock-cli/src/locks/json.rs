//! A snapshot as JSON. It is flat, because a chain of waits may be deeper than JSON parsers can nest.

use super::snapshot_view::SnapshotView;
use crate::time::{millis, timestamp};
use hierlock::Target;
use hierlock::sql::lock_report::{
    LockSlot, LockSnapshot, PathFilter, PathRelation, ReportedLock, SessionLocks,
};
use serde_json::{Value, json};

pub(crate) fn snapshot_json(view: &SnapshotView) -> Value {
    let snapshot = view.snapshot;
    let trees = view.trees.iter().map(|(tree, rows)| {
        let rows = rows
            .iter()
            .map(|row| json!({ "id": row.session, "depth": row.depth, "behind": row.parent }));
        json!({ "root": tree.root.name(), "sessions": rows.collect::<Value>() })
    });
    let sessions = view.sessions().filter_map(|pid| snapshot.session(pid));
    let prepared = snapshot.prepared.iter().map(|it| {
        json!({ "name": it.name, "owner": it.owner, "database": it.database, "since": it.since })
    });
    json!({
        "server": snapshot.server,
        "engine": snapshot.dialect.map_or("file", |dialect| dialect.name()),
        "taken": timestamp(snapshot.taken),
        "waits_visible": snapshot.are_waits_visible,
        "trees": trees.collect::<Value>(),
        "sessions": sessions.map(|session| session_json(session, view.filter)).collect::<Value>(),
        "prepared_transactions": prepared.collect::<Value>(),
        "missing_privileges": missing_json(snapshot),
        "notes": snapshot.notes,
    })
}

/// Returns what this account may not see, and the statements that permit it.
pub(crate) fn missing_json(snapshot: &LockSnapshot) -> Value {
    let missing = snapshot.missing.iter();
    missing
        .map(|it| json!({ "hidden": it.hidden(), "grant": it.grant(&snapshot.account) }))
        .collect()
}

fn session_json(session: &SessionLocks, filter: Option<&PathFilter>) -> Value {
    let (info, wait) = (&session.info, session.wait.as_ref());
    let client = session.label.as_ref().map(|label| &label.client);
    let lock = |lock| lock_json(lock, filter);
    json!({
        "id": info.pid,
        "user": info.user,
        "client": info.client,
        "database": info.database,
        "application": client.map(|client| &client.application),
        "program": client.map(|client| &client.program).or(info.program.as_ref()),
        "host": client.map(|client| &client.host),
        "client_pid": client.map(|client| client.pid.into()).or(info.client_pid),
        "state": info.state,
        "statement": info.statement,
        "state_ms": info.in_state_for.map(millis),
        "transaction_ms": info.in_transaction_for.map(millis),
        "waiting_ms": info.waiting_for.map(millis),
        "holds": session.held.iter().map(lock).collect::<Value>(),
        "has_unlisted_locks": session.has_unlisted_locks,
        "waits_for": wait.and_then(|wait| wait.wanted.as_ref()).map(lock),
        "blocked_by": wait.map(|wait| wait.blockers.clone()).unwrap_or_default(),
        "unconfirmed_paths": paths_json(session.unconfirmed_paths()),
    })
}

fn lock_json(lock: &ReportedLock, filter: Option<&PathFilter>) -> Value {
    let target = &lock.target;
    let mut json = json!({
        "kind": target.kind,
        "schema": target.schema,
        "object": target.object,
        "index": target.index,
        "record": target.record,
        "mode": target.mode,
    });
    if let Some(slot) = lock.slot.as_ref().and_then(slot_json) {
        json["slot"] = slot;
    }
    json["paths"] = paths_json(&lock.nodes);
    if let Some(relation) = filter.and_then(|filter| filter.relation(lock)) {
        json["relation"] = match relation {
            PathRelation::OtherPathInBucket => "other-path-in-bucket",
            PathRelation::SameSlot => "same-slot",
            _ => "node",
        }
        .into();
    }
    json
}

pub(crate) fn slot_json(slot: &LockSlot) -> Option<Value> {
    Some(match slot {
        LockSlot::Bucket { level, bucket, .. } => {
            json!({ "bucket": { "level": level, "number": bucket } })
        }
        LockSlot::Row { node, .. } => json!({ "row": node.to_string() }),
        LockSlot::AdvisoryKey(key) => json!({ "advisory_key": key }),
        LockSlot::UpdateKey { table, key } => {
            json!({ "update_key": { "table": table, "key": key } })
        }
        LockSlot::Byte(byte) => json!({ "byte": byte }),
        _ => return None,
    })
}

pub(crate) fn paths_json<'a>(paths: impl IntoIterator<Item = &'a Target>) -> Value {
    paths.into_iter().map(Target::to_string).collect()
}
