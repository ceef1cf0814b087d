//! The tables, columns and values of a statement. Parses the common forms; fields are empty for any other form.

use hierlock_engine::Driver;
use hierlock_engine::lexer::{TokenKind, tokens};
use std::ops::Range;

/// The parts of a statement that name tables and rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StatementParts {
    /// The first word, in lower case.
    pub(super) verb: String,
    /// The name of the table, without its schema.
    pub(super) table: Option<String>,
    /// The table as the statement writes it, with quotes.
    pub(super) table_text: Option<String>,
    /// The pairs of WHERE, such as `id = 10`.
    pub(super) conditions: Vec<(String, String)>,
    /// The text after WHERE.
    pub(super) where_text: Option<String>,
    /// The pairs of SET, such as `state = 'new'`; the value is empty if it is an expression.
    pub(super) assignments: Vec<(String, String)>,
    /// The columns of an INSERT, if they are named.
    pub(super) insert_columns: Vec<String>,
    /// The first row of an INSERT; a value is empty if it is an expression.
    pub(super) insert_values: Vec<String>,
}

/// A word, a name, a literal or a punctuation character.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    text: String,
    kind: PieceKind,
    at: Range<usize>,
    depth: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceKind {
    Word,
    /// A quoted name.
    Name,
    Literal,
    Punctuation,
}

impl Piece {
    fn is_word(&self, word: &str) -> bool {
        self.kind == PieceKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    fn is_punctuation(&self, sign: &str) -> bool {
        self.kind == PieceKind::Punctuation && self.text == sign
    }

    fn is_name(&self) -> bool {
        matches!(self.kind, PieceKind::Word | PieceKind::Name)
    }
}

impl StatementParts {
    pub(super) fn of(driver: Driver, sql: &str) -> Self {
        let pieces = pieces(driver, sql);
        let verb = pieces.first().map(|piece| piece.text.to_lowercase()).unwrap_or_default();
        let mut parts = Self { verb, ..Self::default() };
        let after =
            |word: &str| pieces.iter().position(|piece| piece.is_word(word)).map(|at| at + 1);
        let table = match parts.verb.as_str() {
            "insert" | "replace" => after("into"),
            "update" => Some(1),
            "lock" => after("table").or_else(|| after("tables")),
            _ => after("from"),
        };
        let next = table.and_then(|at| parts.read_table(sql, &pieces, at));
        if ["insert", "replace"].contains(&parts.verb.as_str()) {
            parts.read_insert(&pieces[next.unwrap_or(pieces.len())..]);
        }
        let from = pieces.iter().position(|piece| piece.depth == 0 && piece.is_word("where"));
        if let Some(set) = pieces.iter().position(|piece| piece.is_word("set")) {
            parts.assignments = pairs(&pieces[set + 1..from.unwrap_or(pieces.len()).max(set + 1)]);
        }
        if let Some(from) = from {
            let is_end = |piece: &Piece| {
                let ends = ["order", "limit", "for", "lock", "returning", "group"];
                piece.depth == 0 && ends.iter().any(|word| piece.is_word(word))
            };
            let condition = until(&pieces[from + 1..], is_end);
            parts.conditions = pairs(condition);
            parts.conditions.retain(|(_, value)| !value.is_empty());
            if let (Some(first), Some(last)) = (condition.first(), condition.last()) {
                parts.where_text = Some(sql[first.at.start..last.at.end].to_owned());
            }
        }
        parts
    }

    /// Reads `shop.orders`; returns the index of the piece after it.
    fn read_table(&mut self, sql: &str, pieces: &[Piece], mut at: usize) -> Option<usize> {
        while pieces.get(at).is_some_and(|piece| {
            ["only", "ignore", "low_priority", "if"].iter().any(|word| piece.is_word(word))
        }) {
            at += 1;
        }
        while pieces.get(at + 1)?.is_punctuation(".")
            && pieces.get(at + 2).is_some_and(Piece::is_name)
        {
            at += 2;
        }
        let piece = pieces.get(at)?;
        if piece.is_name() {
            self.table = Some(piece.text.clone());
            self.table_text = Some(sql[piece.at.clone()].to_owned());
        }
        Some(at + 1)
    }

