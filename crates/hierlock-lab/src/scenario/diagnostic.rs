//! Errors in a scenario file: the position, the problem, and what to write instead.

use crate::text::listed;
pub(crate) use hierlock_engine::nearest;
use std::fmt;
use unicode_width::UnicodeWidthChar;

/// An error in a scenario file.
///
/// ```
/// use hierlock_lab::Scenario;
///
/// let text = "engines: mysql postgress\nA> select 1\n";
/// let diagnostics = Scenario::parse("demo", "demo.lab", text).unwrap_err();
/// assert_eq!(
///     diagnostics[0].to_string(),
///     "demo.lab:1:16: `postgress` is not an engine; did you mean `postgres`? There are mysql, \
///      mariadb, postgres, memory and file\n  engines: mysql postgress\n                 ^"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, as the caller named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The problem, and what to write instead.
    pub message: String,
    /// The text of the line.
    pub source: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        writeln!(f, "  {}", self.source)?;
        f.write_str("  ")?;
        for c in self.source.chars().chain(std::iter::repeat(' ')).take(self.column - 1) {
            // The caret stands below its character: a tab stays a tab, a wide character takes two columns.
            f.write_str(match c {
                '\t' => "\t",
                c if c.width() == Some(2) => "  ",
                _ => " ",
            })?;
        }
        f.write_str("^")
    }
}

impl std::error::Error for Diagnostic {}

/// A position in a file: line and column, both from 1, the column in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// An error inside of a text, without its position in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// The byte offset in the text.
    pub(crate) at: usize,
    pub(crate) message: String,
}

impl ParseError {
    pub(crate) fn new(at: usize, message: impl Into<String>) -> Self {
        ParseError { at, message: message.into() }
    }

    /// Returns the error for a longer text, in which this one begins at byte `begin`.
    pub(crate) fn within(self, begin: usize) -> Self {
        ParseError { at: begin + self.at, ..self }
    }
}

impl From<ParseError> for Vec<ParseError> {
    fn from(error: ParseError) -> Self {
        vec![error]
    }
}

pub(crate) struct Diagnostics<'t> {
    file: &'t str,
    lines: Vec<&'t str>,
    pub(crate) found: Vec<Diagnostic>,
}

impl<'t> Diagnostics<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Self {
        Diagnostics { file, lines: text.lines().collect(), found: Vec::new() }
    }

    /// Adds a diagnostic, unless another case has already added the same message at the same position.
    pub(crate) fn report(&mut self, position: Position, message: impl Into<String>) {
        let message = message.into();
        if !self.at(position).any(|known| known.message == message) {
            let source = self.lines.get(position.line.saturating_sub(1)).unwrap_or(&"");
            self.found.push(Diagnostic {
                file: self.file.to_owned(),
                line: position.line,
                column: position.column.max(1),
                message,
                source: source.trim_end().to_owned(),
            });
        }
    }

    /// Adds a diagnostic unless there is one at that position: for messages that differ between cases.
    pub(crate) fn report_first(&mut self, position: Position, message: impl Into<String>) {
        if self.at(position).next().is_none() {
            self.report(position, message);
        }
    }

    fn at(&self, position: Position) -> impl Iterator<Item = &Diagnostic> {
        self.found.iter().filter(move |d| (d.line, d.column) == (position.line, position.column))
    }
}

/// Returns ``"`postgress` is not an engine; did you mean `postgres`? There are …"``.
pub(crate) fn unknown(word: &str, kind: &str, known: &[&str]) -> String {
    format!("`{word}` is not {kind}; {}", hint(word, known))
}

/// Returns ``"did you mean `postgres`? There are …"``.
pub(crate) fn hint(word: &str, known: &[&str]) -> String {
    let all = listed(known, "and");
    match nearest(word, known) {
        Some(near) => format!("did you mean `{near}`? There are {all}"),
        None => format!("there are {all}"),
    }
}
