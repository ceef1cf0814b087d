//! The servers' own reports of deadlocks and locks, read without any code of the lab. A session is added to a case,
//! which queries the server after each step.

use hierlock_lab::parts::{Action, Observation, ScenarioStep, SessionName, StepRecord};
use hierlock_lab::{Case, Engine, Record};
use std::collections::BTreeMap;

/// The session that queries the server.
const WITNESS: &str = "Witness";

fn name(text: &str) -> SessionName {
    SessionName::new(text).unwrap()
}

/// Returns the case with a query for the process id of each session, and queries of the witness after each step.
pub(crate) fn with_witness(mut case: Case) -> Case {
    let engine = case.backend.engine;
    let query = |line, session: &str, sql: &str| {
        ScenarioStep::new(line, name(session), Action::Sql(sql.to_owned()))
    };
    let own_id = match engine {
        Engine::Postgres => "select pg_backend_pid()",
        _ => "select connection_id()",
    };
    let mut steps: Vec<ScenarioStep> =
        case.sessions.keys().map(|session| query(0, session.as_str(), own_id)).collect();
    let locks = match engine {
        Engine::Mysql => "select t.processlist_id, l.object_name, l.index_name, l.lock_mode, \
             l.lock_data, l.lock_status from performance_schema.data_locks l \
             join performance_schema.threads t on t.thread_id = l.thread_id \
             where l.object_schema = database() and l.lock_type = 'RECORD'"
            .to_owned(),
        Engine::Mariadb => "show engine innodb status".to_owned(),
        _ => {
            let words = case.setup.iter().filter_map(|statement| {
                let rest = statement.sql.trim().strip_prefix("create table ")?;
                rest.split([' ', '(']).next()
            });
            let rows = words.map(|table| {
                format!("select '{table}', ctid::text, xmax::text, t::text from {table} t")
            });
            rows.collect::<Vec<_>>().join(" union all ")
        }
    };
    for step in case.steps.drain(..) {
        let line = step.line;
        steps.push(step);
        steps.push(query(line, WITNESS, &locks));
        if engine == Engine::Mysql {
            steps.push(query(line, WITNESS, "show engine innodb status"));
        }
    }
    case.steps = steps;
    case.sessions.insert(name(WITNESS), Vec::new());
    case
}

/// The answers of the witness in a run.
pub(crate) struct WitnessRecord<'a> {
    record: &'a Record,
    /// The sessions by process id.
    sessions: BTreeMap<String, SessionName>,
}

impl<'a> WitnessRecord<'a> {
    pub(crate) fn of(record: &'a Record) -> Self {
        let own_ids = record.steps.iter().take_while(|step| step.line == 0);
        let sessions = own_ids.map(|step| (rows(step)[0][0].clone(), step.session.clone()));
        Self { record, sessions: sessions.collect() }
    }

    pub(crate) fn session(&self, number: &str) -> Option<&SessionName> {
        self.sessions.get(number)
    }

    /// Returns the answers after the steps up to `closing`, with their lines, the last first.
    pub(crate) fn answers_before(&self, closing: usize) -> Vec<(usize, Vec<Vec<String>>)> {
        let is_lock_query = |step: &&StepRecord| {
            step.session.as_str() == WITNESS
                && (self.record.backend.engine == Engine::Mariadb || !step.text.starts_with("show"))
        };
        let steps = self.record.steps[..closing].iter().filter(is_lock_query);
        steps.map(|step| (step.line, rows(step))).rev().collect()
    }

    /// Returns the status of InnoDB right after a step.
    pub(crate) fn status_after(&self, closing: usize) -> String {
        let mut after = self.record.steps[closing + 1..].iter();
        let status = after.find(|step| step.text == "show engine innodb status").unwrap();
        rows(status)[0][2].clone()
    }

    /// Returns the line since which `holds` is true of every answer up to `closing`.
    pub(crate) fn since(
        &self,
        closing: usize,
        holds: impl Fn(&[Vec<String>]) -> bool,
    ) -> Option<usize> {
        let answers = self.answers_before(closing);
        let run = answers.iter().take_while(|(_, rows)| holds(rows));
        run.last().map(|(line, _)| *line)
    }
}

