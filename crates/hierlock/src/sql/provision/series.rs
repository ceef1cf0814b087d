//! Numbers that follow each other, made by the server itself. Text only, but for one question.

use crate::sql::Dialect;
use crate::sql::session::Session;

/// How a server makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Series {
    /// A table expression that refers to itself: MySQL.
    Recursive,
    /// The engine `SEQUENCE` of MariaDB, which needs no table in between.
    Sequence,
    /// A function of PostgreSQL.
    Generated,
}

impl Series {
    /// As a server of that kind usually does.
    pub(super) fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Mysql => Series::Recursive,
            Dialect::Mariadb => Series::Sequence,
            Dialect::Postgres => Series::Generated,
        }
    }

    /// As this server does: MariaDB can be built, or started, without the engine.
    pub(super) async fn ask(session: &mut Session) -> Result<Self, sqlx::Error> {
        let usual = Self::of(session.dialect);
        if usual != Series::Sequence {
            return Ok(usual);
        }
        let engine = "SELECT COUNT(*) FROM information_schema.ENGINES WHERE ENGINE = 'SEQUENCE' AND \
                      SUPPORT IN ('YES', 'DEFAULT')";
        let rows = session.rows(engine).await?;
        Ok(match rows.first().is_some_and(|row| row[0] == "1") {
            true => Series::Sequence,
            false => Series::Recursive,
        })
    }

    /// Lets a session make so many at once, where it must be told.
    pub(super) fn allow(self, dialect: Dialect, numbers: u32) -> Option<String> {
        let limit = match (self, dialect) {
            (Series::Recursive, Dialect::Mariadb) => "max_recursive_iterations",
            (Series::Recursive, _) => "cte_max_recursion_depth",
            _ => return None,
        };
        Some(format!("SET SESSION {limit} = {numbers}"))
    }

    /// From one to another, both included: what selects `columns`, in which a number is called `x`.
    pub(super) fn select(self, columns: &str, first: u32, last: u32) -> String {
        match self {
            Series::Recursive => format!(
                "WITH RECURSIVE s (x) AS (SELECT {first} UNION ALL SELECT x + 1 FROM s WHERE \
                 x < {last}) SELECT {columns} FROM s"
            ),
            Series::Sequence => {
                let columns = match columns {
                    "x" => "seq AS x".to_owned(),
                    columns => columns.replace('x', "seq"),
                };
                format!("SELECT {columns} FROM seq_{first}_to_{last}")
            }
            Series::Generated => {
                format!("SELECT {columns} FROM generate_series({first}, {last}) x")
            }
        }
    }
}
