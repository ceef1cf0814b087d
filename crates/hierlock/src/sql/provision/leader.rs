//! The one who changes a lock table: the session that leads, and what it finds there.

use super::{PATIENCE, Provision};
use crate::error::{Result, SqlError};
use crate::sql::agreement::{self, Agreement, State};
use crate::sql::failure::LockFailure;
use crate::sql::scheme::META_TABLE;
use crate::sql::{Dialect, Scheme, Strategy};
use hierlock_engine::{ServerError, Session};

/// What there is of the table of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// The number in the name of its fence.
    pub(super) fence: Option<u32>,
    /// Its primary key is made last where that is faster.
    pub(super) has_key: bool,
}

/// Two that change one table at the same time would undo each other's work.
const LEADS: &str = "hierlock provision";
/// Held by all who fill, on PostgreSQL: one whose client was killed may still be about to commit.
const FILLS: &str = "hierlock fill";
/// For how many seconds the lead is waited for. That of a killed client is free in no time.
const WAIT_FOR_LEAD: u32 = 10;

impl Provision {
    pub(super) fn failed(&self, source: sqlx::Error) -> crate::Error {
        ServerError::Failed { server: self.address.to_string(), source }.into()
    }

    pub(super) fn unfit(&self, why: String) -> crate::Error {
        SqlError::Unfit { server: self.address.to_string(), why }.into()
    }

    /// A session that may take its time.
    pub(super) async fn session(&self) -> Result<Session> {
        let mut session = Session::connect_alone(&self.address, self.settings.answer_limit).await?;
        session.set_answer_limit(PATIENCE);
        if let Some(sql) = self.series.allow(self.scheme.dialect) {
            session.run(&sql).await.map_err(|error| self.failed(error))?;
        }
        Ok(session)
    }

    /// A session to lead with. Nobody else leads while it is there.
    pub(super) async fn lead(&self) -> Result<Session> {
        let mut leader = self.session().await?;
        let led = self.take_lead(&mut leader).await.map_err(|error| self.failed(error))?;
        if !led {
            let table = self.scheme.rows_table();
            return Err(self.unfit(format!("`{table}` is being provisioned by someone else")));
        }
        Ok(leader)
    }

    async fn take_lead(&self, leader: &mut Session) -> Result<bool, sqlx::Error> {
        if self.scheme.dialect != Dialect::Postgres {
            // A name has at most 64 characters, and is the server's, not the database's.
            let place = format!("SHA2(CONCAT(DATABASE(), '/{}'), 256)", self.scheme.spaces()[0]);
            let name = format!("CONCAT('{LEADS} ', LEFT({place}, 40))");
            let sql = format!("SELECT COALESCE(GET_LOCK({name}, {WAIT_FOR_LEAD}), 0)");
            let rows = leader.rows(&sql).await?;
            return Ok(rows.first().is_some_and(|row| row[0] == "1"));
        }
        let (leads, fills) = (self.key(LEADS), self.key(FILLS));
        leader.run(&format!("SET lock_timeout = '{WAIT_FOR_LEAD}s'")).await?;
        for take in [
            format!("SELECT pg_advisory_lock({leads})::text"),
            format!("SELECT pg_advisory_lock({fills})::text"),
        ] {
            match leader.rows(&take).await {
                Err(error) if LockFailure::of(&error) == LockFailure::NotGranted => {
                    return Ok(false);
                }
                taken => taken?,
            };
        }
        leader.rows(&format!("SELECT pg_advisory_unlock({fills})::text")).await?;
        leader.run("SET lock_timeout = 0").await?;
        Ok(true)
    }

    /// A session to fill with, under a leader.
    pub(super) async fn follower(&self) -> Result<Session> {
        let mut session = self.session().await?;
        if self.scheme.dialect == Dialect::Postgres {
            let sql = format!("SELECT pg_advisory_lock_shared({})::text", self.key(FILLS));
            session.run(&sql).await.map_err(|error| self.failed(error))?;
        }
        Ok(session)
    }

    /// Two numbers: such keys are never those of a node, which are one.
    fn key(&self, what: &str) -> String {
        format!("hashtext('{what}'), hashtext('{}')", self.scheme.spaces()[0])
    }

    /// The table of rows, if it is there; refused if it has no row locks.
    pub(super) async fn table(&self, session: &mut Session) -> Result<Option<Table>> {
        let failed = |error| self.failed(error);
        let name = self.scheme.rows_table();
        if self.scheme.dialect != Dialect::Postgres {
            let engine = agreement::engine(session, &self.scheme).await.map_err(failed)?;
            if let Some(why) = engine.and_then(|engine| agreement::not_innodb(name, &engine)) {
                return Err(self.unfit(why));
            }
        }
        let columns = agreement::columns(session, &self.scheme).await.map_err(failed)?;
        if columns.is_empty() {
            return Ok(None);
        }
        let key = match self.scheme.dialect {
            Dialect::Postgres => format!(
                "SELECT 1 FROM pg_index WHERE indrelid = to_regclass('{name}') AND indisprimary"
            ),
            _ => format!(
                "SELECT 1 FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND \
                 TABLE_NAME = '{name}' AND INDEX_NAME = 'PRIMARY' LIMIT 1"
            ),
        };
        let has_key = !session.rows(&key).await.map_err(failed)?.is_empty();
        let fence = agreement::fence_of(&columns);
        Ok(Some(Table { fence, has_key }))
    }

    /// What is kept, after a change of the bucket count that was cut short between the table and the
    /// agreement: then the table is right, for its name is what clients go by.
    pub(super) async fn settle(&self, leader: &mut Session) -> Result<Option<Agreement>> {
        let kept = self.kept(leader).await?;
        let table = self.table(leader).await?;
        let Some(mut kept) = kept else { return Ok(None) };
        if kept.strategy == Strategy::Striped.name()
            && let Some(fence) = table.and_then(|table| table.fence)
            && fence != kept.buckets
        {
            self.keep_buckets(leader, fence).await?;
            kept.buckets = fence;
        }
        Ok(Some(kept))
    }

    pub(super) async fn kept(&self, session: &mut Session) -> Result<Option<Agreement>> {
        let kept = agreement::read(session, &self.scheme).await;
        kept.map_err(|error| self.failed(error))?.map_err(|why| self.unfit(why))
    }

    pub(super) async fn keep_buckets(&self, leader: &mut Session, buckets: u32) -> Result<()> {
        let sql = keep_buckets(&self.scheme, buckets);
        leader.run(&sql).await.map_err(|error| self.failed(error))
    }

    pub(super) async fn keep_ready(&self, leader: &mut Session) -> Result<()> {
        let sql = keep_ready(&self.scheme);
        leader.run(&sql).await.map_err(|error| self.failed(error))
    }
}

pub(super) fn keep_buckets(scheme: &Scheme, buckets: u32) -> String {
    format!("UPDATE {META_TABLE} SET buckets = {buckets} WHERE {}", scheme.is_about())
}

pub(super) fn keep_ready(scheme: &Scheme) -> String {
    let ready = State::Ready.name();
    format!("UPDATE {META_TABLE} SET state = '{ready}' WHERE {}", scheme.is_about())
}
