//! The locks that each session held after each step, and the statements that took them.

use crate::group::group_by;
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
        let locks = recorded.iter().enumerate().flat_map(|(column, (index, _, locks))| {
            locks.iter().map(move |lock| (column, *index, lock))
        });
        let history = LockHistory { steps: &record.steps };
        let rows = group_by(locks, |(.., lock)| (&lock.session, &lock.target));
        let rows = rows.into_iter().map(|((session, object), locks)| {
            let mut states = vec![LockState::None; recorded.len()];
            for (column, _, lock) in &locks {
                // A session may hold a lock and request it again, in a stronger mode.
                let state = if lock.granted { LockState::Held } else { LockState::Requested };
                states[*column] = states[*column].max(state);
            }
            let held = locks.iter().find(|(.., lock)| lock.granted);
            let taken_in = held.and_then(|(_, index, lock)| history.statement_of(lock, *index));
            let taken_at = taken_in.map(|index| record.steps[index].line);
            LockRow { session, object, taken_at, states }
        });
        let rows: Vec<LockRow<'a>> = rows.collect();
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
    use crate::engine::Engine;
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
