//! Finds the statement that took a lock, from the locks that were recorded after each step. Pure.
//!
//! 1. A session holds a lock since the earliest step from which on every record contains it. (It may have held
//!    the same lock before, in an earlier transaction.)
//! 2. Only a session's own statement takes its locks, and only while it makes progress: in the step that begins
//!    it, or in one that ends its wait. If the lock appears there, that statement took it.
//! 3. A lock that appears while its session is idle, or continues to wait for the same lock, existed before
//!    without a lock record (InnoDB: the session wrote the row, and the session that waits for it creates the
//!    record), or was moved there by InnoDB (gaps, when a record is inserted or removed).
//! 4. An uncertain answer is left open, with the reason.

use crate::conflict::{conflicts, row_strength};
use crate::observation::{Lock, LockKind, LockTarget, Observation, SessionName};
use crate::record::{BlockingLock, StepRecord, WaitEdge};
use crate::text::join;
use std::collections::BTreeMap;

/// The locks of a run, step by step.
pub(crate) struct LockHistory<'a> {
    pub(crate) steps: &'a [StepRecord],
}

/// A session that blocks another in the cycle that step `closing` has closed.
struct LockHolder<'a> {
    session: &'a SessionName,
    closing: usize,
    /// The target that the session itself waited for at the end of that step.
    waiting: Option<&'a LockTarget>,
}

/// The statement that took a lock, and the step in which it was granted; or the reason why that is not known.
type Attribution = Result<(usize, Option<usize>), String>;

impl<'a> LockHistory<'a> {
    /// Completes a cycle that was closed in step `closing`: the wanted rows, the locks that block them, and the
    /// statements that took those. `after` are the locks after that step.
    pub(crate) fn complete(&self, cycle: &mut [WaitEdge], closing: usize, after: &[Lock]) {
        for edge in cycle.iter_mut() {
            self.name_row(edge, closing, after);
        }
        let wants =
            cycle.iter().filter_map(|edge| Some((edge.waiter.clone(), edge.wants.clone()?)));
        let wants: BTreeMap<SessionName, LockTarget> = wants.collect();
        for edge in cycle.iter_mut() {
            if edge.blocking.is_empty() {
                self.find_blocking(edge, closing);
            }
            let holder =
                LockHolder { session: &edge.holder, closing, waiting: wants.get(&edge.holder) };
            for lock in &mut edge.blocking {
                match self.find_statement(lock, edge.wants.as_ref(), &holder) {
                    Ok((statement, granted_in)) => {
                        (lock.statement, lock.granted_in) = (Some(statement), granted_in);
                    }
                    Err(unknown) => lock.unknown = Some(unknown),
                }
            }
            if let (Some(wants), [lock]) = (&mut edge.wants, &edge.blocking[..])
                && is_truncated(wants)
                && is_same_object(wants, &lock.target)
            {
                wants.record = lock.target.record.clone();
            }
        }
    }

    /// Returns the statement that took a lock, first recorded after step `at`, if that is known.
    pub(crate) fn statement_of(&self, lock: &Lock, at: usize) -> Option<usize> {
        let taken = BlockingLock::new(lock.target.clone(), true);
        let holder = LockHolder { session: &lock.session, closing: at + 1, waiting: None };
        self.attribute(&taken, &holder, at).ok().map(|(statement, _)| statement)
    }

