//! Deadlocks as JSON. The schema is in docs/command.md.

use super::advice::advice;
use hierlock_engine::Dialect;
use hierlock_engine::introspection::{DeadlockDump, DeadlockLock, DeadlockMember, lock_words};
use hierlock_lab::member_name;
use serde_json::{Value, json};

pub(super) fn deadlock_json(deadlock: &DeadlockDump) -> Value {
    let members = deadlock.members.iter().enumerate();
    json!({
        "server": deadlock.dialect.map(Dialect::name),
        "time": deadlock.time,
        "victim": deadlock.victim.map(|victim| member_name(victim).to_string()),
        "cut": deadlock.is_cut,
        "guessed_keys": deadlock.has_guessed_keys,
        "sessions": members.map(|(index, member)| member_json(index, member)).collect::<Value>(),
        "advice": advice(deadlock),
    })
}

fn member_json(index: usize, member: &DeadlockMember) -> Value {
    json!({
        "name": member_name(index).to_string(),
        "session": member.session,
        "transaction": member.transaction,
        "user": member.user,
        "host": member.host,
        "database": member.database,
        "program": member.program,
        "active_seconds": member.active_seconds,
        "row_locks": member.row_locks,
        "changed_rows": member.changed_rows,
        "statement": member.statement,
        "waits_for": member.waits_for.map(|index| member_name(index).to_string()),
        "wants": member.wanted.as_ref().map(lock_json),
        "holds": member.held.iter().map(lock_json).collect::<Value>(),
        "row": member.row,
    })
}

fn lock_json(DeadlockLock { target, columns, granted }: &DeadlockLock) -> Value {
    json!({
        "kind": target.kind,
        "schema": target.schema,
        "object": target.object,
        "index": target.index,
        "columns": columns,
        "record": target.record,
        "mode": target.mode,
        "granted": granted,
        "words": lock_words(target, columns, *granted),
    })
}
