//! The doctor's checks of the lock tables. They create and change nothing.

use super::lock_table::{self, LockTableError, Result, RowTable};
use super::{Agreement, META_TABLE, Scheme, Strategy};
use hierlock_engine::checks::{Area, Check, Finding};
use hierlock_engine::{ErrorClass, Session, error_message};
use std::collections::BTreeSet;

/// The number of random rows of each level to check, besides the first and the last.
const SAMPLE_ROWS: usize = 30;

const TABLE: Check = Check {
    name: "lock-table",
    area: Area::Locks,
    why: "the rows that clients lock are in it; only InnoDB and PostgreSQL lock single rows",
};
const AGREEMENT: Check = Check {
    name: "agreement",
    area: Area::Locks,
    why: "a client with another strategy, bucket count or other levels would lock other rows, and exclude no other client; it is \
          refused",
};
const PROVISIONING: Check = Check {
    name: "provisioning",
    area: Area::Locks,
    why: "a row that is missing cannot be locked, so an acquire of its nodes fails",
};

const PROVISION: &str = "run `hierlock provision` with the URL of the clients";

/// The findings about the lock tables, and whether a test can lock slots: there are rows or advisory keys.
type TableFindings = (Vec<Finding>, bool);

/// Checks the tables of a scheme, which adopts the bucket count of the table unless a count was given.
pub(super) async fn check(session: &mut Session, scheme: &mut Scheme) -> Result<TableFindings> {
    let checked = check_allowed(session, scheme).await;
    let left = session.leave_transaction().await;
    let error = match checked.and_then(|checked| Ok(left.map(|()| checked)?)) {
        Err(LockTableError::Statement(error)) => error,
        Err(LockTableError::Unusable(why)) => {
            return Ok((vec![AGREEMENT.problem(why, "update this program")], false));
        }
        checked => return checked,
    };
    let why = error_message(&error);
    let finding = match ErrorClass::of(&error) {
        class if class.is_connection_lost() => return Err(error.into()),
        ErrorClass::AccessDenied => {
            let tables = format!("{META_TABLE} and SELECT, UPDATE ON {}", scheme.quoted_table());
            let fix = format!("GRANT SELECT ON {tables} TO the account of the clients");
            TABLE.problem(format!("the account may not read the lock tables: {why}"), fix)
        }
        _ => {
            let fix = "lock on a server that executes statements";
            TABLE.problem(format!("the server does not read the lock tables: {why}"), fix)
        }
    };
    Ok((vec![finding], false))
}

async fn check_allowed(session: &mut Session, scheme: &mut Scheme) -> Result<TableFindings> {
    let Some(stored) = lock_table::read(session, scheme).await? else {
        let finding = match scheme.strategy {
            Strategy::Advisory => TABLE.ok("advisory keys need no table"),
            Strategy::OnDemand => {
                TABLE.ok("there is none yet; the first client that connects creates it")
            }
            _ => {
                let table = scheme.rows_table();
                let message = format!("there is no lock table `{table}` in this database");
                TABLE.problem(message, PROVISION)
            }
        };
        return Ok((vec![finding], scheme.strategy == Strategy::Advisory));
    };
    scheme.follow(&stored);
    let agreed = Agreement { is_ready: true, ..stored.clone() };
    if let Err(why) = scheme.compare(&agreed) {
        let fix = "give all clients the same URL parameters and --levels";
        return Ok((vec![AGREEMENT.problem(why, fix)], false));
    }
    let Agreement { strategy, levels, is_ready, .. } = stored;
    let agreement = AGREEMENT.ok(match scheme.strategy {
        Strategy::Striped => {
            format!("striped over {} buckets a level, for {levels}", scheme.buckets.count())
        }
        _ => format!("{strategy}, for {levels}"),
    });
    if scheme.strategy == Strategy::Advisory {
        return Ok((vec![agreement], true));
    }
    let (table, is_lockable) = check_table(session, scheme).await?;
    let mut findings = vec![agreement, table];
    if scheme.strategy == Strategy::Striped && is_lockable {
        findings.push(check_rows(session, scheme, is_ready).await?);
    }
    Ok((findings, is_lockable))
}

/// Checks the table of rows. Also returns whether a test can lock its rows.
async fn check_table(session: &mut Session, scheme: &Scheme) -> Result<(Finding, bool)> {
    let name = scheme.rows_table();
    let table = match RowTable::find(session, scheme).await {
        Ok(Some(table)) => table,
        Ok(None) => {
            let message = format!("the clients have agreed on `{name}`, which does not exist");
            return Ok((TABLE.problem(message, PROVISION), false));
        }
        // The table has a storage engine without row locks.
        Err(LockTableError::Unusable(why)) => {
            let (message, fix) = why.split_once("; ").unwrap_or((&why, PROVISION));
            return Ok((TABLE.problem(message, fix), true));
        }
        Err(error) => return Err(error),
    };
    let is_striped = scheme.strategy == Strategy::Striped;
    Ok(match table.buckets {
        Some(actual) if is_striped && actual != scheme.buckets.count() => {
            let buckets = scheme.buckets.count();
            let message = format!(
                "`{name}` is striped over {actual} buckets, and the clients have agreed on {buckets}: a change was cut \
                 short"
            );
            let fix = format!("finish it with `hierlock provision --rebucket {actual}`");
            (TABLE.problem(message, fix), false)
        }
        None if is_striped => {
            let message = format!("`{name}` is not a lock table");
            let fix = "name another with table=NAME, in the URL of all clients";
            (TABLE.problem(message, fix), false)
        }
        _ if !table.has_key => {
            let message =
                format!("`{name}` has no primary key, so more rows are locked than are named");
            (TABLE.problem(message, PROVISION), true)
        }
        _ => (TABLE.ok(format!("`{name}` is there")), true),
    })
}

/// Checks that a sample of the rows of each level exists. `provision --check` counts all rows.
async fn check_rows(session: &mut Session, scheme: &Scheme, is_ready: bool) -> Result<Finding> {
    if !is_ready {
        let message = format!("`{}` is not filled to the end", scheme.rows_table());
        return Ok(PROVISIONING.problem(message, PROVISION));
    }
    let (table, levels, count) =
        (scheme.quoted_table(), scheme.hierarchy.len(), scheme.buckets.count());
    let random = std::iter::repeat_with(|| fastrand::u32(..count)).take(SAMPLE_ROWS);
    let sample: BTreeSet<u32> = [0, count - 1].into_iter().chain(random).collect();
    let list = sample.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let query = |level: usize| {
        format!("SELECT COUNT(*) FROM {table} WHERE level = {level} AND bucket IN ({list})")
    };
    let queries: Vec<String> = (0..levels).map(query).collect();
    let rows = session.rows(&queries.join(" UNION ALL ")).await?;
    let found: usize = rows.iter().filter_map(|row| row[0].parse::<usize>().ok()).sum();
    let checked = sample.len() * levels;
    Ok(if found < checked {
        let message =
            format!("{} of the {checked} rows that were checked are missing", checked - found);
        PROVISIONING.problem(message, "run `hierlock provision --check --repair`")
    } else {
        PROVISIONING.ok(format!(
            "it is filled; {checked} rows were checked, `hierlock provision --check` counts all"
        ))
    })
}
