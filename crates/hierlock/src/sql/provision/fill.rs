//! Fills a table: several sessions insert chunks in the order of the primary key, each in its own transaction.
//!
//! | server | statement | reason |
//! |---|---|---|
//! | MySQL | `INSERT … SELECT` of two joined recursive table expressions | only the ends of the range are sent |
//! | MariaDB | `INSERT … SELECT` of `seq_A_to_B`, if the engine exists | the same, without a temporary table |
//! | PostgreSQL | `COPY` into a table whose primary key is created last | building an index is faster than growing it |
//!
//! `bench` compares them with other statements.

use super::chunk::{Chunks, RowRange, gaps};
use super::rate_limit::RateLimit;
use super::series::Series;
use super::{OnProgress, Provision, ProvisionPhase, ProvisionProgress};
use crate::sql::lock_table::{LockTableError, Result};
use crate::sql::{Dialect, Scheme};
use futures_util::future::try_join_all;
use hierlock_engine::{ErrorClass, Session};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The number of rows from which a gap has a statement of its own. Rows of shorter gaps are listed one by one.
const MIN_RANGE_ROWS: u64 = 64;
/// The maximum number of listed rows in one statement.
const MAX_LISTED_ROWS: usize = 5000;
/// The number of attempts to insert a chunk that conflicts with another session.
const MAX_TRIES: usize = 20;

impl Provision {
    /// Inserts the missing rows. Inserts all rows without a search if the table is empty. Returns the number of new rows.
    pub(super) async fn fill(
        &self,
        chunks: Chunks,
        is_empty: bool,
        progress: OnProgress<'_>,
    ) -> Result<u64> {
        let all_inserted = AtomicU64::new(0);
        let (inserted, limit) = (&all_inserted, &RateLimit::new(self.max_rows_per_second));
        let phase = ProvisionPhase::Filling;
        progress(ProvisionProgress { phase, done: 0, total: chunks.rows() });
        let fill = |mut session: Session, chunk: RowRange| async move {
            let new = self.fill_chunk(&mut session, chunk, is_empty, limit).await?;
            inserted.fetch_add(new, Relaxed);
            Ok(session)
        };
        self.for_each_chunk(chunks, phase, progress, fill).await?;
        Ok(all_inserted.into_inner())
    }

    /// Calls `work` for each chunk, on several sessions at the same time.
    pub(super) async fn for_each_chunk<W: Future<Output = Result<Session>>>(
        &self,
        chunks: Chunks,
        phase: ProvisionPhase,
        progress: OnProgress<'_>,
        work: impl Fn(Session, RowRange) -> W,
    ) -> Result<()> {
        let (next, done, total) = (AtomicUsize::new(0), AtomicU64::new(0), chunks.rows());
        let on_session = async || {
            let is_filling = phase == ProvisionPhase::Filling;
            let mut session =
                if is_filling { self.filler().await? } else { self.session().await? };
            while let Some(chunk) = chunks.get(next.fetch_add(1, Relaxed)) {
                session = work(session, chunk).await?;
                let done = done.fetch_add(chunk.rows(), Relaxed) + chunk.rows();
                progress(ProvisionProgress { phase, done, total });
            }
            Ok::<(), LockTableError>(())
        };
        let sessions = self.connections.min(chunks.iter().count());
        try_join_all((0..sessions).map(|_| on_session())).await?;
        Ok(())
    }

    async fn fill_chunk(
        &self,
        session: &mut Session,
        chunk: RowRange,
        is_empty: bool,
        limit: &RateLimit,
    ) -> Result<u64> {
        let scheme = &self.scheme;
        let missing = if is_empty { vec![chunk] } else { missing(session, scheme, chunk).await? };
        let rows = missing.iter().map(RowRange::rows).sum();
        if rows == 0 {
            return Ok(0);
        }
        limit.wait(rows).await;
        let is_conflict = |error: &sqlx::Error| {
            let class = ErrorClass::of(error);
            class == ErrorClass::Deadlock || class.is_not_granted()
        };
        let mut tries = 0;
        let inserted = loop {
            tries += 1;
            match insert(session, scheme, self.series, &missing).await {
                Err(error) if tries < MAX_TRIES && is_conflict(&error) => {}
                inserted => break inserted?,
            }
        };
        // If another session has inserted some of the rows, all of them must exist now.
        if inserted != rows && count_range(session, scheme, chunk).await? != chunk.rows() {
            let table = scheme.rows_table();
            return Err(LockTableError::Unusable(format!(
                "`{table}` lacks rows of {chunk} after they were inserted; does another program change it?"
            )));
        }
        Ok(inserted)
    }
}

/// Runs a query that returns a number in each row.
async fn ask_numbers(session: &mut Session, sql: &str) -> Result<Vec<u64>> {
    let rows = session.rows(sql).await?;
    let numbers: Option<Vec<u64>> = rows.iter().map(|row| row[0].parse().ok()).collect();
    numbers.ok_or(LockTableError::Unreadable("a result is not a number"))
}

