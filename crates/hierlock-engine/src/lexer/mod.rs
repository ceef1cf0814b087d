//! Splits SQL into code, quoted text and comments by the rules of each engine. Knows no grammar.

mod open;

pub use open::OpenToken;

use crate::Driver;

/// A piece of a statement. Concatenated, the texts of all tokens are the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// The kind.
    pub kind: TokenKind,
    /// The text, with its quotes or comment marks.
    pub text: &'a str,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Keywords, plain names, numbers, operators, white space.
    Code,
    /// A string literal or a quoted identifier, with its quotes. The prefix of a literal (`E`, `X`, `U&`) is code.
    Quoted,
    /// A comment, with its marks.
    Comment,
}

impl Token<'_> {
    /// Returns the text between the quotes, with doubled quotes undoubled. Backslashes are not interpreted.
    pub fn unquoted(&self) -> String {
        if let Some(tag) = dollar_tag(self.text) {
            let inside = &self.text[tag.len()..];
            return inside.strip_suffix(tag).unwrap_or(inside).to_owned();
        }
        let mut characters = self.text.chars();
        let Some(open) = characters.next() else { return String::new() };
        let close = if open == '[' { ']' } else { open };
        let inside = characters.as_str();
        let inside = inside.strip_suffix(close).unwrap_or(inside);
        inside.replace(&format!("{close}{close}"), &close.to_string())
    }
}

/// An iterator over the tokens of a text.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    driver: Option<Driver>,
    text: &'a str,
    /// The start of the next token.
    from: usize,
    open: OpenToken,
}

/// Iterates over the tokens of `sql`, by the rules of the driver's engine. An unterminated token extends to the end.
///
/// All engines have `'…'`, `"…"`, `--` and `/* … */`. Without a driver the engine is unknown: quotes are those of any
/// server that no server reads differently, comments those of all servers.
pub fn tokens(driver: impl Into<Option<Driver>>, sql: &str) -> Tokens<'_> {
    resume(driver, OpenToken::Nothing, sql)
}

/// Iterates over the tokens of a text that continues an open token: the first token is the rest of it.
///
/// ```
/// use hierlock_engine::Driver;
/// use hierlock_engine::lexer::{TokenKind, resume, tokens};
///
/// let mut first = tokens(Driver::Mysql, "SELECT 'one\n");
/// assert!(first.by_ref().count() == 2);
/// let mut second = resume(Driver::Mysql, first.open().clone(), "two' FROM t");
/// assert_eq!(second.next().unwrap().text, "two'");
/// assert_eq!(second.next().unwrap().kind, TokenKind::Code);
/// ```
pub fn resume(driver: impl Into<Option<Driver>>, open: OpenToken, sql: &str) -> Tokens<'_> {
    Tokens { driver: driver.into(), text: sql, from: 0, open }
}

impl Tokens<'_> {
    /// Returns the token that is open after the last returned one. Before the end of the text nothing is open.
    pub fn open(&self) -> &OpenToken {
        &self.open
    }

    /// Returns the kind and length of the quoted text or comment that starts at this byte, and what is still open after
    /// it.
    fn quote_or_comment(&self, at: usize) -> Option<(TokenKind, usize, OpenToken)> {
        let (before, text) = self.text.split_at(at);
        let is_blank = |c: char| c.is_whitespace() || c.is_control();
        let is_line_comment = match (text.strip_prefix("--"), self.driver) {
            // MySQL and MariaDB read `--` as a comment only before white space, the others always.
            (Some(_), Some(Driver::Postgres | Driver::Sqlite)) => true,
            (Some(behind), _) => behind.chars().next().is_none_or(is_blank),
            (None, driver) => driver == Some(Driver::Mysql) && text.starts_with('#'),
        };
        if is_line_comment {
            let length = text.find('\n').unwrap_or(text.len());
            return Some((TokenKind::Comment, length, OpenToken::Nothing));
        }
        let (mark, open) = opening(self.driver, text, before)?;
        let (kind, length, open) = open.close(self.driver, &text[mark..]);
        Some((kind, mark + length, open))
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let rest = &self.text[self.from..];
        if rest.is_empty() {
            return None;
        }
        let (kind, length, open) = match std::mem::take(&mut self.open) {
            OpenToken::Nothing => self.quote_or_comment(self.from).unwrap_or_else(|| {
                let ends = |at: &usize| self.quote_or_comment(self.from + at).is_some();
                let at = rest.char_indices().map(|(at, _)| at).skip(1).find(ends);
                (TokenKind::Code, at.unwrap_or(rest.len()), OpenToken::Nothing)
            }),
            open => open.close(self.driver, rest),
        };
        self.from += length;
        self.open = open;
        Some(Token { kind, text: &rest[..length] })
    }
}

/// Returns the length of the opening mark at `text`, and the token that it opens.
fn opening(driver: Option<Driver>, text: &str, before: &str) -> Option<(usize, OpenToken)> {
    let quote = |close, backslash_escapes| Some((1, OpenToken::Quote { close, backslash_escapes }));
    let is_mysql = driver == Some(Driver::Mysql);
    let has_dollar_quotes = matches!(driver, None | Some(Driver::Postgres));
    match text.as_bytes().first()? {
        b'/' if text.starts_with("/*") => Some((2, OpenToken::Comment { depth: 1 })),
        b'\'' => {
            let prefix = before.strip_suffix(['e', 'E']);
            let is_escape = prefix
                .is_some_and(|prefix| !prefix.ends_with(|c| is_name_character(c) || c == '$'));
            // On PostgreSQL a backslash escapes only in `E'…'`.
            quote('\'', is_mysql || is_escape && driver == Some(Driver::Postgres))
        }
        b'"' => quote('"', is_mysql),
        b'`' if driver != Some(Driver::Postgres) => quote('`', false),
        b'[' if driver == Some(Driver::Sqlite) => quote(']', false),
        b'$' if has_dollar_quotes && !before.ends_with(is_name_character) => {
            let tag = dollar_tag(text)?.to_owned();
            Some((tag.len(), OpenToken::DollarQuote { tag }))
        }
        _ => None,
    }
}

