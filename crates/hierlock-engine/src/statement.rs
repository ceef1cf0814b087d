//! Properties of a statement that its result does not show, read from its text: whether it returns rows, whether it
//! waits for locks. Knows words, not grammar.

use crate::Driver;
use crate::lexer::{TokenKind, tokens};

/// The words of a statement.
#[derive(Debug)]
pub struct StatementWords {
    /// The words in lower case, outside of quotes and comments, each with its depth of parentheses.
    words: Vec<(usize, String)>,
    /// The quoted texts, without the quotes.
    quoted: Vec<String>,
}

impl StatementWords {
    /// Splits a statement into words by the lexical rules of the driver's server.
    pub fn of(driver: Driver, sql: &str) -> Self {
        let (mut words, mut quoted, mut depth) = (Vec::new(), Vec::new(), 0);
        for token in tokens(driver, sql) {
            match token.kind {
                TokenKind::Comment => {}
                TokenKind::Quoted => quoted.push(token.unquoted()),
                TokenKind::Code => split_words(token.text, &mut depth, &mut words),
            }
        }
        Self { words, quoted }
    }

    /// Returns the first word; empty if there is none.
    pub fn first(&self) -> &str {
        self.nth(0)
    }

    /// Returns the word at this position, from 0; empty if there is none.
    pub fn nth(&self, number: usize) -> &str {
        self.words.get(number).map_or("", |(_, word)| word)
    }

    /// Returns whether the statement contains this word.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|(_, known)| known == word)
    }

    /// Returns whether a word of the statement contains this text.
    pub fn has_part(&self, part: &str) -> bool {
        self.words.iter().any(|(_, known)| known.contains(part))
    }

    /// Returns whether the statement contains this name, as a word or in quotes.
    pub fn has_name(&self, name: &str) -> bool {
        self.has(&name.to_lowercase()) || self.quoted.iter().any(|quoted| quoted == name)
    }

    /// Returns whether the statement contains these words in a row.
    pub fn has_all(&self, phrase: &[&str]) -> bool {
        self.words
            .windows(phrase.len())
            .any(|window| window.iter().map(|(_, word)| word.as_str()).eq(phrase.iter().copied()))
    }

    /// Returns whether the statement has only these words, and nothing in quotes.
    pub fn is_all_of(&self, known: &[&str]) -> bool {
        self.quoted.is_empty() && self.words.iter().all(|(_, word)| known.contains(&word.as_str()))
    }

    /// The words outside of parentheses.
    fn outer_words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter(|(depth, _)| *depth == 0).map(|(_, word)| word.as_str())
    }

    /// The verb of the statement, after a `with …`.
    fn verb(&self) -> &str {
        const VERBS: [&str; 7] =
            ["select", "insert", "update", "delete", "values", "table", "merge"];
        match self.first() {
            "with" => self.outer_words().find(|word| VERBS.contains(word)).unwrap_or_default(),
            first => first,
        }
    }

    /// Returns whether the statement has RETURNING.
    pub fn is_returning(&self) -> bool {
        self.has("returning") && !matches!(self.verb(), "select" | "create")
    }

    /// Returns whether the statement returns a result set, which may be empty.
    pub fn returns_rows(&self) -> bool {
        match self.verb() {
            // `select … into` a variable, a table or a file.
            "select" => !self.outer_words().any(|word| word == "into"),
            "table" | "values" | "show" | "explain" | "describe" | "desc" | "fetch" => true,
            _ => self.is_returning(),
        }
    }

    /// Returns whether the statement only inserts or deletes rows, so that every row in its count has changed.
    pub fn only_inserts_or_deletes(&self) -> bool {
        matches!(self.verb(), "insert" | "replace" | "delete" | "load" | "create" | "truncate")
            && !self.has_all(&["duplicate", "key", "update"])
    }

    /// Returns whether the statement fails instead of waiting (NOWAIT).
    pub fn does_not_wait(&self) -> bool {
        self.has("nowait") || self.has_all(&["wait", "0"])
    }

    /// Returns the direction of a COPY between the client and the server.
    pub fn copy_direction(&self) -> Option<CopyDirection> {
        let directions = [
            (["from", "stdin"], CopyDirection::FromClient),
            (["to", "stdout"], CopyDirection::ToClient),
        ];
        let direction = directions.into_iter().find(|(phrase, _)| self.has_all(phrase));
        direction.filter(|_| self.has("copy")).map(|(_, direction)| direction)
    }

    /// Returns the effect of the statement on the transaction of its session.
    pub fn transaction_effect(&self) -> TransactionEffect {
        let begins_another = self.has("chain") && !self.has("no");
        match (self.first(), self.nth(1)) {
            ("begin", _) | ("start", "transaction") => TransactionEffect::Begins,
            // To a savepoint: the transaction continues.
            ("rollback", _) if self.has("to") => TransactionEffect::None,
            ("commit" | "rollback" | "end" | "abort", _) if begins_another => {
                TransactionEffect::Begins
            }
            ("commit" | "rollback" | "end" | "abort", _) => TransactionEffect::Ends,
            ("prepare", "transaction") => TransactionEffect::Ends,
            _ => TransactionEffect::None,
        }
    }
}

