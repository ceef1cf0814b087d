//! What can be told of a statement by its text alone, where the server's answer does not say: an empty
//! result and no result look the same to the driver, and so do a refusal and a wait that ran out.
//! Knows words, not grammar.

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
        let (mut words, mut quoted) = (Vec::new(), Vec::new());
        let mut depth = 0;
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

    /// What it does, behind any `with …`.
    fn verb(&self) -> &str {
        const VERBS: [&str; 7] =
            ["select", "insert", "update", "delete", "values", "table", "merge"];
        match self.first() {
            "with" => {
                let verb = |(depth, word): &&(usize, String)| {
                    *depth == 0 && VERBS.contains(&word.as_str())
                };
                self.words.iter().find(verb).map_or("", |(_, word)| word)
            }
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
            "select" => !self.words.iter().any(|(depth, word)| *depth == 0 && word == "into"),
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
        if !self.has("copy") {
            None
        } else if self.has_all(&["from", "stdin"]) {
            Some(CopyDirection::FromClient)
        } else {
            self.has_all(&["to", "stdout"]).then_some(CopyDirection::ToClient)
        }
    }

    /// Returns what it does to the transaction of its session.
    pub fn transaction_effect(&self) -> TransactionEffect {
        match (self.first(), self.nth(1)) {
            ("begin", _) | ("start", "transaction") => TransactionEffect::Begins,
            // To a savepoint: the transaction goes on.
            ("rollback", _) if self.has("to") => TransactionEffect::None,
            ("commit" | "rollback" | "end" | "abort", _)
                if self.has("chain") && !self.has("no") =>
            {
                TransactionEffect::Begins
            }
            ("commit" | "rollback" | "end" | "abort", _) | ("prepare", "transaction") => {
                TransactionEffect::Ends
            }
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
    let mut rest = code;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        if length > 0 {
            words.push((*depth, rest[..length].to_lowercase()));
        }
        match first {
            '(' => *depth += 1,
            ')' => *depth = depth.saturating_sub(1),
            _ => {}
        }
        rest = &rest[length.max(first.len_utf8())..];
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || c == '@'
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [Driver; 2] = [Driver::Mysql, Driver::Postgres];

    /// The failure that this prevents: an apostrophe that no string begins with hid the words behind it, and words in
    /// what only one engine quotes were taken for the statement's.
    #[test]
    fn each_engine_has_quotes_and_comments_of_its_own() {
        for (driver, sql) in [
            (Driver::Mysql, "select 1 # it's\nfrom t for update nowait"),
            (Driver::Mysql, r"select 'it\'s' from t for update nowait"),
            (Driver::Mysql, "select 5--1 from t for update nowait"),
            (Driver::Postgres, "select $$it's$$ from t for update nowait"),
            (Driver::Postgres, "/* a /* b */ ' */ select 1 from t for update nowait"),
            (Driver::Postgres, r"select E'it\'s' from t for update nowait"),
        ] {
            let words = StatementWords::of(driver, sql);
            assert!(words.gives_rows() && words.does_not_wait(), "{sql}");
        }
        for (driver, sql) in [
            (Driver::Mysql, "select 1 # nowait"),
            (Driver::Mysql, r"select 'it\' nowait'"),
            (Driver::Postgres, "select 1 --nowait"),
            (Driver::Postgres, "select $$ nowait $$"),
        ] {
            assert!(!StatementWords::of(driver, sql).does_not_wait(), "{sql}");
        }
    }

    #[test]
    fn an_empty_result_is_told_from_none() {
        for sql in [
            "select 1",
            "SELECT * FROM t WHERE s = 'into' FOR UPDATE",
            "-- why\n/* insert */ select 1",
            "(select 1) union (select 2)",
            "with x as (delete from t returning *) select * from x",
            "insert into t values (1) returning id",
            "table t",
            "show tables",
            "with recursive x as (select 1) select * from x for update",
        ] {
            for driver in SERVERS {
                assert!(StatementWords::of(driver, sql).gives_rows(), "{sql}");
            }
        }
        for sql in [
            "insert into t select 'returning'",
            "update t set \"returning\" = 1",
            "begin",
            "",
            "select 1 into @x",
            "with x as (select 1) update t set v = 1",
            "lock table t in share mode",
        ] {
            for driver in SERVERS {
                assert!(!StatementWords::of(driver, sql).gives_rows(), "{sql}");
            }
        }
        assert!(!StatementWords::of(Driver::Mysql, "update t set `returning` = 1").gives_rows());
    }

    #[test]
    fn who_is_not_to_wait_says_so() {
        for sql in ["select 1 from t for update NOWAIT", "select 1 from t for update wait 0"] {
            assert!(SERVERS.iter().all(|it| StatementWords::of(*it, sql).does_not_wait()), "{sql}");
        }
        for sql in ["select 'nowait' from t for update", "select 1 from t for update wait 10"] {
            assert!(
                !SERVERS.iter().any(|it| StatementWords::of(*it, sql).does_not_wait()),
                "{sql}"
            );
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
            assert_eq!(StatementWords::of(Driver::Postgres, sql).copy_direction(), copies, "{sql}");
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
                assert_eq!(StatementWords::of(driver, sql).transaction_effect(), effect, "{sql}");
            }
        }
    }

    #[test]
    fn garbage_is_only_garbage() {
        for sql in ["'", "`''", "((((", "))))", "/*", "--", "ж'ж\"", "\\'"] {
            for driver in SERVERS {
                let words = StatementWords::of(driver, sql);
                assert!(!words.gives_rows() && !words.does_not_wait(), "{sql}");
            }
        }
    }
}
