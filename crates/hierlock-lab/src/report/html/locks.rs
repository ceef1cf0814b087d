//! The locks that each session held after each step, and the statements that took them.

use crate::lock_history::LockHistory;
use crate::observation::{Lock, LockTarget, SessionName};
use crate::record::Record;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct LockGrid<'a> {
    /// The lines of the steps after which locks were recorded.
    pub(super) lines: Vec<usize>,
    pub(super) rows: Vec<LockRow<'a>>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) struct LockRow<'a> {
    pub(super) session: &'a SessionName,
    pub(super) object: &'a LockTarget,
    /// The line of the statement that first took the lock; `None` if it was never held, or that is not known.
    pub(super) taken_at: Option<usize>,
    /// The state after each of [`LockGrid::lines`].
    pub(super) states: Vec<LockState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LockState {
    None,
    Requested,
    Held,
}

impl<'a> LockGrid<'a> {
    /// Returns `None` if no locks were recorded, or no session had any.
    pub(super) fn new(record: &'a Record) -> Option<Self> {
        let steps = record.steps.iter().enumerate();
        let recorded: Vec<(usize, usize, &'a Vec<Lock>)> = steps
            .filter_map(|(index, step)| Some((index, step.line, step.locks.as_ref()?)))
            .collect();
        let mut rows: Vec<LockRow<'a>> = Vec::new();
        for (at, (index, _, locks)) in recorded.iter().enumerate() {
            for lock in *locks {
                let Lock { session, target: object, granted } = lock;
                let known = |row: &LockRow<'_>| row.session == session && row.object == object;
                let row = rows.iter().position(known).unwrap_or_else(|| {
                    let states = vec![LockState::None; recorded.len()];
                    rows.push(LockRow { session, object, taken_at: None, states });
                    rows.len() - 1
                });
                let row = &mut rows[row];
                if *granted && !row.is_held() {
                    let history = LockHistory { steps: &record.steps };
                    let taken_in = history.statement_of(lock, *index);
                    row.taken_at = taken_in.map(|index| record.steps[index].line);
                }
                // A session may hold a lock and request it again, in a stronger mode.
                let state = if *granted { LockState::Held } else { LockState::Requested };
                row.states[at] = row.states[at].max(state);
            }
        }
        let lines = recorded.iter().map(|(_, line, _)| *line).collect();
        (!rows.is_empty()).then_some(LockGrid { lines, rows })
    }
}

impl LockRow<'_> {
    pub(super) fn is_held(&self) -> bool {
        self.states.contains(&LockState::Held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{cycle, ring};

    #[test]
    fn a_lock_is_taken_by_the_statement_before_it_is_first_held() {
        let record = cycle(Engine::Mysql, "A");
        let table = LockGrid::new(&record).unwrap();
        let row = |row: &LockRow<'_>| {
            let states = row.states.iter().map(|state| match state {
                LockState::None => '.',
                LockState::Requested => 'r',
                LockState::Held => 'H',
            });
            let (states, record) = (states.collect::<String>(), row.object.record.as_deref());
            format!("{} {} {:?} {states}", row.session, record.unwrap(), row.taken_at)
        };
        assert_eq!(
            table.rows.iter().map(row).collect::<Vec<_>>(),
            [
                "A 1 Some(14) ..HHH..",
                "B 2 Some(16) ...HHH.",
                "A 2 None ....r..",
                "B 1 Some(20) .....H."
            ]
        );
    }

    #[test]
    fn no_table_is_made_without_recorded_locks() {
        assert!(LockGrid::new(&ring()).is_none());
    }
}
