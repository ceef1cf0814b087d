//! The statements of `setup:` and `teardown:`, run one after the other.

use super::connection::StageConnection;
use super::failure::copy_refusal;
use super::prepared::PreparedTransactions;
use super::{LIMIT, StageError};
use crate::scenario::Statement;
use hierlock_engine::{Dialect, StatementWords, error_message};

/// Runs the statements of a part of the file; one that is refused is named.
pub(super) async fn run_all(
    dialect: Dialect,
    connection: &mut StageConnection,
    statements: &[Statement],
    part: &str,
    prepared: &PreparedTransactions,
) -> Result<(), StageError> {
    for Statement { line, sql } in statements {
        let failed = |why: &str| {
            StageError(format!("line {line}: the {part} fails at `{}`: {why}", sql.trim()))
        };
        if let Some(copies) = StatementWords::of(dialect.driver(), sql).copy_direction() {
            return Err(failed(copy_refusal(copies)));
        }
        let run = connection.within(LIMIT, sql).await.map_err(|StageError(why)| failed(&why))?;
        run.map_err(|error| failed(&error_message(&error)))?;
        prepared.note(dialect.driver(), sql, None);
    }
    Ok(())
}
