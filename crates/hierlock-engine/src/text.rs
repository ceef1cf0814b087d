//! Text that is shown to a person.

use std::borrow::Cow;

/// Returns a text with its control characters escaped: what a person or a server said may hold anything, and a terminal
/// would obey it.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}
