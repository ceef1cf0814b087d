//! What the text of a statement tells where the answer does not: whether it returns rows, whether it was to wait. Knows
//! words, not grammar.

use crate::Driver;
use crate::lexer::{TokenKind, tokens};

/// A statement, by its words.
#[derive(Debug)]
pub struct StatementWords {
    /// In small letters, outside of quotes and comments, with the depth of parentheses around each.
    words: Vec<(usize, String)>,
    /// What is quoted, as it is.
    quoted: Vec<String>,
}

impl StatementWords {
    /// Reads a statement as the server of that driver does.
    pub fn of(driver: Driver, sql: &str) -> Self {
        let (mut words, mut quoted, mut depth) = (Vec::new(), Vec::new(), 0);
        for token in tokens(driver, sql) {
            match token.kind {
                TokenKind::Comment => {}
                TokenKind::Quoted => quoted.push(token.unquoted()),
                TokenKind::Code => read_code(token.text, &mut depth, &mut words),
            }
        }
        Self { words, quoted }
    }

    /// Returns the first word; empty if there is none.
    pub fn first(&self) -> &str {
        self.nth(0)
    }

    /// Returns a word by its number, from 0; empty if there is none.
    pub fn nth(&self, number: usize) -> &str {
        self.words.get(number).map_or("", |(_, word)| word)
    }

    /// Returns whether it is one of its words.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|(_, known)| known == word)
    }

    /// Returns whether it is part of one of its words.
    pub fn has_part(&self, part: &str) -> bool {
        self.words.iter().any(|(_, known)| known.contains(part))
    }

    /// Returns whether it is a word of it, or quoted in it, as a table is.
    pub fn has_name(&self, name: &str) -> bool {
        self.has(&name.to_lowercase()) || self.quoted.iter().any(|quoted| quoted == name)
    }

    /// Returns whether these are words of it, one behind the other.
    pub fn has_all(&self, phrase: &[&str]) -> bool {
        self.words
            .windows(phrase.len())
            .any(|window| window.iter().map(|(_, word)| word.as_str()).eq(phrase.iter().copied()))
    }

    /// Returns whether it has no words but these, and nothing quoted.
    pub fn is_all_of(&self, known: &[&str]) -> bool {
        self.quoted.is_empty() && self.words.iter().all(|(_, word)| known.contains(&word.as_str()))
    }

    /// Its words outside of parentheses.
    fn outer_words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().filter(|(depth, _)| *depth == 0).map(|(_, word)| word.as_str())
    }

    /// What it does, behind any `with …`.
    fn verb(&self) -> &str {
        const VERBS: [&str; 7] =
            ["select", "insert", "update", "delete", "values", "table", "merge"];
        match self.first() {
            "with" => self.outer_words().find(|word| VERBS.contains(word)).unwrap_or_default(),
            first => first,
        }
    }

    /// Returns whether it returns the rows that it changed.
    pub fn is_returning(&self) -> bool {
        self.has("returning") && !matches!(self.verb(), "select" | "create")
    }

    /// Returns whether it returns rows, though there may be none.
    pub fn gives_rows(&self) -> bool {
        match self.verb() {
            // `select … into` a variable, a table or a file.
            "select" => !self.outer_words().any(|word| word == "into"),
            "table" | "values" | "show" | "explain" | "describe" | "desc" | "fetch" => true,
            _ => self.is_returning(),
        }
    }

    /// Returns whether it only inserts or deletes rows, so that each row it counts was changed.
    pub fn only_inserts_or_deletes(&self) -> bool {
        matches!(self.verb(), "insert" | "replace" | "delete" | "load" | "create" | "truncate")
            && !self.has_all(&["duplicate", "key", "update"])
    }

    /// Returns whether it was not to wait (NOWAIT).
    pub fn does_not_wait(&self) -> bool {
        self.has("nowait") || self.has_all(&["wait", "0"])
    }

    /// Returns which way rows are sent outside of what a statement returns, if it asks for that (COPY).
    pub fn copy_direction(&self) -> Option<CopyDirection> {
        let directions = [
            (["from", "stdin"], CopyDirection::FromClient),
            (["to", "stdout"], CopyDirection::ToClient),
        ];
        let direction = directions.into_iter().find(|(phrase, _)| self.has_all(phrase));
        direction.filter(|_| self.has("copy")).map(|(_, direction)| direction)
    }

    /// Returns what it does to the transaction of its session.
    pub fn transaction_effect(&self) -> TransactionEffect {
        let begins_another = self.has("chain") && !self.has("no");
        match (self.first(), self.nth(1)) {
            ("begin", _) | ("start", "transaction") => TransactionEffect::Begins,
            // To a savepoint: the transaction goes on.
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

/// What a statement does to the transaction of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionEffect {
    /// Begins one, also right behind another.
    Begins,
    /// Ends it.
    Ends,
    /// Leaves it as it is.
    None,
}

/// Which way the rows of `COPY` go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// `COPY … FROM STDIN`
    FromClient,
    /// `COPY … TO STDOUT`
    ToClient,
}

/// Adds the words of code, and goes on with the depth of parentheses.
fn read_code(code: &str, depth: &mut usize, words: &mut Vec<(usize, String)>) {
    let is_of_word = |c: char| c.is_alphanumeric() || "_$@".contains(c);
    for part in code.split_inclusive(|c| !is_of_word(c)) {
        let word = part.trim_end_matches(|c| !is_of_word(c));
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

    /// The failures that this prevents: an apostrophe that no string begins with hid the words behind it, and words in
    /// what only one engine quotes were taken for the statement's; an empty result was taken for none.
    #[test]
    fn a_statement_is_known_by_its_words() {
        for (drivers, sql, gives_rows, does_not_wait) in [
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
                let read = (words.gives_rows(), words.does_not_wait());
                assert_eq!(read, (gives_rows, does_not_wait), "{driver:?}: {sql}");
            }
        }
        for garbage in ["'", "`''", "((((", "))))", "/*", "--", "ж'ж\"", "\\'"] {
            for driver in SERVERS {
                let words = StatementWords::of(*driver, garbage);
                assert!(!words.gives_rows() && !words.does_not_wait(), "{garbage}");
            }
        }
    }

    #[test]
    fn copies_by_the_client_are_known() {
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
    fn transactions_begin_and_end() {
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
