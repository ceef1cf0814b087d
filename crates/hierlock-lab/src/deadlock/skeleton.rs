//! The steps that lead to the deadlock again: begin, take the locks that the others wait for, then request the locks of
//! the others.

use super::statement::{StatementParts, plain_statement};
use super::tables::{GuessedTable, key_values, quoted_name};
use super::{driver, locks};
use crate::engine::{BackendKind, Engine};
use crate::lock_history::is_same_object;
use crate::observation::{Answer, Failure, FailureKind, Observation, SessionName, SessionWait};
use crate::record::{BlockingLock, Deadlock, Record, StepRecord, WaitEdge, WaitEnd};
use crate::scenario::Scenario;
use crate::text::join;
use hierlock_engine::introspection::{
    DeadlockDump, DeadlockLock, DeadlockMember, LockKind, LockTarget,
};
use hierlock_engine::{Dialect, Driver};
use std::time::Duration;

/// Returns the session name of a deadlock member in a scenario: `A`, `B`, …, `Z`, `A1`.
pub fn member_name(index: usize) -> SessionName {
    let letter = char::from(b'A' + (index % 26) as u8);
    let round = index / 26;
    let name = if round == 0 { letter.to_string() } else { format!("{letter}{round}") };
    SessionName::new(&name).unwrap_or_else(|| SessionName::of_letter(letter))
}

/// A draft of a scenario that leads to a reported deadlock. Facts that are missing in the report are guessed.
#[derive(Clone, Debug)]
pub struct DeadlockSkeleton<'a> {
    pub(crate) dump: &'a DeadlockDump,
    driver: Driver,
    /// The statement of each member.
    statements: Vec<StatementParts>,
    tables: Vec<GuessedTable>,
    steps: Vec<SkeletonStep>,
}

#[derive(Clone, Debug)]
struct SkeletonStep {
    member: usize,
    text: String,
    /// The expectation of the step, as a scenario writes it.
    expected: String,
    /// The reason for the step, if it is a guess.
    comment: &'static str,
}

impl<'a> DeadlockSkeleton<'a> {
    /// Makes the draft, and guesses the facts that are missing in the report.
    pub fn new(dump: &'a DeadlockDump) -> Self {
        let driver = driver(dump);
        let parts = |member: &DeadlockMember| {
            StatementParts::of(driver, member.statement.as_deref().unwrap_or_default())
        };
        let statements: Vec<StatementParts> = dump.members.iter().map(parts).collect();
        let tables = GuessedTable::all(dump, driver, &statements);
        let mut skeleton = Self { dump, driver, statements, tables, steps: Vec::new() };
        skeleton.steps = skeleton.make_steps();
        skeleton
    }

    /// Returns the scenario as text that `hierlock lab run` reads.
    pub fn text(&self) -> String {
        let is_valid = |text: &String| Scenario::format("skeleton.lab", text).is_ok();
        let setup: Vec<String> =
            self.tables.iter().flat_map(|table| table.setup(self.driver)).collect();
        let whole = self.write(&setup, &self.steps);
        if is_valid(&whole) {
            return whole;
        }
        // The server has cut a statement off, or the lab parses it differently: replace the statements.
        let steps = self.steps.iter().cloned().map(|step| match step.text.as_str() {
            "begin" => step,
            _ => SkeletonStep {
                text: "select 1".to_owned(),
                expected: String::new(),
                comment: "replace with the statement, which could not be read",
                ..step
            },
        });
        let steps: Vec<SkeletonStep> = steps.collect();
        Some(self.write(&setup, &steps)).filter(is_valid).unwrap_or_else(|| self.write(&[], &steps))
    }

