//! What is open at the end of a text, and where it is closed.

use super::{Rules, TokenKind};

/// What is open at the end of a text, and goes on in the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OpenToken {
    /// Nothing.
    #[default]
    Nothing,
    /// A string or an identifier.
    Quote {
        /// The character that closes it.
        close: char,
        /// Whether a backslash makes the next character part of it.
        backslash_escapes: bool,
    },
    /// A string between two tags.
    DollarQuote {
        /// Such as `$$` or `$tag$`.
        tag: String,
    },
    /// A comment between `/*` and `*/`.
    Comment {
        /// How many have to be closed.
        depth: usize,
    },
}

impl OpenToken {
    /// Returns the mark by which it was opened; None if nothing is open.
    pub fn mark(&self) -> Option<String> {
        match self {
            OpenToken::Nothing => None,
            OpenToken::Quote { close: ']', .. } => Some("[".to_owned()),
            OpenToken::Quote { close, .. } => Some(close.to_string()),
            OpenToken::DollarQuote { tag } => Some(tag.clone()),
            OpenToken::Comment { .. } => Some("/*".to_owned()),
        }
    }

    pub(super) fn kind(&self) -> TokenKind {
        match self {
            OpenToken::Nothing => TokenKind::Code,
            OpenToken::Quote { .. } | OpenToken::DollarQuote { .. } => TokenKind::Quoted,
            OpenToken::Comment { .. } => TokenKind::Comment,
        }
    }

    /// How many bytes of the text belong to it, with the mark that closes it, and what is open behind them.
    pub(super) fn close(mut self, rules: Rules, text: &str) -> (usize, OpenToken) {
        let end = match &mut self {
            OpenToken::Nothing => Some(0),
            OpenToken::Quote { close, backslash_escapes } => {
                until_quote(text, *close, *backslash_escapes)
            }
            OpenToken::DollarQuote { tag } => text.find(tag.as_str()).map(|at| at + tag.len()),
            OpenToken::Comment { depth } => block_comment(rules, text, depth),
        };
        end.map_or((text.len(), self), |end| (end, OpenToken::Nothing))
    }
}

/// Where a comment that is open so often is closed, or None, with how often it is open then; PostgreSQL nests them.
fn block_comment(rules: Rules, text: &str, depth: &mut usize) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") && rules.nested_comments {
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

/// Where a quoted text is closed: not at a doubled quote (a `]` is never doubled), nor behind a backslash that escapes.
fn until_quote(text: &str, close: char, backslash_escapes: bool) -> Option<usize> {
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
