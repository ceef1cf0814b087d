//! The prepared statements of a session by name: they show what `EXECUTE s` runs.

use super::connection::LabConnection;
use crate::text::find_word;
use hierlock_engine::lexer::{OpenToken, TokenKind, tokens};
use hierlock_engine::{Driver, StatementWords};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct PreparedStatements(HashMap<String, String>);

impl PreparedStatements {
    /// Returns the text that is executed: the prepared statement for an `EXECUTE`, else `sql` itself. Must be called
    /// before a `PREPARE` is executed, to record its statement: if that is an expression, the session evaluates it.
    pub(super) async fn text_of(&mut self, sql: &str, connection: &mut LabConnection) -> String {
        let driver = connection.dialect.driver();
        let words = StatementWords::of(driver, sql);
        let text = match (words.first(), words.nth(1)) {
            ("prepare", next) if next != "transaction" => {
                let keyword = if driver == Driver::Postgres { "as" } else { "from" };
                let prepared = match after_word(driver, sql, keyword) {
                    Some(text) if driver == Driver::Postgres => Some(text.to_owned()),
                    Some(expression) => value(expression, connection).await,
                    None => None,
                };
                self.0.extend(prepared.map(|text| (name(driver, sql, "prepare"), text)));
                None
            }
            ("execute", "immediate") if driver != Driver::Postgres => {
                let rest = after_word(driver, sql, "immediate").unwrap_or_default();
                value(rest, connection).await
            }
            ("execute", _) => self.0.get(&name(driver, sql, "execute")).cloned(),
            _ => None,
        };
        text.unwrap_or_else(|| sql.to_owned())
    }
}

/// Returns the name after `word`, without quotes.
fn name(driver: Driver, sql: &str, word: &str) -> String {
    let rest = after_word(driver, sql, word).unwrap_or_default();
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    let name = tokens(driver, rest).find_map(|token| match token.kind {
        TokenKind::Quoted => Some(token.unquoted()),
        TokenKind::Code if !token.text.trim().is_empty() => {
            token.text.trim_start().split(is_end).next().map(str::to_lowercase)
        }
        TokenKind::Code | TokenKind::Comment => None,
    });
    name.unwrap_or_default()
}

/// Returns the value of a literal, or of an expression such as `@text`.
async fn value(expression: &str, connection: &mut LabConnection) -> Option<String> {
    let expression = expression.trim().trim_end_matches(';').trim_end();
    if let Some(text) = literal(expression) {
        return Some(text);
    }
    // For example `EXECUTE IMMEDIATE @text USING 1`.
    let is_variable = expression.starts_with('@');
    let end = expression.find(char::is_whitespace).filter(|_| is_variable);
    let expression = &expression[..end.unwrap_or(expression.len())];
    // If the server cannot evaluate the expression, the statement itself fails too.
    let rows = connection.try_query(&format!("SELECT {expression}")).await.ok()?.ok()?;
    rows.into_iter().next()?.into_iter().next()?
}

/// Returns the value of the MySQL or MariaDB string literal at the beginning of `text`.
fn literal(text: &str) -> Option<String> {
    let mut tokens = tokens(Driver::Mysql, text);
    let literal = tokens.next().filter(|token| token.text.starts_with(['\'', '"']))?;
    if *tokens.open() != OpenToken::Nothing {
        return None;
    }
    let (mut value, inside) = (String::new(), literal.unquoted());
    let mut characters = inside.chars();
    while let Some(c) = characters.next() {
        value.push(match c {
            '\\' => match characters.next()? {
                'n' | 't' | 'r' => ' ',
                escaped => escaped,
            },
            c => c,
        });
    }
    Some(value)
}

/// Returns the text after the first `word` that is not in quotes or comments.
pub(super) fn after_word<'t>(driver: Driver, sql: &'t str, word: &str) -> Option<&'t str> {
    let mut begin = 0;
    for token in tokens(driver, sql) {
        if token.kind == TokenKind::Code
            && let Some(at) = find_word(&token.text.to_ascii_lowercase(), word)
        {
            return Some(&sql[begin + at + word.len()..]);
        }
        begin += token.text.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_lose_their_quotes() {
        assert_eq!(literal("'it''s' using @a").as_deref(), Some("it's"));
        assert_eq!(literal("\"a 'b' \\\" c\"").as_deref(), Some("a 'b' \" c"));
        for none in ["@text", "'open", "", "concat('a', 'b')"] {
            assert_eq!(literal(none), None, "{none}");
        }
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        for (driver, sql) in [
            (Driver::Mysql, "execute s"),
            (Driver::Mysql, "EXECUTE `s` using @a"),
            (Driver::Postgres, "Execute S(1)"),
            (Driver::Postgres, "execute \"s\""),
            (Driver::Postgres, "execute /* which? */ s (1)"),
        ] {
            assert_eq!(name(driver, sql, "execute"), "s", "{sql}");
        }
    }

    #[test]
    fn the_text_after_a_word_is_found() {
        let after = |sql| after_word(Driver::Mysql, sql, "from");
        assert_eq!(after("prepare from_s FROM 'x'"), Some(" 'x'"));
        assert_eq!(after("prepare s /* from */ FROM 'from'"), Some(" 'from'"));
        assert_eq!(after("prepare s"), None);
    }
}
