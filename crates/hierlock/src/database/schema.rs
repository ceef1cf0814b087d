//! Tables of ours: how they are made, and what it means that one is missing.

use super::{Database, Kind, Wire};
use crate::error::{Error, Result, TableError};
use sqlx::mysql::MySqlDatabaseError;

/// The tables of one part of the toolbox.
#[derive(Clone, Copy)]
pub(crate) struct Schema {
    /// The part, as its command is called: `lease`, `queue`.
    pub(crate) part: &'static str,
    /// What makes each table, and fills it, in order; each may be run again.
    pub(crate) statements: fn(Kind) -> Vec<String>,
}

impl Schema {
    /// Makes what is not there yet.
    pub(crate) async fn provision(&self, database: &Database) -> Result<()> {
        let statements = (self.statements)(database.kind());
        let made = database.run(|tx| {
            let statements = statements.clone();
            Box::pin(async move {
                let mut wire = tx.wire();
                for statement in &statements {
                    make(&mut wire, statement).await.map_err(failed("make the tables"))?;
                }
                Ok(())
            })
        });
        made.await
    }

    /// The same, for a person to run.
    pub(crate) fn script(&self, kind: Kind) -> String {
        (self.statements)(kind).iter().map(|statement| format!("{statement};\n")).collect()
    }

    /// Says so if it was the tables that were missing.
    pub(crate) fn explain(self, error: Error) -> Error {
        match error.sql_source().is_some_and(is_missing_table) {
            true => TableError::NotProvisioned { part: self.part }.into(),
            false => error,
        }
    }

    /// Says so if the tables are missing.
    pub(crate) fn failed(self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
        move |source| self.explain(failed(doing)(source))
    }
}

/// A failed statement as an error of ours, which `retry` can read.
pub(crate) fn failed(doing: &'static str) -> impl FnOnce(sqlx::Error) -> Error {
    move |source| TableError::Failed { doing, source }.into()
}

/// Runs what may have been run before: on PostgreSQL two who do at once can collide, in spite of IF NOT
/// EXISTS, and then the other one has done it.
async fn make(wire: &mut Wire<'_>, statement: &str) -> Result<(), sqlx::Error> {
    if wire.kind() != Kind::Postgres {
        return wire.run(statement).await;
    }
    wire.run("SAVEPOINT hierlock").await?;
    match wire.run(statement).await {
        Err(error) if is_collision(&error) => wire.run("ROLLBACK TO SAVEPOINT hierlock").await,
        made => made,
    }
}

fn is_collision(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    // unique_violation in the catalogue, duplicate_table, duplicate_object; a function that is replaced by
    // both has no code of its own.
    matches!(error.code().as_deref(), Some("23505" | "42P07" | "42710"))
        || error.message().contains("concurrently updated")
}

fn is_missing_table(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else { return false };
    match error.try_downcast_ref::<MySqlDatabaseError>() {
        Some(error) => error.number() == 1146,
        // SQLite has no number of its own for it.
        None => {
            // undefined_table, undefined_function
            matches!(error.code().as_deref(), Some("42P01" | "42883"))
                || error.message().contains("no such table")
        }
    }
}
