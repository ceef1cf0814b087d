//! Reads parts of a line word by word. Distinguishes words and quotes, but not their meaning.

use super::diagnostic::ParseError;
use hierlock_engine::parse_duration;
use std::time::Duration;

/// The longest duration in a file; a longer one is a mistake, and could overflow a clock.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Copy)]
pub(crate) struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut reader = Reader { text, at: 0 };
        reader.advance(0);
        reader
    }

    /// Returns the position: always at the beginning of a word or quote, or at the end.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(crate) fn is_over(&self) -> bool {
        self.at == self.text.len()
    }

    /// Skips `bytes` bytes, and the whitespace after them.
    fn advance(&mut self, bytes: usize) {
        self.at = self.text.len() - self.rest()[bytes..].trim_start().len();
    }

    /// Returns the next word without taking it: up to whitespace, a comma, a parenthesis or a quote.
    pub(crate) fn peek(&self) -> &'t str {
        let ends = |c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '\'');
        self.rest().split(ends).next().unwrap_or_default()
    }

    /// Takes the next word; returns an empty text if something else follows.
    pub(crate) fn word(&mut self) -> &'t str {
        let word = self.peek();
        self.advance(word.len());
        word
    }

    /// Takes these words, if all of them follow.
    pub(crate) fn take(&mut self, words: &str) -> bool {
        let mut ahead = *self;
        let all = words.split(' ').all(|word| ahead.word() == word);
        if all {
            *self = ahead;
        }
        all
    }

    /// Takes this character, if it follows.
    pub(crate) fn take_char(&mut self, c: char) -> bool {
        let follows = self.rest().starts_with(c);
        if follows {
            self.advance(c.len_utf8());
        }
        follows
    }

    /// Takes a quoted text `'…'`, in which `''` is one quote; `None` if no quote follows.
    pub(crate) fn quoted(&mut self) -> Result<Option<String>, ParseError> {
        let Some(inside) = self.rest().strip_prefix('\'') else { return Ok(None) };
        let mut text = String::new();
        let mut chars = inside.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c == '\'' && chars.next_if(|(_, next)| *next == '\'').is_none() {
                self.advance(at + 2);
                return Ok(Some(text));
            }
            text.push(c);
        }
        self.fail("this quote is not closed; a quote inside of quotes is written twice")
    }

    /// Takes a word or a quoted text; `None` if neither follows.
    pub(crate) fn word_or_quoted(&mut self) -> Result<Option<String>, ParseError> {
        if let Some(text) = self.quoted()? {
            return Ok(Some(text));
        }
        let word = self.word();
        Ok((!word.is_empty()).then(|| word.to_owned()))
    }

    /// Returns the next word or character, for a message.
    fn found(&self) -> String {
        match (self.peek(), self.rest().chars().next()) {
            (_, None) => "end of line".to_owned(),
            ("", Some(c)) => format!("`{c}`"),
            (word, _) => format!("`{word}`"),
        }
    }

    /// Fails at this position because the next word is not allowed; `hint` says what is.
    pub(crate) fn unexpected<T>(&self, hint: &str) -> Result<T, ParseError> {
        self.fail(format!("unexpected {}; {hint}", self.found()))
    }

    /// Fails at this position because something else was expected.
    pub(crate) fn is_not<T>(&self, expected: &str) -> Result<T, ParseError> {
        if self.is_over() {
            return self.fail(format!("expected {expected}"));
        }
        self.fail(format!("{} is not {expected}", self.found()))
    }

    pub(crate) fn fail<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError::new(self.at, message))
    }
}

/// Parses a duration of at least `least` and at most a day.
pub(crate) fn duration(text: &str, least: Duration) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if time < least => Err(format!("`{text}` is too short; write at least {least:?}")),
        Ok(time) if time > MAX_DURATION => Err(format!("`{text}` is too long; write at most 24h")),
        result => result.map_err(|error| error.to_string()),
    }
}
