//! Text functions that messages and reports share.

use std::fmt::Display;

/// Joins the items with `by` between them: `A or B or C`.
pub(crate) fn join(items: impl IntoIterator<Item = impl Display>, by: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(by)
}

/// Joins the items with commas, and the last with a word: `a, b and c`; returns `none` if there are none.
pub(crate) fn listed(items: impl IntoIterator<Item = impl Display>, last: &str) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.pop() {
        None => "none".to_owned(),
        Some(end) if items.is_empty() => end,
        Some(end) => format!("{} {last} {end}", items.join(", ")),
    }
}

/// Returns `1 case` or `2 cases`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Returns the byte offset of the first `word` that is not part of a longer word.
pub(crate) fn find_word(text: &str, word: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .find(|at| !text[..*at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// Implements `Serialize` as the text of `Display`.
macro_rules! serialize_as_text {
    ($($name:ty),*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
pub(crate) use serialize_as_text;
