//! Who had which lock after which step, and which step took it: computed from the locks that were recorded
//! after each step, by comparing one with the next.

use crate::ledger;
use crate::observation::{Lock, LockedObject, Name};
use crate::record::Record;

/// The locks of a run over its steps.
pub(crate) struct Ledger {
    /// The indices of the steps after which locks were recorded.
    pub(crate) steps: Vec<usize>,
    /// In the order in which they appeared.
    pub(crate) lines: Vec<Line>,
}

/// One lock of one session.
pub(crate) struct Line {
    pub(crate) session: Name,
    pub(crate) thing: LockedObject,
    /// The index of the step whose statement took it first; `None` if it was never held, or that is not known.
    pub(crate) taken_in: Option<usize>,
    /// After each of [`Ledger::steps`].
    pub(crate) stands: Vec<Stand>,
}

/// How a session stands to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Nothing,
    Wants,
    Holds,
}

impl Ledger {
    /// `None` where no locks were recorded, or there never were any.
    pub(crate) fn of(record: &Record) -> Option<Self> {
        let recorded: Vec<(usize, &Vec<Lock>)> = record
            .steps
            .iter()
            .enumerate()
            .filter_map(|(index, step)| Some((index, step.locks.as_ref()?)))
            .collect();
        let mut lines: Vec<Line> = Vec::new();
        for (at, (index, locks)) in recorded.iter().enumerate() {
            for lock in *locks {
                let known = lines
                    .iter()
                    .position(|line| line.session == lock.session && line.thing == lock.thing);
                let known = known.unwrap_or_else(|| {
                    lines.push(Line {
                        session: lock.session.clone(),
                        thing: lock.thing.clone(),
                        taken_in: None,
                        stands: vec![Stand::Nothing; recorded.len()],
                    });
                    lines.len() - 1
                });
                let line = &mut lines[known];
                match lock.granted {
                    true => {
                        line.stands[at] = Stand::Holds;
                        if !line.stands[..at].contains(&Stand::Holds) {
                            let ledger = ledger::Ledger::new(&record.steps, &[]);
                            line.taken_in = ledger.statement_of(&lock.session, &lock.thing, *index);
                        }
                    }
                    // The same thing may be held and wanted once more, as a stronger mode or twice.
                    false if line.stands[at] == Stand::Nothing => line.stands[at] = Stand::Wants,
                    false => {}
                }
            }
        }
        let steps = recorded.iter().map(|(index, _)| *index).collect();
        (!lines.is_empty()).then_some(Ledger { steps, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{cycle, ring};

    #[test]
    fn a_lock_is_taken_in_the_step_after_which_it_is_first_held() {
        let ledger = Ledger::of(&cycle(Engine::Mysql, "A")).unwrap();
        let told: Vec<String> = ledger
            .lines
            .iter()
            .map(|line| {
                let stands = line.stands.iter().map(|stand| match stand {
                    Stand::Nothing => '.',
                    Stand::Wants => 'w',
                    Stand::Holds => 'H',
                });
                let record = line.thing.record.as_deref().unwrap();
                format!(
                    "{} {record} {:?} {}",
                    line.session,
                    line.taken_in,
                    stands.collect::<String>()
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "A 1 Some(2) ..HHH..",
                "B 2 Some(3) ...HHH.",
                "A 2 None ....w..",
                "B 1 Some(5) .....H."
            ]
        );
    }

    #[test]
    fn without_recorded_locks_there_is_no_ledger() {
        assert!(Ledger::of(&ring()).is_none());
    }
}
