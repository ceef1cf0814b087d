//! Pieces of text that messages and reports share.

use std::fmt::Display;

/// The items with `by` between them: `A or B or C`.
pub(crate) fn join(items: impl IntoIterator<Item = impl Display>, by: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(by)
}

/// `a, b and c`; `none` if there are none.
pub(crate) fn listed(items: impl IntoIterator<Item = impl Display>, last: &str) -> String {
    let mut items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.pop() {
        None => "none".to_owned(),
        Some(end) if items.is_empty() => end,
        Some(end) => format!("{} {last} {end}", items.join(", ")),
    }
}

/// `1 case`, `2 cases`.
pub(crate) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}
