//! Splits SQL into code, quoted text and comments, as each engine reads them. Knows no grammar.

mod open;

pub use open::OpenToken;

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
    /// A string literal or a quoted identifier, with its quotes. The prefix of a literal (`E`, `X`, `U&`) is code.
    Quoted,
    /// A comment, with its marks.
    Comment,
}

impl Token<'_> {
    /// Returns what is inside of the quotes, with a doubled quote written once. Backslashes are left as they are.
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

/// How quotes and comments are read: what the engines differ in. Everybody has `'…'`, `"…"`, `--` and `/* … */`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `--` is a comment only before white space.
    dashes_need_blank: bool,
    /// `#` begins a comment.
    hash_comments: bool,
    /// A comment may be inside of another.
    nested_comments: bool,
    /// A backslash in `'…'` or `"…"` makes the next character part of it.
    backslash_escapes: bool,
    /// The same in `E'…'` alone.
    escape_strings: bool,
    /// `` `…` `` is an identifier.
    backquotes: bool,
    /// `[…]` is an identifier.
    brackets: bool,
    /// `$$…$$` and `$tag$…$tag$` are strings.
    dollar_quotes: bool,
}

impl Rules {
    const NONE: Rules = Rules {
        dashes_need_blank: false,
        hash_comments: false,
        nested_comments: false,
        backslash_escapes: false,
        escape_strings: false,
        backquotes: false,
        brackets: false,
        dollar_quotes: false,
    };

    /// Of MySQL and MariaDB.
    pub const MYSQL: Rules = Rules {
        dashes_need_blank: true,
        hash_comments: true,
        backslash_escapes: true,
        backquotes: true,
        ..Rules::NONE
    };

    /// Of PostgreSQL.
    pub const POSTGRES: Rules =
        Rules { nested_comments: true, escape_strings: true, dollar_quotes: true, ..Rules::NONE };

    /// Of SQLite.
    pub const SQLITE: Rules = Rules { backquotes: true, brackets: true, ..Rules::NONE };

    /// For text of any engine: a quote is what one server calls so and none reads otherwise, a comment what all call
    /// so.
    pub const ANY_SERVER: Rules =
        Rules { dashes_need_blank: true, backquotes: true, dollar_quotes: true, ..Rules::NONE };
}

impl From<Driver> for Rules {
    fn from(driver: Driver) -> Self {
        match driver {
            Driver::Mysql => Rules::MYSQL,
            Driver::Postgres => Rules::POSTGRES,
            Driver::Sqlite => Rules::SQLITE,
        }
    }
}

/// The tokens of a text.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    rules: Rules,
    text: &'a str,
    /// Where the next token begins.
    from: usize,
    open: OpenToken,
}

/// Iterates over the tokens of `sql`. What is never closed reaches to the end.
pub fn tokens(rules: impl Into<Rules>, sql: &str) -> Tokens<'_> {
    resume(rules, OpenToken::Nothing, sql)
}

/// The same for a text in whose beginning something may be open: the first token is the rest of that.
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
pub fn resume(rules: impl Into<Rules>, open: OpenToken, sql: &str) -> Tokens<'_> {
    Tokens { rules: rules.into(), text: sql, from: 0, open }
}

impl Tokens<'_> {
    /// Returns what is open behind the last token that was returned; only at the end of the text it may be something.
    pub fn open(&self) -> &OpenToken {
        &self.open
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let (before, rest) = self.text.split_at(self.from);
        if rest.is_empty() {
            return None;
        }
        let (kind, length, open) = match std::mem::take(&mut self.open) {
            OpenToken::Nothing => special(self.rules, rest, before).unwrap_or_else(|| {
                let ends = |at: &usize| {
                    let (before, rest) = self.text.split_at(self.from + at);
                    special(self.rules, rest, before).is_some()
                };
                let at = rest.char_indices().map(|(at, _)| at).skip(1).find(ends);
                (TokenKind::Code, at.unwrap_or(rest.len()), OpenToken::Nothing)
            }),
            open => {
                let (kind, (length, open)) = (open.kind(), open.close(self.rules, rest));
                (kind, length, open)
            }
        };
        self.from += length;
        self.open = open;
        Some(Token { kind, text: &rest[..length] })
    }
}

