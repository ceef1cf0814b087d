//! Locking statements: text, or text with values to be bound.

use super::{Dialect, Scheme, Strategy, innodb, postgres};
use crate::mode::SlotMode;
use crate::plan::Step;
use hierlock_engine::{LockWaitPolicy, SessionRef, Value};
use std::fmt::Write as _;

/// What is sent in one go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LockStatement {
    /// With a place for each value: one statement then; without values it may be several.
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
    /// How many rows come back if every slot is there.
    pub(super) rows: usize,
    /// Does one row say how many there are, instead?
    pub(super) is_count: bool,
}

/// What stands in a statement for a value: a place to which it is bound, or this.
pub(super) trait Literal: Into<Value> {
    /// As it is written in SQL.
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
            // In this form a backslash is written twice, whatever `standard_conforming_strings` says.
            Dialect::Postgres => format!("E'\\\\x{}'::bytea", hex(self)),
            _ => format!("x'{}'", hex(self)),
        }
    }
}

/// NULL is equal to nothing: it fills a list up.
impl<T: Literal> Literal for Option<T>
where
    Self: Into<Value>,
{
    fn literal(&self, dialect: Dialect) -> String {
        self.as_ref().map_or("NULL".to_owned(), |value| value.literal(dialect))
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
        $(/// An array, which only PostgreSQL has.
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

/// Two digits a byte.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How values are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// Bound where that pays, for a server that has seen the like before.
    Bound,
    /// All in the text: for people, and behind something else in the same packet.
    Text,
}

impl LockStatement {
    /// Runs it, in one round trip, and returns how many rows came back. It may wait as long as it takes.
    ///
    /// # Cancel safety
    /// None: dropped before its end it leaves a statement running on the server. Only the task that
    /// owns the session may call it, and that task cancels it on the server first.
    pub(super) async fn run(self, session: &mut SessionRef<'_>) -> Result<usize, sqlx::Error> {
        let rows = session.run_unlimited(self.sql, self.values).await?;
        match rows.first() {
            Some(row) if self.is_count => Ok(row.int(0).map_err(|error| error.0)? as usize),
            _ => Ok(rows.len()),
        }
    }

    /// The same for one that waits for nobody.
    pub(super) async fn run_limited(
        self,
        session: &mut SessionRef<'_>,
    ) -> Result<usize, sqlx::Error> {
        let limit = session.answer_limit;
        let ran = tokio::time::timeout(limit, self.run(session)).await;
        ran.map_err(|_| hierlock_engine::timed_out(limit))?
    }

    /// Several statements, or one that returns nothing of interest.
    pub(super) fn text(sql: String) -> Self {
        Self { sql, values: Vec::new(), rows: 0, is_count: false }
    }

    /// The same, but its rows are only counted: a hundred of them would have to be sent and read. On
    /// PostgreSQL.
    pub(super) fn counted(self) -> Self {
        let sql = format!("SELECT count(*) FROM ({}) q", self.sql);
        Self { sql, is_count: true, ..self }
    }
}

/// Steps that follow each other on one level, in one mode: one piece of a statement.
pub(super) fn runs(steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    steps.chunk_by(|a, b| (a.level, a.mode) == (b.level, b.mode))
}

impl Scheme {
    /// What takes these steps, in this order.
    pub(super) fn take(
        &self,
        steps: &[Step],
        policy: LockWaitPolicy,
        form: ValueForm,
    ) -> LockStatement {
        let writer = self.writer(policy, form);
        match (self.dialect, self.strategy) {
            (Dialect::Postgres, Strategy::Advisory) => postgres::take_keys(writer, steps),
            (Dialect::Postgres, _) => postgres::take(writer, steps),
            (Dialect::Mysql | Dialect::Mariadb, _) => innodb::take_rows(writer, steps),
        }
    }

    pub(super) fn writer(&self, policy: LockWaitPolicy, form: ValueForm) -> Writer<'_> {
        Writer { scheme: self, policy, form, values: Vec::new() }
    }

    /// The same, one step after the other without waiting: the first that fails is the one in the way.
    /// Beside it, the place of the step of each of its statements.
    pub(super) fn take_singly(&self, steps: &[Step]) -> (String, Vec<usize>) {
        let (mut sql, mut places) = (Vec::new(), Vec::new());
        for (place, step) in steps.iter().enumerate() {
            let single =
                self.take(std::slice::from_ref(step), LockWaitPolicy::Fail, ValueForm::Text);
            // Each of its statements brings one row.
            places.extend(std::iter::repeat_n(place, single.rows));
            sql.push(single.sql);
        }
        (sql.join(";\n"), places)
    }

    /// The key of a row by ID in hexadecimal, as an expression.
    pub(super) fn hex_key(&self) -> &'static str {
        match self.dialect {
            Dialect::Postgres => "encode(lock_key, 'hex')",
            _ => "LOWER(HEX(lock_key))",
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
}

/// Writes a statement: with places and values, or with everything in the text.
pub(super) struct Writer<'a> {
    pub(super) scheme: &'a Scheme,
    pub(super) policy: LockWaitPolicy,
    pub(super) form: ValueForm,
    values: Vec<Value>,
}

impl Writer<'_> {
    /// What stands in the text for a value.
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

    /// The words after a SELECT that lock its row, or the row of one table of a join.
    pub(super) fn clause(&self, table: &str, mode: SlotMode) -> String {
        let clause = match (self.scheme.dialect, mode) {
            (Dialect::Mysql, SlotMode::Shared) => "FOR SHARE",
            (Dialect::Mariadb, SlotMode::Shared) => "LOCK IN SHARE MODE",
            // Updaters exclude each other otherwise. Not FOR KEY SHARE: see `updaters`.
            (Dialect::Postgres, SlotMode::Shared | SlotMode::Update) => "FOR SHARE",
            _ => "FOR UPDATE",
        };
        let of = if table.is_empty() { String::new() } else { format!(" OF {table}") };
        let nowait = if self.policy == LockWaitPolicy::Fail { " NOWAIT" } else { "" };
        format!("{clause}{of}{nowait}")
    }

    /// The row of a step, as a condition on a table called `of` (or not called anything). The key text
    /// says its level itself.
    pub(super) fn row(&mut self, of: &str, step: &Step) -> String {
        let of = if of.is_empty() { String::new() } else { format!("{of}.") };
        if self.scheme.strategy.is_by_id() {
            return format!("{of}lock_key = {}", self.value(step.target.key().into_bytes()));
        }
        let (level, bucket) = (self.value(step.level as i64), self.value(step.slot as i64));
        format!("{of}level = {level} AND {of}bucket = {bucket}")
    }

    /// One row by itself.
    pub(super) fn select(&mut self, step: &Step) -> String {
        let (fence, table) = (self.scheme.fence(), self.scheme.quoted_table());
        let (row, clause) = (self.row("", step), self.clause("", step.mode));
        format!("SELECT {fence} FROM {table} WHERE {row} {clause}")
    }

    pub(super) fn finish(self, sql: String, rows: usize) -> LockStatement {
        LockStatement { sql, values: self.values, rows, is_count: false }
    }
}

