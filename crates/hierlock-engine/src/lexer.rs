//! Splits SQL into code, quoted text and comments, as each engine reads them. Knows no grammar.

use crate::Driver;

/// A piece of a statement. The texts of all tokens, one behind the other, are the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// What it is.
    pub kind: TokenKind,
    /// With its quotes, or the marks of a comment.
    pub text: &'a str,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Keywords, plain names, numbers, operators, white space.
    Code,
    /// A string literal or a quoted identifier, with its quotes. The prefix of a literal (`E`, `X`, `U&`) is
    /// code.
    Quoted,
    /// A comment, with its marks.
    Comment,
}

/// Iterates over the tokens of `sql`. What is never closed reaches to the end.
pub fn tokens(driver: Driver, sql: &str) -> impl Iterator<Item = Token<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let special_at = |at: usize| special(driver, &sql[at..], &sql[..at]);
        let (token_kind, length) = special_at(from).unwrap_or_else(|| {
            let ends = |at: &usize| special_at(from + at).is_some();
            let at = sql[from..].char_indices().map(|(at, _)| at).skip(1).find(ends);
            (TokenKind::Code, at.unwrap_or(sql.len() - from))
        });
        let text = &sql[from..from + length];
        from += length;
        (!text.is_empty()).then_some(Token { kind: token_kind, text })
    })
}

/// What begins here, if it is not code, and how many bytes it has. `before` is all that comes before it.
fn special(driver: Driver, text: &str, before: &str) -> Option<(TokenKind, usize)> {
    let quoted = |length| Some((TokenKind::Quoted, length));
    let comment = |length| Some((TokenKind::Comment, length));
    match (driver, text.as_bytes().first()?) {
        (_, b'-') if begins_comment(driver, text) => comment(line(text)),
        (Driver::Mysql, b'#') => comment(line(text)),
        (_, b'/') if text.starts_with("/*") => comment(block_comment(driver, text)),
        (_, b'\'') => {
            let escapes = driver == Driver::Mysql
                || (driver == Driver::Postgres && has_escape_prefix(before));
            quoted(until_quote(text, '\'', escapes))
        }
        (_, b'"') => quoted(until_quote(text, '"', driver == Driver::Mysql)),
        (Driver::Mysql | Driver::Sqlite, b'`') => quoted(until_quote(text, '`', false)),
        (Driver::Sqlite, b'[') => quoted(until(text, "]")),
        (Driver::Postgres, b'$') if !before.ends_with(is_of_name) => {
            let tag = dollar_tag(text)?;
            quoted(tag.len() + until(&text[tag.len()..], tag))
        }
        _ => None,
    }
}

/// Everybody reads `--` as a comment, but MySQL and MariaDB only before white space.
fn begins_comment(driver: Driver, text: &str) -> bool {
    text.strip_prefix("--").is_some_and(|behind| {
        let is_blank = |c: char| c.is_whitespace() || c.is_control();
        driver != Driver::Mysql || behind.chars().next().is_none_or(is_blank)
    })
}

/// The length of the line, without its end.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The length of a comment that begins here; PostgreSQL nests them.
fn block_comment(driver: Driver, text: &str) -> usize {
    if driver != Driver::Postgres {
        return 2 + until(&text[2..], "*/");
    }
    let (mut at, mut depth) = (0, 0_usize);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if rest.starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// The length of a quoted text that begins here. A doubled quote is part of it, and so is a quote behind
/// a backslash where backslashes escape.
fn until_quote(text: &str, quote: char, backslash_escapes: bool) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if c == '\\' && backslash_escapes {
            characters.next();
        } else if c == quote {
            match characters.next_if(|(_, next)| *next == quote) {
                Some(_) => {}
                None => return at + 1,
            }
        }
    }
    text.len()
}

fn until(text: &str, end: &str) -> usize {
    text.find(end).map_or(text.len(), |at| at + end.len())
}

/// Is the string behind it one of PostgreSQL's `E'…'`?
fn has_escape_prefix(before: &str) -> bool {
    let prefix = before.strip_suffix(['e', 'E']);
    prefix.is_some_and(|before| !before.ends_with(|c| is_of_name(c) || c == '$'))
}

