//! The connection that asks, and what it remembers between two questions. Knows which dialect answers
//! which question; how is in the file of its name.

use super::connection::StageConnection;
use super::dictionary::Dictionary;
use super::server::Server;
use super::who::Who;
use super::{LockList, StageError, innodb, mariadb, mysql, postgres, told};
use crate::observation::{Failure, Name, Wait};
use crate::record::Link;
use hierlock_engine::Dialect;
use std::time::Duration;

/// A connection beside the sessions of a case.
pub(super) struct Side {
    pub(super) connection: StageConnection,
    dialect: Dialect,
    mariadb: mariadb::Memory,
    postgres: postgres::Memory,
    dictionary: Dictionary,
    /// PostgreSQL: has the database of the case the extension that tells row locks?
    pub(super) has_row_locks: Option<bool>,
    /// The mark of the last deadlock that has been told.
    last_deadlock: String,
}

impl Side {
    pub(super) fn new(connection: StageConnection, server: &Server) -> Self {
        Self {
            connection,
            dialect: server.dialect(),
            mariadb: server.mariadb(),
            postgres: postgres::Memory::default(),
            dictionary: Dictionary::default(),
            has_row_locks: None,
            last_deadlock: String::new(),
        }
    }

    pub(super) async fn waits(&mut self, who: &Who) -> Result<Vec<Wait>, StageError> {
        match self.dialect {
            Dialect::Mysql => mysql::waits(&mut self.connection, &mut self.dictionary, who).await,
            Dialect::Mariadb => {
                self.mariadb.waits(&mut self.connection, &mut self.dictionary, who).await
            }
            _ => self.postgres.waits(&mut self.connection, who).await,
        }
    }

    /// How long it takes until all who waited have been looked at by the server's detector.
    pub(super) fn next_deadlock_check(&self, deadlock_timeout: Duration) -> Duration {
        match self.dialect {
            Dialect::Postgres => self.postgres.next_deadlock_check(deadlock_timeout),
            _ => Duration::ZERO,
        }
    }

    /// `row_locks` is where PostgreSQL has the extension that tells them.
    pub(super) async fn locks(
        &mut self,
        who: &Who,
        row_locks: Option<String>,
    ) -> Result<LockList, StageError> {
        match self.dialect {
            Dialect::Mysql => mysql::locks(&mut self.connection, &mut self.dictionary, who).await,
            Dialect::Mariadb => {
                self.mariadb.locks(&mut self.connection, &mut self.dictionary, who).await
            }
            _ => self.postgres.locks(&mut self.connection, who, row_locks.as_deref()).await,
        }
    }

    /// The circle in which `victim` was, if the dialect tells.
    pub(super) async fn circle(
        &mut self,
        who: &Who,
        victim: &Name,
        failure: &Failure,
    ) -> Option<Vec<Link>> {
        let Self { connection, dialect, dictionary, last_deadlock, postgres, .. } = self;
        match dialect {
            Dialect::Postgres => {
                told::circle(connection, postgres, who, victim, failure.detail.as_deref()?).await
            }
            dialect => innodb::circle(connection, *dialect, who, dictionary, last_deadlock).await,
        }
    }
}