/// `$$` or `$tag$` at the beginning of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let (tag, _) = text.strip_prefix('$')?.split_once('$')?;
    let is_name =
        tag.chars().all(is_name_character) && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| &text[..tag.len() + 2])
}

fn is_name_character(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || !c.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Formats tokens: `«quoted»`, `{comment}`, and code as it is.
    fn format_tokens(driver: Driver, sql: &str) -> String {
        let show = |token: Token<'_>| match token.kind {
            TokenKind::Code => token.text.to_owned(),
            TokenKind::Quoted => format!("«{}»", token.text),
            TokenKind::Comment => format!("{{{}}}", token.text),
        };
        tokens(driver, sql).map(show).collect()
    }

    #[test]
    fn quotes_and_comments_follow_the_rules_of_the_engine() {
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
            assert_eq!(format_tokens(driver, sql), reads, "{driver:?}: {sql}");
        }
    }

    #[test]
    fn unquoted_returns_the_text_between_the_quotes() {
        for (driver, text, inside) in [
            (Driver::Postgres, "'it''s'", "it's"),
            (Driver::Postgres, r#""a""b""#, r#"a"b"#),
            (Driver::Postgres, "$f$it's $$ $f$", "it's $$ "),
            (Driver::Postgres, "'never closed", "never closed"),
            (Driver::Mysql, "`a``b`", "a`b"),
            (Driver::Sqlite, "[a b]", "a b"),
        ] {
            assert_eq!(tokens(driver, text).next().unwrap().unquoted(), inside, "{text}");
        }
    }

    #[test]
    fn open_returns_the_unterminated_token() {
        for (driver, sql, mark) in [
            (Driver::Mysql, "SELECT 'a", Some("'")),
            (Driver::Mysql, r"SELECT 'a\'", Some("'")),
            (Driver::Postgres, r"SELECT 'a\'", None),
            (Driver::Postgres, "AS $f$ BEGIN", Some("$f$")),
            (Driver::Postgres, "/* a /* b */", Some("/*")),
            (Driver::Mysql, "/* a /* b */", None),
            (Driver::Mysql, "-- it's", None),
            (Driver::Sqlite, "[a", Some("[")),
        ] {
            let mut tokens = tokens(driver, sql);
            let _ = tokens.by_ref().count();
            assert_eq!(tokens.open().mark().as_deref(), mark, "{sql}");
        }
    }

    /// Pieces that keep their meaning between newlines.
    fn piece() -> impl Strategy<Value = (TokenKind, String)> {
        let piece = |(form, t): (usize, String)| match form {
            0 => (TokenKind::Code, "a = ? AND $1 < 5".to_owned()),
            1 => (TokenKind::Quoted, format!("'{}'", t.replace('\'', "''"))),
            2 => (TokenKind::Quoted, format!("\"{}\"", t.replace('"', "\"\""))),
            3 => (TokenKind::Quoted, format!("$q${}$q$", t.replace('$', ""))),
            4 => (TokenKind::Comment, format!("--{t}")),
            _ => (TokenKind::Comment, format!("/*{}*/", t.replace(['*', '/'], ""))),
        };
        (0usize..6, "[a-z?'\"$*/# -]{0,6}").prop_map(piece)
    }

    proptest! {
        /// The quoted texts and comments of concatenated pieces are found again.
        #[test]
        fn concatenated_pieces_are_split_again(pieces in proptest::collection::vec(piece(), 0..12)) {
            let sql: String = pieces.iter().map(|(_, text)| format!("{text}\n")).collect();
            let found = tokens(Driver::Postgres, &sql).map(|token| (token.kind, token.text));
            let expected = pieces.iter().map(|(kind, text)| (*kind, text.as_str()));
            let is_not_code = |(kind, _): &(TokenKind, &str)| *kind != TokenKind::Code;
            prop_assert!(found.filter(is_not_code).eq(expected.filter(is_not_code)), "{}", sql);
        }

        /// No part of the text is lost and no character is split.
        #[test]
        fn tokens_cover_the_whole_text(sql in "[a席E?'\"`$#\\[\\]*/\\\\ \n-]{0,40}") {
            for driver in Driver::ALL {
                let whole: String = tokens(driver, &sql).map(|token| token.text).collect();
                prop_assert_eq!(&whole, &sql);
            }
        }

        /// Lexing line by line, each continuing the open token of the line before, equals lexing the whole text.
        #[test]
        fn lexing_by_line_equals_lexing_the_whole(sql in "[a席E?'\"`$#\\[\\]*/\\\\ \n-]{0,40}") {
            let kinds = |tokens: &mut Tokens<'_>| {
                tokens.flat_map(|token| vec![token.kind; token.text.len()]).collect::<Vec<_>>()
            };
            for driver in Driver::ALL.map(Some).into_iter().chain([None]) {
                let mut open = OpenToken::Nothing;
                let mut by_line = Vec::new();
                for line in sql.split_inclusive('\n') {
                    let mut tokens = resume(driver, open.clone(), line);
                    by_line.extend(kinds(&mut tokens));
                    open = tokens.open().clone();
                }
                let mut whole = tokens(driver, &sql);
                prop_assert_eq!(by_line, kinds(&mut whole));
                prop_assert_eq!(&open, whole.open());
            }
        }
    }
}
