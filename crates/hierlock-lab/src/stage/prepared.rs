//! Prepared transactions: `XA PREPARE` and `PREPARE TRANSACTION`. They outlive the session that prepared
//! them and keep its locks, so what a case has prepared and not ended is rolled back when it is over.
//! Otherwise its tables could not be removed, and the server could not be used for the next run.
//!
//! The servers do not tell whose they are. So the statements of the case are listened to: only what one of
//! them has prepared, and none has ended, is rolled back.

use super::StageError;
use super::connection::{ANSWER_LIMIT, StageConnection};
use crate::scenario::Statement;
use hierlock_engine::lexer::{TokenKind, tokens};
use hierlock_engine::{Dialect, Driver, ErrorClass, cell, error_message};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// MariaDB ends a prepared transaction from elsewhere only when it has seen its session leave.
const RETRY_AFTER: Duration = Duration::from_millis(5);

/// What a case has prepared and not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct PreparedTransactions(Arc<Mutex<Vec<PreparedTransaction>>>);

#[derive(Clone, Debug)]
struct PreparedTransaction {
    /// As it was written, without blanks between its parts.
    name: String,
    /// The connection of the session that prepared it; none for the setup.
    by: Option<i64>,
}

/// What a statement does to a prepared transaction.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Prepares(String),
    Ends(String),
}

