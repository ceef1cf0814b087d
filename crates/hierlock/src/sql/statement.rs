//! Locking statements: text, or text with values to be bound.

use super::{Dialect, Scheme, Strategy, innodb, postgres};
use crate::mode::SlotMode;
use crate::plan::Step;
use hierlock_engine::SessionRef;
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
    /// With a place for each value: one statement then; without values it may be several.
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
    /// How many rows come back if every slot is there.
    pub(super) rows: usize,
    /// Does one row say how many there are, instead?
    pub(super) is_count: bool,
}

/// What is bound to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Signed(i64),
    Key(Vec<u8>),
    /// Equal to nothing: fills a list up.
    Null,
    Numbers(Vec<i64>),
    Buckets(Vec<i32>),
    Flags(Vec<bool>),
    Keys(Vec<Vec<u8>>),
    /// An array in JSON.
    Json(String),
}

impl Value {
    /// As it is written in SQL.
    pub(super) fn literal(&self, dialect: Dialect) -> String {
        let list = |values: Vec<String>| values.join(",");
        match self {
            Value::Number(number) => number.to_string(),
            Value::Signed(number) => number.to_string(),
            // In this form a backslash is written twice, whatever `standard_conforming_strings` says.
            Value::Key(key) if dialect == Dialect::Postgres => {
                format!("E'\\\\x{}'::bytea", hex(key))
            }
            Value::Key(key) => format!("x'{}'", hex(key)),
            Value::Null => "NULL".to_owned(),
            Value::Numbers(numbers) => {
                format!("'{{{}}}'", list(numbers.iter().map(i64::to_string).collect()))
            }
            Value::Buckets(buckets) => {
                format!("'{{{}}}'", list(buckets.iter().map(i32::to_string).collect()))
            }
            Value::Json(array) => format!("'{array}'"),
            Value::Flags(flags) => {
                format!("'{{{}}}'", list(flags.iter().map(bool::to_string).collect()))
            }
            Value::Keys(keys) => {
                let key = |key: &Vec<u8>| format!("E'\\\\x{}'", hex(key));
                format!("ARRAY[{}]::bytea[]", list(keys.iter().map(key).collect()))
            }
        }
    }
}