    fn write(&self, setup: &[String], steps: &[SkeletonStep]) -> String {
        let dump = self.dump;
        let server = self.server_name();
        let time = dump.time.as_deref().map(|time| format!(" at {time}")).unwrap_or_default();
        let mut text = format!(
            "# A deadlock that {server} has reported{time}\n#\n\
             # Written by `hierlock deadlocks --scenario`. The last statement of each session is the server's; the tables,\n\
             # their columns and rows, and the first statement of each session are guesses from its locks. Correct them.\n"
        );
        for (index, member) in dump.members.iter().enumerate() {
            let session =
                member.session.map_or("unknown".to_owned(), |session| session.to_string());
            text += &format!("# {} was session {session}.\n", member_name(index));
        }
        text += &format!("engines: {}\n", self.engine());
        if dump.dialect != Some(Dialect::Postgres) {
            text += "sessions: isolation repeatable read # a guess: the default of the server\n";
        }
        if !setup.is_empty() {
            text += "\nsetup:\n";
            text.extend(setup.iter().map(|sql| format!("  {sql};\n")));
        }
        text.push('\n');
        for SkeletonStep { member, text: sql, expected, comment } in steps {
            let comment = if comment.is_empty() { String::new() } else { format!(" # {comment}") };
            text += &format!("{}> {sql}{comment}\n", member_name(*member));
            if !expected.is_empty() {
                text += &format!(" = {expected}\n");
            }
        }
        // A scenario may name the victim only if it expects a deadlock.
        let is_expected = steps.iter().any(|step| step.expected.contains("deadlock"));
        if dump.members.len() == 2 && is_expected {
            text += "victim> rollback\nsurvivor> rollback\n";
        }
        text
    }

    fn engine(&self) -> Engine {
        let is_same = |engine: &Engine| engine.server() == self.dump.dialect;
        Engine::SERVERS.into_iter().find(is_same).unwrap_or(Engine::Mysql)
    }

