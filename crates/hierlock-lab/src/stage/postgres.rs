//! What the lab asks of PostgreSQL besides its locks, and what it sets there.

use super::StageError;
use super::connection::StageConnection;
use hierlock_engine::number_cell;
use std::time::Duration;

/// What only an administrator may set: a deadlock is looked for at once, not after a second; and what
/// the server says can be read whatever its language.
pub(super) const WISHES: [&str; 2] = ["SET deadlock_timeout = '20ms'", "SET lc_messages = 'C'"];

/// How long a question may wait for a table. A change of the table may be waiting for a session of the
/// case: who asks must not wait behind it.
pub(super) const BRIEF: &str = "SET lock_timeout = '10ms'";

/// A session looks for a deadlock this much later than it should, at the latest: a process that is woken
/// waits for its turn on the processor.
pub(super) const CHECK_DELAY: Duration = Duration::from_millis(15);

/// How long after the beginning of a wait a session looks for a deadlock.
pub(super) async fn deadlock_timeout(
    connection: &mut StageConnection,
) -> Result<Duration, StageError> {
    // In milliseconds.
    let sql = "SELECT setting FROM pg_settings WHERE name = 'deadlock_timeout'";
    let rows = connection.ask(sql).await?;
    let millis = rows.first().and_then(|row| number_cell(row, 0)).unwrap_or_default();
    Ok(Duration::from_millis(millis.try_into().unwrap_or_default()))
}

/// Again for as long as it takes.
pub(super) const PATIENT: &str = "SET lock_timeout = 0";

/// Makes the extension that tells who has which rows, in the database of a case.
pub(super) const ROW_LOCKS: &str = "CREATE EXTENSION IF NOT EXISTS pgrowlocks SCHEMA public";
