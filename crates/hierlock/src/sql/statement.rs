//! Lock statements, as text or with bound values.

use super::{Dialect, LabelText, Scheme, Strategy, innodb, postgres};
use crate::{SlotMode, Step};
use hierlock_engine::{LockWaitPolicy, SessionRef, Value};
use std::fmt::Write as _;

/// A lock statement, sent in one round trip.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LockStatement {
    /// The text, with a placeholder for each value. Without values it may be several statements.
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
    /// The number of rows in the result if no slot is missing.
    pub(super) rows: usize,
    /// Whether the result is one row that contains the number of rows instead.
    pub(super) is_count: bool,
}

/// A value that can be bound, or written into the text as an SQL literal.
pub(super) trait Literal: Into<Value> {
    fn literal(&self, dialect: Dialect) -> String;
}

impl Literal for i64 {
    fn literal(&self, _: Dialect) -> String {
        self.to_string()
    }
}

/// The key of a row by ID.
impl Literal for Vec<u8> {
    fn literal(&self, dialect: Dialect) -> String {
        match dialect {
            // In E'…' a backslash is always escaped, with any `standard_conforming_strings`.
            Dialect::Postgres => format!("E'\\\\x{}'::bytea", hex(self)),
            _ => format!("x'{}'", hex(self)),
        }
    }
}

/// `None` is NULL, which equals no key and fills a list up.
impl Literal for Option<Vec<u8>> {
    fn literal(&self, dialect: Dialect) -> String {
        self.as_ref().map_or("NULL".to_owned(), |key| key.literal(dialect))
    }
}

/// An array in JSON.
impl Literal for String {
    fn literal(&self, _: Dialect) -> String {
        format!("'{self}'")
    }
}

macro_rules! array_literal {
    ($($of:ty),*) => {
        $(/// An array of PostgreSQL.
        impl Literal for Vec<$of> {
            fn literal(&self, _: Dialect) -> String {
                let values: Vec<String> = self.iter().map(ToString::to_string).collect();
                format!("'{{{}}}'", values.join(","))
            }
        })*
    };
}

array_literal!(i64, i32, bool);

impl Literal for Vec<Vec<u8>> {
    fn literal(&self, dialect: Dialect) -> String {
        let keys: Vec<String> = self.iter().map(|key| key.literal(dialect)).collect();
        format!("ARRAY[{}]::bytea[]", keys.join(","))
    }
}

/// Returns bytes as hexadecimal digits in lower case.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The form in which values are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// Bound to a prepared statement, where one statement serves many requests.
    Bound,
    /// Literals in the text: for people, and for several statements in one packet.
    Text,
}

impl LockStatement {
    /// Runs the statement in one round trip, without a time limit. Returns the number of rows in its result.
    ///
    /// # Cancel safety
    /// Not cancel safe: if the future is dropped, the statement keeps running on the server. Only the task that owns the
    /// session may call this, and it cancels the statement on the server first.
    pub(super) async fn run(self, session: &mut SessionRef<'_>) -> sqlx::Result<usize> {
        let rows = session.run_unlimited(self.sql, self.values).await?;
        match rows.first() {
            Some(row) if self.is_count => Ok(row.int(0).map_err(|error| error.0)? as usize),
            _ => Ok(rows.len()),
        }
    }

    /// Runs a statement that waits for no lock, with the answer limit.
    pub(super) async fn run_limited(self, session: &mut SessionRef<'_>) -> sqlx::Result<usize> {
        let limit = session.answer_limit;
        let ran = tokio::time::timeout(limit, self.run(session)).await;
        ran.map_err(|_| hierlock_engine::timed_out(limit))?
    }

    /// Makes a statement without values whose result is ignored.
    pub(super) fn text(sql: String) -> Self {
        Self { sql, values: Vec::new(), rows: 0, is_count: false }
    }
}

/// Splits steps into runs of the same level and mode. Each run is one part of a statement.
pub(super) fn runs(steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    steps.chunk_by(|a, b| (a.level, a.mode) == (b.level, b.mode))
}