impl PreparedTransactions {
    /// A statement of the case has succeeded, on this connection.
    pub(super) fn note(&self, driver: Driver, sql: &str, by: Option<i64>) {
        match change(driver, sql) {
            Some(Change::Prepares(name)) => self.all().push(PreparedTransaction { name, by }),
            Some(Change::Ends(name)) => self.all().retain(|known| known.name != name),
            None => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Those of sessions: their names, and the connections that have prepared them.
    pub(super) fn of_sessions(&self) -> Vec<(String, i64)> {
        self.all().iter().filter_map(|known| Some((known.name.clone(), known.by?))).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<PreparedTransaction>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rolls back what is left, except what these statements are going to end. A sentence for each; what
    /// cannot be rolled back is told with how to do it.
    ///
    /// # Errors
    /// The server is gone.
    pub(super) async fn roll_back(
        &self,
        dialect: Dialect,
        connection: &mut StageConnection,
        except: &[Statement],
    ) -> Result<Vec<String>, StageError> {
        let later: Vec<Change> = except
            .iter()
            .filter_map(|statement| change(dialect.driver(), &statement.sql))
            .collect();
        let is_now = |name: &String| !later.contains(&Change::Ends(name.clone()));
        let names = self.all().iter().map(|known| known.name.clone()).collect::<Vec<_>>();
        let mut notes = Vec::new();
        for name in names.into_iter().filter(is_now) {
            let sql = match dialect {
                Dialect::Postgres => format!("ROLLBACK PREPARED {name}"),
                _ => format!("XA ROLLBACK {name}"),
            };
            match roll_back(dialect, connection, &name, &sql).await? {
                RollBack::Done => {
                    notes.push(format!("it left transaction {name} prepared: rolled back"));
                }
                RollBack::Gone => {}
                RollBack::Refused(why) => notes.push(format!(
                    "it left transaction {name} prepared, and that cannot be rolled back: {why}; \
                     its locks stay until somebody runs `{sql}`"
                )),
            }
            self.all().retain(|known| known.name != name);
        }
        Ok(notes)
    }
}

enum RollBack {
    Done,
    /// It is not there any more.
    Gone,
    Refused(String),
}

async fn roll_back(
    dialect: Dialect,
    connection: &mut StageConnection,
    name: &str,
    sql: &str,
) -> Result<RollBack, StageError> {
    let begun = Instant::now();
    loop {
        let Err(refusal) = connection.try_ask(sql).await? else { return Ok(RollBack::Done) };
        match ErrorClass::of(&refusal) {
            ErrorClass::PreparedTransactionRolledBack => return Ok(RollBack::Done),
            ErrorClass::UndefinedObject if dialect == Dialect::Postgres => {
                return Ok(RollBack::Gone);
            }
            // Unknown, or its session has not left yet.
            ErrorClass::UndefinedObject if !is_listed(connection, name).await? => {
                return Ok(RollBack::Gone);
            }
            ErrorClass::UndefinedObject if begun.elapsed() < ANSWER_LIMIT => {
                sleep(RETRY_AFTER).await
            }
            _ => return Ok(RollBack::Refused(error_message(&refusal))),
        }
    }
}

/// Is there one of such a name? Who may not know must suppose so.
async fn is_listed(connection: &mut StageConnection, name: &str) -> Result<bool, StageError> {
    let Ok(rows) = connection.try_ask("XA RECOVER").await? else { return Ok(true) };
    let written = name.to_lowercase();
    let is_it = |row: &Vec<Option<String>>| {
        // The format, the lengths of both parts, and both parts together.
        let (length, data) = (cell(row, 1).parse().unwrap_or(0), cell(row, 3));
        let first = data.get(..length).unwrap_or(data).to_lowercase();
        let hex: String = first.bytes().map(|byte| format!("{byte:02x}")).collect();
        written.contains(&first) || written.contains(&hex)
    };
    Ok(rows.iter().any(is_it))
}

fn change(driver: Driver, sql: &str) -> Option<Change> {
    let characters = without_comments(driver, sql);
    let (first, rest) = next_word(&characters)?;
    let (second, rest) = next_word(rest)?;
    let is = |a: &str, b: &str| first.eq_ignore_ascii_case(a) && second.eq_ignore_ascii_case(b);
    let name = || {
        let is_of_name = |(c, is_quoted): &&(char, bool)| *is_quoted || !c.is_whitespace();
        let name: String = rest.iter().filter(is_of_name).map(|(c, _)| c).collect();
        name.trim_end_matches(';').to_owned()
    };
    let ends =
        [("xa", "commit"), ("xa", "rollback"), ("commit", "prepared"), ("rollback", "prepared")];
    if is("xa", "prepare") || is("prepare", "transaction") {
        Some(Change::Prepares(name()))
    } else if ends.iter().any(|(a, b)| is(a, b)) {
        Some(Change::Ends(name()))
    } else {
        None
    }
}

/// The characters of a statement, each with whether it is quoted; a comment is a blank.
fn without_comments(driver: Driver, sql: &str) -> Vec<(char, bool)> {
    let characters = tokens(driver, sql).flat_map(|token| {
        let (text, is_quoted) = match token.kind {
            TokenKind::Comment => (" ", false),
            kind => (token.text, kind == TokenKind::Quoted),
        };
        text.chars().map(move |c| (c, is_quoted))
    });
    characters.collect()
}

/// Will a statement prepare a transaction? Their names belong to the whole server.
pub(super) fn is_preparing(driver: Driver, sql: &str) -> bool {
    matches!(change(driver, sql), Some(Change::Prepares(_)))
}

/// The first word, and what follows it.
fn next_word(text: &[(char, bool)]) -> Option<(String, &[(char, bool)])> {
    let begin = text.iter().position(|(c, _)| !c.is_whitespace())?;
    let text = &text[begin..];
    let is_letter = |(c, is_quoted): &&(char, bool)| c.is_ascii_alphabetic() && !is_quoted;
    let length = text.iter().take_while(is_letter).count();
    let word = text[..length].iter().map(|(c, _)| c).collect();
    (length > 0).then(|| (word, &text[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_prepared_and_not_ended_is_known() {
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
            prepared.note(mysql, sql, Some(7));
        }
        prepared.note(postgres, "prepare transaction 'c  d'", Some(7));
        let names = |known: &PreparedTransactions| {
            known.of_sessions().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&prepared), ["'a','b',2", "X'61'", "'c  d'"]);
        for (driver, sql) in [
            (mysql, "xa commit 'a','b',2"),
            (postgres, "Commit Prepared  'c  d'"),
            (mysql, "xa rollback 'a'"),
        ] {
            prepared.note(driver, sql, None);
        }
        assert_eq!(names(&prepared), ["X'61'"]);
        assert!(is_preparing(mysql, "xa prepare 'a'") && !is_preparing(mysql, "xa start 'a'"));
    }
}
