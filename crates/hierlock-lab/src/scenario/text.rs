//! Text of a scenario file that is read once for each case, because an axis may change it, and that
//! still knows where it stands in the file.

use super::mistake::{Mistakes, Slip, Spot};
use super::outline::Part;

/// Text of a file, in which `{name}`s of axes still stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// As written, without comments.
    pub text: String,
    /// Where each of its lines stands in the file: the byte of the text, and the spot.
    at: Vec<(usize, Spot)>,
}

impl Text {
    /// The text of one part of a line.
    pub(crate) fn of(part: Part<'_>) -> Self {
        Text { text: part.text.to_owned(), at: vec![(0, part.spot)] }
    }

    /// A statement: its first line, and those below it without the indentation that they share.
    pub(crate) fn joined(first: Option<Part<'_>>, others: &[Part<'_>]) -> Self {
        let margin = others.iter().map(|part| part.spot.column).min().unwrap_or(1);
        let mut text = Text { text: String::new(), at: Vec::new() };
        for part in first.into_iter().filter(|part| !part.text.is_empty()) {
            text.push(part, 0);
        }
        for part in others {
            text.push(*part, part.spot.column - margin);
        }
        text
    }

    fn push(&mut self, part: Part<'_>, indent: usize) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.at.push((self.text.len(), part.spot));
        self.text.push_str(part.text);
    }

    /// Where it begins.
    pub(crate) fn begins(&self) -> Spot {
        self.at.first().map_or(Spot { line: 1, column: 1 }, |(_, spot)| *spot)
    }

    /// Where a byte of it stands in the file.
    pub(crate) fn spot(&self, byte: usize) -> Spot {
        let Some((from, spot)) = self.at.iter().rev().find(|(from, _)| *from <= byte) else {
            return self.begins();
        };
        let before = self.text.get(*from..byte).unwrap_or_default();
        Spot { column: spot.column + before.chars().count(), ..*spot }
    }

    /// A piece of it, by its bytes, without white space around.
    pub(crate) fn piece(&self, from: usize, to: usize) -> Text {
        let text = &self.text[from..to];
        let from = from + (text.len() - text.trim_start().len());
        let text = text.trim().to_owned();
        let later = self.at.iter().filter(|(at, _)| *at > from && *at < from + text.len());
        let at = std::iter::once((0, self.spot(from)))
            .chain(later.map(|(at, spot)| (at - from, *spot)))
            .collect();
        Text { text, at }
    }

    /// Does `{name}` stand in it?
    pub(crate) fn mentions(&self, name: &str) -> bool {
        placeholders(&self.text).any(|(_, inner)| inner == name)
    }

    /// The text of a case: every `{name}` of an axis replaced.
    pub(crate) fn fill<'t>(&'t self, variant: &[(String, String)]) -> Filled<'t> {
        let mut filled = Filled { text: String::new(), of: self, pieces: Vec::new() };
        let mut from = 0;
        for (at, name) in placeholders(&self.text) {
            let Some((_, value)) = variant.iter().find(|(known, _)| known == name) else {
                continue;
            };
            filled.copy(from, at);
            filled.pieces.push((filled.text.len(), at, false));
            filled.text.push_str(value);
            from = at + name.len() + 2;
        }
        filled.copy(from, self.text.len());
        filled
    }
}

/// A [`Text`] with the values of one case.
pub(crate) struct Filled<'t> {
    pub(crate) text: String,
    of: &'t Text,
    /// The byte of this text, the byte of the original, and whether the two run on together.
    pieces: Vec<(usize, usize, bool)>,
}

impl Filled<'_> {
    fn copy(&mut self, from: usize, to: usize) {
        self.pieces.push((self.text.len(), from, true));
        self.text.push_str(&self.of.text[from..to]);
    }

    /// Notes what is wrong with it.
    pub(crate) fn slip(&self, slip: &Slip, mistakes: &mut Mistakes<'_>) {
        let piece = self.pieces.iter().rev().find(|(here, _, _)| *here <= slip.at);
        let byte = piece.map_or(0, |(here, there, together)| {
            there + if *together { slip.at - here } else { 0 }
        });
        let replaced = self.pieces.iter().any(|(_, _, together)| !together);
        let message = match replaced {
            true => format!("{} (as it reads in one variant: `{}`)", slip.message, self.text),
            false => slip.message.clone(),
        };
        mistakes.at(self.of.spot(byte), message);
    }
}

/// Every `{name}` in a text, with its byte; whether an axis is called that is not known here.
pub(crate) fn placeholders(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices('{').filter_map(|(at, _)| {
        let inner = &text[at + 1..];
        let name = &inner[..inner.find('}')?];
        is_axis_name(name).then_some((at, name))
    })
}

/// Letters, digits, `_` and `-`, beginning with a letter.
pub(crate) fn is_axis_name(name: &str) -> bool {
    name.starts_with(char::is_alphabetic)
        && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text::of(Part { text, spot: Spot { line: 3, column: 5 } })
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
            assert_eq!(text(written).fill(&variant).text, filled, "{written}");
        }
    }

    #[test]
    fn a_slip_is_found_again_behind_what_was_replaced() {
        let variant = [("held".to_owned(), "u1/a1/r1".to_owned())];
        let written = text("lock {held} x");
        let filled = written.fill(&variant);
        for (at, column) in [(0, 5), (5, 10), (8, 10), (13, 16), (14, 17)] {
            let mut mistakes = Mistakes::new("a", "");
            filled.slip(&Slip::new(at, "here"), &mut mistakes);
            assert_eq!(mistakes.into_found()[0].column, column, "{at}");
        }
    }
}