impl Scheme {
    /// Returns the statement that labels the session and then takes the steps in order.
    pub(super) fn take(
        &self,
        steps: &[Step],
        label: Option<&LabelText>,
        policy: LockWaitPolicy,
        form: ValueForm,
    ) -> LockStatement {
        let writer = Writer { label, ..self.writer(policy, form) };
        match (self.dialect, self.strategy) {
            (Dialect::Postgres, Strategy::Advisory) => postgres::take_keys(writer, steps),
            (Dialect::Postgres, _) => postgres::take(writer, steps),
            (Dialect::Mysql | Dialect::Mariadb, _) => innodb::take_rows(writer, steps),
        }
    }

    pub(super) fn writer(&self, policy: LockWaitPolicy, form: ValueForm) -> Writer<'_> {
        Writer { scheme: self, policy, form, label: None, values: Vec::new() }
    }

    /// Returns statements that take one step after the other without waiting, so that the first blocked step fails. Also
    /// returns the index of the step of each statement.
    pub(super) fn take_singly(&self, steps: &[Step]) -> (String, Vec<usize>) {
        let (mut sql, mut indices) = (Vec::new(), Vec::new());
        for (index, step) in steps.iter().enumerate() {
            let single =
                self.take(std::slice::from_ref(step), None, LockWaitPolicy::Fail, ValueForm::Text);
            // Each statement for a single step returns one row.
            indices.extend(std::iter::repeat_n(index, single.rows));
            sql.push(single.sql);
        }
        (sql.join(";\n"), indices)
    }

    /// Returns the SQL expression for the key of a row by ID in hexadecimal.
    pub(super) fn hex_key(&self) -> &'static str {
        match self.dialect {
            Dialect::Postgres => "encode(lock_key, 'hex')",
            _ => "LOWER(HEX(lock_key))",
        }
    }

    /// Returns the name of the slot of a step in the server's lists of locks: `2, 1358050`, the hexadecimal digits of a
    /// key, or the number of an advisory key.
    pub fn slot_name(&self, step: &Step) -> String {
        match self.strategy {
            Strategy::Striped => format!("{}, {}", step.level, step.slot),
            Strategy::PerId | Strategy::OnDemand => hex(step.target.key().as_bytes()),
            Strategy::Advisory => (step.slot as i64).to_string(),
        }
    }
}

/// Writes a lock statement, with placeholders and values or with literals.
pub(super) struct Writer<'a> {
    pub(super) scheme: &'a Scheme,
    pub(super) policy: LockWaitPolicy,
    pub(super) form: ValueForm,
    /// The label of the session. The first condition of the statement sets it.
    pub(super) label: Option<&'a LabelText>,
    values: Vec<Value>,
}

impl Writer<'_> {
    /// Returns a literal, or adds a value and returns its placeholder.
    pub(super) fn value(&mut self, value: impl Literal) -> String {
        if self.form == ValueForm::Text {
            return value.literal(self.scheme.dialect);
        }
        self.values.push(value.into());
        match self.scheme.dialect {
            Dialect::Postgres => format!("${}", self.values.len()),
            _ => "?".to_owned(),
        }
    }

    /// Returns the locking clause of a SELECT: for all its rows, or for those of one table of a join.
    pub(super) fn clause(&self, table: &str, mode: SlotMode) -> String {
        let clause = match (self.scheme.dialect, mode) {
            (Dialect::Mysql, SlotMode::Shared) => "FOR SHARE",
            (Dialect::Mariadb, SlotMode::Shared) => "LOCK IN SHARE MODE",
            // Update locks exclude each other by an advisory key. For the reason see `update_keys`.
            (Dialect::Postgres, SlotMode::Shared | SlotMode::Update) => "FOR SHARE",
            _ => "FOR UPDATE",
        };
        let of = if table.is_empty() { String::new() } else { format!(" OF {table}") };
        let nowait = if self.policy == LockWaitPolicy::Fail { " NOWAIT" } else { "" };
        format!("{clause}{of}{nowait}")
    }

    /// Returns the condition for the row of a step, in a table with this alias, or without an alias if it is empty. The key
    /// of a row by ID contains the level.
    pub(super) fn row(&mut self, alias: &str, step: &Step) -> String {
        let prefix = if alias.is_empty() { String::new() } else { format!("{alias}.") };
        if self.scheme.strategy.is_by_id() {
            return format!("{prefix}lock_key = {}", self.value(step.target.key().into_bytes()));
        }
        let (level, bucket) = (self.value(step.level as i64), self.value(step.slot as i64));
        format!("{prefix}level = {level} AND {prefix}bucket = {bucket}")
    }

    /// Returns the SELECT that locks the row of one step.
    pub(super) fn select(&mut self, step: &Step) -> String {
        let (column, table) = (self.scheme.selected_column(), self.scheme.quoted_table());
        let label = self.label_condition().map(|label| label + " AND ").unwrap_or_default();
        let (row, clause) = (self.row("", step), self.clause("", step.mode));
        format!("SELECT {column} FROM {table} WHERE {label}{row} {clause}")
    }

    pub(super) fn finish(self, sql: String, rows: usize) -> LockStatement {
        LockStatement { sql, values: self.values, rows, is_count: false }
    }

    /// Finishes a statement of PostgreSQL. With bound values it returns only the number of rows, which saves sending them.
    pub(super) fn finish_counted(self, sql: String, rows: usize) -> LockStatement {
        if self.form == ValueForm::Text {
            return self.finish(sql, rows);
        }
        let sql = format!("SELECT count(*) FROM ({sql}) q");
        LockStatement { is_count: true, ..self.finish(sql, rows) }
    }
}

