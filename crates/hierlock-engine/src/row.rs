//! What a query returned.

use sqlx::{Row as _, ValueRef as _};

/// A row, read by column from 0.
pub struct Row(pub(crate) DriverRow);

/// The same, of one driver.
pub(crate) enum DriverRow {
    #[cfg(feature = "mysql")]
    Mysql(sqlx::mysql::MySqlRow),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgRow),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::sqlite::SqliteRow),
}

/// A row of a query without bound values, each column as the server writes it; what is NULL is empty.
pub type TextRow = Vec<String>;

/// A column that is not of the type that was asked for.
#[derive(Debug, thiserror::Error)]
#[error("cannot read a column: {0}")]
pub struct ColumnError(#[source] pub sqlx::Error);

/// Runs the same on the row of whichever driver it is.
macro_rules! on_row {
    ($row:expr, $r:ident => $run:expr) => {
        match &$row.0 {
            #[cfg(feature = "mysql")]
            DriverRow::Mysql($r) => $run,
            #[cfg(feature = "postgres")]
            DriverRow::Postgres($r) => $run,
            #[cfg(feature = "sqlite")]
            DriverRow::Sqlite($r) => $run,
        }
    };
}

impl Row {
    /// Reads a number of a BIGINT column (any integer on SQLite).
    ///
    /// # Errors
    /// If the column is none of these, or NULL.
    pub fn int(&self, column: usize) -> Result<i64, ColumnError> {
        on_row!(self, row => row.try_get(column)).map_err(ColumnError)
    }

    /// The same; None if it is NULL.
    ///
    /// # Errors
    /// If the column is not of this type.
    pub fn int_or_null(&self, column: usize) -> Result<Option<i64>, ColumnError> {
        on_row!(self, row => row.try_get(column)).map_err(ColumnError)
    }

    /// Reads a number of a column of any integer type, or NULL.
    ///
    /// # Errors
    /// If it is something else, or too great: the name of its type.
    pub fn any_int(&self, column: usize) -> Result<Option<i64>, String> {
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
            #[cfg(feature = "mysql")]
            DriverRow::Mysql(row) => any_of!(row: i64, u64),
            #[cfg(feature = "postgres")]
            DriverRow::Postgres(row) => any_of!(row: i64, i32, i16),
            #[cfg(feature = "sqlite")]
            DriverRow::Sqlite(row) => any_of!(row: i64),
        }
    }

    /// Reads text.
    ///
    /// # Errors
    /// If the column is not text, or NULL.
    pub fn text(&self, column: usize) -> Result<String, ColumnError> {
        on_row!(self, row => row.try_get(column)).map_err(ColumnError)
    }

    /// The same; None if it is NULL.
    ///
    /// # Errors
    /// If the column is not text.
    pub fn text_or_null(&self, column: usize) -> Result<Option<String>, ColumnError> {
        on_row!(self, row => row.try_get(column)).map_err(ColumnError)
    }

    /// Reads bytes.
    ///
    /// # Errors
    /// If the column has no bytes, or NULL.
    pub fn bytes(&self, column: usize) -> Result<Vec<u8>, ColumnError> {
        on_row!(self, row => row.try_get(column)).map_err(ColumnError)
    }

    /// Reads all columns of a row that was asked for without bound values, which come back as text.
    ///
    /// # Errors
    /// If a column is not text.
    pub fn into_text(self) -> Result<TextRow, sqlx::Error> {
        on_row!(self, row => {
            (0..row.len())
                .map(|column| row.try_get_unchecked::<Option<String>, _>(column))
                .map(|text| text.map(Option::unwrap_or_default))
                .collect()
        })
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").finish_non_exhaustive()
    }
}
