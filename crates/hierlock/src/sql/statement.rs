//! Locking statements: text, or text with values to be bound. Pure.

use super::{Dialect, Scheme, Strategy, innodb, postgres};
use crate::mode::SlotMode;
use crate::plan::Step;
use std::fmt::Write as _;

/// Does a statement wait for what is not free?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Yes,
    /// It fails instead.
    No,
}

/// What is sent in one go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// With a `?` for each value; if there are none it may be several statements.
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

/// A value of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Key(Vec<u8>),
}

impl Value {
    /// As it is written in SQL.
    pub(super) fn literal(&self, dialect: Dialect) -> String {
        match (self, dialect) {
            (Value::Number(number), _) => number.to_string(),
            (Value::Key(key), Dialect::Postgres) => format!("'\\x{}'", hex(key)),
            (Value::Key(key), _) => format!("x'{}'", hex(key)),
        }
    }
}

/// Two digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Statement {
    pub(super) fn text(sql: String) -> Self {
        Self { sql, values: Vec::new() }
    }

    /// The same as plain text, for people and for what cannot bind. Only InnoDB's have values.
    pub(super) fn literal(&self) -> String {
        let mut values = self.values.iter();
        let mut parts = self.sql.split('?');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            text.extend(values.next().map(|value| value.literal(Dialect::Mysql)));
            text += part;
        }
        text
    }
}

/// Steps that follow each other on one level, in one mode: one piece of a statement.
pub(super) fn runs(steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    steps.chunk_by(|a, b| (a.level, a.mode) == (b.level, b.mode))
}

impl Scheme {
    /// What takes these steps, in this order.
    pub(super) fn take(&self, steps: &[Step], wait: Wait) -> Statement {
        match (self.dialect, self.strategy) {
            (Dialect::Postgres, Strategy::Advisory) => postgres::take_keys(steps, wait),
            (Dialect::Postgres, _) => postgres::take_rows(self, steps, wait),
            (Dialect::Mysql | Dialect::Mariadb, _) => innodb::take_rows(self, steps, wait),
        }
    }

    /// The same, one statement a step: the first that fails is the one in the way.
    pub(super) fn take_singly(&self, steps: &[Step]) -> String {
        let single = |step: &Step| self.take(std::slice::from_ref(step), Wait::No).literal();
        steps.iter().map(single).collect::<Vec<_>>().join(";\n")
    }

    /// The words after a SELECT that lock its row.
    pub(super) fn clause(&self, mode: SlotMode, wait: Wait) -> String {
        self.clause_of("", mode, wait)
    }

    /// The same for one table of a join.
    pub(super) fn clause_of(&self, table: &str, mode: SlotMode, wait: Wait) -> String {
        let clause = match (self.dialect, mode) {
            (Dialect::Mysql, SlotMode::Shared) => "FOR SHARE",
            (Dialect::Mariadb, SlotMode::Shared) => "LOCK IN SHARE MODE",
            (Dialect::Postgres, SlotMode::Shared) => "FOR KEY SHARE",
            (Dialect::Postgres, SlotMode::Update) => "FOR NO KEY UPDATE",
            _ => "FOR UPDATE",
        };
        let of = if table.is_empty() { String::new() } else { format!(" OF {table}") };
        let nowait = if wait == Wait::No { " NOWAIT" } else { "" };
        format!("{clause}{of}{nowait}")
    }

    /// What tells the rows of one level apart.
    pub(super) fn column(&self) -> &'static str {
        if self.strategy.is_by_id() { "lock_key" } else { "bucket" }
    }

    /// The value of that column.
    pub(super) fn value(&self, step: &Step) -> Value {
        match self.strategy.is_by_id() {
            true => Value::Key(step.target.key().into_bytes()),
            false => Value::Number(step.slot),
        }
    }

    /// What a slot is called when a server says for which one a session waits.
    pub(super) fn slot_name(&self, step: &Step) -> String {
        match self.strategy {
            Strategy::Striped => format!("{}, {}", step.level, step.slot),
            Strategy::PerId | Strategy::OnDemand => hex(step.target.key().as_bytes()),
            Strategy::Advisory => (step.slot as i64).to_string(),
        }
    }

    /// The row of a step, as a condition. The key text says its level itself.
    pub(super) fn row(&self, level: &str, value: &str) -> String {
        match self.strategy.is_by_id() {
            true => format!("lock_key = {value}"),
            false => format!("level = {level} AND bucket = {value}"),
        }
    }
}
