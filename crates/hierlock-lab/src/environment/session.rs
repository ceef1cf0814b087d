//! A session of a case: a connection that runs one statement at a time, each in a task.

use super::connection::{ANSWER_LIMIT, LabConnection};
use super::failure::{copy_refusal, failure};
use super::prepared_statements::PreparedStatements;
use super::prepared_transactions::PreparedTransactions;
use super::{LabError, LabResult, Reply, settings};
use crate::observation::{Answer, Failure, FailureKind};
use crate::scenario::SettingValue;
use hierlock_engine::{
    Dialect, ServerAddress, StatementWords, TransactionEffect, error_message, number_cell,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};

pub(super) struct LabSession {
    pub(super) pid: i64,
    /// PostgreSQL: the time from the beginning of a wait to its check for a deadlock; else zero.
    pub(super) deadlock_timeout: Duration,
    /// Locked while a statement runs.
    connection: Arc<Mutex<SessionConnection>>,
    /// The lab has cancelled the statement, so a failure counts as cancelled.
    is_cancelled: Arc<AtomicBool>,
}

impl LabSession {
    pub(super) async fn open(
        address: &ServerAddress,
        settings: &[SettingValue],
        prepared: PreparedTransactions,
    ) -> LabResult<Self> {
        let mut connection = LabConnection::open_session(address).await?;
        let dialect = address.dialect();
        if dialect == Dialect::Postgres {
            for setting in settings::POSTGRES_SUPERUSER {
                // Fails without the privilege, which is fine.
                _ = connection.try_query(setting).await?;
            }
        }
        let mut begins_implicitly = false;
        for setting in settings {
            if let SettingValue::Autocommit(on) = setting {
                begins_implicitly = dialect == Dialect::Postgres && !on;
            }
            let Some(sql) = settings::statement(dialect, setting) else { continue };
            connection.try_query(&sql).await?.map_err(|error| {
                let error = error_message(&error);
                LabError(format!("a session cannot be set up with `{sql}`: {error}"))
            })?;
        }
        let mut deadlock_timeout = Duration::ZERO;
        if dialect == Dialect::Postgres {
            // The unit of the setting is a millisecond.
            let sql = "SELECT setting FROM pg_settings WHERE name = 'deadlock_timeout'";
            let rows = connection.query(sql).await?;
            let millis = rows.first().and_then(|row| number_cell(row, 0)).unwrap_or_default();
            deadlock_timeout = Duration::from_millis(millis.try_into().unwrap_or_default());
        }
        let pid = connection.pid;
        let connection = Arc::new(Mutex::new(SessionConnection {
            connection,
            begins_implicitly,
            in_transaction: false,
            prepared,
            statements: PreparedStatements::default(),
        }));
        Ok(Self { pid, deadlock_timeout, connection, is_cancelled: Arc::default() })
    }

    /// Begins a statement, which runs after the previous one has ended.
    pub(super) fn begin(&self, sql: &str) -> Reply {
        let (sender, reply) = oneshot::channel();
        self.is_cancelled.store(false, Ordering::SeqCst);
        // Locked before the task starts, so that an immediate cancel does not find the session idle.
        let locked = self.connection.clone().try_lock_owned();
        let (connection, sql) = (self.connection.clone(), sql.to_owned());
        let is_cancelled = self.is_cancelled.clone();
        tokio::spawn(async move {
            let mut connection = match locked {
                Ok(locked) => locked,
                Err(_) => connection.lock_owned().await,
            };
            let mut answer = connection.run(&sql).await;
            if let Err(failure) = &mut answer
                && failure.kind == FailureKind::Other
                && is_cancelled.load(Ordering::SeqCst)
            {
                failure.kind = FailureKind::Cancelled;
            }
            drop(connection);
            // The receiver may be dropped.
            _ = sender.send(answer);
        });
        reply
    }

    pub(super) fn is_busy(&self) -> bool {
        self.connection.try_lock().is_err()
    }

    /// Marks the running statement as cancelled by the lab.
    pub(super) fn expect_cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
    }

    pub(super) async fn wait_until_idle(&self) {
        drop(self.connection.lock().await);
    }

    /// Closes the connection once it is idle; the caller must have ended a running statement on the server.
    pub(super) async fn close(self) {
        if tokio::time::timeout(ANSWER_LIMIT, self.wait_until_idle()).await.is_ok()
            && let Some(connection) = Arc::into_inner(self.connection)
        {
            connection.into_inner().connection.close().await;
        }
    }
}

struct SessionConnection {
    connection: LabConnection,
    /// PostgreSQL has no autocommit setting: a transaction is begun when a statement needs one, as psql does.
    begins_implicitly: bool,
    in_transaction: bool,
    prepared: PreparedTransactions,
    statements: PreparedStatements,
}

impl SessionConnection {
    async fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        let dialect = self.connection.dialect;
        let driver = dialect.driver();
        if let Some(why) = copy_refusal(dialect, sql) {
            // After this statement the connection would wait for rows that the lab does not send.
            return Err(Failure::new(FailureKind::Other, why));
        }
        let text = self.statements.text_of(sql, &mut self.connection).await;
        let run = async {
            self.begin_implicitly(sql).await?;
            self.connection.run(sql, &StatementWords::of(driver, &text)).await
        };
        let answer = run.await.map_err(|error| failure(dialect, &text, &error))?;
        self.prepared.record(driver, sql, Some(self.connection.pid));
        Ok(answer)
    }

    /// Begins a transaction, if the statement needs one and none is open.
    async fn begin_implicitly(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        if !self.begins_implicitly {
            return Ok(());
        }
        let driver = self.connection.dialect.driver();
        let words = |sql| StatementWords::of(driver, sql);
        let effect = words(sql).transaction_effect();
        if effect == TransactionEffect::None && !self.in_transaction {
            self.connection.run("BEGIN", &words("BEGIN")).await?;
        }
        // A failed transaction is also open, until it is rolled back.
        self.in_transaction = effect != TransactionEffect::Ends;
        Ok(())
    }
}