fn rows(step: &StepRecord) -> Vec<Vec<String>> {
    let end = step.ended.as_ref().map_or(&step.seen, |ended| &ended.observation);
    let Observation::Done(answer) = end else { panic!("{step:?}") };
    let rows = answer.rows.iter().flatten();
    rows.map(|row| row.iter().map(|cell| cell.clone().unwrap_or_default()).collect()).collect()
}

/// A lock in InnoDB's status text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextLock {
    pub(crate) table: String,
    pub(crate) index: String,
    /// The records, by the first bytes of their keys: `80000001`, or `supremum`.
    pub(crate) keys: Vec<String>,
    /// The mode, as in MySQL's `data_locks`.
    pub(crate) mode: String,
    pub(crate) is_waiting: bool,
    /// The transaction id.
    pub(crate) transaction: String,
}

/// A transaction in the text of a deadlock, or in the list of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct TextTransaction {
    pub(crate) thread: String,
    pub(crate) number: String,
    /// The locks, each with the title above it.
    pub(crate) locks: Vec<(String, TextLock)>,
}

impl TextTransaction {
    pub(crate) fn under(&self, title: &str) -> Vec<&TextLock> {
        self.locks.iter().filter(|(at, _)| at.contains(title)).map(|(_, lock)| lock).collect()
    }
}

/// Returns the members of the last deadlock.
pub(crate) fn last_deadlock(status: &str) -> Vec<TextTransaction> {
    let from = status.find("LATEST DETECTED DEADLOCK").unwrap_or(status.len());
    let end = status[from..].find("\nTRANSACTIONS\n").map_or(status.len(), |at| from + at);
    read(&status[from..end], |line| line.ends_with(") TRANSACTION:"))
}

/// Returns all transactions with their locks.
pub(crate) fn transactions(status: &str) -> Vec<TextTransaction> {
    let from = status.find("\nTRANSACTIONS\n").unwrap_or(status.len());
    read(&status[from..], |line| line.starts_with("---TRANSACTION"))
}

fn read(text: &str, begins: impl Fn(&str) -> bool) -> Vec<TextTransaction> {
    let mut all: Vec<TextTransaction> = Vec::new();
    let mut title = String::new();
    for line in text.lines() {
        if begins(line) {
            all.push(TextTransaction::default());
            title.clear();
        }
        let Some(transaction) = all.last_mut() else { continue };
        let words: Vec<&str> = line.split(' ').collect();
        let after = |word: &str| {
            let at = words.iter().position(|other| *other == word)?;
            Some(words.get(at + 1)?.trim_end_matches(',').to_owned())
        };
        if line.starts_with("***") || line.starts_with("---") {
            title = line.to_owned();
        }
        if let Some(rest) =
            line.strip_prefix("TRANSACTION ").or(line.strip_prefix("---TRANSACTION "))
        {
            transaction.number = rest.split(',').next().unwrap_or_default().to_owned();
        } else if line.contains(" thread id ") {
            let id = line.split(" thread id ").nth(1).unwrap_or_default();
            transaction.thread = id.split(',').next().unwrap_or_default().to_owned();
        } else if line.starts_with("RECORD LOCKS ") {
            let has = |text: &str| line.contains(text);
            let strength = if has("lock_mode X") || has("lock mode X") { "X" } else { "S" };
            let mut mode = strength.to_owned();
            for (text, flag) in [
                ("gap before rec", ",GAP"),
                ("rec but not gap", ",REC_NOT_GAP"),
                ("insert intention", ",INSERT_INTENTION"),
            ] {
                if has(text) {
                    mode += flag;
                }
            }
            let table = after("table").unwrap_or_default();
            transaction.locks.push((
                title.clone(),
                TextLock {
                    table: table.split('`').nth(3).unwrap_or_default().to_owned(),
                    index: after("index").unwrap_or_default(),
                    keys: Vec::new(),
                    mode,
                    is_waiting: line.ends_with(" waiting"),
                    transaction: line
                        .split(" trx id ")
                        .nth(1)
                        .unwrap_or_default()
                        .split(' ')
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                },
            ));
        } else if let Some((_, lock)) = transaction.locks.last_mut()
            && line.starts_with(" 0: len ")
        {
            let hex = after("hex").unwrap_or_default().trim_end_matches(';').to_owned();
            let is_end = line.contains("asc supremum");
            lock.keys.push(if is_end { "supremum".to_owned() } else { hex });
        }
    }
    all
}
