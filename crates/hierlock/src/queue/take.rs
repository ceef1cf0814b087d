//! Rows that nobody else has are taken and changed, without ever waiting for a row: SKIP LOCKED, then a
//! change by primary key. Claims, due jobs and heartbeats are all this.
//!
//! PostgreSQL and SQLite do it in one statement (claims, on PostgreSQL, in a [function](super::postgres)). MySQL
//! and MariaDB need two, in two round trips for the whole transaction: what begins it comes with the first,
//! COMMIT with the second.

use super::postgres;
use super::schema::SCHEMA;
use crate::database::{Busy, Database, Kind, Row, RowLock, Wire};
use crate::error::Result;

/// Which rows, and what becomes of them. Only numbers and [plain](super::job::plain) names are in its text.
#[derive(Clone, Debug)]
pub(super) struct Take {
    pub(super) rows: Rows,
    /// The column that is counted up, by how much.
    pub(super) counts: (&'static str, i64),
    /// What else is set. `{n}` is the new count, `{now}` the clock. A column that is set is not read: on
    /// MySQL and MariaDB it may have changed already.
    pub(super) set: String,
    /// The columns that are wanted besides the ID and the new count.
    pub(super) returns: &'static str,
}

/// How rows are found.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// By an index, in its order. The condition may name `{now}`.
    Ordered { index: &'static str, which: String, order: &'static str, most: usize },
    /// By ID, if they have this claim and are claimed.
    Listed { pairs: Vec<(i64, i64)>, busy: Busy },
}

/// Takes them; the rows as wanted, in no order.
pub(super) async fn take(database: &Database, doing: &'static str, take: Take) -> Result<Vec<Row>> {
    let taken = database.send(|mut wire| {
        let take = take.clone();
        Box::pin(async move {
            let kind = wire.kind();
            if kind == Kind::Innodb {
                return take.in_two(&mut wire, doing).await;
            }
            // One statement is a transaction by itself, and its text is the same every time.
            if let (Kind::Sqlite, Rows::Ordered { .. }) = (kind, &take.rows) {
                return wire.fetch(&take.at_once(kind), []).await.map_err(SCHEMA.failed(doing));
            }
            let guide = if kind == Kind::Postgres { postgres::guide() } else { String::new() };
            let sql = whole(kind, &format!("{guide}{}", take.at_once(kind)));
            let brought = wire.packet(&sql).await.map_err(SCHEMA.failed(doing))?;
            Ok(brought.rows)
        })
    });
    taken.await
}

/// A transaction of a statement, in one packet.
pub(super) fn whole(kind: Kind, sql: &str) -> String {
    format!("{}; {sql}; COMMIT", kind.begin())
}

/// Jobs by ID beside a table `v (id, n)` of IDs and numbers: what comes behind WITH, and behind FROM.
///
/// MySQL and MariaDB get the numbers as JSON, for with a bare IN they may scan the table instead; and if it
/// is small they do so here too, unless they are told not to. Then they would wait for rows that are not
/// in the list. The JSON is in a SELECT of its own because MySQL refuses to lock it.
pub(super) fn listed(kind: Kind, pairs: &[(i64, i64)]) -> (String, String) {
    let list = |open: char, close: char| {
        let pairs = pairs.iter().map(|(id, n)| format!("{open}{id},{n}{close}"));
        pairs.collect::<Vec<_>>().join(",")
    };
    match kind {
        Kind::Innodb => {
            let columns = "COLUMNS (id BIGINT PATH '$[0]', n BIGINT PATH '$[1]')";
            let v =
                format!("SELECT id, n FROM JSON_TABLE('[{}]', '$[*]' {columns}) w", list('[', ']'));
            let by_id = "STRAIGHT_JOIN hier_jobs j FORCE INDEX (PRIMARY) ON j.id = v.id";
            (String::new(), format!("({v}) v {by_id}"))
        }
        Kind::Postgres | Kind::Sqlite => {
            let v = format!("v (id, n) AS (VALUES {})", list('(', ')'));
            (v, "v JOIN hier_jobs j ON j.id = v.id".to_owned())
        }
    }
}

impl Rows {
    /// What stands from FROM on, and what must come before everything.
    fn found(&self, kind: Kind) -> (String, String) {
        let lock = |busy| kind.lock(RowLock::Exclusive, busy);
        match self {
            Rows::Ordered { index, which, order, most } => {
                let index = match kind {
                    Kind::Innodb => format!(" FORCE INDEX ({index})"),
                    Kind::Sqlite => format!(" INDEXED BY {index}"),
                    Kind::Postgres => String::new(),
                };
                // A clock that moves on cannot be looked up in an index, unless it is read once before.
                let now = match kind {
                    Kind::Postgres => format!("(SELECT {})", kind.now_ms()),
                    Kind::Innodb | Kind::Sqlite => kind.now_ms().to_owned(),
                };
                let (which, lock) = (which.replace("{now}", &now), lock(Busy::Skip));
                let found = format!(
                    "FROM hier_jobs AS j{index} WHERE {which} ORDER BY {order} LIMIT {most}{lock}"
                );
                (String::new(), found)
            }
            Rows::Listed { pairs, busy } => {
                let ((with, from), lock) = (listed(kind, pairs), lock(*busy));
                let found = format!("FROM {from} WHERE j.claim = v.n AND j.state = 2{lock}");
                (with + ", ", found)
            }
        }
    }
}

impl Take {
    /// What becomes of the rows.
    fn set(&self, kind: Kind, n: &str) -> String {
        let set = self.set.replace("{n}", n).replace("{now}", kind.now_ms());
        format!("{} = {n}, {set}", self.counts.0)
    }

    /// The one statement of PostgreSQL and SQLite.
    pub(super) fn at_once(&self, kind: Kind) -> String {
        let ((counted, by), returns) = (self.counts, self.returns);
        let (with, found) = self.rows.found(kind);
        let set = self.set(kind, &format!("{counted} + {by}"));
        format!(
            "WITH {with}c AS MATERIALIZED (SELECT j.id {found}) UPDATE hier_jobs SET {set} WHERE \
             id IN (SELECT id FROM c) RETURNING id, {counted}{returns}"
        )
    }

    /// The first of the two of MySQL and MariaDB.
    pub(super) fn select(&self, kind: Kind) -> String {
        let ((counted, by), returns) = (self.counts, self.returns);
        let (_, found) = self.rows.found(kind);
        format!("SELECT j.id, {counted} + {by}{returns} {found}")
    }

    async fn in_two(&self, wire: &mut Wire<'_>, doing: &'static str) -> Result<Vec<Row>> {
        let kind = wire.kind();
        let select = format!("{}; {}", kind.begin(), self.select(kind));
        let rows = wire.packet(&select).await.map_err(SCHEMA.failed(doing))?.rows;
        let taken = rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?)));
        let taken = taken.collect::<Result<Vec<_>>>()?;
        let change = match taken.is_empty() {
            true => "ROLLBACK".to_owned(),
            false => {
                let ((_, from), set) = (listed(kind, &taken), self.set(kind, "v.n"));
                format!("UPDATE {from} SET {set}; COMMIT")
            }
        };
        wire.run(&change).await.map_err(SCHEMA.failed(doing))?;
        Ok(rows)
    }
}