    fn before(&self, step: usize) -> &'a [Lock] {
        let last = step.checked_sub(1).and_then(|last| self.steps.get(last)?.locks.as_deref());
        last.unwrap_or_default()
    }

    /// PostgreSQL: a session that waits for a row waits for the transaction that holds it. The row is found from the
    /// locks of both sessions before, and from those of the waiter afterwards.
    fn name_row(&self, edge: &mut WaitEdge, closing: usize, after: &[Lock]) {
        if edge.wants.as_ref().is_none_or(|wants| wants.kind != LockKind::Transaction) {
            return;
        }
        let before = self.before(closing);
        let of_holder = rows_of(before, &edge.holder);
        let is_of_holder =
            |row: &&LockTarget| of_holder.iter().any(|held| is_same_object(held, row));
        let mut of_waiter = rows_of(before, &edge.waiter);
        // The rows that the waiter locked when it continued, and that the holder had.
        let mut gained = rows_of(after, &edge.waiter);
        gained.retain(|row| !of_waiter.contains(row) && is_of_holder(row));
        of_waiter.retain(is_of_holder);
        if let Some(row) = only_object(&gained) {
            edge.wants = Some(row.clone());
        } else if let Some(row) = only_object(&of_waiter).filter(|_| gained.is_empty()) {
            // A session that wants a stronger lock on its own row is not in the row's queue.
            edge.wants = Some(LockTarget { mode: String::new(), ..row.clone() });
        } else {
            edge.unknown.push(format!(
                "PostgreSQL does not report for which row {} waited, only for whose transaction",
                edge.waiter
            ));
        }
    }

    /// Finds the locks of the holder that block the waiter, in the recorded locks.
    fn find_blocking(&self, edge: &mut WaitEdge, closing: usize) {
        let Some(wants) = edge.wants.clone() else { return };
        let before = self.before(closing);
        let is_of_holder =
            |lock: &&Lock| lock.session == edge.holder && is_same_object(&lock.target, &wants);
        let is_postgres_row = wants.kind == LockKind::Row && wants.index.is_none();
        let may_block = |lock: &&Lock| conflicts(&wants, &lock.target) != Some(false);
        let (mut held, queued): (Vec<&Lock>, Vec<&Lock>) =
            before.iter().filter(is_of_holder).filter(may_block).partition(|lock| lock.granted);
        if is_postgres_row {
            // A row has one lock per session: the strongest one.
            held.sort_by_key(|lock| std::cmp::Reverse(row_strength(&lock.target.mode)));
            held.truncate(1);
        }
        let is_certain = held.iter().all(|lock| conflicts(&wants, &lock.target) == Some(true));
        edge.blocking = match (held.as_slice(), queued.as_slice()) {
            ([], [queued]) => vec![BlockingLock::new(queued.target.clone(), false)],
            // The lock was taken in the step that closed the cycle, or was never listed.
            ([], []) if is_postgres_row && wants.record.is_some() => {
                vec![BlockingLock::new(LockTarget { mode: String::new(), ..wants.clone() }, true)]
            }
            (held, _) if is_certain || held.len() == 1 => {
                held.iter().map(|lock| BlockingLock::new(lock.target.clone(), true)).collect()
            }
            _ => Vec::new(),
        };
        if edge.blocking.is_empty() && edge.unknown.is_empty() {
            let holder = &edge.holder;
            let last = closing.checked_sub(1).and_then(|last| self.steps.get(last));
            let reason = last.and_then(|step| step.incomplete_locks.get(holder)).cloned();
            let unknown = match wants.mode.as_str() {
                // A wait for the key of a unique index, which PostgreSQL does not lock.
                "inserting" => format!(
                    "{holder} had inserted the same key, PostgreSQL does not report with which statement"
                ),
                _ => reason.unwrap_or_else(|| {
                    format!("the server does not report which lock of {holder} blocked it")
                }),
            };
            edge.unknown.push(unknown);
        }
    }

    /// Finds the statement that took a lock of the holder, held since before the closing step or taken in it.
    fn find_statement(
        &self,
        lock: &mut BlockingLock,
        wanted: Option<&LockTarget>,
        holder: &LockHolder<'_>,
    ) -> Attribution {
        let LockHolder { session, closing, .. } = *holder;
        let (target, granted) = (lock.target.clone(), lock.granted);
        let is_same_lock = |other: &LockTarget| {
            is_same_object(other, &target)
                && match wanted.filter(|_| target.kind == LockKind::Row && target.index.is_none()) {
                    // A row lock of PostgreSQL can become stronger; it counts from the mode that blocks.
                    Some(wanted) => conflicts(wanted, other)
                        .unwrap_or_else(|| row_strength(&other.mode) == row_strength(&target.mode)),
                    None => other.mode == target.mode,
                }
        };
        let has = |lock: &&Lock| lock.session == *session && lock.granted == granted;
        let known = self.before(closing).iter().filter(has).map(|lock| &lock.target);
        let mut known: Vec<&LockTarget> = known.filter(|target| is_same_lock(target)).collect();
        known.dedup_by_key(|target| &target.record);
        match known[..] {
            // The recorded locks have whole keys and modes.
            [whole] if is_truncated(&target) || target.mode.is_empty() => {
                lock.target = whole.clone()
            }
            [_, _, ..] if is_truncated(&target) => {
                return Err(format!(
                    "InnoDB tells only the beginning of the key, and {session} has several such records"
                ));
            }
            _ => {}
        }
        let at = self.first_held(session, granted, closing, is_same_lock)?;
        self.attribute(lock, holder, at)
    }

    /// Returns the step since which a session holds a lock before step `closing`; `closing` if it holds none.
    fn first_held(
        &self,
        session: &SessionName,
        granted: bool,
        closing: usize,
        is_same_lock: impl Fn(&LockTarget) -> bool,
    ) -> Result<usize, String> {
        let mut first = closing;
        while let Some(step) = first.checked_sub(1) {
            let Some(StepRecord { locks: Some(locks), incomplete_locks, .. }) =
                self.steps.get(step)
            else {
                return Err("the locks could not be recorded".to_owned());
            };
            let has = |lock: &Lock| {
                lock.session == *session && lock.granted == granted && is_same_lock(&lock.target)
            };
            if !locks.iter().any(has) {
                return incomplete_locks.get(session).cloned().map_or(Ok(first), Err);
            }
            first = step;
        }
        Ok(first)
    }

    /// Finds the statement that took a lock which appeared in step `at`.
    fn attribute(&self, lock: &BlockingLock, holder: &LockHolder<'_>, at: usize) -> Attribution {
        let session = holder.session;
        if let Some(statement) = self.progressing_statement(holder, at) {
            return Ok((statement, lock.granted.then_some(at)));
        }
        let is_written = lock.target.index.is_some() && lock.target.mode == "X,REC_NOT_GAP";
        let line = self.steps.get(at).map_or(0, |step| step.line);
        if is_written {
            self.attribute_to_writer(&lock.target.object, session, at)
        } else if lock.target.kind == LockKind::Gap {
            Err(format!(
                "InnoDB moved a gap lock of {session} there in line {line}, when a record came or went"
            ))
        } else {
            Err(format!("the server does not report which statement of {session} took it"))
        }
    }

    /// Returns the statement of a session that made progress in step `at`.
    fn progressing_statement(&self, holder: &LockHolder<'_>, at: usize) -> Option<usize> {
        let LockHolder { session, closing, waiting } = *holder;
        let steps = self.steps.get(..=at)?;
        let is_own = |step: &StepRecord| step.session == *session && !step.text.is_empty();
        let statement = steps.iter().rposition(is_own)?;
        let step = &self.steps[statement];
        if statement == at {
            return Some(statement);
        }
        if step.seen.is_over() || step.ended.as_ref().is_some_and(|ended| ended.during < at) {
            return None;
        }
        if at < closing && step.ended.as_ref().is_some_and(|ended| ended.during == at) {
            return Some(statement);
        }
        // It waited before and after; progress means that the target has changed.
        let wait_after = |index: usize| {
            let waits = &self.steps.get(index)?.waits;
            waits.iter().find(|wait| wait.waiter == *session)?.target.as_ref()
        };
        let before = wait_after(at - 1);
        let after = if at == closing { waiting } else { wait_after(at) };
        let is_same = match (before, after) {
            (Some(before), Some(after)) => {
                before.kind == LockKind::Transaction || is_same_object(before, after)
            }
            _ => true,
        };
        (!is_same).then_some(statement)
    }

    /// Finds the statement that wrote a row, which has no lock record in InnoDB until another session waits for it.
    fn attribute_to_writer(&self, table: &str, session: &SessionName, at: usize) -> Attribution {
        let is_table = |target: &LockTarget| {
            target.kind == LockKind::Table && target.object == table && target.mode == "IX"
        };
        let since = self.first_held(session, true, at, is_table)?;
        let mut writers: Vec<usize> = (since..at).collect();
        writers.retain(|index| {
            let step = &self.steps[*index];
            let last = step.last_observation();
            let has_written = matches!(last, Observation::Done(answer) if answer.changed > 0);
            step.session == *session && !step.text.is_empty() && has_written
        });
        if let [only] = writers[..] {
            let ended = self.steps[only].ended.as_ref();
            return Ok((only, Some(ended.map_or(only, |ended| ended.during))));
        }
        let which = if writers.is_empty() {
            format!("statement of {session}")
        } else {
            let lines = writers.iter().map(|index| self.steps[*index].line);
            format!("of the lines {}", join(lines, ", "))
        };
        Err(format!(
            "InnoDB does not report which {which} wrote the row: it has no lock record of a written \
             row until another waits for it"
        ))
    }
}

