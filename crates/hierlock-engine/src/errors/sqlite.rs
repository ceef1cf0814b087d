//! The error codes of SQLite. The lowest byte is the primary code, the rest makes it an extended code.

use super::ErrorClass::{self, *};
use super::class_of;

pub(super) const CLASSES: [(u32, ErrorClass); 2] = [
    (5, Busy),         // SQLITE_BUSY
    (8, AccessDenied), // SQLITE_READONLY
];

/// SQLITE_ERROR has no extended code for a missing table or column. Its message is not translated.
const SQLITE_ERROR: u32 = 1;

/// SQLITE_CONSTRAINT_PRIMARYKEY, SQLITE_CONSTRAINT_UNIQUE and SQLITE_CONSTRAINT_ROWID.
const DUPLICATES: [u32; 3] = [1555, 2067, 2579];

/// Returns the class of an error code and its message.
pub fn class(number: u32, message: &str) -> ErrorClass {
    let contains = |words: &str| message.contains(words);
    match number {
        SQLITE_ERROR if contains("no such table") => UndefinedTable,
        SQLITE_ERROR if contains("no such column") || contains("has no column named") => {
            UndefinedColumn
        }
        SQLITE_ERROR if contains("duplicate column name") => Duplicate,
        SQLITE_ERROR => Other,
        number if DUPLICATES.contains(&number) => Duplicate,
        number => class_of(number & 0xff, &CLASSES),
    }
}
