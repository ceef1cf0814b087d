//! The errors of SQLite. The lowest byte of a number says what it is, the rest what sort of it.

use super::ErrorClass::{self, *};
use super::class_of;

pub(super) const CLASSES: [(u32, ErrorClass); 2] = [
    (5, Busy),         // SQLITE_BUSY
    (8, AccessDenied), // SQLITE_READONLY
];

/// SQLITE_ERROR has no number for what is missing; its text is not translated.
const SQLITE_ERROR: u32 = 1;

/// SQLITE_CONSTRAINT with the sorts "primary key", "unique" and "row id".
const DUPLICATES: [u32; 3] = [1555, 2067, 2579];

/// Returns the class of a number and the message that came with it.
pub fn class(number: u32, message: &str) -> ErrorClass {
    let says = |words: &str| message.contains(words);
    match number {
        SQLITE_ERROR if says("no such table") => UndefinedTable,
        SQLITE_ERROR if says("no such column") || says("has no column named") => UndefinedColumn,
        SQLITE_ERROR if says("duplicate column name") => Duplicate,
        SQLITE_ERROR => Other,
        number if DUPLICATES.contains(&number) => Duplicate,
        number => class_of(number & 0xff, &CLASSES),
    }
}
