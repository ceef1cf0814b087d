//! A snapshot as JSON. It is flat, because a chain of waits may be deeper than JSON parsers can nest.

use super::snapshot_view::SnapshotView;
use crate::time::timestamp;
use hierlock::Target;
use hierlock::sql::lock_report::{
    LockSlot, LockSnapshot, PathFilter, PathRelation, ReportedLock, SessionLocks,
};
use hierlock_engine::introspection::MissingPrivilege;
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
pub(crate) struct SnapshotJson<'a> {
    server: &'a str,
    engine: &'static str,
    taken: String,
    waits_visible: bool,
    trees: Vec<TreeJson>,
    sessions: Vec<SessionJson<'a>>,
    prepared_transactions: Vec<PreparedJson<'a>>,
    missing_privileges: Vec<MissingJson>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct TreeJson {
    root: &'static str,
    sessions: Vec<RowJson>,
}

#[derive(Serialize)]
struct RowJson {
    id: i64,
    depth: usize,
    behind: Option<i64>,
}

#[derive(Serialize)]
struct PreparedJson<'a> {
    name: &'a str,
    owner: &'a str,
    database: &'a str,
    since: &'a str,
}

#[derive(Serialize)]
pub(crate) struct MissingJson {
    hidden: &'static str,
    grant: String,
}

#[derive(Serialize)]
pub(crate) struct SessionJson<'a> {
    id: i64,
    user: Option<&'a str>,
    client: Option<&'a str>,
    database: Option<&'a str>,
    application: Option<&'a str>,
    program: Option<&'a str>,
    host: Option<&'a str>,
    client_pid: Option<i64>,
    state: Option<&'a str>,
    statement: Option<&'a str>,
    state_ms: Option<u128>,
    transaction_ms: Option<u128>,
    waiting_ms: Option<u128>,
    holds: Vec<LockJson<'a>>,
    has_unlisted_locks: bool,
    waits_for: Option<LockJson<'a>>,
    blocked_by: &'a [i64],
    unconfirmed_paths: Vec<String>,
}

#[derive(Serialize)]
struct LockJson<'a> {
    kind: &'static str,
    schema: Option<&'a str>,
    object: &'a str,
    index: Option<&'a str>,
    record: Option<&'a str>,
    mode: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<SlotJson>,
    paths: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    relation: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SlotJson {
    Bucket { level: usize, number: u32 },
    Row(String),
    AdvisoryKey(i64),
    UpdateKey { table: String, key: u32 },
    Byte(u64),
}

impl MissingJson {
    pub(crate) fn list(snapshot: &LockSnapshot) -> Vec<Self> {
        let json = |it: &MissingPrivilege| Self {
            hidden: it.hidden(),
            grant: it.grant(&snapshot.account),
        };
        snapshot.missing.iter().map(json).collect()
    }
}

impl SlotJson {
    pub(crate) fn new(slot: &LockSlot) -> Option<Self> {
        Some(match slot.clone() {
            LockSlot::Bucket { level, bucket, .. } => Self::Bucket { level, number: bucket },
            LockSlot::Row { node, .. } => Self::Row(node.to_string()),
            LockSlot::AdvisoryKey(key) => Self::AdvisoryKey(key),
            LockSlot::UpdateKey { table, key } => Self::UpdateKey { table, key },
            LockSlot::Byte(byte) => Self::Byte(byte),
            _ => return None,
        })
    }
}

impl<'a> SnapshotJson<'a> {
    pub(crate) fn new(view: &SnapshotView<'a>) -> Self {
        let snapshot = view.snapshot;
        let trees = view.trees.iter().map(|(tree, rows)| TreeJson {
            root: tree.root.name(),
            sessions: rows
                .iter()
                .map(|row| RowJson { id: row.session, depth: row.depth, behind: row.parent })
                .collect(),
        });
        let sessions = view.sessions().filter_map(|pid| snapshot.session(pid));
        let prepared = snapshot.prepared.iter().map(|it| PreparedJson {
            name: &it.name,
            owner: &it.owner,
            database: &it.database,
            since: &it.since,
        });
        Self {
            server: &snapshot.server,
            engine: snapshot.dialect.map_or("file", |dialect| dialect.name()),
            taken: timestamp(snapshot.taken),
            waits_visible: snapshot.are_waits_visible,
            trees: trees.collect(),
            sessions: sessions.map(|session| SessionJson::new(session, view.filter)).collect(),
            prepared_transactions: prepared.collect(),
            missing_privileges: MissingJson::list(snapshot),
            notes: &snapshot.notes,
        }
    }
}

impl<'a> SessionJson<'a> {
    pub(crate) fn new(session: &'a SessionLocks, filter: Option<&PathFilter>) -> Self {
        let (info, label) = (&session.info, session.label.as_ref());
        let lock = |lock: &'a ReportedLock| LockJson::new(lock, filter);
        let wanted = session.wait.as_ref().and_then(|wait| wait.wanted.as_ref());
        let millis = |duration: Option<Duration>| duration.map(|duration| duration.as_millis());
        Self {
            id: info.pid,
            user: info.user.as_deref(),
            client: info.client.as_deref(),
            database: info.database.as_deref(),
            application: label.and_then(|label| label.client.application.as_deref()),
            program: label.map(|label| &*label.client.program).or(info.program.as_deref()),
            host: label.map(|label| &*label.client.host),
            client_pid: label.map(|label| label.client.pid.into()).or(info.client_pid),
            state: info.state.as_deref(),
            statement: info.statement.as_deref(),
            state_ms: millis(info.in_state_for),
            transaction_ms: millis(info.in_transaction_for),
            waiting_ms: millis(info.waiting_for),
            holds: session.held.iter().map(lock).collect(),
            has_unlisted_locks: session.has_unlisted_locks,
            waits_for: wanted.map(lock),
            blocked_by: session.wait.as_ref().map_or(&[], |wait| &wait.blockers),
            unconfirmed_paths: session.unconfirmed_paths().map(Target::to_string).collect(),
        }
    }
}

impl<'a> LockJson<'a> {
    fn new(lock: &'a ReportedLock, filter: Option<&PathFilter>) -> Self {
        let target = &lock.target;
        let slot = lock.slot.as_ref().and_then(SlotJson::new);
        let relation = filter.and_then(|filter| filter.relation(lock));
        Self {
            kind: target.kind.name(),
            schema: target.schema.as_deref(),
            object: &target.object,
            index: target.index.as_deref(),
            record: target.record.as_deref(),
            mode: &target.mode,
            slot,
            paths: lock.nodes.iter().map(Target::to_string).collect(),
            relation: relation.map(|relation| match relation {
                PathRelation::OtherPathInBucket => "other-path-in-bucket",
                PathRelation::SameSlot => "same-slot",
                _ => "node",
            }),
        }
    }
}
