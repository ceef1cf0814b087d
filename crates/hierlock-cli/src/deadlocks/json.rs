//! Deadlocks as JSON. The schema is in docs/command.md.

use super::advice::advice;
use hierlock_engine::Dialect;
use hierlock_engine::introspection::{
    DeadlockDump, DeadlockLock, DeadlockMember, RowContext, lock_words,
};
use hierlock_lab::member_name;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct DeadlockJson {
    server: Option<&'static str>,
    time: Option<String>,
    victim: Option<String>,
    cut: bool,
    guessed_keys: bool,
    sessions: Vec<MemberJson>,
    advice: Vec<String>,
}

#[derive(Serialize)]
struct MemberJson {
    name: String,
    session: Option<i64>,
    transaction: Option<u64>,
    user: Option<String>,
    host: Option<String>,
    database: Option<String>,
    program: Option<String>,
    active_seconds: Option<u64>,
    row_locks: Option<u64>,
    changed_rows: Option<u64>,
    statement: Option<String>,
    waits_for: Option<String>,
    wants: Option<DeadlockLockJson>,
    holds: Vec<DeadlockLockJson>,
    row: Option<RowContext>,
}

#[derive(Serialize)]
struct DeadlockLockJson {
    kind: &'static str,
    schema: Option<String>,
    object: String,
    index: Option<String>,
    columns: Vec<String>,
    record: Option<String>,
    mode: String,
    granted: bool,
    words: String,
}

impl DeadlockJson {
    pub(super) fn new(deadlock: &DeadlockDump) -> Self {
        let sessions = deadlock.members.iter().enumerate();
        Self {
            server: deadlock.dialect.map(Dialect::name),
            time: deadlock.time.clone(),
            victim: deadlock.victim.map(|victim| member_name(victim).to_string()),
            cut: deadlock.is_cut,
            guessed_keys: deadlock.has_guessed_keys,
            sessions: sessions.map(|(index, member)| MemberJson::new(index, member)).collect(),
            advice: advice(deadlock),
        }
    }
}

impl MemberJson {
    fn new(index: usize, member: &DeadlockMember) -> Self {
        let member = member.clone();
        Self {
            name: member_name(index).to_string(),
            session: member.session,
            transaction: member.transaction,
            user: member.user,
            host: member.host,
            database: member.database,
            program: member.program,
            active_seconds: member.active_seconds,
            row_locks: member.row_locks,
            changed_rows: member.changed_rows,
            statement: member.statement,
            waits_for: member.waits_for.map(|index| member_name(index).to_string()),
            wants: member.wanted.as_ref().map(DeadlockLockJson::new),
            holds: member.held.iter().map(DeadlockLockJson::new).collect(),
            row: member.row,
        }
    }
}

impl DeadlockLockJson {
    fn new(lock: &DeadlockLock) -> Self {
        let DeadlockLock { target, columns, granted } = lock.clone();
        Self {
            kind: target.kind.name(),
            words: lock_words(&target, &columns, granted),
            schema: target.schema,
            object: target.object,
            index: target.index,
            columns,
            record: target.record,
            mode: target.mode,
            granted,
        }
    }
}
