//! The leader: the only session that may change a lock table, and its checks of the existing tables.

use super::{ANSWER_LIMIT, Provision};
use crate::error::{Error, SqlError};
use crate::sql::lock_table::{self, LockTableError, Result, RowTable};
use crate::sql::{Agreement, Dialect, Strategy};
use hierlock_engine::{ErrorClass, Session};

/// The lock of the leader. Two provisioners that change one table at the same time would undo each other's work.
const LEADER_LOCK: &str = "hierlock provision";
/// The lock of all sessions that fill, on PostgreSQL. The session of a killed client may still commit.
const FILLER_LOCK: &str = "hierlock fill";
/// The limit for these locks in seconds. The server soon releases those of a killed client.
const LOCK_WAIT: u32 = 10;

impl Provision {
    /// Opens a session with a long answer limit.
    pub(super) async fn session(&self) -> Result<Session> {
        let mut session = Session::connect_alone(&self.address, self.answer_limit).await?;
        session.answer_limit = ANSWER_LIMIT;
        if let Some(sql) = self.series.set_recursion_limit(self.scheme.dialect) {
            session.run(&sql).await?;
        }
        Ok(session)
    }

    /// Opens the session of the leader, which has the leader's lock until it ends. Fails if there is another leader.
    pub(super) async fn leader(&self) -> Result<Session> {
        let mut leader = self.session().await?;
        let is_leader = match self.scheme.dialect {
            Dialect::Postgres => self.lock_on_postgres(&mut leader).await?,
            _ => {
                // The name is valid on the whole server, so it contains the database. It has at most 64 characters.
                let space = self.scheme.spaces()[0];
                let place = format!("SHA2(CONCAT(DATABASE(), '/{space}'), 256)");
                let name = format!("CONCAT('{LEADER_LOCK} ', LEFT({place}, 40))");
                let sql = format!("SELECT COALESCE(GET_LOCK({name}, {LOCK_WAIT}), 0)");
                leader.rows(&sql).await?.first().is_some_and(|row| row[0] == "1")
            }
        };
        if !is_leader {
            let table = self.scheme.rows_table();
            let why = format!("`{table}` is being provisioned by someone else");
            return Err(LockTableError::Unusable(why));
        }
        Ok(leader)
    }

    async fn lock_on_postgres(&self, leader: &mut Session) -> sqlx::Result<bool> {
        let (lead, fill) = (self.key(LEADER_LOCK), self.key(FILLER_LOCK));
        leader.run(&format!("SET lock_timeout = '{LOCK_WAIT}s'")).await?;
        for key in [&lead, &fill] {
            match leader.rows(&format!("SELECT pg_advisory_lock({key})::text")).await {
                Err(error) if ErrorClass::of(&error).is_not_granted() => return Ok(false),
                locked => locked?,
            };
        }
        leader.rows(&format!("SELECT pg_advisory_unlock({fill})::text")).await?;
        leader.run("SET lock_timeout = 0").await?;
        Ok(true)
    }

    /// Opens a session that fills the table.
    pub(super) async fn filler(&self) -> Result<Session> {
        let mut session = self.session().await?;
        if self.scheme.dialect == Dialect::Postgres {
            let key = self.key(FILLER_LOCK);
            session.run(&format!("SELECT pg_advisory_lock_shared({key})::text")).await?;
        }
        Ok(session)
    }

    /// Returns an advisory key of two numbers. The keys of nodes are one number, so they differ.
    fn key(&self, name: &str) -> String {
        format!("hashtext('{name}'), hashtext('{}')", self.scheme.spaces()[0])
    }

    /// Returns the stored agreement. If a change of the bucket count was interrupted between the table and the agreement,
    /// corrects the agreement: the count in the name of the column decides which clients can lock.
    pub(super) async fn read_agreement(&self, leader: &mut Session) -> Result<Option<Agreement>> {
        let stored = lock_table::read(leader, &self.scheme).await?;
        let table = RowTable::find(leader, &self.scheme).await?;
        let Some(mut stored) = stored else { return Ok(None) };
        if stored.strategy == Strategy::Striped.name()
            && let Some(buckets) = table.and_then(|table| table.buckets)
            && buckets != stored.buckets
        {
            leader.run(&self.scheme.update_buckets(buckets)).await?;
            stored.buckets = buckets;
        }
        Ok(Some(stored))
    }

    /// Fails if a stored agreement differs from this scheme. Ignores its state.
    pub(super) fn check_agreement(&self, stored: &Agreement) -> Result<()> {
        let stored = Agreement { is_ready: true, ..stored.clone() };
        let Err(mut why) = self.scheme.compare(&stored) else { return Ok(()) };
        let same = Agreement { buckets: self.scheme.buckets.count(), ..stored };
        if self.scheme.compare(&same).is_ok() {
            let buckets = same.buckets;
            why += &format!(", or change it with `hierlock provision --rebucket {buckets}`");
        }
        Err(LockTableError::Unusable(why))
    }

    /// Fails if there is a table without an agreement that does not fit this scheme.
    pub(super) async fn check_table(&self, leader: &mut Session) -> Result<()> {
        let Some(table) = RowTable::find(leader, &self.scheme).await? else { return Ok(()) };
        let (name, column) = (self.scheme.rows_table(), self.scheme.selected_column());
        let buckets = Some(self.scheme.buckets.count());
        if self.scheme.strategy == Strategy::Striped && table.buckets != buckets {
            return Err(LockTableError::Unusable(format!(
                "there is a table `{name}` without a column {column}. If its rows are for that many \
                 buckets, ALTER TABLE {name} ADD COLUMN {column} BOOLEAN; else name another with \
                 table=NAME"
            )));
        }
        Ok(())
    }

    /// Returns the stored agreement. Fails if there is no table, or the agreement differs from this scheme.
    pub(super) async fn checked_agreement(&self, session: &mut Session) -> Result<Agreement> {
        let stored = lock_table::read(session, &self.scheme).await?;
        let stored = stored.ok_or_else(|| self.scheme.no_table())?;
        let table = RowTable::find(session, &self.scheme).await?;
        let table = table.ok_or_else(|| self.scheme.no_table())?;
        if let Some(buckets) = table.buckets
            && buckets != stored.buckets
        {
            let server = self.address.to_string();
            return Err(Error::from(SqlError::RebucketUnfinished { server, buckets }).into());
        }
        self.check_agreement(&stored)?;
        Ok(stored)
    }
}
