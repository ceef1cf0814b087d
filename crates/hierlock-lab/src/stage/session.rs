//! A session of a case: a connection with a task of its own, which does one thing at a time and says
//! how it went. Knows nothing of who waits for whom.

use super::connection::{ANSWER_LIMIT, StageConnection};
use super::failure::{copy_refusal, failed, failure};
use super::prepared::PreparedTransactions;
use super::prepared_statements::PreparedStatements;
use super::{Reply, StageError, postgres, settings};
use crate::observation::{Answer, Failure, FailureKind};
use crate::scenario::SettingValue;
use hierlock_engine::{Dialect, ServerAddress, StatementWords, TransactionEffect, error_message};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

/// A statement, and who wants to know.
struct StatementRequest {
    sql: String,
    reply: oneshot::Sender<Result<Answer, Failure>>,
}

/// A session.
pub(super) struct Session {
    /// The server's number for its connection.
    pub(super) pid: i64,
    /// PostgreSQL: how long after the beginning of a wait it looks for a deadlock; else zero.
    pub(super) deadlock_timeout: Duration,
    requests: mpsc::UnboundedSender<StatementRequest>,
    is_busy: Arc<watch::Sender<bool>>,
    /// Ended by the lab: then that is what its failure means.
    is_cancelled: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Session {
    /// Connects, and sets the session up.
    pub(super) async fn open(
        address: &ServerAddress,
        settings: &[SettingValue],
        prepared: PreparedTransactions,
    ) -> Result<Self, StageError> {
        let mut connection = StageConnection::open_session(address).await?;
        let dialect = address.dialect();
        let pid = connection.pid().await?;
        if dialect == Dialect::Postgres {
            for wish in postgres::WISHES {
                // Not everyone may set these.
                _ = connection.try_ask(wish).await?;
            }
        }
        let mut begins_by_itself = false;
        for setting in settings {
            if let SettingValue::Autocommit(on) = setting {
                begins_by_itself = dialect == Dialect::Postgres && !on;
            }
            let Some(sql) = settings::statement(dialect, setting) else { continue };
            connection.try_ask(&sql).await?.map_err(|error| {
                let error = error_message(&error);
                StageError(format!("a session cannot be set up with `{sql}`: {error}"))
            })?;
        }
        let deadlock_timeout = match dialect {
            Dialect::Postgres => postgres::deadlock_timeout(&mut connection).await?,
            _ => Duration::ZERO,
        };
        let (requests, waiting) = mpsc::unbounded_channel();
        let is_busy = Arc::new(watch::Sender::new(false));
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let session = SessionTask {
            pid,
            connection,
            dialect,
            begins_by_itself,
            in_transaction: false,
            prepared,
            statements: PreparedStatements::default(),
            is_busy: is_busy.clone(),
            is_cancelled: is_cancelled.clone(),
        };
        let task = tokio::spawn(session.serve(waiting));
        Ok(Self { pid, deadlock_timeout, requests, is_busy, is_cancelled, task })
    }

    /// Gives it something to do.
    pub(super) fn begin(&self, sql: &str) -> Reply {
        let (reply, answer) = oneshot::channel();
        self.is_cancelled.store(false, Ordering::SeqCst);
        // Said here, so that a cancel at once does not find it idle.
        self.is_busy.send_replace(true);
        // A task that is gone drops the request, and so the reply: that is an answer too.
        if self.requests.send(StatementRequest { sql: sql.to_owned(), reply }).is_err() {
            self.is_busy.send_replace(false);
        }
        answer
    }

    /// Is it doing something?
    pub(super) fn is_busy(&self) -> bool {
        *self.is_busy.borrow()
    }

    /// From now on, a failure of what it is doing was wanted.
    pub(super) fn expect_cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
    }

    /// Waits until it does nothing.
    pub(super) async fn idle(&self) {
        // The sender is here, so it cannot be gone.
        _ = self.is_busy.subscribe().wait_for(|busy| !busy).await;
    }

    /// Says goodbye, once it is idle; what it was doing must have been ended on the server.
    pub(super) async fn close(self) {
        let Self { requests, mut task, .. } = self;
        drop(requests);
        if tokio::time::timeout(ANSWER_LIMIT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// The connection's side of it.
struct SessionTask {
    pid: i64,
    connection: StageConnection,
    dialect: Dialect,
    /// PostgreSQL has no autocommit to switch off: a transaction is begun before a statement outside of
    /// one, as psql does.
    begins_by_itself: bool,
    in_transaction: bool,
    prepared: PreparedTransactions,
    statements: PreparedStatements,
    is_busy: Arc<watch::Sender<bool>>,
    is_cancelled: Arc<AtomicBool>,
}

impl SessionTask {
    async fn serve(mut self, mut requests: mpsc::UnboundedReceiver<StatementRequest>) {
        while let Some(StatementRequest { sql, reply }) = requests.recv().await {
            let answer = self.run(&sql).await;
            if answer.is_ok() {
                self.prepared.note(self.dialect.driver(), &sql, Some(self.pid));
            }
            self.is_busy.send_replace(false);
            // Nobody may want to know any more.
            _ = reply.send(answer);
        }
        self.connection.close().await;
    }

    async fn run(&mut self, sql: &str) -> Result<Answer, Failure> {
        if let Some(copies) = StatementWords::of(self.dialect.driver(), sql)
            .copy_direction()
            .filter(|_| self.dialect == Dialect::Postgres)
        {
            // Sent, it would leave the connection waiting for rows that nobody sends.
            return Err(failed(copy_refusal(copies).to_owned()));
        }
        self.statements.learn(self.dialect, sql, &mut self.connection).await;
        let text = self.statements.text_of(self.dialect, sql, &mut self.connection).await;
        let answer = match self.begin_by_itself(sql).await {
            Ok(()) => {
                self.connection.run(sql, &StatementWords::of(self.dialect.driver(), &text)).await
            }
            Err(error) => Err(error),
        };
        answer.map_err(|error| self.failure(&text, &error))
    }

    /// Begins a transaction, if a statement needs one and there is none.
    async fn begin_by_itself(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        if !self.begins_by_itself {
            return Ok(());
        }
        let effect = StatementWords::of(self.dialect.driver(), sql).transaction_effect();
        if effect == TransactionEffect::None && !self.in_transaction {
            self.connection
                .run("BEGIN", &StatementWords::of(self.dialect.driver(), "BEGIN"))
                .await?;
        }
        // Also one that fails is in a transaction, until that is rolled back.
        self.in_transaction = effect != TransactionEffect::Ends;
        Ok(())
    }

    /// What a failure means, of a statement that ran this text.
    fn failure(&self, sql: &str, error: &sqlx::Error) -> Failure {
        let mut failure = failure(self.dialect, sql, error);
        if failure.kind == FailureKind::Other && self.is_cancelled.load(Ordering::SeqCst) {
            failure.kind = FailureKind::Cancelled;
        }
        failure
    }
}
