//! What MySQL and MariaDB have in common: settings, and the words for row locks.

use super::StageError;
use super::connection::StageConnection;
use super::deadlock::Story;
use super::dictionary::Dictionary;
use super::who::Who;
use crate::observation::{LockKind, Thing};
use crate::record::Link;
use crate::scenario::SettingValue;
use hierlock_engine::{CellRow, Dialect, cell};

/// What sets a session up.
pub(super) fn setting(setting: &SettingValue) -> String {
    match setting {
        SettingValue::Isolation(level) => {
            format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        }
        SettingValue::Autocommit(on) => format!("SET SESSION autocommit = {}", u8::from(*on)),
        SettingValue::LockWaitTimeout(limit) => {
            // Whole seconds; none at all would be NOWAIT on MariaDB, and a second on MySQL.
            let seconds = limit.as_millis().div_ceil(1000).max(1);
            format!(
                "SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
            )
        }
        SettingValue::Sql(sql) => super::as_set(sql),
    }
}

/// A row or a gap, from the words of MySQL's tables of locks: `X,REC_NOT_GAP`, `X,GAP,INSERT_INTENTION`.
pub(super) fn record(who: &Who, place: [&str; 3], record: Option<&str>, mode: &str) -> Thing {
    let [home, table, index] = place;
    let is_supremum = record.is_some_and(|record| record.starts_with("supremum"));
    let is_gap =
        is_supremum || mode.split(',').any(|word| word == "GAP" || word == "INSERT_INTENTION");
    Thing {
        kind: if is_gap { LockKind::Gap } else { LockKind::Row },
        object: who.table(home, table),
        index: Some(index.to_owned()),
        record: if is_supremum { Some("supremum".to_owned()) } else { record.map(str::to_owned) },
        mode: mode.to_owned(),
    }
}

/// A whole table, locked by InnoDB: `IX`, `AUTO_INC`.
pub(super) fn table(who: &Who, home: &str, table: &str, mode: &str) -> Thing {
    Thing {
        kind: LockKind::Table,
        object: who.table(home, table),
        index: None,
        record: None,
        mode: mode.to_owned(),
    }
}

/// Asks what InnoDB says of itself.
pub(super) const STATUS: &str = "SHOW ENGINE INNODB STATUS";

/// What it says.
pub(super) async fn status(connection: &mut StageConnection) -> Result<String, StageError> {
    Ok(status_text(&connection.ask(STATUS).await?).to_owned())
}

/// The same, from the rows of the answer.
pub(super) fn status_text(rows: &[CellRow]) -> &str {
    rows.first().map_or("", |row| cell(row, 2))
}

/// Learns the columns of an index, unless they are known.
pub(super) async fn learn(
    dictionary: &mut Dictionary,
    connection: &mut StageConnection,
    dialect: Dialect,
    place: [&str; 3],
) -> Result<(), StageError> {
    match dictionary.has(place) {
        true => Ok(()),
        false => dictionary.learn(connection, dialect, place[0], place[1]).await,
    }
}

/// The circle of the last deadlock, unless it is one that was told before, or not of this case.
pub(super) async fn circle(
    connection: &mut StageConnection,
    dialect: Dialect,
    who: &Who,
    dictionary: &mut Dictionary,
    last: &mut String,
) -> Option<Vec<Link>> {
    let story = Story::read(&status(connection).await.ok()?).filter(|story| story.mark != *last)?;
    for place in story.places() {
        learn(dictionary, connection, dialect, place).await.ok()?;
    }
    let circle = story.circle(who, dictionary)?;
    *last = story.mark;
    Some(circle)
}
