//! Tokens that are open at the end of a text, and where they end.

use super::TokenKind;
use crate::Driver;

/// The token that is open at the end of a text and continues in the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OpenToken {
    /// Nothing.
    #[default]
    Nothing,
    /// A string literal or a quoted identifier.
    Quote {
        /// The character that closes it.
        close: char,
        /// Whether a backslash escapes the next character.
        backslash_escapes: bool,
    },
    /// A dollar-quoted string.
    DollarQuote {
        /// The tag, such as `$$` or `$tag$`.
        tag: String,
    },
    /// A comment between `/*` and `*/`.
    Comment {
        /// The nesting depth.
        depth: usize,
    },
}

impl OpenToken {
    /// Returns the opening mark; None if nothing is open.
    pub fn mark(&self) -> Option<String> {
        match self {
            OpenToken::Nothing => None,
            OpenToken::Quote { close: ']', .. } => Some("[".to_owned()),
            OpenToken::Quote { close, .. } => Some(close.to_string()),
            OpenToken::DollarQuote { tag } => Some(tag.clone()),
            OpenToken::Comment { .. } => Some("/*".to_owned()),
        }
    }

    /// Returns the kind of the token, the number of bytes of the text that belong to it, including the closing mark, and
    /// what is open after it.
    pub(super) fn close(
        mut self,
        driver: Option<Driver>,
        text: &str,
    ) -> (TokenKind, usize, OpenToken) {
        let (kind, end) = match &mut self {
            OpenToken::Nothing => (TokenKind::Code, Some(0)),
            OpenToken::Quote { close, backslash_escapes } => {
                (TokenKind::Quoted, quote_end(text, *close, *backslash_escapes))
            }
            OpenToken::DollarQuote { tag } => {
                (TokenKind::Quoted, text.find(tag.as_str()).map(|at| at + tag.len()))
            }
            OpenToken::Comment { depth } => {
                (TokenKind::Comment, block_comment_end(driver, text, depth))
            }
        };
        end.map_or((kind, text.len(), self), |end| (kind, end, OpenToken::Nothing))
    }
}

/// Returns the end of a comment with this nesting depth. If there is none, updates the depth. Only PostgreSQL nests
/// comments.
fn block_comment_end(driver: Option<Driver>, text: &str, depth: &mut usize) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") && driver == Some(Driver::Postgres) {
            (at, *depth) = (at + 2, *depth + 1);
        } else if rest.starts_with(b"*/") {
            (at, *depth) = (at + 2, *depth - 1);
            if *depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    None
}

/// Returns the end of a quoted text: the first quote that is neither doubled (a `]` never is) nor escaped by a
/// backslash.
fn quote_end(text: &str, close: char, backslash_escapes: bool) -> Option<usize> {
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if c == '\\' && backslash_escapes {
            characters.next();
        } else if c == close {
            let is_doubled = |(_, next): &(usize, char)| *next == close && close != ']';
            if characters.next_if(is_doubled).is_none() {
                return Some(at + close.len_utf8());
            }
        }
    }
    None
}
