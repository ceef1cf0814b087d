//! Reads small pieces of the language word by word: what stands behind a mark, in a lock step, in a
//! setting. Knows words and quotes, not what they mean.

use super::mistake::Slip;

/// Goes through a text from left to right.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let mut reader = Reader { text, at: 0 };
        reader.skip_blanks();
        reader
    }

    /// Where it stands: always at the beginning of something, or at the end.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(crate) fn is_over(&self) -> bool {
        self.at == self.text.len()
    }

    fn skip_blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// The next word, left where it is: up to white space, a comma, a parenthesis or a quote.
    pub(crate) fn peek(&self) -> &'t str {
        let rest = self.rest();
        let end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')' | '\''))
            .unwrap_or(rest.len());
        &rest[..end]
    }

    /// The next word; empty if something else stands there.
    pub(crate) fn word(&mut self) -> &'t str {
        let word = self.peek();
        self.at += word.len();
        self.skip_blanks();
        word
    }

    /// Takes these words, if they all stand there.
    pub(crate) fn take(&mut self, words: &str) -> bool {
        let mut ahead = *self;
        let all = words.split(' ').all(|word| ahead.word() == word);
        if all {
            *self = ahead;
        }
        all
    }

    /// Takes this character, if it stands there.
    pub(crate) fn take_char(&mut self, c: char) -> bool {
        let there = self.rest().starts_with(c);
        if there {
            self.at += c.len_utf8();
            self.skip_blanks();
        }
        there
    }

    /// `'…'`, in which two quotes are one, if a quote stands there.
    pub(crate) fn quoted(&mut self) -> Result<Option<String>, Slip> {
        let Some(inside) = self.rest().strip_prefix('\'') else { return Ok(None) };
        let mut text = String::new();
        let mut chars = inside.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c != '\'' {
                text.push(c);
            } else if chars.next_if(|(_, next)| *next == '\'').is_some() {
                text.push('\'');
            } else {
                self.at += at + 2;
                self.skip_blanks();
                return Ok(Some(text));
            }
        }
        Err(Slip::new(
            self.at,
            "this quote is not closed; a quote inside of quotes is written twice",
        ))
    }

    /// A word, or a text in quotes; `None` if neither stands there.
    pub(crate) fn word_or_quoted(&mut self) -> Result<Option<String>, Slip> {
        if let Some(text) = self.quoted()? {
            return Ok(Some(text));
        }
        let word = self.word();
        Ok((!word.is_empty()).then(|| word.to_owned()))
    }

    /// What stands there, for a message.
    pub(crate) fn found(&self) -> String {
        match (self.peek(), self.rest().chars().next()) {
            (_, None) => "nothing".to_owned(),
            ("", Some(c)) => format!("`{c}`"),
            (word, _) => format!("`{word}`"),
        }
    }

    /// Something is wrong here.
    pub(crate) fn slip<T>(&self, message: impl Into<String>) -> Result<T, Slip> {
        Err(Slip::new(self.at, message))
    }
}

/// `300ms`, `5s`, `2m`
pub(crate) fn duration(text: &str) -> Option<std::time::Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..unit_at].parse().ok()?;
    let millis = match &text[unit_at..] {
        "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "m" => number.checked_mul(60_000)?,
        _ => return None,
    };
    // A day: longer is a slip of the pen, and no clock overflows.
    (millis <= 86_400_000).then(|| std::time::Duration::from_millis(millis))
}

/// What a duration looks like, for messages.
pub(crate) const DURATION: &str = "a time such as 300ms, 5s or 2m";

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durations() {
        for (text, read) in [
            ("300ms", Some(Duration::from_millis(300))),
            ("5s", Some(Duration::from_secs(5))),
            ("2m", Some(Duration::from_secs(120))),
            ("0s", Some(Duration::ZERO)),
            ("5", None),
            ("s", None),
            ("-5s", None),
            ("5h", None),
            ("99999999999999999999s", None),
            ("18446744073709551615m", None),
        ] {
            assert_eq!(duration(text), read, "{text}");
        }
    }

    #[test]
    fn words_and_quotes() {
        let mut reader = Reader::new("  blocked by A, 'it''s' ('x");
        assert!(reader.take("blocked by"));
        assert!(!reader.take("A or"));
        assert_eq!(reader.word(), "A");
        assert!(reader.take_char(','));
        assert_eq!(reader.quoted().unwrap().as_deref(), Some("it's"));
        assert_eq!(reader.found(), "`(`");
        assert!(reader.take_char('('));
        assert_eq!(reader.quoted().unwrap_err().at, 25);
    }
}
