//! Texts of a scenario file with `{name}`s of axes, and their positions in the file.

use super::diagnostic::{Diagnostics, ParseError, Position};
use super::source_line::SourceSpan;

/// A combination of the values of all axes: names and values.
pub(crate) type Variant = Vec<(String, String)>;

/// A text of a file, which may contain `{name}`s of axes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    /// The text as written, without comments.
    pub(crate) text: String,
    /// The byte offset of each line of the text, and its position in the file.
    lines: Vec<(usize, Position)>,
}

/// A template, and its value in each variant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TemplateValue<T> {
    pub(crate) template: Template,
    /// The values by the index of the variant; a single one, if the template contains no axis.
    pub(crate) values: Vec<T>,
}

impl<T> TemplateValue<T> {
    pub(crate) fn for_variant(&self, variant: usize) -> Option<&T> {
        self.values.get(variant).or(self.values.first())
    }
}

impl From<SourceSpan<'_>> for Template {
    fn from(span: SourceSpan<'_>) -> Self {
        let mut template = Self::default();
        template.push(span, 0);
        template
    }
}

impl Template {
    /// Returns a statement: its first line, and the lines below without their common indentation.
    pub(crate) fn statement(first: Option<SourceSpan<'_>>, others: &[SourceSpan<'_>]) -> Self {
        let margin = others.iter().map(|span| span.position.column).min().unwrap_or(1);
        let mut template = Self::default();
        for span in first.into_iter().filter(|span| !span.text.is_empty()) {
            template.push(span, 0);
        }
        for span in others {
            template.push(*span, span.position.column - margin);
        }
        template
    }

    pub(crate) fn push(&mut self, span: SourceSpan<'_>, indent: usize) {
        if !self.lines.is_empty() {
            self.text.push('\n');
        }
        self.text += &" ".repeat(indent);
        self.lines.push((self.text.len(), span.position));
        self.text += span.text;
    }

    pub(crate) fn begin(&self) -> Position {
        self.lines.first().map_or(Position { line: 1, column: 1 }, |(_, position)| *position)
    }

    pub(crate) fn line_numbers(&self) -> Vec<usize> {
        let mut numbers: Vec<usize> = self.lines.iter().map(|(_, at)| at.line).collect();
        numbers.dedup();
        numbers
    }

    /// Returns the position in the file of a byte of the text.
    pub(crate) fn position(&self, byte: usize) -> Position {
        let line = self.lines.iter().rev().find(|(from, _)| *from <= byte);
        let Some((from, begin)) = line else { return self.begin() };
        let before = self.text.get(*from..byte).unwrap_or_default();
        Position { column: begin.column + before.chars().count(), ..*begin }
    }

    /// Returns a part of the template, by bytes, without surrounding whitespace.
    pub(crate) fn piece(&self, from: usize, to: usize) -> Template {
        let text = &self.text[from..to];
        let from = from + (text.len() - text.trim_start().len());
        let text = text.trim().to_owned();
        let later = self.lines.iter().filter(|(at, _)| *at > from && *at < from + text.len());
        let later = later.map(|(at, position)| (at - from, *position));
        let lines = std::iter::once((0, self.position(from))).chain(later).collect();
        Template { text, lines }
    }

    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.placeholders().any(|(_, inner)| inner == name)
    }

    /// Returns every `{name}` with its byte offset, whether or not there is such an axis.
    pub(crate) fn placeholders(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.match_indices('{').filter_map(|(at, _)| {
            let inner = &self.text[at + 1..];
            let name = &inner[..inner.find('}')?];
            is_axis_name(name).then_some((at, name))
        })
    }

    /// Returns the text of a variant in pieces: each with its byte offset here, and whether it is the value of an axis.
    fn pieces<'t>(&'t self, variant: &'t [(String, String)]) -> Vec<(usize, &'t str, bool)> {
        let mut pieces = Vec::new();
        let mut from = 0;
        for (at, name) in self.placeholders() {
            if let Some((_, value)) = variant.iter().find(|(known, _)| known == name) {
                pieces.push((from, &self.text[from..at], false));
                pieces.push((at, value.as_str(), true));
                from = at + name.len() + 2;
            }
        }
        pieces.push((from, &self.text[from..], false));
        pieces
    }

    /// Returns the text of a variant: every `{name}` of an axis is replaced.
    pub(crate) fn fill(&self, variant: &[(String, String)]) -> String {
        self.pieces(variant).into_iter().map(|(_, text, _)| text).collect()
    }

    pub(crate) fn report(
        &self,
        variant: &[(String, String)],
        error: ParseError,
        diagnostics: &mut Diagnostics<'_>,
    ) {
        let pieces = self.pieces(variant);
        let mut begin = 0;
        let mut byte = 0;
        for (at, text, is_value) in &pieces {
            if begin <= error.at {
                byte = if *is_value { *at } else { at + (error.at - begin) };
            }
            begin += text.len();
        }
        let mut message = error.message;
        if pieces.len() > 1 {
            let text = self.fill(variant);
            let before = text.get(..error.at).unwrap_or(&text).matches('\n').count();
            let line = text.lines().nth(before).unwrap_or_default();
            message = format!("{message} (as it reads in one variant: `{line}`)");
        }
        diagnostics.report(self.position(byte), message);
    }
}

/// Returns whether a name has only letters, digits, `_` and `-`, and begins with a letter.
pub(crate) fn is_axis_name(name: &str) -> bool {
    name.starts_with(char::is_alphabetic)
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::from(SourceSpan { text, position: Position { line: 3, column: 5 } })
    }

    #[test]
    fn only_names_of_axes_are_replaced() {
        let variant = [("held".to_owned(), "u1".to_owned()), ("n".to_owned(), "{held}".to_owned())];
        for (written, filled) in [
            ("lock {held}/a1", "lock u1/a1"),
            ("select '{\"held\": 1}'", "select '{\"held\": 1}'"),
            ("{other} {held", "{other} {held"),
            ("{n}{held}", "{held}u1"),
            ("{{held}}", "{u1}"),
        ] {
            assert_eq!(template(written).fill(&variant), filled, "{written}");
        }
    }

    #[test]
    fn an_error_after_a_replaced_name_has_the_right_position() {
        let variant = [("held".to_owned(), "u1/a1/r1".to_owned())];
        let written = template("lock {held} x");
        for (at, column) in [(0, 5), (5, 10), (8, 10), (13, 16), (14, 17)] {
            let mut diagnostics = Diagnostics::new("a", "");
            written.report(&variant, ParseError::new(at, "here"), &mut diagnostics);
            assert_eq!(diagnostics.found[0].column, column, "{at}");
        }
    }
}