/// `$$` or `$tag$` at the beginning of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let end = text[1..].find('$')? + 1;
    let tag = &text[1..end];
    let is_name = tag.chars().all(is_of_name) && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| &text[..=end])
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The tokens, `«quoted»`, `{comment}`, and code as it is.
    fn shown(driver: Driver, sql: &str) -> String {
        let show = |token: Token<'_>| match token.kind {
            TokenKind::Code => token.text.to_owned(),
            TokenKind::Quoted => format!("«{}»", token.text),
            TokenKind::Comment => format!("{{{}}}", token.text),
        };
        tokens(driver, sql).map(show).collect()
    }

    #[test]
    fn each_engine_reads_quotes_and_comments_its_own_way() {
        use Driver::{Mysql, Postgres, Sqlite};
        for (driver, sql, reads) in [
            (Postgres, "a -- it's ?\n? ", "a {-- it's ?}\n? "),
            (Postgres, "a --it's", "a {--it's}"),
            (Mysql, "5--1 -- it's", "5--1 {-- it's}"),
            (Mysql, "a # it's\n?", "a {# it's}\n?"),
            (Postgres, "a # 1", "a # 1"),
            (Postgres, "/* don't /* ? */ ' */ ?", "{/* don't /* ? */ ' */} ?"),
            (Mysql, "/* don't /* ? */ ?", "{/* don't /* ? */} ?"),
            (Postgres, r"E'it\'s ?' ?", r"E«'it\'s ?'» ?"),
            (Postgres, r"'a\' ? 'b'", r"«'a\'» ? «'b'»"),
            (Postgres, r"the'a\' ?", r"the«'a\'» ?"),
            (Mysql, r"'it\'s' ?", r"«'it\'s'» ?"),
            (Mysql, r#""a\"b" ?"#, r#"«"a\"b"» ?"#),
            (Mysql, r"`a\` ?", r"«`a\`» ?"),
            (Sqlite, r"'a\' ? [b'c]", r"«'a\'» ? «[b'c]»"),
            (Postgres, "'it''s ?' ?", "«'it''s ?'» ?"),
            (Postgres, "$$it's$$ ? $f$ $$ ' $f$", "«$$it's$$» ? «$f$ $$ ' $f$»"),
            (Postgres, "$1 a$b$c $2$", "$1 a$b$c $2$"),
            (Postgres, "'never closed ?", "«'never closed ?»"),
            (Postgres, "/* never closed ?", "{/* never closed ?}"),
            (Postgres, "席'席'席", "席«'席'»席"),
        ] {
            assert_eq!(shown(driver, sql), reads, "{driver:?}: {sql}");
        }
    }

    /// Pieces that stand for themselves wherever blanks are around them.
    fn piece() -> impl Strategy<Value = (TokenKind, String)> {
        let text = "[a-z?'\"$*/# -]{0,6}";
        prop_oneof![
            Just((TokenKind::Code, "a = ? AND $1 < 5".to_owned())),
            text.prop_map(|t: String| (TokenKind::Quoted, format!("'{}'", t.replace('\'', "''")))),
            text.prop_map(|t: String| (
                TokenKind::Quoted,
                format!("\"{}\"", t.replace('"', "\"\""))
            )),
            text.prop_map(|t: String| (TokenKind::Quoted, format!("$q${}$q$", t.replace('$', "")))),
            text.prop_map(|t: String| (TokenKind::Comment, format!("--{t}"))),
            text.prop_map(|t: String| (
                TokenKind::Comment,
                format!("/*{}*/", t.replace(['*', '/'], ""))
            )),
        ]
    }

    proptest! {
        /// Tokens that were put together are found again.
        #[test]
        fn what_was_put_together_is_taken_apart(pieces in proptest::collection::vec(piece(), 0..12)) {
            let sql: String = pieces.iter().map(|(_, text)| format!("{text}\n")).collect();
            let is_special = |kind: &TokenKind| *kind != TokenKind::Code;
            let found: Vec<(TokenKind, String)> = tokens(Driver::Postgres, &sql)
                .map(|token| (token.kind, token.text.to_owned()))
                .filter(|(kind, _)| is_special(kind))
                .collect();
            let put: Vec<(TokenKind, String)> =
                pieces.into_iter().filter(|(kind, _)| is_special(kind)).collect();
            prop_assert_eq!(found, put);
        }

        /// Whatever the text, nothing of it is lost and no character is cut.
        #[test]
        fn tokens_are_the_whole_text(sql in "[a席E?'\"`$#\\[\\]*/\\\\ \n-]{0,40}") {
            for driver in [Driver::Mysql, Driver::Postgres, Driver::Sqlite] {
                let whole: String = tokens(driver, &sql).map(|token| token.text).collect();
                prop_assert_eq!(&whole, &sql);
            }
        }
    }
}
