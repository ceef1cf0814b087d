//! Prepared transactions: `XA PREPARE` and `PREPARE TRANSACTION`. They outlive their session and keep its locks, so the
//! lab rolls back those that a case has left. Servers do not report which session prepared them, so the lab reads the
//! statements of the case.

use super::LabResult;
use super::connection::{ANSWER_LIMIT, LabConnection};
use super::prepared_statements::after_word;
use crate::scenario::Statement;
use hierlock_engine::lexer::{TokenKind, tokens};
use hierlock_engine::{Driver, ErrorClass, StatementWords, cell, error_message};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The delay between attempts: MariaDB ends a prepared transaction of another session only when that session is gone.
const RETRY_AFTER: Duration = Duration::from_millis(5);

#[derive(Clone, Debug, Default)]
pub(super) struct PreparedTransactions(Arc<Mutex<Vec<PreparedTransaction>>>);

#[derive(Clone, Debug)]
struct PreparedTransaction {
    /// The name as the statement writes it, without whitespace between its parts.
    name: String,
    /// The process id of the session that prepared the transaction; none for the setup.
    by: Option<i64>,
}

#[derive(Debug, PartialEq, Eq)]
enum TwoPhaseAction {
    Prepare(String),
    End(String),
}

impl PreparedTransactions {
    /// Records whether a successful statement of the case prepares or ends a transaction.
    pub(super) fn record(&self, driver: Driver, sql: &str, by: Option<i64>) {
        match two_phase_action(driver, sql) {
            Some(TwoPhaseAction::Prepare(name)) => {
                self.0.lock().push(PreparedTransaction { name, by })
            }
            Some(TwoPhaseAction::End(name)) => self.0.lock().retain(|known| known.name != name),
            None => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(super) fn of_sessions(&self) -> Vec<(String, i64)> {
        self.0.lock().iter().filter_map(|known| Some((known.name.clone(), known.by?))).collect()
    }

    /// Rolls back the prepared transactions, except those that the statements `except` end. Returns a note for each.
    pub(super) async fn roll_back(
        &self,
        connection: &mut LabConnection,
        except: &[Statement],
    ) -> LabResult<Vec<String>> {
        let driver = connection.dialect.driver();
        let later = except.iter().filter_map(|statement| two_phase_action(driver, &statement.sql));
        let later: Vec<TwoPhaseAction> = later.collect();
        let mut names: Vec<String> = self.0.lock().iter().map(|known| known.name.clone()).collect();
        names.retain(|name| !later.contains(&TwoPhaseAction::End(name.clone())));
        let mut notes = Vec::new();
        for name in names {
            notes.extend(roll_back(connection, &name).await?);
            self.0.lock().retain(|known| known.name != name);
        }
        Ok(notes)
    }
}

/// Rolls back a transaction. Returns a note, or none if the transaction does not exist any more.
async fn roll_back(connection: &mut LabConnection, name: &str) -> LabResult<Option<String>> {
    let is_innodb = connection.dialect.is_innodb();
    let command = if is_innodb { "XA ROLLBACK" } else { "ROLLBACK PREPARED" };
    let (sql, begun) = (format!("{command} {name}"), Instant::now());
    while let Err(refusal) = connection.try_query(&sql).await? {
        let is_unknown = match ErrorClass::of(&refusal) {
            ErrorClass::PreparedTransactionRolledBack => break,
            class => class == ErrorClass::UndefinedObject,
        };
        // The transaction does not exist, or its session has not left yet.
        if is_unknown && (!is_innodb || !is_listed(connection, name).await?) {
            return Ok(None);
        }
        if !is_unknown || begun.elapsed() >= ANSWER_LIMIT {
            let why = error_message(&refusal);
            return Ok(Some(format!(
                "it left transaction {name} prepared, and that cannot be rolled back: {why}; \
                 its locks stay until somebody runs `{sql}`"
            )));
        }
        sleep(RETRY_AFTER).await;
    }
    Ok(Some(format!("it left transaction {name} prepared: rolled back")))
}

/// Returns whether the server lists a transaction of that name; true if the list cannot be read.
async fn is_listed(connection: &mut LabConnection, name: &str) -> LabResult<bool> {
    let Ok(rows) = connection.try_query("XA RECOVER").await? else { return Ok(true) };
    let written = name.to_lowercase();
    let has_name = |row: &Vec<Option<String>>| {
        // The columns are the format, the lengths of both parts, and both parts together.
        let (length, data) = (cell(row, 1).parse().unwrap_or(0), cell(row, 3));
        let first = data.get(..length).unwrap_or(data).to_lowercase();
        let hex: String = first.bytes().map(|byte| format!("{byte:02x}")).collect();
        written.contains(&first) || written.contains(&hex)
    };
    Ok(rows.iter().any(has_name))
}

fn two_phase_action(driver: Driver, sql: &str) -> Option<TwoPhaseAction> {
    let words = StatementWords::of(driver, sql);
    let action = match (words.first(), words.nth(1)) {
        ("xa", "prepare") | ("prepare", "transaction") => TwoPhaseAction::Prepare,
        ("xa", "commit" | "rollback") | ("commit" | "rollback", "prepared") => TwoPhaseAction::End,
        _ => return None,
    };
    let mut name = String::new();
    for token in tokens(driver, after_word(driver, sql, words.nth(1))?) {
        match token.kind {
            TokenKind::Quoted => name.push_str(token.text),
            TokenKind::Code => name.extend(token.text.chars().filter(|c| !c.is_whitespace())),
            TokenKind::Comment => {}
        }
    }
    Some(action(name.trim_end_matches(';').to_owned()))
}

/// Returns whether a statement prepares a transaction. The names of prepared transactions belong to the whole server.
pub(super) fn is_preparing(driver: Driver, sql: &str) -> bool {
    matches!(two_phase_action(driver, sql), Some(TwoPhaseAction::Prepare(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepared_transactions_are_recorded_until_they_end() {
        let prepared = PreparedTransactions::default();
        let (mysql, postgres) = (Driver::Mysql, Driver::Postgres);
        for sql in [
            "XA START 'a'",
            "-- why\n/* or */ xa prepare 'a', 'b' , 2;",
            "XA PREPARE X'61'",
            "prepare p from 'select 1'",
            "prepare",
            "COMMIT",
            "--",
            "/*",
        ] {
            prepared.record(mysql, sql, Some(7));
        }
        prepared.record(postgres, "prepare transaction 'c  d'", Some(7));
        let names = |known: &PreparedTransactions| {
            known.of_sessions().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&prepared), ["'a','b',2", "X'61'", "'c  d'"]);
        for (driver, sql) in [
            (mysql, "xa commit 'a','b',2"),
            (postgres, "Commit Prepared  'c  d'"),
            (mysql, "xa rollback 'a'"),
        ] {
            prepared.record(driver, sql, None);
        }
        assert_eq!(names(&prepared), ["X'61'"]);
        assert!(is_preparing(mysql, "xa prepare 'a'") && !is_preparing(mysql, "xa start 'a'"));
    }
}
