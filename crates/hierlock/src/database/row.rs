//! What a query returned.

use super::failed;
use crate::error::Result;
use sqlx::mysql::MySqlRow;
use sqlx::postgres::PgRow;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, ValueRef as _};

/// A row, read by column from 0.
pub struct Row(pub(super) Inner);

pub(super) enum Inner {
    Innodb(MySqlRow),
    Postgres(PgRow),
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteRow),
}

macro_rules! rows {
    ($($(#[$only:meta])? $name:ident: $inner:ident($row:ty);)*) => {
        $($(#[$only])?
        pub(super) fn $name(rows: Vec<$row>) -> Vec<Row> {
            rows.into_iter().map(|row| Row(Inner::$inner(row))).collect()
        })*
    };
}
rows! {
    innodb: Innodb(MySqlRow);
    postgres: Postgres(PgRow);
    #[cfg(feature = "sqlite")]
    sqlite: Sqlite(SqliteRow);
}

macro_rules! column {
    ($row:expr, $column:expr) => {
        match &$row.0 {
            Inner::Innodb(row) => row.try_get($column),
            Inner::Postgres(row) => row.try_get($column),
            #[cfg(feature = "sqlite")]
            Inner::Sqlite(row) => row.try_get($column),
        }
        .map_err(failed("read a column"))
    };
}

impl Row {
    /// A number, of a BIGINT column (any integer on SQLite).
    ///
    /// # Errors
    /// If the column is none of these, or NULL.
    pub fn int(&self, column: usize) -> Result<i64> {
        column!(self, column)
    }

    /// The same; None if it is NULL.
    ///
    /// # Errors
    /// If the column is not of this type.
    pub fn int_or_null(&self, column: usize) -> Result<Option<i64>> {
        column!(self, column)
    }

    /// A number of a column of any integer type, or NULL; if it is something else, or too great, the name
    /// of its type.
    pub(crate) fn any_int(&self, column: usize) -> Result<Option<i64>, String> {
        macro_rules! any_of {
            ($row:ident: $($number:ty),*) => {{
                $(if let Ok(number) = $row.try_get::<Option<$number>, _>(column)
                    && let Ok(number) = number.map(i64::try_from).transpose()
                {
                    return Ok(number);
                })*
                let value = $row.try_get_raw(column);
                Err(value.map_or_else(|error| error.to_string(), |value| value.type_info().to_string()))
            }};
        }
        match &self.0 {
            Inner::Innodb(row) => any_of!(row: i64, u64),
            Inner::Postgres(row) => any_of!(row: i64, i32, i16),
            #[cfg(feature = "sqlite")]
            Inner::Sqlite(row) => any_of!(row: i64),
        }
    }

    /// Text.
    ///
    /// # Errors
    /// If the column is not text, or NULL.
    pub fn text(&self, column: usize) -> Result<String> {
        column!(self, column)
    }

    /// The same; None if it is NULL.
    ///
    /// # Errors
    /// If the column is not text.
    pub fn text_or_null(&self, column: usize) -> Result<Option<String>> {
        column!(self, column)
    }

    /// Bytes.
    ///
    /// # Errors
    /// If the column has no bytes, or NULL.
    pub fn bytes(&self, column: usize) -> Result<Vec<u8>> {
        column!(self, column)
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").finish_non_exhaustive()
    }
}
