//! Tables of ours: how they are made, and what it means that one is missing.

use super::{Database, DatabaseConnection, Driver};
use crate::error::{Error, Result, TableError};
use hierlock_engine::ErrorClass;

/// The tables of one part of the toolbox.
#[derive(Clone, Copy)]
pub(crate) struct Schema {
    /// The part, as its command is called: `lease`, `queue`.
    pub(crate) part: &'static str,
    /// What makes each table, and fills it, in order; each may be run again.
    pub(crate) statements: fn(Driver) -> Vec<String>,
}

impl Schema {
    /// Makes what is not there yet.
    pub(crate) async fn provision(&self, database: &Database) -> Result<()> {
        let statements = (self.statements)(database.driver());
        let made = database.run(|tx| {
            let statements = statements.clone();
            Box::pin(async move {
                let mut connection = tx.connection();
                for statement in &statements {
                    make(&mut connection, statement).await.map_err(failed("make the tables"))?;
                }
                Ok(())
            })
        });
        made.await
    }

    /// The same, for a person to run.
    pub(crate) fn script(&self, driver: Driver) -> String {
        (self.statements)(driver).iter().map(|statement| format!("{statement};\n")).collect()
    }

    /// Says so if it was the tables that were missing.
    pub(crate) fn explain(self, error: Error) -> Error {
        let class = error.sql_source().map(ErrorClass::of);
        if class == Some(ErrorClass::UndefinedTable) {
            TableError::NotProvisioned { part: self.part }.into()
        } else {
            error
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
async fn make(connection: &mut DatabaseConnection<'_>, statement: &str) -> Result<(), sqlx::Error> {
    if connection.driver() != Driver::Postgres {
        return connection.run(statement).await;
    }
    connection.run("SAVEPOINT hierlock").await?;
    match connection.run(statement).await {
        Err(error) if is_collision(&error) => {
            connection.run("ROLLBACK TO SAVEPOINT hierlock").await
        }
        made => made,
    }
}

fn is_collision(error: &sqlx::Error) -> bool {
    // A function that is replaced by both has no code of its own.
    ErrorClass::of(error) == ErrorClass::Duplicate
        || error.as_database_error().is_some_and(|e| e.message().contains("concurrently updated"))
}
