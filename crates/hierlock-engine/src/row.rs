//! What a query returned.

use sqlx::{Row as _, ValueRef as _};

/// A row, read by column from 0.
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

/// A row of a query without bound values, each column as the server writes it; what is NULL is empty.
pub type TextRow = Vec<String>;

/// The same, with NULL told from an empty text, and bytes that are no text as MySQL's client writes them: `0x00FF`.
pub type CellRow = Vec<Option<String>>;

/// Returns a cell of a row, by its column from 0; what is NULL, or not there, is empty.
pub fn cell(row: &[Option<String>], column: usize) -> &str {
    row.get(column).and_then(Option::as_deref).unwrap_or_default()
}

/// Returns the number in a cell of a row; None if it is none.
pub fn number_cell(row: &[Option<String>], column: usize) -> Option<i64> {
    row.get(column)?.as_ref()?.parse().ok()
}

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
        /// Reads a number of a BIGINT column (any integer on SQLite). Fails if it is none of these, or NULL.
        int: i64;
        /// The same; None if it is NULL.
        int_or_null: Option<i64>;
        /// Reads text. Fails if the column is not text, or NULL.
        text: String;
        /// The same; None if it is NULL.
        text_or_null: Option<String>;
        /// Reads bytes. Fails if the column has no bytes, or NULL.
        bytes: Vec<u8>;
    }

    /// Reads a number of any integer type, or NULL. Fails with the name of its type if it is none, or too great.
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

    /// Reads all columns of a row that was asked for without values, which come as text. Fails if one does not.
    pub fn into_text(self) -> Result<TextRow, sqlx::Error> {
        on_row!(self, row => {
            (0..row.len())
                .map(|column| row.try_get_unchecked::<Option<String>, _>(column))
                .map(|text| text.map(Option::unwrap_or_default))
                .collect()
        })
    }

    /// The same, with NULL told from an empty text, and bytes that are no text in hexadecimal.
    pub(crate) fn into_cells(self) -> Result<CellRow, sqlx::Error> {
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
    fn what_is_no_text_is_written_in_hexadecimal() {
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
