//! The last deadlock, as InnoDB tells it: who held what, and who wanted what. Pure: text in, a report out.

use super::dictionary::Dictionary;
use super::innodb_status::{InnodbLock, first_number, read_lock};
use super::{DeadlockReport, DeadlockWait};

/// A deadlock, as it is in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InnodbDeadlock {
    /// Its time, and the numbers of the statements in it: tells it from another.
    id: String,
    members: Vec<DeadlockMember>,
}

/// A transaction in a deadlock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct DeadlockMember {
    /// The number of its session.
    thread: Option<i64>,
    /// Its own number; none before it has changed anything.
    number: Option<u64>,
    wants: Vec<InnodbLock>,
    /// What MySQL lists: the lock that the one before it in the circle waits for, held or queued.
    holds: Vec<InnodbLock>,
    /// What MariaDB lists: the granted locks on what it wants, whoever has them, itself too.
    conflicts: Vec<InnodbLock>,
}

impl InnodbDeadlock {
    /// Finds the last one in the whole text.
    pub(super) fn read(status: &str) -> Option<Self> {
        let (_, section) = status.split_once("\nLATEST DETECTED DEADLOCK\n")?;
        let section =
            section.split_once("\nTRANSACTIONS\n").map_or(section, |(section, _)| section);
        let mut members: Vec<DeadlockMember> = Vec::new();
        let (mut id, mut title) = (String::new(), "");
        for line in section.lines() {
            if let Some(next) = line.strip_prefix("*** ") {
                title = next;
                if title.ends_with(" TRANSACTION:") {
                    members.push(DeadlockMember::default());
                }
                continue;
            }
            if let Some((_, query)) = line.split_once(" query id ") {
                id.extend(query.split(' ').take(1));
            }
            match members.last_mut() {
                Some(member) => member.read(title, line),
                None if line.starts_with(|c: char| c.is_ascii_digit()) => id.push_str(line),
                None => {}
            }
        }
        (members.len() > 1).then_some(Self { id, members })
    }

    /// The indexes whose keys are to be written out: schema, table and index.
    pub(super) fn indexes(&self) -> impl Iterator<Item = [&str; 3]> {
        let locks = self.members.iter().flat_map(|it| [&it.wants, &it.holds, &it.conflicts]);
        locks.flatten().filter_map(InnodbLock::index)
    }

    /// Returns it with sessions and targets; None if a session is not told. Each member waits for the next in the text.
    pub(super) fn report(&self, dictionary: &Dictionary) -> Option<DeadlockReport> {
        let others = self.members.iter().cycle().skip(1);
        let wait = |(member, other): (&DeadlockMember, &DeadlockMember)| {
            let (waiter, holder) = (member.thread?, other.thread?);
            let wants = member.wants.first();
            let wanted = wants.map(|lock| lock.wanted(dictionary));
            let blocking = wants.map(|wants| other.blocks(wants, member)).unwrap_or_default();
            let blocking = blocking.iter().flat_map(|lock| lock.session_locks(holder, dictionary));
            Some(DeadlockWait { waiter, holder, wanted, blocking: blocking.collect() })
        };
        let waits = self.members.iter().zip(others).map(wait).collect::<Option<_>>()?;
        Some(DeadlockReport { id: self.id.clone(), waits })
    }
}

impl DeadlockMember {
    /// What this one has, or is queued for, that is in the way of `waiter`. Nothing if the text does not tell.
    fn blocks(&self, wants: &InnodbLock, waiter: &Self) -> Vec<InnodbLock> {
        // MySQL lists the very lock, be it granted or not.
        if !self.holds.is_empty() {
            return self.holds.iter().map(|lock| wants.shared_part(lock)).collect();
        }
        // MariaDB lists all that are granted on the record, by the number of a transaction that has changed something.
        let Some(number) = self.number else { return Vec::new() };
        let in_way = |lock: &&InnodbLock| lock.owner == number && wants.waits_for(lock);
        let granted = waiter.conflicts.iter().filter(in_way).map(|lock| wants.shared_part(lock));
        let mut blocking: Vec<InnodbLock> = granted.collect();
        if blocking.is_empty() {
            // So it is its request that is in the way, in front in the queue.
            blocking.extend(self.wants.iter().filter(|lock| wants.waits_for(lock)).cloned());
        }
        blocking
    }

