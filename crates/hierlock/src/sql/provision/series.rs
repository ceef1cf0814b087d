//! Numbers that follow each other, made by the server itself.

use crate::sql::Dialect;
use hierlock_engine::Session;

/// How many numbers one expression makes by default. No chunk has more than the square of it.
const THOUSAND: u32 = 1000;

/// How a server makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Series {
    /// Two recursive table expressions, thousands and what is below them, joined: MySQL. One expression alone would write
    /// all numbers to a temporary table.
    Recursive,
    /// The engine `SEQUENCE` of MariaDB.
    Sequence,
    /// The function `generate_series` of PostgreSQL.
    Generated,
}

impl Series {
    /// As this server does: MariaDB can be built, or started, without the engine.
    pub(super) async fn ask(session: &mut Session) -> Result<Self, sqlx::Error> {
        match session.dialect {
            Dialect::Mysql => return Ok(Series::Recursive),
            Dialect::Mariadb => {}
            Dialect::Postgres => return Ok(Series::Generated),
        }
        let engine = "SELECT COUNT(*) FROM information_schema.ENGINES WHERE ENGINE = 'SEQUENCE' AND \
                      SUPPORT IN ('YES', 'DEFAULT')";
        let has_sequence = session.rows(engine).await?.first().is_some_and(|row| row[0] == "1");
        Ok(if has_sequence { Series::Sequence } else { Series::Recursive })
    }

    /// Lets a session make as many as are needed, where it may have been told otherwise.
    pub(super) fn allow(self, dialect: Dialect) -> Option<String> {
        let limit = match (self, dialect) {
            (Series::Recursive, Dialect::Mariadb) => "max_recursive_iterations",
            (Series::Recursive, _) => "cte_max_recursion_depth",
            _ => return None,
        };
        Some(format!("SET SESSION {limit} = {THOUSAND}"))
    }

    /// What selects the numbers from one to another, both included, as `x` behind other columns.
    pub(super) fn select(self, columns: &str, first: u32, last: u32) -> String {
        match self {
            Series::Recursive => {
                let thousands = (last - first) / THOUSAND;
                let below = (last - first).min(THOUSAND - 1);
                let numbers = |name, up_to| {
                    format!(
                        "{name} (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM {name} WHERE n < {up_to})"
                    )
                };
                let (high, low) = (numbers("h", thousands), numbers("l", below));
                let x = format!("{first} + {THOUSAND} * h.n + l.n");
                // In order: without a buffer in which the outer ones would wait for the inner ones.
                format!(
                    "WITH RECURSIVE {high}, {low} SELECT /*+ NO_BNL(h, l) */ {columns}{x} AS x \
                     FROM h STRAIGHT_JOIN l WHERE {x} <= {last}"
                )
            }
            Series::Sequence => format!("SELECT {columns}seq AS x FROM seq_{first}_to_{last}"),
            Series::Generated => {
                format!("SELECT {columns}x FROM generate_series({first}, {last}) x")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_joined_to_what_is_below() {
        assert_eq!(
            Series::Recursive.select("2, ", 5000, 7500),
            "WITH RECURSIVE h (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM h WHERE n < 2), \
             l (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM l WHERE n < 999) \
             SELECT /*+ NO_BNL(h, l) */ 2, 5000 + 1000 * h.n + l.n AS x FROM h STRAIGHT_JOIN l \
             WHERE 5000 + 1000 * h.n + l.n <= 7500"
        );
        assert!(Series::Recursive.select("", 7, 7).contains("FROM l WHERE n < 0)"));
    }
}
