//! Advice for a deadlock, based only on what the server reports.

use hierlock_engine::Dialect;
use hierlock_engine::introspection::{DeadlockDump, DeadlockLock, DeadlockMember, LockKind};
use hierlock_lab::{member_name, scanned_table};

/// A transaction that is open for this long gets advice.
const LONG_SECONDS: u64 = 5;

/// A transaction with more row locks than this gets advice.
const MANY_ROW_LOCKS: u64 = 100;

pub(super) fn advice(deadlock: &DeadlockDump) -> Vec<String> {
    let mut advice: Vec<String> = Vec::new();
    let members = &deadlock.members;
    let any = |is: &dyn Fn(&DeadlockMember) -> bool| members.iter().any(is);
    if any(&inserts_into_locked_gap) {
        advice.push(
            "They lock a gap and then insert into it. Run these transactions at READ COMMITTED, where gaps are not \
             locked, or insert first (INSERT … ON DUPLICATE KEY UPDATE) instead of looking for a row that is not there."
                .to_owned(),
        );
    } else if any(&strengthens_a_shared_lock) {
        advice.push(
            "They hold a row shared and then want to change it. Read with FOR UPDATE what will be changed; a row that a \
             foreign key refers to is locked shared by the INSERT of its child."
                .to_owned(),
        );
    } else if let Some(order) = order_advice(members) {
        advice.push(order);
    }
    if any(&|member| member.wanted.iter().any(|lock| lock.target.mode == "AUTO_INC")) {
        advice.push(
            "They wait for the AUTO_INCREMENT counter: set innodb_autoinc_lock_mode = 2, with row-based replication."
                .to_owned(),
        );
    }
    for (index, member) in members.iter().enumerate() {
        let name = member_name(index);
        if let Some(table) = scanned_table(deadlock, index) {
            advice.push(format!(
                "{name} reads all rows of {table}, and locks each of them: make an index for its WHERE."
            ));
        }
        let changed = member.changed_rows.unwrap_or(0);
        if let Some(locks) =
            member.row_locks.filter(|locks| *locks > MANY_ROW_LOCKS.max(10 * changed))
        {
            advice.push(format!(
                "{name} had {locks} row locks and had changed {changed} rows: see with EXPLAIN whether an index for its \
                 WHERE is missing, or split it into smaller transactions."
            ));
        }
        if let Some(seconds) = member.active_seconds.filter(|seconds| *seconds >= LONG_SECONDS) {
            advice.push(format!(
                "{name} was open for {seconds} s: take locks late, commit soon, and wait for nothing else in between."
            ));
        }
    }
    let code = match deadlock.dialect {
        Some(Dialect::Postgres) => "40P01",
        _ => "1213",
    };
    advice.push(format!("Retry the whole transaction of the victim (error {code})."));
    advice
}

fn has_mode(lock: &DeadlockLock, word: &str) -> bool {
    lock.target.mode.split(',').any(|one| one == word)
}

fn is_gap(lock: &DeadlockLock) -> bool {
    lock.target.kind == LockKind::Gap && !has_mode(lock, "INSERT_INTENTION")
}

fn inserts_into_locked_gap(member: &DeadlockMember) -> bool {
    let inserts = member.wanted.as_ref().is_some_and(|lock| has_mode(lock, "INSERT_INTENTION"));
    inserts && member.held.iter().any(is_gap)
}

fn strengthens_a_shared_lock(member: &DeadlockMember) -> bool {
    let Some(wanted) = member.wanted.as_ref().filter(|lock| has_mode(lock, "X")) else {
        return false;
    };
    let place = |lock: &DeadlockLock| {
        let target = &lock.target;
        (target.object.clone(), target.index.clone(), target.record.clone())
    };
    member
        .held
        .iter()
        .any(|lock| lock.granted && has_mode(lock, "S") && place(lock) == place(wanted))
}

/// Returns advice to lock in one order: then the transactions would only wait for each other.
fn order_advice(members: &[DeadlockMember]) -> Option<String> {
    let wanted: Vec<&DeadlockLock> =
        members.iter().filter_map(|member| member.wanted.as_ref()).collect();
    let first = wanted.first()?;
    let is_all = |kinds: &[LockKind]| wanted.iter().all(|lock| kinds.contains(&lock.target.kind));
    let mut tables: Vec<&str> = Vec::new();
    for lock in &wanted {
        if !tables.contains(&lock.target.object.as_str()) {
            tables.push(&lock.target.object);
        }
    }
    Some(if is_all(&[LockKind::Advisory]) {
        "Take advisory locks in one order everywhere, for example by key.".to_owned()
    } else if is_all(&[LockKind::Transaction, LockKind::Row]) && first.target.index.is_none() {
        "Lock rows in the same order everywhere, for example by primary key, and tables in one order.".to_owned()
    } else if tables.len() > 1 {
        format!("Use the tables {} in the same order in every transaction.", tables.join(", "))
    } else if is_all(&[LockKind::Table]) {
        "Take the strongest table lock first, in every transaction.".to_owned()
    } else {
        let table = first.target.object.as_str();
        format!(
            "Lock the rows of {table} in the same order everywhere, for example by primary key (ORDER BY … FOR UPDATE)."
        )
    })
}