    /// Reads a line below a title: of a list of locks, or of the transaction itself.
    fn read(&mut self, title: &str, line: &str) {
        if title.contains("HOLDS THE LOCK") {
            read_lock(&mut self.holds, line);
        } else if title.contains("WAITING FOR THIS LOCK") {
            read_lock(&mut self.wants, line);
        } else if title.contains("CONFLICTING WITH") {
            read_lock(&mut self.conflicts, line);
        } else if let Some(rest) = line.strip_prefix("TRANSACTION ") {
            self.number = first_number(rest);
        } else if let Some((_, rest)) = line.split_once(" thread id ") {
            self.thread = self.thread.or(first_number(rest).map(|id| id as i64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::introspection::SessionLock;
    use crate::introspection::innodb_status::tests::lock_text;
    use proptest::prelude::*;

    const EXCLUSIVE: &str = "lock_mode X locks rec but not gap";
    const WAITING: &str = "lock_mode X locks rec but not gap waiting";

    fn status(members: [String; 2]) -> String {
        format!(
            "\n------------------------\nLATEST DETECTED DEADLOCK\n------------------------\n\
             2026-11-16 02:15:31 140426410514112\n{}*** WE ROLL BACK TRANSACTION (2)\n\
             ------------\nTRANSACTIONS\n------------\n",
            members.concat()
        )
    }

    fn transaction(place: u32, name: &str, thread: u32, query: u32) -> String {
        format!(
            "*** ({place}) TRANSACTION:\nTRANSACTION {name}, ACTIVE 0 sec starting index read\n\
             mysql tables in use 2, locked 2\n\
             MySQL thread id {thread}, OS thread handle 140426316080832, query id {query} localhost root updating\n\
             update t set v=1 where id=1\n\n"
        )
    }

    /// As MySQL 9 writes it, shortened: each has the record that the other wants; the second in this mode.
    fn mysql(second: &str) -> String {
        let member = |place: u32, mode: &str| {
            let (number, own, other) = (1575 + place, place, 3 - place);
            let title = transaction(place, &number.to_string(), 10 + place, 15 + place);
            let holds = lock_text(number, mode, &[(own + 1, &format!("8000000{own}"))]);
            let wants = lock_text(number, WAITING, &[(other + 1, &format!("8000000{other}"))]);
            format!(
                "{title}*** ({place}) HOLDS THE LOCK(S):\n{holds}\
                 *** ({place}) WAITING FOR THIS LOCK TO BE GRANTED:\n{wants}"
            )
        };
        status([member(1, EXCLUSIVE), member(2, second)])
    }

    /// As MariaDB 10.11 writes it, shortened: both want a record that one of them has shared. 0 is a reader.
    fn mariadb(numbers: [u32; 2], holder: u32) -> String {
        let member = |place: u32| {
            let number = numbers[place as usize - 1];
            let name = if number == 0 { "(0x7f4f303e2680)".to_owned() } else { number.to_string() };
            let title = transaction(place, &name, 13 - place, 75 - place);
            let record = [(2, "80000001")];
            let wants = lock_text(number, WAITING, &record);
            let conflicts = lock_text(holder, "lock mode S locks rec but not gap", &record);
            format!(
                "{title}*** WAITING FOR THIS LOCK TO BE GRANTED:\n{wants}*** CONFLICTING WITH:\n{conflicts}\n"
            )
        };
        status([member(1), member(2)])
    }

    fn report(status: &str) -> DeadlockReport {
        InnodbDeadlock::read(status).unwrap().report(&Dictionary::default()).unwrap()
    }

    #[test]
    fn each_wait_is_read_with_what_is_in_the_way() {
        for (status, expected) in [
            (
                mysql(EXCLUSIVE),
                [
                    "11 wants row 0x80000002, X,REC_NOT_GAP; 12: [held row 0x80000002, X,REC_NOT_GAP]",
                    "12 wants row 0x80000001, X,REC_NOT_GAP; 11: [held row 0x80000001, X,REC_NOT_GAP]",
                ],
            ),
            // MySQL lists the request of a member under HOLDS, if that is what the other is behind.
            (
                mysql(WAITING),
                [
                    "11 wants row 0x80000002, X,REC_NOT_GAP; 12: [queued row 0x80000002, X,REC_NOT_GAP]",
                    "12 wants row 0x80000001, X,REC_NOT_GAP; 11: [held row 0x80000001, X,REC_NOT_GAP]",
                ],
            ),
            // Without a number it is not known whose lock it is.
            (
                mariadb([0, 0], 0),
                [
                    "12 wants row 0x80000001, X,REC_NOT_GAP; 11: []",
                    "11 wants row 0x80000001, X,REC_NOT_GAP; 12: []",
                ],
            ),
            // The failure that this prevents: who only waits was said to hold the lock that is shown under both.
            (
                mariadb([263, 264], 264),
                [
                    "12 wants row 0x80000001, X,REC_NOT_GAP; 11: [held row 0x80000001, S,REC_NOT_GAP]",
                    "11 wants row 0x80000001, X,REC_NOT_GAP; 12: [queued row 0x80000001, X,REC_NOT_GAP]",
                ],
            ),
        ] {
            let describe = |DeadlockWait { waiter, holder, wanted, blocking }| {
                let lock = |SessionLock { session, target, granted }| {
                    assert_eq!(session, holder);
                    format!("{} {target}", if granted { "held" } else { "queued" })
                };
                let blocking: Vec<String> = blocking.into_iter().map(lock).collect();
                let (wanted, blocking) = (wanted.unwrap(), blocking.join("; "));
                format!("{waiter} wants {wanted}; {holder}: [{blocking}]")
                    .replace(" of lab.t (PRIMARY)", "")
            };
            let waits: Vec<_> = report(&status).waits.into_iter().map(describe).collect();
            assert_eq!(waits, expected);
        }
    }

    #[test]
    fn a_deadlock_is_told_from_another() {
        assert_eq!(report(&mysql(EXCLUSIVE)).id, "2026-11-16 02:15:31 1404264105141121617");
        assert!(InnodbDeadlock::read("").is_none());
    }

    proptest! {
        /// Cut and glued anywhere, it is a deadlock or it is none.
        #[test]
        fn garbage_is_only_garbage(cuts in proptest::collection::vec((0usize..4000, 0usize..4000), 1..6)) {
            for text in [mysql(EXCLUSIVE), mariadb([0, 0], 0)] {
                let glued: String =
                    cuts.iter().filter_map(|(a, b)| text.get(*a.min(b)..*a.max(b))).collect();
                let status = format!("\nLATEST DETECTED DEADLOCK\n{glued}");
                if let Some(deadlock) = InnodbDeadlock::read(&status) {
                    deadlock.report(&Dictionary::default());
                }
            }
        }
    }
}
