//! The connection that asks, and what it remembers between two questions. Knows which engine answers
//! which question; how is in the file of its name.

use super::dictionary::Dictionary;
use super::server::Server;
use super::who::Who;
use super::wire::Wire;
use super::{LockList, StageError, innodb, mariadb, mysql, postgres, told};
use crate::observation::{Failure, Name, Wait};
use crate::place::Engine;
use crate::record::Link;
use std::time::Duration;

/// A connection beside the sessions of a case.
pub(super) struct Side {
    pub(super) wire: Wire,
    engine: Engine,
    mariadb: mariadb::Memory,
    postgres: postgres::Memory,
    dictionary: Dictionary,
    /// PostgreSQL: has the database of the case the extension that tells row locks?
    pub(super) has_row_locks: Option<bool>,
    /// The mark of the last deadlock that has been told.
    last_deadlock: String,
}

impl Side {
    pub(super) fn new(wire: Wire, server: &Server) -> Self {
        Self {
            wire,
            engine: server.engine(),
            mariadb: server.mariadb(),
            postgres: postgres::Memory::default(),
            dictionary: Dictionary::default(),
            has_row_locks: None,
            last_deadlock: String::new(),
        }
    }

    pub(super) async fn waits(&mut self, who: &Who) -> Result<Vec<Wait>, StageError> {
        match self.engine {
            Engine::Mysql => mysql::waits(&mut self.wire, &mut self.dictionary, who).await,
            Engine::Mariadb => self.mariadb.waits(&mut self.wire, &mut self.dictionary, who).await,
            _ => self.postgres.waits(&mut self.wire, who).await,
        }
    }

    /// How long it takes until all who waited have been looked at by the server's detector.
    pub(super) fn next_deadlock_check(&self, deadlock_timeout: Duration) -> Duration {
        match self.engine {
            Engine::Postgres => self.postgres.next_deadlock_check(deadlock_timeout),
            _ => Duration::ZERO,
        }
    }

    /// `row_locks` is where PostgreSQL has the extension that tells them.
    pub(super) async fn locks(
        &mut self,
        who: &Who,
        row_locks: Option<String>,
    ) -> Result<LockList, StageError> {
        match self.engine {
            Engine::Mysql => mysql::locks(&mut self.wire, &mut self.dictionary, who).await,
            Engine::Mariadb => self.mariadb.locks(&mut self.wire, &mut self.dictionary, who).await,
            _ => self.postgres.locks(&mut self.wire, who, row_locks.as_deref()).await,
        }
    }

    /// The circle in which `victim` was, if the engine tells.
    pub(super) async fn circle(
        &mut self,
        who: &Who,
        victim: &Name,
        failure: &Failure,
    ) -> Option<Vec<Link>> {
        let Self { wire, engine, dictionary, last_deadlock, postgres, .. } = self;
        match engine {
            Engine::Postgres => {
                told::circle(wire, postgres, who, victim, failure.detail.as_deref()?).await
            }
            engine => innodb::circle(wire, *engine, who, dictionary, last_deadlock).await,
        }
    }
}
