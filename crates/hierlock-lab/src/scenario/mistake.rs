//! What is wrong with a scenario file, said so that one can mend it: where, what, and what would be
//! right. Knows lines and columns, not the language.

use crate::columns::columns_of;
pub(crate) use hierlock_engine::nearest;
use std::fmt;

/// Something in a scenario file that cannot be right.
///
/// ```
/// use hierlock_lab::Scenario;
///
/// let text = "engines: mysql postgress\nA> select 1\n";
/// let mistakes = Scenario::parse("demo", "demo.lab", text).unwrap_err();
/// assert_eq!(
///     mistakes[0].to_string(),
///     "demo.lab:1:16: `postgress` is not an engine; did you mean `postgres`? There are mysql, \
///      mariadb, postgres, memory and file\n  engines: mysql postgress\n                 ^"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file, as it was named.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What was wrong, and what would be right.
    pub message: String,
    /// The line itself.
    pub source: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        writeln!(f, "  {}", self.source)?;
        f.write_str("  ")?;
        for c in self.source.chars().chain(std::iter::repeat(' ')).take(self.column - 1) {
            // The caret must stand below its character: a tab stays one, a wide character is two.
            f.write_str(match c {
                '\t' => "\t",
                c if columns_of(c) == 2 => "  ",
                _ => " ",
            })?;
        }
        f.write_str("^")
    }
}

impl std::error::Error for Mistake {}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The column in characters, from 1.
    pub(crate) column: usize,
}

/// Something wrong inside of a piece of text, before it is known where in the file that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slip {
    /// The byte of the text.
    pub(crate) at: usize,
    /// What was wrong, and what would be right.
    pub(crate) message: String,
}

impl Slip {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        Slip { at, message: message.into() }
    }
}

/// All that is wrong with one file, as it is found.
pub(crate) struct Mistakes<'t> {
    file: &'t str,
    lines: Vec<&'t str>,
    found: Vec<Mistake>,
}

impl<'t> Mistakes<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Self {
        Mistakes { file, lines: text.lines().collect(), found: Vec::new() }
    }

    /// Notes one. The same thing at the same place is noted once, however many cases meet it.
    pub(crate) fn at(&mut self, spot: Spot, message: impl Into<String>) {
        let message = message.into();
        let known =
            |m: &Mistake| m.line == spot.line && m.column == spot.column && m.message == message;
        if self.found.iter().any(known) {
            return;
        }
        let source = self.lines.get(spot.line.saturating_sub(1)).copied().unwrap_or_default();
        self.found.push(Mistake {
            file: self.file.to_owned(),
            line: spot.line,
            column: spot.column.max(1),
            message,
            source: source.trim_end().to_owned(),
        });
    }

    /// Notes one unless something is already noted there: for what many cases meet, each in its way.
    pub(crate) fn first_at(&mut self, spot: Spot, message: impl Into<String>) {
        let known = |mistake: &Mistake| mistake.line == spot.line && mistake.column == spot.column;
        if !self.found.iter().any(known) {
            self.at(spot, message);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// How many were noted so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len()
    }

    /// In the order of the file.
    pub(crate) fn into_found(mut self) -> Vec<Mistake> {
        self.found.sort_by_key(|mistake| (mistake.line, mistake.column));
        self.found
    }
}

/// ``"`postgress` is not an engine; did you mean `postgres`? There are …"``
pub(crate) fn unknown(word: &str, what: &str, known: &[&str]) -> String {
    format!("`{word}` is not {what}; {}", hint(word, known))
}

/// ``"did you mean `postgres`? There are …"``
pub(crate) fn hint(word: &str, known: &[&str]) -> String {
    let all = listed(known, "and");
    match nearest(word, known) {
        Some(near) => format!("did you mean `{near}`? There are {all}"),
        None => format!("there are {all}"),
    }
}

/// `1 cell`, `2 cells`
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// `a, b and c`
pub(crate) fn listed(words: &[impl AsRef<str>], last: &str) -> String {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [] => "none".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_stands_below_wide_characters() {
        let mut mistakes = Mistakes::new("a.lab", "seed: 課題1 x\n");
        mistakes.at(Spot { line: 1, column: 11 }, "here");
        mistakes.at(Spot { line: 1, column: 11 }, "here");
        let found = mistakes.into_found();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "a.lab:1:11: here\n  seed: 課題1 x\n              ^");
    }
}
