//! What a session has prepared, by name: `EXECUTE s` says nothing of what it does, the text behind it does.

use super::statement::Words;
use super::wire::Wire;
use crate::place::Engine;
use std::collections::HashMap;

/// The prepared statements of a session.
#[derive(Debug, Default)]
pub(super) struct PreparedStatements {
    texts: HashMap<String, String>,
}

impl PreparedStatements {
    /// Remembers what a `PREPARE` prepares; does nothing for any other statement. Asks the session for the
    /// value of an expression, if the text is given by one. Call it before the statement is run.
    pub(super) async fn learn(&mut self, engine: Engine, sql: &str, wire: &mut Wire) {
        let words = Words::of(sql);
        if words.first() != "prepare" || words.nth(1) == "transaction" {
            return;
        }
        let keyword = if engine == Engine::Postgres { "as" } else { "from" };
        let Some(rest) = after_word(sql, keyword) else { return };
        let text = match engine {
            Engine::Postgres => Some(rest.to_owned()),
            _ => value(rest, wire).await,
        };
        if let Some(text) = text {
            self.texts.insert(name(sql, "prepare"), text);
        }
    }

    /// The text that a statement runs: of `EXECUTE` the prepared one, of any other the statement itself.
    pub(super) async fn text_of(&self, engine: Engine, sql: &str, wire: &mut Wire) -> String {
        let words = Words::of(sql);
        let text = match (words.first(), words.nth(1)) {
            ("execute", "immediate") if engine != Engine::Postgres => {
                match after_word(sql, "immediate") {
                    Some(rest) => value(rest, wire).await,
                    None => None,
                }
            }
            ("execute", _) => self.texts.get(&name(sql, "execute")).cloned(),
            _ => None,
        };
        text.unwrap_or_else(|| sql.to_owned())
    }
}

/// The name behind a word, without quotes.
fn name(sql: &str, word: &str) -> String {
    let rest = after_word(sql, word).unwrap_or_default().trim_start();
    match rest.strip_prefix(['`', '"']) {
        Some(rest) => rest.split(['`', '"']).next().unwrap_or_default().to_owned(),
        None => {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            rest[..end].to_lowercase()
        }
    }
}

/// The value of a literal, or of an expression such as `@text`.
async fn value(expression: &str, wire: &mut Wire) -> Option<String> {
    let expression = expression.trim().trim_end_matches(';').trim_end();
    if let Some(text) = literal(expression) {
        return Some(text);
    }
    // `EXECUTE IMMEDIATE @text USING 1`
    let expression = match expression.starts_with('@') {
        true => expression.split_whitespace().next().unwrap_or(expression),
        false => expression,
    };
    // What the server cannot evaluate here it refuses in the statement itself.
    let rows = wire.try_ask(&format!("SELECT {expression}")).await.ok()?.ok()?;
    rows.into_iter().next()?.into_iter().next()?
}

/// The text of a literal at the beginning, without its quotes.
fn literal(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|quote| ['\'', '"'].contains(quote))?;
    let mut value = String::new();
    let mut chars = text[1..].chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'n' | 't' | 'r' => value.push(' '),
                escaped => value.push(escaped),
            },
            c if c == quote && chars.peek() == Some(&quote) => {
                chars.next();
                value.push(quote);
            }
            c if c == quote => return Some(value),
            c => value.push(c),
        }
    }
    None
}

/// What follows the first such word.
fn after_word<'t>(sql: &'t str, word: &str) -> Option<&'t str> {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let small = sql.to_ascii_lowercase();
    let at = small.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = small[..*at].chars().next_back();
        let after = small[at + word.len()..].chars().next();
        !before.is_some_and(is_of_word) && !after.is_some_and(is_of_word)
    })?;
    Some(&sql[at + word.len()..])
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
    fn names_are_known_in_any_spelling() {
        for sql in ["execute s", "EXECUTE `s` using @a", "Execute S(1)", "execute \"s\""] {
            assert_eq!(name(sql, "execute"), "s", "{sql}");
        }
    }

    #[test]
    fn the_text_is_behind_its_word() {
        assert_eq!(after_word("prepare from_s FROM 'x'", "from"), Some(" 'x'"));
        assert_eq!(after_word("prepare s", "from"), None);
    }
}
