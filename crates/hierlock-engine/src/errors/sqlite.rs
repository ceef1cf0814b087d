//! The errors of SQLite. The lowest byte of a number says what it is, the rest what sort of it.

use super::ErrorClass::{self, *};

/// Each primary number with its class.
const CLASSES: [(u32, ErrorClass); 2] = [
    (5, Busy),         // SQLITE_BUSY
    (8, AccessDenied), // SQLITE_READONLY
];

/// SQLITE_ERROR has no number for what is missing; its text is not translated.
const SQLITE_ERROR: u32 = 1;

/// SQLITE_CONSTRAINT with the sorts "primary key", "unique" and "row id".
const DUPLICATES: [u32; 3] = [1555, 2067, 2579];

/// Returns the class of a number and the message that came with it.
pub fn class(number: u32, message: &str) -> ErrorClass {
    if number == SQLITE_ERROR {
        return match message {
            message if message.contains("no such table") => UndefinedTable,
            message
                if message.contains("no such column")
                    || message.contains("has no column named") =>
            {
                UndefinedColumn
            }
            message if message.contains("duplicate column name") => Duplicate,
            _ => Other,
        };
    }
    if DUPLICATES.contains(&number) {
        return Duplicate;
    }
    CLASSES.iter().find(|(known, _)| *known == number & 0xff).map_or(Other, |(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_byte_decides() {
        // Recovering, an old snapshot, a time limit.
        for busy in [5, 261, 517, 773] {
            assert_eq!(class(busy, ""), Busy, "{busy}");
        }
        assert_eq!(class(6, ""), Other);
        assert_eq!(class(19, ""), Other);
        assert_eq!(class(2067, ""), Duplicate);
        assert_eq!(class(1, "no such table: t"), UndefinedTable);
        assert_eq!(class(1, "near \"x\": syntax error"), Other);
    }
}
