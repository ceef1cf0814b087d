//! Filling a table: chunks in the order of the primary key, each a transaction, by several sessions.
//!
//! | server | how | why |
//! |---|---|---|
//! | MySQL | `INSERT … SELECT` of two recursive table expressions, joined | nothing is sent but the two ends |
//! | MariaDB | `INSERT … SELECT` of its `seq_A_to_B`, where it has that | the same, without a table in between |
//! | PostgreSQL | `COPY`, into a table whose primary key is made last | an index is built faster than it grows |
//!
//! `bench` has them side by side with other ways.

use super::chunk::{Chunks, RowRange, gaps};
use super::pace::Pace;
use super::series::Series;
use super::{Phase, Progress, Provision};
use crate::error::Result;
use crate::sql::failure::LockFailure;
use crate::sql::{Dialect, Scheme};
use futures_util::future::try_join_all;
use hierlock_engine::Session;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// A shorter gap is not worth a statement of its own.
const WORTH_A_STATEMENT: u64 = 64;
/// How many rows are listed in one statement.
const LISTED: usize = 5000;
/// How often a chunk that met someone else is tried.
const TRIES: usize = 20;

/// What is known of the rows before they are filled.
#[derive(Debug)]
pub(super) enum Before {
    /// There are none: the table was made just now.
    Empty,
    /// Some may be there.
    Unknown,
    /// Some may be there, and without a primary key nothing keeps a row from being there twice. How
    /// many there are, by level and number of the chunk.
    Keyless(HashMap<(usize, u32), u64>),
}

/// A run of filling.
pub(super) struct Fill<'a> {
    pub(super) provision: &'a Provision,
    pub(super) chunks: Chunks,
    pub(super) before: Before,
    pub(super) progress: &'a (dyn Fn(Progress) + Send + Sync),
}

impl Fill<'_> {
    /// Fills what is missing; how many rows that was.
    pub(super) async fn run(&self) -> Result<u64> {
        let Self { provision, chunks, .. } = self;
        let (next, done, inserted) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let pace = Pace::new(provision.max_rows_per_second);
        let total = chunks.rows();
        (self.progress)(Progress { phase: Phase::Filling, done: 0, total });
        let connections = provision.connections.min(chunks.iter().count()).max(1);
        let work = async || {
            let mut session = provision.follower().await?;
            while let Some(chunk) = chunks.get(next.fetch_add(1, Relaxed)) {
                let new = self.fill(&mut session, chunk, &pace).await?;
                inserted.fetch_add(new, Relaxed);
                let done = done.fetch_add(chunk.rows(), Relaxed) + chunk.rows();
                (self.progress)(Progress { phase: Phase::Filling, done, total });
            }
            Ok::<(), crate::Error>(())
        };
        try_join_all((0..connections).map(|_| work())).await?;
        Ok(inserted.into_inner())
    }

    async fn fill(&self, session: &mut Session, chunk: RowRange, pace: &Pace) -> Result<u64> {
        let failed = |error| self.provision.failed(error);
        let scheme = &self.provision.scheme;
        let missing = match &self.before {
            Before::Empty => vec![chunk],
            Before::Unknown => missing(session, scheme, chunk).await.map_err(failed)?,
            Before::Keyless(counts) => {
                let number = (chunk.first - self.chunks.buckets.0) / self.chunks.size;
                match counts.get(&(chunk.level, number)) {
                    None => vec![chunk],
                    Some(rows) if *rows == chunk.rows() => return Ok(0),
                    Some(_) => {
                        pace.wait(chunk.rows()).await;
                        return replace(session, scheme, chunk).await.map_err(failed);
                    }
                }
            }
        };
        let rows = missing.iter().map(RowRange::rows).sum();
        if rows == 0 {
            return Ok(0);
        }
        pace.wait(rows).await;
        let mut tries = 0;
        let inserted = loop {
            tries += 1;
            match insert(session, scheme, self.provision.series, &missing).await {
                Err(error) if tries < TRIES && is_transient(&error) => {}
                inserted => break inserted.map_err(failed)?,
            }
        };
        // Someone else's rows do as well as ours, if they are there.
        if inserted != rows && count(session, scheme, chunk).await.map_err(failed)? != chunk.rows()
        {
            let table = scheme.rows_table();
            return Err(self.provision.unfit(format!(
                "`{table}` did not take the rows of {chunk}; does something else change it?"
            )));
        }
        Ok(inserted)
    }
}

fn is_transient(error: &sqlx::Error) -> bool {
    matches!(LockFailure::of(error), LockFailure::Deadlock | LockFailure::NotGranted)
}

/// How many rows of a range are there.
pub(super) async fn count(
    session: &mut Session,
    scheme: &Scheme,
    range: RowRange,
) -> Result<u64, sqlx::Error> {
    let sql = format!("SELECT COUNT(*) FROM {} WHERE {}", scheme.quoted_table(), within(range));
    number(session, &sql).await
}

pub(super) async fn number(session: &mut Session, sql: &str) -> Result<u64, sqlx::Error> {
    let rows = session.rows(sql).await?;
    let number = rows.first().and_then(|row| row[0].parse().ok());
    number.ok_or(sqlx::Error::RowNotFound)
}

/// What is missing of a chunk. Its rows are read only if some are there and some are not.
pub(super) async fn missing(
    session: &mut Session,
    scheme: &Scheme,
    chunk: RowRange,
) -> Result<Vec<RowRange>, sqlx::Error> {
    match count(session, scheme, chunk).await? {
        0 => return Ok(vec![chunk]),
        rows if rows == chunk.rows() => return Ok(Vec::new()),
        _ => {}
    }
    let (table, within) = (scheme.quoted_table(), within(chunk));
    let sql = format!("SELECT bucket FROM {table} WHERE {within} ORDER BY bucket");
    let there = session.rows(&sql).await?;
    let there: Result<Vec<u32>, _> = there.iter().map(|row| row[0].parse()).collect();
    Ok(gaps(chunk, there.map_err(|_| sqlx::Error::RowNotFound)?))
}