    fn read_insert(&mut self, pieces: &[Piece]) {
        let values =
            pieces.iter().position(|piece| piece.is_word("values") || piece.is_word("value"));
        let Some(values) = values else { return };
        let names = pieces[..values].iter().filter(|piece| piece.is_name() && piece.depth == 1);
        self.insert_columns = names.map(|piece| piece.text.clone()).collect();
        // The row begins after its `(`.
        let row = until(pieces.get(values + 2..).unwrap_or_default(), |piece| piece.depth == 0);
        let row = row.split(|piece| piece.is_punctuation(",") && piece.depth == 1);
        self.insert_values = row.map(literal).collect();
    }
}

/// Returns the pieces before the first one at which `is_end`.
fn until(pieces: &[Piece], is_end: impl Fn(&Piece) -> bool) -> &[Piece] {
    &pieces[..pieces.iter().position(is_end).unwrap_or(pieces.len())]
}

/// Returns the text of a literal; an empty text for an expression.
fn literal(value: &[Piece]) -> String {
    match value {
        [one] if one.kind == PieceKind::Literal => one.text.clone(),
        [minus, one] if minus.is_punctuation("-") && one.kind == PieceKind::Literal => {
            format!("-{}", one.text)
        }
        _ => String::new(),
    }
}

/// Returns all pairs `name = value`; the value is empty if it is an expression.
fn pairs(pieces: &[Piece]) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for (at, sign) in pieces.iter().enumerate().filter(|(_, piece)| piece.is_punctuation("=")) {
        let Some(name) = at.checked_sub(1).map(|at| &pieces[at]).filter(|piece| piece.is_name())
        else {
            continue;
        };
        let is_end = |piece: &Piece| {
            piece.is_punctuation(",") && piece.depth <= sign.depth
                || ["and", "or"].iter().any(|word| piece.is_word(word))
                || piece.is_punctuation(")")
        };
        pairs.push((name.text.clone(), literal(until(&pieces[at + 1..], is_end))));
    }
    pairs
}

fn pieces(driver: Driver, sql: &str) -> Vec<Piece> {
    let (mut pieces, mut at, mut depth): (Vec<Piece>, usize, usize) = (Vec::new(), 0, 0);
    for token in tokens(driver, sql) {
        let end = at + token.text.len();
        match token.kind {
            TokenKind::Comment => {}
            TokenKind::Code => read_code(token.text, at, &mut depth, &mut pieces),
            TokenKind::Quoted => {
                let is_name = token.text.starts_with('`')
                    || token.text.starts_with('"') && driver == Driver::Postgres;
                // The prefix of a literal (`x'ff'`) is a word directly in front of it.
                let prefix = pieces
                    .pop_if(|last| !is_name && last.at.end == at && last.kind == PieceKind::Word);
                let begin = prefix.map_or(at, |prefix| prefix.at.start);
                let (kind, text) = if is_name {
                    (PieceKind::Name, token.unquoted())
                } else {
                    (PieceKind::Literal, sql[begin..end].to_owned())
                };
                pieces.push(Piece { text, kind, at: begin..end, depth });
            }
        }
        at = end;
    }
    pieces
}

