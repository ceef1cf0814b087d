//! The number of deadlocks that a server has resolved.

use super::{Introspection, Result, rows_if_allowed};
use crate::row::number_cell;
use crate::{Dialect, SessionRef};

/// Returns the query. The last column of its result is the number.
fn query(dialect: Dialect) -> &'static str {
    match dialect {
        // Needs PROCESS.
        Dialect::Mysql => {
            "SELECT `COUNT` FROM information_schema.INNODB_METRICS \
             WHERE NAME = 'lock_deadlocks' AND STATUS = 'enabled'"
        }
        Dialect::Mariadb => "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'",
        Dialect::Postgres => "SELECT sum(deadlocks)::bigint FROM pg_stat_database",
    }
}

impl Introspection {
    /// Returns the number of deadlocks since the server was started or the counter was reset; None if the account may
    /// not see it or the server does not count. PostgreSQL counts about a second late.
    pub async fn deadlock_count(&self, session: &mut SessionRef<'_>) -> Result<Option<u64>> {
        let rows = rows_if_allowed(session, query(session.dialect)).await?;
        let count = rows.first().and_then(|row| number_cell(row, row.len().checked_sub(1)?));
        Ok(count.and_then(|count| u64::try_from(count).ok()))
    }
}
