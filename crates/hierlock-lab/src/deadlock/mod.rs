//! Turns a deadlock that a server has reported into a draft of a scenario, and into a record for the diagrams.
//!
//! ```text
//!   DeadlockDump ──statement──► tables, columns, values ──tables──► setup   (guesses)
//!        └──────── skeleton: begin, held locks, wanted locks ─────────────────────► steps ──► text, Record
//! ```

mod skeleton;
mod statement;
mod tables;
#[cfg(test)]
mod tests;

pub use skeleton::{DeadlockSkeleton, member_name};

use hierlock_engine::Driver;
use hierlock_engine::introspection::{DeadlockDump, DeadlockLock};
use statement::StatementParts;

/// Names the columns of keys that the report does not name: the key 10 is of `id` if a statement has `id = 10`.
pub fn guess_columns(dump: &mut DeadlockDump) {
    let driver = driver(dump);
    let statements = dump.members.iter().filter_map(|member| member.statement.as_deref());
    let parts: Vec<StatementParts> =
        statements.map(|sql| StatementParts::of(driver, sql)).collect();
    for member in &mut dump.members {
        for lock in member.held.iter_mut().chain(&mut member.wanted) {
            let DeadlockLock { target, columns, .. } = lock;
            let (Some(record), true) = (&target.record, columns.is_empty()) else { continue };
            let of_table = |parts: &&StatementParts| parts.table.as_ref() == Some(&target.object);
            let conditions = || parts.iter().filter(of_table).flat_map(|parts| &parts.conditions);
            let values = tables::key_values(record);
            let condition_of = |value: &&String| {
                conditions().find(|(_, known)| tables::is_same_value(known, value))
            };
            let names: Option<Vec<String>> =
                values.iter().map(|value| Some(condition_of(&value)?.0.clone())).collect();
            // A table has one primary key: a column that all conditions name is the key of the other rows too.
            let only_column = || {
                let (first, known) = conditions().next()?;
                let is_only = conditions().all(|(name, _)| name == first);
                let fits = tables::is_same_type(known, values.first()?);
                (is_only && fits).then(|| vec![first.clone()])
            };
            let is_primary = target.index.as_deref() == Some("PRIMARY");
            if let Some(names) =
                names.or_else(|| only_column().filter(|_| is_primary && values.len() == 1))
            {
                *columns = names;
            }
        }
    }
}

/// Returns the table that a member of a deadlock scans as a whole, if its wait shows that: it locks rows by the primary
/// key with the gaps before them, and its WHERE does not name that key.
pub fn scanned_table(dump: &DeadlockDump, member: usize) -> Option<&str> {
    let member = dump.members.get(member)?;
    let lock = member.wanted.as_ref()?;
    let parts = StatementParts::of(driver(dump), member.statement.as_deref()?);
    let is_primary = lock.target.index.as_deref() == Some("PRIMARY");
    let has_gap = ["X", "S"].contains(&lock.target.mode.as_str());
    let key = lock.columns.first()?;
    let names_key = parts.where_text.as_ref()?.to_lowercase().contains(&key.to_lowercase());
    let is_same_table = parts.table.as_ref() == Some(&lock.target.object);
    (is_primary && has_gap && is_same_table && !names_key).then_some(&lock.target.object)
}

/// Returns all locks that the report lists, held and wanted.
fn locks(dump: &DeadlockDump) -> impl Iterator<Item = &DeadlockLock> {
    dump.members.iter().flat_map(|member| member.held.iter().chain(&member.wanted))
}

fn driver(dump: &DeadlockDump) -> Driver {
    match dump.dialect {
        Some(dialect) if !dialect.is_innodb() => Driver::Postgres,
        _ => Driver::Mysql,
    }
}
