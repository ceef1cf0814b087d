//! Text that is shown to a person.

use std::borrow::Cow;

/// Returns a text with its control characters escaped: what a person or a server said may hold anything, and a terminal
/// would obey it.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.into() };
    text.chars().map(escape).collect::<String>().into()
}