/// Runs a query that returns one number.
pub(super) async fn count(session: &mut Session, sql: &str) -> Result<u64> {
    let number = ask_numbers(session, sql).await?.first().copied();
    number.ok_or(LockTableError::Unreadable("a COUNT has returned no row"))
}

/// Returns the number of existing rows of a range.
async fn count_range(session: &mut Session, scheme: &Scheme, range: RowRange) -> Result<u64> {
    let (table, within) = (scheme.quoted_table(), within(range));
    count(session, &format!("SELECT COUNT(*) FROM {table} WHERE {within}")).await
}

/// Returns the missing rows of a chunk. Reads the rows only if some exist and some do not.
pub(super) async fn missing(
    session: &mut Session,
    scheme: &Scheme,
    chunk: RowRange,
) -> Result<Vec<RowRange>> {
    match count_range(session, scheme, chunk).await? {
        0 => return Ok(vec![chunk]),
        rows if rows == chunk.rows() => return Ok(Vec::new()),
        _ => {}
    }
    let (table, within) = (scheme.quoted_table(), within(chunk));
    let sql = format!("SELECT bucket FROM {table} WHERE {within} ORDER BY bucket");
    let existing = ask_numbers(session, &sql).await?;
    Ok(gaps(chunk, existing))
}

pub(super) fn within(range: RowRange) -> String {
    let RowRange { level, first, last } = range;
    format!("level = {level} AND bucket BETWEEN {first} AND {last}")
}

/// Inserts rows that were missing a moment ago.
async fn insert(
    session: &mut Session,
    scheme: &Scheme,
    series: Series,
    missing: &[RowRange],
) -> sqlx::Result<u64> {
    // A statement that fails at an existing row is faster, so it is tried first.
    let first_attempt = match scheme.dialect {
        Dialect::Postgres => {
            let table = scheme.quoted_table();
            let copy = format!("COPY {table} (level, bucket) FROM STDIN");
            session.copy_in(&copy, text(missing)).await
        }
        _ => {
            let plain = |sql: String| sql.replacen("INSERT IGNORE", "INSERT", 1);
            run_all(session, inserts(scheme, series, missing).into_iter().map(plain)).await
        }
    };
    match first_attempt {
        Err(error) if ErrorClass::of(&error) == ErrorClass::Duplicate => {
            run_all(session, inserts(scheme, series, missing)).await
        }
        inserted => inserted,
    }
}

/// Runs statements one after the other. Returns the number of changed rows.
pub(super) async fn run_all(
    session: &mut Session,
    statements: impl IntoIterator<Item = String>,
) -> sqlx::Result<u64> {
    let mut affected = 0;
    for sql in statements {
        affected += session.as_ref().affected(&sql).await?;
    }
    Ok(affected)
}

/// Returns the rows as input of COPY.
fn text(ranges: &[RowRange]) -> Vec<u8> {
    let rows: u64 = ranges.iter().map(RowRange::rows).sum();
    // The level, a tab, up to ten digits and the end of the line: usually fewer than 11 bytes.
    let mut text = String::with_capacity(rows as usize * 11);
    for range in ranges {
        for bucket in range.first..=range.last {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}\t{bucket}", range.level);
        }
    }
    text.into_bytes()
}

/// Returns the statements that insert these rows and skip existing ones.
pub(super) fn inserts(scheme: &Scheme, series: Series, ranges: &[RowRange]) -> Vec<String> {
    let is_long =
        |range: &&RowRange| scheme.dialect == Dialect::Postgres || range.rows() >= MIN_RANGE_ROWS;
    let (long, short): (Vec<&RowRange>, Vec<&RowRange>) = ranges.iter().partition(is_long);
    let (table, [insert, on_conflict]) = (scheme.quoted_table(), scheme.insert_words());
    let insert_range = |range: &RowRange| {
        let rows = series.select(&format!("{}, ", range.level), range.first, range.last);
        format!("{insert} {table} (level, bucket) {rows}{on_conflict}")
    };
    let mut sql: Vec<String> = long.into_iter().map(insert_range).collect();
    let listed: Vec<String> = short
        .into_iter()
        .flat_map(|range| (range.first..=range.last).map(|b| format!("({}, {b})", range.level)))
        .collect();
    sql.extend(listed.chunks(MAX_LISTED_ROWS).map(|rows| {
        format!("INSERT IGNORE INTO {table} (level, bucket) VALUES {}", rows.join(", "))
    }));
    sql
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
                "INSERT IGNORE INTO hier_lock_buckets (level, bucket) SELECT 2, seq AS x FROM \
                 seq_100_to_999",
                "INSERT IGNORE INTO hier_lock_buckets (level, bucket) VALUES (2, 0), (2, 1), \
                 (2, 2000)",
            ]
        );
        assert_eq!(inserts(&Scheme::new(Dialect::Postgres), Series::Generated, &ranges).len(), 3);
        assert_eq!(text(&[range(9, 10)]), b"2\t9\n2\t10\n");
    }
}