/// Rows locked by one join. MySQL locks them in the order of FROM, PostgreSQL in that of the locking clauses; both are the
/// same here.
#[derive(Default)]
pub(super) struct Join {
    tables: Vec<String>,
    conditions: Vec<String>,
    clauses: Vec<String>,
    /// The ORDER BY clause: rows are sorted before they are locked.
    order: &'static str,
}

impl Join {
    /// Joins the rows of single steps.
    pub(super) fn of(steps: &[Step], writer: &mut Writer<'_>) -> Self {
        let mut join = Self::default();
        join.conditions.extend(writer.label_condition());
        for step in steps {
            let name = join.add(step.mode, writer);
            join.conditions.push(writer.row(&name, step));
        }
        join
    }

    /// Adds the lock table once more, and returns its alias.
    fn add(&mut self, mode: SlotMode, writer: &Writer<'_>) -> String {
        let name = format!("t{}", self.clauses.len());
        self.tables.push(format!("{} {name}", writer.scheme.quoted_table()));
        self.clauses.push(writer.clause(&name, mode));
        name
    }

    /// Adds all rows of a run, in its order, after the rows so far. Only for PostgreSQL, which has arrays.
    pub(super) fn with_run(mut self, run: &[Step], writer: &mut Writer<'_>) -> Self {
        let [first, ..] = run else { return self };
        if !self.tables.is_empty() {
            // A subquery, so that its rows are locked once, and not again for each row of the run.
            let before = std::mem::take(&mut self).select(writer.scheme, ", ");
            self.tables.push(format!("({before}) s"));
        }
        self.conditions.extend(writer.label_condition());
        let name = self.add(first.mode, writer);
        let list = if writer.scheme.strategy.is_by_id() {
            let keys: Vec<_> = run.iter().map(|step| step.target.key().into_bytes()).collect();
            self.conditions.push(format!("{name}.lock_key = v.x"));
            writer.value(keys)
        } else {
            let buckets: Vec<i32> = run.iter().map(|step| step.slot as i32).collect();
            let list = format!("{}::int[]", writer.value(buckets));
            self.conditions.push(format!("{name}.level = {}", first.level));
            if writer.form == ValueForm::Bound {
                // On one level slots are ordered by bucket, so no join is needed for the order.
                self.conditions.push(format!("{name}.bucket = ANY({list})"));
                self.order = "ORDER BY bucket ";
                return self;
            }
            // With literal values and no statistics yet, `= ANY` would scan the whole table.
            self.conditions.push(format!("{name}.bucket = v.x"));
            list
        };
        self.tables.push(format!("unnest({list}) WITH ORDINALITY v(x, n)"));
        self.order = "ORDER BY v.n ";
        self
    }

    /// Returns the SELECT, with `separator` between the tables.
    pub(super) fn select(self, scheme: &Scheme, separator: &str) -> String {
        // All aliases are the same table, so one of them is enough for the column.
        format!(
            "SELECT t0.{} FROM {} WHERE {} {}{}",
            scheme.selected_column(),
            self.tables.join(separator),
            self.conditions.join(" AND "),
            self.order,
            self.clauses.join(" ")
        )
    }
}