    /// Returns the name of the server for texts.
    pub(crate) fn server_name(&self) -> &'static str {
        self.dump.dialect.map_or("InnoDB", Dialect::product_name)
    }

    fn make_steps(&self) -> Vec<SkeletonStep> {
        let members = 0..self.dump.members.len();
        let step = |member: usize, text: String, comment| SkeletonStep {
            member,
            text,
            expected: String::new(),
            comment,
        };
        let mut steps: Vec<SkeletonStep> =
            members.clone().map(|member| step(member, "begin".to_owned(), "")).collect();
        steps.extend(members.clone().filter_map(|member| {
            let comment = "a guess: it takes the lock that another waits for";
            Some(step(member, self.first_statement(member)?, comment))
        }));
        let names = join(members.clone().map(member_name), " or ");
        for (at, member) in self.order().into_iter().enumerate() {
            let expected = match self.dump.members[member].waits_for {
                _ if at + 1 == members.len() => format!("deadlock, {names}"),
                Some(holder) if !self.is_queued(member) => {
                    format!("blocked by {}", member_name(holder))
                }
                _ => "blocked".to_owned(),
            };
            steps.push(SkeletonStep { expected, ..step(member, self.last_statement(member), "") });
        }
        steps
    }

    /// Returns the order in which the members wait. The member whose request closes the cycle comes last: that is the
    /// victim more often than not. A member that is queued for a row of PostgreSQL comes after the first of the queue.
    fn order(&self) -> Vec<usize> {
        let victim = self.dump.victim;
        let mut order: Vec<usize> = (0..self.dump.members.len()).collect();
        order.sort_by_key(|member| {
            let is_behind_victim =
                self.is_queued(*member) && self.dump.members[*member].waits_for == victim;
            (is_behind_victim, Some(*member) == victim, self.is_queued(*member))
        });
        order
    }

    /// Returns whether a member waits for another one that itself only waits for the row. Only on PostgreSQL.
    fn is_queued(&self, member: usize) -> bool {
        let wanted = self.dump.members[member].wanted.as_ref();
        self.driver == Driver::Postgres
            && wanted.is_some_and(|lock| lock.target.kind == LockKind::Row)
    }

    /// Returns a statement of the server as the scenario has it, without schemas.
    fn plain_statement(&self, sql: &str) -> String {
        let schemas = locks(self.dump).filter_map(|lock| lock.target.schema.as_deref());
        plain_statement(self.driver, sql, &schemas.collect::<Vec<_>>())
    }

    /// Returns the statement that a member ran when the cycle was closed.
    fn last_statement(&self, member: usize) -> String {
        let DeadlockMember { statement, wanted, .. } = &self.dump.members[member];
        match (statement, wanted) {
            (Some(sql), _) => self.plain_statement(sql),
            (None, Some(lock)) => self.lock_statement(lock, member),
            (None, None) => "select 1".to_owned(),
        }
    }

    /// Returns a statement that takes the lock which another member waits for; `None` if that is only requested.
    fn first_statement(&self, member: usize) -> Option<String> {
        let members = &self.dump.members;
        let waiter = members.iter().position(|other| other.waits_for == Some(member))?;
        if self.is_queued(waiter) {
            return None;
        }
        let Some(wanted) = &members[waiter].wanted else {
            return Some(self.same_rows_statement(waiter, member));
        };
        let is_same = |lock: &DeadlockLock| is_same_object(&lock.target, &wanted.target);
        // Without a record in the report it is not known which row is locked.
        let is_known = wanted.target.record.is_some() || wanted.target.kind == LockKind::Table;
        let is_wanted = |lock: &&DeadlockLock| lock.granted && is_known && is_same(lock);
        if wanted.target.mode.contains("INSERT_INTENTION")
            && let Some(gap) = self.gap_statement(wanted, [member, waiter])
        {
            return Some(gap);
        }
        if let Some(lock) = members[member].held.iter().find(is_wanted) {
            return Some(self.lock_statement(lock, member));
        }
        let is_record = wanted.target.index.is_some() && is_known;
        let own = members[member].wanted.as_ref();
        // If both want the same record, both hold it shared.
        if is_record && !own.is_some_and(is_same) {
            return Some(self.lock_statement(wanted, member));
        }
        Some(self.same_rows_statement(waiter, member))
    }

    /// Returns a statement that locks a gap: it selects the row that is inserted later and does not exist yet.
    fn gap_statement(&self, lock: &DeadlockLock, members: [usize; 2]) -> Option<String> {
        let table = self.table(&lock.target.object)?;
        let column = table.key.first()?;
        let at_key = |parts: &StatementParts| {
            let at = parts.insert_columns.iter().position(|name| name == column).unwrap_or(0);
            parts.insert_values.get(at).filter(|value| !value.is_empty()).cloned()
        };
        let value = members.iter().find_map(|member| at_key(&self.statements[*member]))?;
        let column = quoted_name(column, self.driver);
        Some(format!("select * from {} where {column} = {value} for update", table.text))
    }

    fn table(&self, name: &str) -> Option<&GuessedTable> {
        self.tables.iter().find(|table| table.name == name)
    }

    fn for_share(&self) -> &'static str {
        // MariaDB has no FOR SHARE; MySQL has both forms.
        if self.driver == Driver::Postgres { "for share" } else { "lock in share mode" }
    }

    /// Returns a statement that takes a lock on a record of InnoDB.
    fn lock_statement(&self, lock: &DeadlockLock, member: usize) -> String {
        let target = &lock.target;
        let Some(table) = self.table(&target.object) else { return "select 1".to_owned() };
        let is_shared = target.mode.split(',').next() == Some("S");
        let clause = if is_shared { self.for_share() } else { "for update" };
        let whole_table = format!("select * from {} {clause}", table.text);
        if target.kind == LockKind::Table {
            return whole_table;
        }
        let record = target.record.as_deref().filter(|record| *record != "supremum");
        let Some(record) = record else {
            return self.gap_statement(lock, [member, member]).unwrap_or(whole_table);
        };
        let index = table.indexes.iter().find(|(index, _)| target.index.as_ref() == Some(index));
        let columns = index.map_or_else(|| table.key.clone(), |(_, column)| vec![column.clone()]);
        let conditions = columns.iter().zip(key_values(record));
        let conditions = conditions
            .map(|(column, value)| format!("{} = {value}", quoted_name(column, self.driver)));
        format!("select * from {} where {} {clause}", table.text, join(conditions, " and "))
    }

    /// Returns a statement that locks the rows of the waiter's statement: the report lists no locks of the holder.
    fn same_rows_statement(&self, waiter: usize, holder: usize) -> String {
        let (parts, own) = (&self.statements[waiter], &self.statements[holder]);
        let wanted = self.dump.members[waiter].wanted.as_ref();
        let Some(table) = &parts.table_text else { return self.last_statement(waiter) };
        let wants_table = wanted.is_some_and(|lock| lock.target.kind == LockKind::Table);
        if wants_table && self.driver == Driver::Postgres {
            return format!("lock table {table} in share mode");
        }
        // If both want the same row, both hold it shared.
        let is_same = parts.where_text == own.where_text && parts.table == own.table;
        let clause =
            if is_same && parts.verb != "insert" { self.for_share() } else { "for update" };
        let is_locking = ["update", "delete", "select"].contains(&parts.verb.as_str());
        match &parts.where_text {
            Some(condition) if is_locking => {
                self.plain_statement(&format!("select * from {table} where {condition} {clause}"))
            }
            None if is_locking => format!("select * from {table} {clause}"),
            _ => self.last_statement(waiter),
        }
    }

    /// Returns the deadlock as a record, for the diagrams.
    pub fn record(&self) -> Record {
        let title = "a deadlock that the server has reported".to_owned();
        let scenario = Scenario { name: "deadlock".to_owned(), title, ..Scenario::default() };
        let backend = BackendKind { engine: self.engine(), strategy: None };
        let mut record =
            Record { server: self.server_name().to_owned(), ..Record::new(&scenario, backend) };
        let time = |index: usize| Duration::from_millis(index as u64);
        let last = self.steps.len().saturating_sub(1);
        for (index, step) in self.steps.iter().enumerate() {
            let guess = if step.comment.is_empty() { "" } else { " (a guess)" };
            let (session, text) = (member_name(step.member), format!("{}{guess}", step.text));
            let (seen, end) = self.observations(step);
            record.steps.push(StepRecord {
                seen,
                ended: end.map(|observation| WaitEnd { observation, at: time(last), during: last }),
                ..StepRecord::new(index + 1, session, text, time(index))
            });
        }
        if let Some(victim) = self.dump.victim.map(member_name) {
            record.deadlocks.push(Deadlock { step: last, victim, cycle: self.cycle() });
        }
        record
    }

    /// Returns the first observation of a step, and the end of its wait: of the victim's with the deadlock, and of
    /// those for the victim.
    fn observations(&self, step: &SkeletonStep) -> (Observation, Option<Observation>) {
        let done = || Observation::Done(Answer::default());
        let deadlock = || Observation::Failed(Failure::new(FailureKind::Deadlock, "deadlock"));
        let (member, victim) = (&self.dump.members[step.member], self.dump.victim);
        let is_victim = victim == Some(step.member);
        if step.expected.is_empty() {
            return (done(), None);
        }
        if is_victim && step.expected.starts_with("deadlock") {
            return (deadlock(), None);
        }
        let waits_for_victim = victim.is_some() && member.waits_for == victim;
        let wait = Observation::Blocked(SessionWait {
            waiter: member_name(step.member),
            blockers: member.waits_for.map(member_name).into_iter().collect(),
            has_outside_blocker: false,
            target: member.wanted.as_ref().map(without_schema),
        });
        (wait, if is_victim { Some(deadlock()) } else { waits_for_victim.then(done) })
    }

    /// Returns who waits for whom and for what; nothing if the text does not contain the whole cycle.
    pub(crate) fn cycle(&self) -> Vec<WaitEdge> {
        let cycle = self.dump.cycle().unwrap_or_default();
        let edges = cycle.into_iter().filter_map(|index| {
            let member = &self.dump.members[index];
            let holder = member.waits_for?;
            let wanted = member.wanted.as_ref();
            let is_wanted = |lock: &&DeadlockLock| {
                wanted.is_some_and(|wanted| is_same_object(&wanted.target, &lock.target))
            };
            let blocking = self.dump.members[holder].held.iter().filter(is_wanted);
            let blocking =
                blocking.map(|lock| BlockingLock::new(without_schema(lock), lock.granted));
            let wants = wanted.map(without_schema);
            Some(WaitEdge {
                blocking: blocking.collect(),
                ..WaitEdge::new(member_name(index), member_name(holder), wants)
            })
        });
        edges.collect()
    }
}

/// Returns the target of a lock without its schema: the scenario runs in a database of its own.
fn without_schema(lock: &DeadlockLock) -> LockTarget {
    LockTarget { schema: None, ..lock.target.clone() }
}