/// What begins behind `before`, if it is not code, how many bytes it has, and what is still open behind them.
fn special(rules: Rules, text: &str, before: &str) -> Option<(TokenKind, usize, OpenToken)> {
    let is_blank = |c: char| c.is_whitespace() || c.is_control();
    let is_line_comment = match text.strip_prefix("--") {
        // Everybody reads `--` as a comment, but MySQL and MariaDB only before white space.
        Some(behind) => !rules.dashes_need_blank || behind.chars().next().is_none_or(is_blank),
        None => rules.hash_comments && text.starts_with('#'),
    };
    if is_line_comment {
        let length = text.find('\n').unwrap_or(text.len());
        return Some((TokenKind::Comment, length, OpenToken::Nothing));
    }
    let (mark, open) = opening(rules, text, before)?;
    let (kind, (length, open)) = (open.kind(), open.close(rules, &text[mark..]));
    Some((kind, mark + length, open))
}

/// What is opened here, and how many bytes its mark has.
fn opening(rules: Rules, text: &str, before: &str) -> Option<(usize, OpenToken)> {
    let quote = |close, backslash_escapes| Some((1, OpenToken::Quote { close, backslash_escapes }));
    match text.as_bytes().first()? {
        b'/' if text.starts_with("/*") => Some((2, OpenToken::Comment { depth: 1 })),
        b'\'' => {
            // One of PostgreSQL's `E'…'`.
            let prefix = before.strip_suffix(['e', 'E']).filter(|_| rules.escape_strings);
            let is_escape = prefix.is_some_and(|it| !it.ends_with(|c| is_of_name(c) || c == '$'));
            quote('\'', rules.backslash_escapes || is_escape)
        }
        b'"' => quote('"', rules.backslash_escapes),
        b'`' if rules.backquotes => quote('`', false),
        b'[' if rules.brackets => quote(']', false),
        b'$' if rules.dollar_quotes && !before.ends_with(is_of_name) => {
            let tag = dollar_tag(text)?.to_owned();
            Some((tag.len(), OpenToken::DollarQuote { tag }))
        }
        _ => None,
    }
}

/// `$$` or `$tag$` at the beginning of the text.
fn dollar_tag(text: &str) -> Option<&str> {
    let (tag, _) = text.strip_prefix('$')?.split_once('$')?;
    let is_name = tag.chars().all(is_of_name) && !tag.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| &text[..tag.len() + 2])
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

    #[test]
    fn what_is_in_quotes_is_returned_without_them() {
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
    fn what_is_open_at_the_end_is_known() {
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

    /// Pieces that stand for themselves wherever blanks are around them.
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
        /// Tokens that were put together are found again.
        #[test]
        fn what_was_put_together_is_taken_apart(pieces in proptest::collection::vec(piece(), 0..12)) {
            let sql: String = pieces.iter().map(|(_, text)| format!("{text}\n")).collect();
            let found = tokens(Driver::Postgres, &sql).map(|token| (token.kind, token.text));
            let put = pieces.iter().map(|(kind, text)| (*kind, text.as_str()));
            let is_special = |(kind, _): &(TokenKind, &str)| *kind != TokenKind::Code;
            prop_assert!(found.filter(is_special).eq(put.filter(is_special)), "{}", sql);
        }

        /// Whatever the text, nothing of it is lost and no character is cut.
        #[test]
        fn tokens_are_the_whole_text(sql in "[a席E?'\"`$#\\[\\]*/\\\\ \n-]{0,40}") {
            for driver in [Driver::Mysql, Driver::Postgres, Driver::Sqlite] {
                let whole: String = tokens(driver, &sql).map(|token| token.text).collect();
                prop_assert_eq!(&whole, &sql);
            }
        }

        /// Line by line, each going on from what is open before it, a text is read as it is as a whole.
        #[test]
        fn lines_are_read_as_their_text_is(sql in "[a席E?'\"`$#\\[\\]*/\\\\ \n-]{0,40}") {
            let kinds = |tokens: &mut Tokens<'_>| {
                tokens.flat_map(|token| vec![token.kind; token.text.len()]).collect::<Vec<_>>()
            };
            for rules in [Rules::MYSQL, Rules::POSTGRES, Rules::SQLITE, Rules::ANY_SERVER] {
                let mut open = OpenToken::Nothing;
                let mut by_line = Vec::new();
                for line in sql.split_inclusive('\n') {
                    let mut tokens = resume(rules, open.clone(), line);
                    by_line.extend(kinds(&mut tokens));
                    open = tokens.open().clone();
                }
                let mut whole = tokens(rules, &sql);
                prop_assert_eq!(by_line, kinds(&mut whole));
                prop_assert_eq!(&open, whole.open());
            }
        }
    }
}