fn read_code(code: &str, from: usize, depth: &mut usize, pieces: &mut Vec<Piece>) {
    let is_word_character = |c: char| c.is_alphanumeric() || "_$@".contains(c);
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let length = if is_word_character(c) {
            let is_number = c.is_ascii_digit();
            rest.find(|c: char| !(is_word_character(c) || is_number && c == '.'))
                .unwrap_or(rest.len())
        } else {
            c.len_utf8()
        };
        let (text, next) = rest.split_at(length);
        let start = from + code.len() - rest.len();
        rest = next;
        if c.is_whitespace() || c == ';' {
            continue;
        }
        if c == ')' {
            *depth = depth.saturating_sub(1);
        }
        let kind = match c {
            c if c.is_ascii_digit() => PieceKind::Literal,
            c if is_word_character(c) => PieceKind::Word,
            _ => PieceKind::Punctuation,
        };
        pieces.push(Piece {
            text: text.to_owned(),
            kind,
            at: start..start + length,
            depth: *depth,
        });
        if c == '(' {
            *depth += 1;
        }
    }
}

/// Returns the statement on one line, without comments and the schemas of its tables; parameters become 1.
pub(super) fn plain_statement(driver: Driver, sql: &str, schemas: &[&str]) -> String {
    let mut line = String::new();
    let add_blank = |line: &mut String| {
        if !line.ends_with(' ') {
            line.push(' ');
        }
    };
    for token in tokens(driver, sql) {
        match token.kind {
            TokenKind::Comment => add_blank(&mut line),
            TokenKind::Quoted => line.push_str(&token.text.replace(['\n', '\r'], " ")),
            TokenKind::Code => {
                for part in token.text.split_inclusive(char::is_whitespace) {
                    let word = part.trim_end();
                    line.push_str(&without_parameters(driver, word));
                    if word.len() < part.len() {
                        add_blank(&mut line);
                    }
                }
            }
        }
    }
    for schema in schemas.iter().filter(|schema| !schema.is_empty()) {
        line = line.replace(&format!("`{schema}`."), "");
        for before in [" ", ","] {
            line = line.replace(&format!("{before}{schema}."), before);
        }
    }
    line.trim().trim_end_matches(';').trim_end().to_owned()
}

/// Replaces `$1` of PostgreSQL and `?` of MySQL by 1.
fn without_parameters(driver: Driver, code: &str) -> String {
    if driver != Driver::Postgres {
        return code.replace('?', "1");
    }
    let mut parts = code.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        text += if rest.len() < part.len() { "1" } else { "$" };
        text += rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_statements_are_read() {
        let parts = |sql| StatementParts::of(Driver::Mysql, sql);
        let update = parts(
            "update shop.`my orders` set n = n + 1, s = 'x' where id = 10 and k = x'ff' limit 1",
        );
        assert_eq!(update.table.as_deref(), Some("my orders"));
        assert_eq!(update.table_text.as_deref(), Some("`my orders`"));
        assert_eq!(update.where_text.as_deref(), Some("id = 10 and k = x'ff'"));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(update.conditions, [pair("id", "10"), pair("k", "x'ff'")]);
        assert_eq!(update.assignments, [pair("n", ""), pair("s", "'x'")]);
        let insert = parts("insert into t (id, v) values (-5, lower('A')), (6, 'b')");
        assert_eq!(
            (insert.insert_columns, insert.insert_values),
            (vec!["id".to_owned(), "v".to_owned()], vec!["-5".to_owned(), String::new()])
        );
        let select = parts("select * from t where (id = 3) for update");
        assert_eq!(
            (select.table.as_deref(), select.conditions),
            (Some("t"), vec![pair("id", "3")])
        );
        for garbage in
            ["", "update", "insert into", "insert into t values", "where =", "set = ,", "((("]
        {
            parts(garbage);
        }
    }

    #[test]
    fn statements_become_plain() {
        for (sql, line) in [
            ("update t\n set n = 1 -- why\n where id = 2;", "update t set n = 1 where id = 2"),
            ("update `shop`.`t` set n = $1 where id = $12", "update `t` set n = 1 where id = 1"),
            (
                "select * from shop.t where s = 'shop.t' /* a */ for update",
                "select * from t where s = 'shop.t' for update",
            ),
        ] {
            assert_eq!(plain_statement(Driver::Postgres, sql, &["shop"]), line);
        }
    }
}