pub(super) fn within(range: RowRange) -> String {
    let RowRange { level, first, last } = range;
    format!("level = {level} AND bucket BETWEEN {first} AND {last}")
}

/// How many rows each chunk has, in one pass over a table without a key.
pub(super) async fn keyless(
    session: &mut Session,
    scheme: &Scheme,
    size: u32,
) -> Result<Before, sqlx::Error> {
    let sql = format!(
        "SELECT level, bucket / {size}, COUNT(*) FROM {} GROUP BY 1, 2",
        scheme.quoted_table()
    );
    let mut counts = HashMap::new();
    for row in session.rows(&sql).await? {
        let bad = |_| sqlx::Error::RowNotFound;
        let place = (row[0].parse().map_err(bad)?, row[1].parse().map_err(bad)?);
        counts.insert(place, row[2].parse().map_err(bad)?);
    }
    Ok(Before::Keyless(counts))
}

/// Inserts these rows, of which none is there as far as is known.
async fn insert(
    session: &mut Session,
    scheme: &Scheme,
    series: Series,
    missing: &[RowRange],
) -> Result<u64, sqlx::Error> {
    // First as if none were there, which is faster.
    let hopeful = match scheme.dialect {
        Dialect::Postgres => session.copy_in(&copy(scheme), text(missing)).await,
        _ => {
            let plain = |sql: String| sql.replacen("INSERT IGNORE", "INSERT", 1);
            run(session, inserts(scheme, series, missing).into_iter().map(plain)).await
        }
    };
    match hopeful {
        Err(error) if is_duplicate(&error) => run(session, inserts(scheme, series, missing)).await,
        inserted => inserted,
    }
}

async fn run(
    session: &mut Session,
    statements: impl IntoIterator<Item = String>,
) -> Result<u64, sqlx::Error> {
    let mut affected = 0;
    for sql in statements {
        affected += session.affected(&sql).await?;
    }
    Ok(affected)
}

/// Writes a chunk anew, of which some rows were there. Only while nobody locks them.
async fn replace(
    session: &mut Session,
    scheme: &Scheme,
    chunk: RowRange,
) -> Result<u64, sqlx::Error> {
    let (table, within) = (scheme.quoted_table(), within(chunk));
    session.run(&format!("BEGIN; DELETE FROM {table} WHERE {within}")).await?;
    let copied = session.copy_in(&copy(scheme), text(&[chunk])).await?;
    session.run("COMMIT").await?;
    Ok(copied)
}

fn is_duplicate(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(error) if error.is_unique_violation())
}

fn copy(scheme: &Scheme) -> String {
    format!("COPY {} (level, bucket) FROM STDIN", scheme.quoted_table())
}

/// Rows as COPY reads them.
fn text(ranges: &[RowRange]) -> Vec<u8> {
    let rows: u64 = ranges.iter().map(RowRange::rows).sum();
    // At most ten digits, a level, a tab and a line's end; usually fewer.
    let mut text = String::with_capacity(rows as usize * 11);
    for range in ranges {
        for bucket in range.first..=range.last {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}\t{bucket}", range.level);
        }
    }
    text.into_bytes()
}

/// What inserts these rows; those that are there stay.
pub(super) fn inserts(scheme: &Scheme, series: Series, ranges: &[RowRange]) -> Vec<String> {
    let is_long = |range: &&RowRange| {
        scheme.dialect == Dialect::Postgres || range.rows() >= WORTH_A_STATEMENT
    };
    let (long, short): (Vec<&RowRange>, Vec<&RowRange>) = ranges.iter().partition(is_long);
    let mut sql: Vec<String> =
        long.into_iter().map(|range| insert_range(scheme, series, range)).collect();
    let listed: Vec<String> = short
        .into_iter()
        .flat_map(|range| (range.first..=range.last).map(|b| format!("({}, {b})", range.level)))
        .collect();
    let table = scheme.quoted_table();
    sql.extend(listed.chunks(LISTED).map(|rows| {
        format!("INSERT IGNORE INTO {table} (level, bucket) VALUES {}", rows.join(", "))
    }));
    sql
}

fn insert_range(scheme: &Scheme, series: Series, range: &RowRange) -> String {
    let RowRange { level, first, last } = *range;
    let into = format!("INTO {} (level, bucket)", scheme.quoted_table());
    let rows = series.select(&format!("{level}, x"), first, last);
    match scheme.dialect {
        Dialect::Postgres => format!("INSERT {into} {rows} ON CONFLICT DO NOTHING"),
        _ => format!("INSERT IGNORE {into} {rows}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_gaps_are_listed_and_long_ones_are_ranges() {
        let range = |first, last| RowRange { level: 2, first, last };
        let ranges = [range(0, 1), range(100, 999), range(2000, 2000)];
        let scheme = Scheme::new(Dialect::Mariadb);
        assert_eq!(
            inserts(&scheme, Series::Sequence, &ranges),
            [
                "INSERT IGNORE INTO hier_lock_buckets (level, bucket) SELECT 2, seq FROM \
                 seq_100_to_999",
                "INSERT IGNORE INTO hier_lock_buckets (level, bucket) VALUES (2, 0), (2, 1), \
                 (2, 2000)",
            ]
        );
        assert_eq!(inserts(&Scheme::new(Dialect::Postgres), Series::Generated, &ranges).len(), 3);
        assert_eq!(text(&[range(9, 10)]), b"2\t9\n2\t10\n");
    }
}