impl Value {
    /// As it is bound to a statement.
    fn bound(self) -> hierlock_engine::Value {
        match self {
            // Buckets and keys of 60 bits fit.
            Value::Number(number) => (number as i64).into(),
            Value::Signed(number) => number.into(),
            Value::Key(key) => key.into(),
            Value::Null => None::<i64>.into(),
            Value::Numbers(numbers) => numbers.into(),
            Value::Buckets(buckets) => buckets.into(),
            Value::Flags(flags) => flags.into(),
            Value::Keys(keys) => keys.into(),
            Value::Json(array) => array.into(),
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

/// Writes a statement: with places and values, or with everything in the text.
pub(super) struct Writer {
    dialect: Dialect,
    binds: bool,
    values: Vec<Value>,
}

impl Statement {
    /// Runs it, in one round trip, and returns how many rows came back. It may wait as long as it takes.
    ///
    /// # Cancel safety
    /// None: dropped before its end it leaves a statement running on the server. Only the task that
    /// owns the session may call it, and that task cancels it on the server first.
    pub(super) async fn run(self, session: &mut SessionRef<'_>) -> Result<usize, sqlx::Error> {
        let values = self.values.into_iter().map(Value::bound).collect();
        let rows = session.run_unlimited(self.sql, values).await?;
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

impl Writer {
    pub(super) fn new(dialect: Dialect, binds: bool) -> Self {
        Self { dialect, binds, values: Vec::new() }
    }

    /// What stands in the text for a value.
    pub(super) fn value(&mut self, value: Value) -> String {
        if !self.binds {
            return value.literal(self.dialect);
        }
        self.values.push(value);
        match self.dialect {
            Dialect::Postgres => format!("${}", self.values.len()),
            _ => "?".to_owned(),
        }
    }

    pub(super) fn finish(self, sql: String, rows: usize) -> Statement {
        Statement { sql, values: self.values, rows, is_count: false }
    }
}

/// Steps that follow each other on one level, in one mode: one piece of a statement.
pub(super) fn runs(steps: &[Step]) -> impl Iterator<Item = &[Step]> {
    steps.chunk_by(|a, b| (a.level, a.mode) == (b.level, b.mode))
}

/// Can it be sent with values, for a server that has seen the like before?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Values bound where that pays.
    Bound,
    /// All in the text: for people, and behind something else in the same packet.
    Text,
}

impl Scheme {
    /// What takes these steps, in this order.
    pub(super) fn take(&self, steps: &[Step], wait: Wait, form: Form) -> Statement {
        match (self.dialect, self.strategy) {
            (Dialect::Postgres, Strategy::Advisory) => postgres::take_keys(steps, wait, form),
            (Dialect::Postgres, _) => postgres::take(self, steps, wait, form),
            (Dialect::Mysql | Dialect::Mariadb, _) => innodb::take_rows(self, steps, wait, form),
        }
    }

    /// The same, one step after the other without waiting: the first that fails is the one in the way.
    /// Beside it, the place of the step of each of its statements.
    pub(super) fn take_singly(&self, steps: &[Step]) -> (String, Vec<usize>) {
        let single = |step: &Step| self.take(std::slice::from_ref(step), Wait::No, Form::Text);
        let singles: Vec<Statement> = steps.iter().map(single).collect();
        // Each of its statements brings one row.
        let places = singles.iter().enumerate();
        let places = places.flat_map(|(place, single)| std::iter::repeat_n(place, single.rows));
        let places = places.collect();
        let sql: Vec<String> = singles.into_iter().map(|single| single.sql).collect();
        (sql.join(";\n"), places)
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
            // Updaters exclude each other otherwise. Not FOR KEY SHARE: see `updaters`.
            (Dialect::Postgres, SlotMode::Shared | SlotMode::Update) => "FOR SHARE",
            _ => "FOR UPDATE",
        };
        let of = if table.is_empty() { String::new() } else { format!(" OF {table}") };
        let nowait = if wait == Wait::No { " NOWAIT" } else { "" };
        format!("{clause}{of}{nowait}")
    }

    /// The value that tells the row of a step from others of its level.
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

    /// The row of a step, as a condition on a table called `of` (or not called anything). The key text
    /// says its level itself.
    pub(super) fn row(&self, of: &str, step: &Step, writer: &mut Writer) -> String {
        let of = if of.is_empty() { String::new() } else { format!("{of}.") };
        match self.strategy.is_by_id() {
            true => format!("{of}lock_key = {}", writer.value(self.value(step))),
            false => {
                let level = writer.value(Value::Number(step.level as u64));
                format!("{of}level = {level} AND {of}bucket = {}", writer.value(self.value(step)))
            }
        }
    }

    /// One row by itself.
    pub(super) fn select(&self, step: &Step, wait: Wait, writer: &mut Writer) -> String {
        let (fence, table) = (self.fence(), self.quoted_table());
        let (row, clause) = (self.row("", step, writer), self.clause(step.mode, wait));
        format!("SELECT {fence} FROM {table} WHERE {row} {clause}")
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
    pub(super) fn of(scheme: &Scheme, steps: &[Step], wait: Wait, writer: &mut Writer) -> Self {
        let mut join = Self::default();
        for step in steps {
            let name = join.add(scheme, step.mode, wait);
            join.conditions.push(scheme.row(&name, step, writer));
        }
        join
    }

    /// One more occurrence of the table; its name comes back.
    fn add(&mut self, scheme: &Scheme, mode: SlotMode, wait: Wait) -> String {
        let name = format!("t{}", self.clauses.len());
        self.tables.push(format!("{} {name}", scheme.quoted_table()));
        self.clauses.push(scheme.clause_of(&name, mode, wait));
        name
    }

    /// All rows of a run, in its order, after those so far: on PostgreSQL, which has arrays.
    pub(super) fn with_run(
        mut self,
        scheme: &Scheme,
        run: &[Step],
        wait: Wait,
        writer: &mut Writer,
    ) -> Self {
        let [first, ..] = run else { return self };
        if !self.tables.is_empty() {
            // Locked once, and not for each row of the run again.
            let before = format!("({}) s", std::mem::take(&mut self).select(scheme, ", "));
            self.tables.push(before);
        }
        let name = self.add(scheme, first.mode, wait);
        let (level, binds) = (first.level, writer.binds);
        let list = match scheme.strategy.is_by_id() {
            true => {
                let keys = run.iter().map(|step| step.target.key().into_bytes()).collect();
                self.conditions.push(format!("{name}.lock_key = v.x"));
                writer.value(Value::Keys(keys))
            }
            false => {
                let buckets = run.iter().map(|step| step.slot as i32).collect();
                let list = format!("{}::int[]", writer.value(Value::Buckets(buckets)));
                self.conditions.push(format!("{name}.level = {level}"));
                if binds {
                    // On one level the order of the slots is that of the buckets: no join is needed.
                    self.conditions.push(format!("{name}.bucket = ANY({list})"));
                    self.order = "ORDER BY bucket ";
                    return self;
                }
                // A server that sees the values, but has no statistics yet, would read all rows for them.
                self.conditions.push(format!("{name}.bucket = v.x"));
                list
            }
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
