//! The classification of failed statements.

use crate::observation::{Failure, FailureKind};
use hierlock_engine::{CopyDirection, Dialect, ErrorClass, StatementWords, error_message};
use sqlx::postgres::PgDatabaseError;

/// Returns the failure of a statement. `sql` is the text that was executed.
pub(super) fn failure(dialect: Dialect, sql: &str, error: &sqlx::Error) -> Failure {
    let sqlx::Error::Database(refusal) = error else {
        let message = format!("the connection is lost: {}", error_message(error));
        return Failure::new(FailureKind::Other, message);
    };
    let message = refusal.message().to_owned();
    let kind = kind(dialect, sql, ErrorClass::of(error), &message);
    let number = refusal.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
    let code = match number {
        Some(error) => error.number().to_string(),
        None => refusal.code().unwrap_or_default().into_owned(),
    };
    // Which process waits for which, then the context of the statement.
    let detail = refusal.try_downcast_ref::<PgDatabaseError>().map(|error| {
        let context = error.r#where().filter(|_| kind == FailureKind::Deadlock);
        error.detail().into_iter().chain(context).collect::<Vec<_>>().join("\n")
    });
    Failure { kind, code, message, detail: detail.filter(|detail| !detail.is_empty()) }
}

/// Returns why the lab does not run a statement, if it copies rows from or to the client.
pub(super) fn copy_refusal(dialect: Dialect, sql: &str) -> Option<&'static str> {
    let direction = StatementWords::of(dialect.driver(), sql).copy_direction();
    Some(match direction.filter(|_| dialect == Dialect::Postgres)? {
        CopyDirection::FromClient => {
            "the lab does not run COPY … FROM STDIN, because a scenario has no rows to send; \
             write INSERT, or COPY … FROM a file of the server"
        }
        CopyDirection::ToClient => {
            "the lab does not run COPY … TO STDOUT, which does not answer with rows; \
             write SELECT, or COPY … TO a file of the server"
        }
    })
}

/// Returns the kind of a failure. MariaDB and PostgreSQL have one code for NOWAIT and for a timeout. Where the message
/// does not distinguish them, because it is in another language, the statement does: one without NOWAIT has waited.
fn kind(dialect: Dialect, sql: &str, class: ErrorClass, message: &str) -> FailureKind {
    let by_statement = || {
        let does_not_wait = StatementWords::of(dialect.driver(), sql).does_not_wait();
        if does_not_wait { FailureKind::Refused } else { FailureKind::TimedOut }
    };
    match class {
        ErrorClass::Deadlock => FailureKind::Deadlock,
        ErrorClass::SerializationFailure => FailureKind::Conflict,
        ErrorClass::LockNotAvailable
            if dialect == Dialect::Postgres && !message.contains("could not obtain lock") =>
        {
            by_statement()
        }
        ErrorClass::LockNotAvailable => FailureKind::Refused,
        ErrorClass::LockWaitTimeout if dialect == Dialect::Mariadb => by_statement(),
        ErrorClass::LockWaitTimeout | ErrorClass::StatementTimeout => FailureKind::TimedOut,
        _ => FailureKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statement_distinguishes_nowait_from_a_timeout() {
        use Dialect::{Mariadb, Mysql, Postgres};
        use ErrorClass::{LockNotAvailable, LockWaitTimeout};
        let (waits, does_not_wait) = ("select 1 for update", "select 1 for update nowait");
        for (dialect, sql, class, message, meaning) in [
            (Mysql, does_not_wait, LockNotAvailable, "", FailureKind::Refused),
            (Mysql, does_not_wait, LockWaitTimeout, "", FailureKind::TimedOut),
            (Mariadb, does_not_wait, LockWaitTimeout, "", FailureKind::Refused),
            (Mariadb, waits, LockWaitTimeout, "", FailureKind::TimedOut),
            (Postgres, waits, LockWaitTimeout, "lock timeout", FailureKind::TimedOut),
            // For example LOCK TABLE … NOWAIT in a function.
            (Postgres, waits, LockNotAvailable, "could not obtain lock on", FailureKind::Refused),
            (Postgres, waits, LockNotAvailable, "ロック", FailureKind::TimedOut),
            (Postgres, does_not_wait, LockNotAvailable, "ロック", FailureKind::Refused),
        ] {
            assert_eq!(kind(dialect, sql, class, message), meaning, "{dialect}: {sql}, {class:?}");
        }
    }
}