fn rows_of<'l>(locks: &'l [Lock], session: &SessionName) -> Vec<&'l LockTarget> {
    let own = locks.iter().filter(|lock| lock.granted && lock.session == *session);
    own.map(|lock| &lock.target).filter(|target| target.kind == LockKind::Row).collect()
}

/// Returns whether both are on the same table, index and record, whatever the mode.
pub(crate) fn is_same_object(a: &LockTarget, b: &LockTarget) -> bool {
    let is_record = |target: &LockTarget| matches!(target.kind, LockKind::Row | LockKind::Gap);
    (a.kind == b.kind || is_record(a) && is_record(b))
        && a.object == b.object
        && a.index == b.index
        && same_record(a.record.as_deref(), b.record.as_deref())
}

/// Returns whether the record contains only the beginning of its key.
fn is_truncated(target: &LockTarget) -> bool {
    target.index.is_some() && target.record.as_deref().is_some_and(|record| record.contains('…'))
}

/// Compares records; the deadlock report of InnoDB contains only the beginning of a long key.
fn same_record(a: Option<&str>, b: Option<&str>) -> bool {
    let is_beginning = |cut: &str, whole: &str| {
        let parts = cut.split_once('…');
        parts.is_some_and(|(begin, end)| whole.starts_with(begin) && whole.ends_with(end))
    };
    match (a, b) {
        (Some(a), Some(b)) => a == b || is_beginning(a, b) || is_beginning(b, a),
        (a, b) => a == b,
    }
}

/// Returns the strongest lock, if all are on the same row.
fn only_object<'a>(rows: &[&'a LockTarget]) -> Option<&'a LockTarget> {
    let first = rows.first()?;
    let strongest = rows.iter().max_by_key(|row| row_strength(&row.mode))?;
    rows.iter().all(|row| is_same_object(row, first)).then_some(strongest)
}

#[cfg(test)]
mod tests;
