//! How much room a text takes, where every column is as wide as the next.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How many columns a text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// The same of a character.
pub(crate) fn columns_of(c: char) -> usize {
    c.width().unwrap_or(0)
}