/// Rows as one join: a server locks them in the order of FROM (MySQL) or of the clauses (PostgreSQL),
/// which is the same here.
#[derive(Default)]
pub(super) struct Join {
    tables: Vec<String>,
    conditions: Vec<String>,
    clauses: Vec<String>,
    /// By what its rows are sorted before they are locked.
    order: &'static str,
}

impl Join {
    /// Single rows.
    pub(super) fn of(steps: &[Step], writer: &mut Writer<'_>) -> Self {
        let mut join = Self::default();
        for step in steps {
            let name = join.add(step.mode, writer);
            join.conditions.push(writer.row(&name, step));
        }
        join
    }

    /// One more occurrence of the table; its name comes back.
    fn add(&mut self, mode: SlotMode, writer: &Writer<'_>) -> String {
        let name = format!("t{}", self.clauses.len());
        self.tables.push(format!("{} {name}", writer.scheme.quoted_table()));
        self.clauses.push(writer.clause(&name, mode));
        name
    }

    /// All rows of a run, in its order, after those so far: on PostgreSQL, which has arrays.
    pub(super) fn with_run(mut self, run: &[Step], writer: &mut Writer<'_>) -> Self {
        let [first, ..] = run else { return self };
        if !self.tables.is_empty() {
            // Locked once, and not for each row of the run again.
            let before = std::mem::take(&mut self).select(writer.scheme, ", ");
            self.tables.push(format!("({before}) s"));
        }
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
                // On one level the order of the slots is that of the buckets: no join is needed.
                self.conditions.push(format!("{name}.bucket = ANY({list})"));
                self.order = "ORDER BY bucket ";
                return self;
            }
            // A server that sees the values, but has no statistics yet, would read all rows for them.
            self.conditions.push(format!("{name}.bucket = v.x"));
            list
        };
        self.tables.push(format!("unnest({list}) WITH ORDINALITY v(x, n)"));
        self.order = "ORDER BY v.n ";
        self
    }

    /// `by` stands between the tables.
    pub(super) fn select(self, scheme: &Scheme, by: &str) -> String {
        // Each is the table under another name, so the fence may be asked of any.
        format!(
            "SELECT t0.{} FROM {} WHERE {} {}{}",
            scheme.fence(),
            self.tables.join(by),
            self.conditions.join(" AND "),
            self.order,
            self.clauses.join(" ")
        )
    }
}
