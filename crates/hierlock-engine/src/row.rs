//! Rows of query results.

use sqlx::{Row as _, ValueRef as _};

/// A row of any driver. Columns are numbered from 0.
pub struct Row(DriverRow);

enum DriverRow {
    #[cfg(feature = "mysql")]
    Mysql(sqlx::mysql::MySqlRow),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgRow),
    #[cfg(feature = "sqlite")]
    Sqlite(sqlx::sqlite::SqliteRow),
}

macro_rules! from_driver {
    ($($feature:literal: $variant:ident($row:ty);)*) => {
        $(#[cfg(feature = $feature)]
        impl From<$row> for Row {
            fn from(row: $row) -> Self {
                Row(DriverRow::$variant(row))
            }
        })*
    };
}

from_driver! {
    "mysql": Mysql(sqlx::mysql::MySqlRow);
    "postgres": Postgres(sqlx::postgres::PgRow);
    "sqlite": Sqlite(sqlx::sqlite::SqliteRow);
}

/// A row of a query without bound values, each column in the server's text format. NULL is empty.
pub type TextRow = Vec<String>;

/// Like [`TextRow`], but NULL is None, and bytes that are not text are in hexadecimal, as MySQL's client prints them:
/// `0x00FF`.
pub type CellRow = Vec<Option<String>>;

/// Returns a cell of a row. NULL and a missing column are empty.
pub fn cell(row: &[Option<String>], column: usize) -> &str {
    row.get(column).and_then(Option::as_deref).unwrap_or_default()
}

/// Returns the number in a cell of a row; None if it is not a number.
pub fn number_cell(row: &[Option<String>], column: usize) -> Option<i64> {
    row.get(column)?.as_ref()?.parse().ok()
}

/// The error of a column that cannot be read as the requested type.
#[derive(Debug, thiserror::Error)]
#[error("cannot read a column: {0}")]
pub struct ColumnError(#[source] pub sqlx::Error);

/// Runs the same code on the row of any driver.
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

macro_rules! read_column {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])*
        pub fn $name(&self, column: usize) -> Result<$type, ColumnError> {
            on_row!(self, row => row.try_get(column)).map_err(ColumnError)
        })*
    };
}

impl Row {
    read_column! {
        /// Reads a number of a BIGINT column (any integer on SQLite). Fails for other types and NULL.
        int: i64;
        /// Like [`int`](Self::int); NULL is None.
        int_or_null: Option<i64>;
        /// Reads text. Fails for other types and NULL.
        text: String;
        /// Like [`text`](Self::text); NULL is None.
        text_or_null: Option<String>;
        /// Reads bytes. Fails for other types and NULL.
        bytes: Vec<u8>;
    }

    /// Reads a number of any integer type, or NULL. Fails with the name of the type if it is another, or if the value
    /// is too large.
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

    /// Reads all columns of a row of a query without bound values, whose results are text. Fails if a column is not
    /// text.
    pub fn into_text(self) -> sqlx::Result<TextRow> {
        on_row!(self, row => {
            (0..row.len())
                .map(|column| row.try_get_unchecked::<Option<String>, _>(column))
                .map(|text| text.map(Option::unwrap_or_default))
                .collect()
        })
    }

    /// Like [`into_text`](Self::into_text), but NULL is None, and bytes that are not text are in hexadecimal.
    pub(crate) fn into_cells(self) -> sqlx::Result<CellRow> {
        match self.0 {
            #[cfg(feature = "mysql")]
            DriverRow::Mysql(row) => (0..row.len())
                .map(|column| Ok(row.try_get_unchecked::<Option<Vec<u8>>, _>(column)?.map(as_text)))
                .collect(),
            #[cfg(feature = "postgres")]
            DriverRow::Postgres(row) => (0..row.len())
                .map(|column| {
                    let value = row.try_get_raw(column)?;
                    if value.is_null() {
                        return Ok(None);
                    }
                    value.as_str().map(|text| Some(text.to_owned())).map_err(sqlx::Error::Decode)
                })
                .collect(),
            #[cfg(feature = "sqlite")]
            DriverRow::Sqlite(row) => {
                (0..row.len()).map(|column| row.try_get_unchecked(column)).collect()
            }
        }
    }
}

#[cfg(feature = "mysql")]
fn as_text(bytes: Vec<u8>) -> String {
    let is_text = |c: char| !c.is_control() || c.is_whitespace();
    let hex =
        |bytes: &[u8]| bytes.iter().fold("0x".to_owned(), |hex, byte| format!("{hex}{byte:02X}"));
    match String::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_text) => text,
        Ok(text) => hex(text.as_bytes()),
        Err(error) => hex(error.as_bytes()),
    }
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Row").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "mysql"))]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_hexadecimal() {
        for (bytes, written) in [
            (&b"it's\n"[..], "it's\n"),
            ("席".as_bytes(), "席"),
            (&[1], "0x01"),
            (&[0xff, 0], "0xFF00"),
            (b"", ""),
        ] {
            assert_eq!(as_text(bytes.to_vec()), written);
        }
        let row = [Some("7".to_owned()), None];
        assert_eq!((cell(&row, 0), cell(&row, 1), cell(&row, 2)), ("7", "", ""));
        assert_eq!((number_cell(&row, 0), number_cell(&row, 1)), (Some(7), None));
    }
}
