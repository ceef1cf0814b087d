//! What MySQL and MariaDB have in common: the words for row locks, and the text in which InnoDB tells the last deadlock.

use super::dictionary::Dictionary;
use super::innodb_deadlock::InnodbDeadlock;
use super::{DeadlockReport, LockKind, LockTarget, innodb_status};
use crate::row::{CellRow, cell};
use crate::{Dialect, SessionRef};

/// A row or a gap, from the words of MySQL's tables of locks: `X,REC_NOT_GAP`, `X,GAP,INSERT_INTENTION`.
pub(super) fn record(place: [&str; 3], record: Option<&str>, mode: &str) -> LockTarget {
    let [schema, table, index] = place;
    let is_supremum = record.is_some_and(|record| record.starts_with("supremum"));
    let is_gap =
        is_supremum || mode.split(',').any(|word| word == "GAP" || word == "INSERT_INTENTION");
    let kind = if is_gap { LockKind::Gap } else { LockKind::Row };
    LockTarget {
        index: Some(index.to_owned()),
        record: if is_supremum { Some("supremum".to_owned()) } else { record.map(str::to_owned) },
        ..LockTarget::of_table(kind, schema, table, mode)
    }
}

/// What InnoDB says of itself.
pub(super) async fn status(session: &mut SessionRef<'_>) -> Result<String, sqlx::Error> {
    Ok(status_text(&session.cells(innodb_status::QUERY).await?).to_owned())
}

/// The same, from the rows of the answer.
pub(super) fn status_text(rows: &[CellRow]) -> &str {
    rows.first().map_or("", |row| cell(row, 2))
}

/// Learns the columns of an index, unless they are known.
pub(super) async fn learn(
    dictionary: &mut Dictionary,
    session: &mut SessionRef<'_>,
    dialect: Dialect,
    place: [&str; 3],
) -> Result<(), sqlx::Error> {
    match dictionary.has(place) {
        true => Ok(()),
        false => dictionary.learn(session, dialect, place[0], place[1]).await,
    }
}

/// The last deadlock.
pub(super) async fn last_deadlock(
    session: &mut SessionRef<'_>,
    dialect: Dialect,
    dictionary: &mut Dictionary,
) -> Result<Option<DeadlockReport>, sqlx::Error> {
    let Some(deadlock) = InnodbDeadlock::read(&status(session).await?) else { return Ok(None) };
    for place in deadlock.places() {
        learn(dictionary, session, dialect, place).await?;
    }
    Ok(deadlock.report(dictionary))
}