/// The effect of a statement on the transaction of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEffect {
    /// Begins a transaction, maybe after the end of another.
    Begins,
    /// Ends the transaction.
    Ends,
    /// None.
    None,
}

/// The direction of the rows of a `COPY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// `COPY … FROM STDIN`
    FromClient,
    /// `COPY … TO STDOUT`
    ToClient,
}

/// Appends the words of `code` and updates the depth of parentheses.
fn split_words(code: &str, depth: &mut usize, words: &mut Vec<(usize, String)>) {
    let is_word_character = |c: char| c.is_alphanumeric() || "_$@".contains(c);
    for part in code.split_inclusive(|c| !is_word_character(c)) {
        let word = part.trim_end_matches(|c| !is_word_character(c));
        if !word.is_empty() {
            words.push((*depth, word.to_lowercase()));
        }
        match part.chars().last() {
            Some('(') => *depth += 1,
            Some(')') => *depth = depth.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Driver::{Mysql, Postgres};

    const SERVERS: &[Driver] = &[Mysql, Postgres];

    /// The failures this prevents: an apostrophe that does not begin a string hid the words after it; words in quotes
    /// of another engine were taken for words of the statement; an empty result set was taken for no result set.
    #[test]
    fn words_show_whether_a_statement_returns_rows_or_waits() {
        for (drivers, sql, returns_rows, does_not_wait) in [
            (&[Mysql][..], "select 1 # it's\nfrom t for update nowait", true, true),
            (&[Mysql], r"select 'it\'s' from t for update nowait", true, true),
            (&[Mysql], "select 5--1 from t for update nowait", true, true),
            (&[Postgres], "select $$it's$$ from t for update nowait", true, true),
            (&[Postgres], "/* a /* b */ ' */ select 1 from t for update nowait", true, true),
            (&[Postgres], r"select E'it\'s' from t for update nowait", true, true),
            (&[Mysql], "select 1 # nowait", true, false),
            (&[Mysql], r"select 'it\' nowait'", true, false),
            (&[Postgres], "select 1 --nowait", true, false),
            (&[Postgres], "select $$ nowait $$", true, false),
            (SERVERS, "select 1 from t for update NOWAIT", true, true),
            (SERVERS, "select 1 from t for update wait 0", true, true),
            (SERVERS, "select 'nowait' from t for update", true, false),
            (SERVERS, "select 1 from t for update wait 10", true, false),
            (SERVERS, "select 1", true, false),
            (SERVERS, "SELECT * FROM t WHERE s = 'into' FOR UPDATE", true, false),
            (SERVERS, "-- why\n/* insert */ select 1", true, false),
            (SERVERS, "(select 1) union (select 2)", true, false),
            (SERVERS, "with x as (delete from t returning *) select * from x", true, false),
            (SERVERS, "insert into t values (1) returning id", true, false),
            (SERVERS, "table t", true, false),
            (SERVERS, "show tables", true, false),
            (SERVERS, "with recursive x as (select 1) select * from x for update", true, false),
            (SERVERS, "insert into t select 'returning'", false, false),
            (SERVERS, "update t set \"returning\" = 1", false, false),
            (&[Mysql], "update t set `returning` = 1", false, false),
            (SERVERS, "begin", false, false),
            (SERVERS, "", false, false),
            (SERVERS, "select 1 into @x", false, false),
            (SERVERS, "with x as (select 1) update t set v = 1", false, false),
            (SERVERS, "lock table t in share mode", false, false),
        ] {
            for driver in drivers {
                let words = StatementWords::of(*driver, sql);
                let actual = (words.returns_rows(), words.does_not_wait());
                assert_eq!(actual, (returns_rows, does_not_wait), "{driver:?}: {sql}");
            }
        }
        for garbage in ["'", "`''", "((((", "))))", "/*", "--", "ж'ж\"", "\\'"] {
            for driver in SERVERS {
                let words = StatementWords::of(*driver, garbage);
                assert!(!words.returns_rows() && !words.does_not_wait(), "{garbage}");
            }
        }
    }

    #[test]
    fn copy_has_a_direction() {
        for (sql, copies) in [
            ("copy t from stdin", Some(CopyDirection::FromClient)),
            ("COPY t (a, b) FROM STDIN WITH (FORMAT csv)", Some(CopyDirection::FromClient)),
            ("copy (select 1) to stdout", Some(CopyDirection::ToClient)),
            ("copy t from '/tmp/rows'", None),
            ("select 'copy t from stdin'", None),
        ] {
            assert_eq!(StatementWords::of(Postgres, sql).copy_direction(), copies, "{sql}");
        }
    }

    #[test]
    fn statements_begin_and_end_transactions() {
        for (sql, effect) in [
            ("BEGIN", TransactionEffect::Begins),
            ("start transaction read only", TransactionEffect::Begins),
            ("commit and chain", TransactionEffect::Begins),
            ("rollback and no chain", TransactionEffect::Ends),
            ("end", TransactionEffect::Ends),
            ("rollback to savepoint a", TransactionEffect::None),
            ("prepare transaction 'x'", TransactionEffect::Ends),
            ("select 1", TransactionEffect::None),
        ] {
            for driver in SERVERS {
                assert_eq!(StatementWords::of(*driver, sql).transaction_effect(), effect, "{sql}");
            }
        }
    }
}
