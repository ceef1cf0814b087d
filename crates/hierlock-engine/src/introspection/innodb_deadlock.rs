//! The last deadlock, as InnoDB tells it: who held what, and who wanted what. Pure: text in, a report out.

use super::dictionary::Dictionary;
use super::innodb_status::{InnodbLock, first_number, read_lock};
use super::{DeadlockReport, DeadlockWait};

/// A deadlock, as the text tells it.
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

    /// Returns it with sessions and targets; None if a session is not told. The text tells the members in order: each
    /// waits for the next, and the last for the first.
    pub(super) fn report(&self, dictionary: &Dictionary) -> Option<DeadlockReport> {
        let wait = |(at, member): (usize, &DeadlockMember)| {
            let other = &self.members[(at + 1) % self.members.len()];
            let (waiter, holder) = (member.thread?, other.thread?);
            let wants = member.wants.first();
            let wanted = wants.map(|lock| lock.wanted(dictionary));
            let blocking = wants.map(|wants| other.blocks(wants, member)).unwrap_or_default();
            let blocking = blocking.iter().flat_map(|lock| lock.session_locks(holder, dictionary));
            Some(DeadlockWait { waiter, holder, wanted, blocking: blocking.collect() })
        };
        let waits: Option<Vec<DeadlockWait>> = self.members.iter().enumerate().map(wait).collect();
        Some(DeadlockReport { id: self.id.clone(), waits: waits? })
    }
}

impl DeadlockMember {
    /// What this one has, or is queued for, that `waiter` waits for when it wants a lock. Nothing if the text
    /// does not tell.
    fn blocks(&self, wants: &InnodbLock, waiter: &Self) -> Vec<InnodbLock> {
        // MySQL lists the very lock, be it granted or not.
        if !self.holds.is_empty() {
            return self.holds.iter().map(|lock| wants.shared_part(lock)).collect();
        }
        // MariaDB lists all that are granted on the record, whoever has them: the next in the circle, the
        // waiter itself, or somebody else. It tells them by the number of the transaction, which one that has
        // changed nothing has not.
        let Some(number) = self.number else { return Vec::new() };
        let is_own = |lock: &&InnodbLock| lock.owner == number && wants.waits_for(lock);
        let granted: Vec<InnodbLock> =
            waiter.conflicts.iter().filter(is_own).map(|lock| wants.shared_part(lock)).collect();
        if !granted.is_empty() {
            return granted;
        }
        // It has none of these, so it is its request that is in the way, in front in the queue.
        let is_in_queue = |lock: &&InnodbLock| wants.waits_for(lock);
        self.wants.iter().filter(is_in_queue).cloned().collect()
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
    use proptest::prelude::*;

    /// As MySQL 9 writes it, shortened.
    const MYSQL: &str = "
------------------------
LATEST DETECTED DEADLOCK
------------------------
2026-11-16 02:15:31 140426410514112
*** (1) TRANSACTION:
TRANSACTION 1576, ACTIVE 0 sec starting index read
mysql tables in use 2, locked 2
LOCK WAIT 3 lock struct(s), heap size 1128, 2 row lock(s), undo log entries 1
MySQL thread id 11, OS thread handle 140426316080832, query id 16 localhost root updating
update t set v=2 where id=2

*** (1) HOLDS THE LOCK(S):
RECORD LOCKS space id 2 page no 4 n bits 72 index PRIMARY of table `lab`.`t` trx id 1576 lock_mode X locks rec but not gap
Record lock, heap no 2 PHYSICAL RECORD: n_fields 5; compact format; info bits 0
 0: len 4; hex 80000001; asc     ;;

*** (1) WAITING FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 2 page no 4 n bits 72 index PRIMARY of table `lab`.`t` trx id 1576 lock_mode X locks rec but not gap waiting
Record lock, heap no 3 PHYSICAL RECORD: n_fields 5; compact format; info bits 0
 0: len 4; hex 80000002; asc     ;;

*** (2) TRANSACTION:
TRANSACTION 1577, ACTIVE 0 sec starting index read
MySQL thread id 12, OS thread handle 140426315024064, query id 17 localhost root updating
update t set v=1 where id=1

*** (2) HOLDS THE LOCK(S):
RECORD LOCKS space id 2 page no 4 n bits 72 index PRIMARY of table `lab`.`t` trx id 1577 lock_mode X locks rec but not gap
Record lock, heap no 3 PHYSICAL RECORD: n_fields 5; compact format; info bits 0
 0: len 4; hex 80000002; asc     ;;

*** (2) WAITING FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 2 page no 4 n bits 72 index PRIMARY of table `lab`.`t` trx id 1577 lock_mode X locks rec but not gap waiting
Record lock, heap no 2 PHYSICAL RECORD: n_fields 5; compact format; info bits 0
 0: len 4; hex 80000001; asc     ;;

*** WE ROLL BACK TRANSACTION (2)
------------
TRANSACTIONS
------------
";

    /// As MariaDB 10.11 writes it, shortened: of two who have changed nothing.
    const MARIADB: &str = "
------------------------
LATEST DETECTED DEADLOCK
------------------------
2026-11-16 02:15:30 0x7f38a461a6c0
*** (1) TRANSACTION:
TRANSACTION (0x7f4f303e2680), ACTIVE 1 sec starting index read
MariaDB thread id 12, OS thread handle 139881252759232, query id 74 localhost root Updating
update t set v=1 where id=1
*** WAITING FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` trx id 0 lock_mode X locks rec but not gap waiting
Record lock, heap no 2 PHYSICAL RECORD: n_fields 6; compact format; info bits 0
 0: len 4; hex 80000001; asc     ;;
 5: SQL NULL;

*** CONFLICTING WITH:
RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` trx id 0 lock mode S locks rec but not gap
Record lock, heap no 2 PHYSICAL RECORD: n_fields 6; compact format; info bits 0
 0: len 4; hex 80000001; asc     ;;


*** (2) TRANSACTION:
TRANSACTION (0x7f4f303e2681), ACTIVE 1 sec starting index read
MariaDB thread id 11, OS thread handle 131085077833408, query id 73 localhost root Updating
update t set v=2 where id=1
*** WAITING FOR THIS LOCK TO BE GRANTED:
RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` trx id 0 lock_mode X locks rec but not gap waiting
Record lock, heap no 2 PHYSICAL RECORD: n_fields 6; compact format; info bits 0
 0: len 4; hex 80000001; asc     ;;

*** CONFLICTING WITH:
RECORD LOCKS space id 5 page no 3 n bits 320 index PRIMARY of table `lab`.`t` trx id 0 lock mode S locks rec but not gap
Record lock, heap no 2 PHYSICAL RECORD: n_fields 6; compact format; info bits 0
 0: len 4; hex 80000001; asc     ;;

*** WE ROLL BACK TRANSACTION (1)
------------
TRANSACTIONS
";

    fn told(status: &str) -> Vec<String> {
        let report = InnodbDeadlock::read(status).unwrap().report(&Dictionary::default()).unwrap();
        let tell = |wait: &DeadlockWait| {
            let lock = |lock: &SessionLock| {
                assert_eq!(lock.session, wait.holder);
                format!("{} {}", if lock.granted { "held" } else { "queued" }, lock.target)
            };
            let blocking: Vec<String> = wait.blocking.iter().map(lock).collect();
            let wanted = wait.wanted.as_ref().unwrap();
            let (waiter, holder) = (wait.waiter, wait.holder);
            format!("{waiter} wants {wanted}; {holder}: [{}]", blocking.join("; "))
        };
        report.waits.iter().map(tell).collect()
    }

    #[test]
    fn the_report_of_both_is_read() {
        assert_eq!(
            told(MYSQL),
            [
                "11 wants row 0x80000002 of lab.t (PRIMARY), X,REC_NOT_GAP; 12: [held row 0x80000002 of lab.t (PRIMARY), X,REC_NOT_GAP]",
                "12 wants row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP; 11: [held row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP]",
            ]
        );
        // Without a number it is not told whose lock it is.
        assert_eq!(
            told(MARIADB),
            [
                "12 wants row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP; 11: []",
                "11 wants row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP; 12: []",
            ]
        );
    }

    /// The failure that this prevents: one has the shared lock, and the other only waits; but the text shows that
    /// lock under both, and the other was said to hold it.
    #[test]
    fn a_lock_under_conflicting_with_belongs_to_the_transaction_of_its_number() {
        let mut status = MARIADB.replace("lock mode S", "lock mode S\u{1}");
        status = status.replacen("TRANSACTION (0x7f4f303e2680)", "TRANSACTION 263", 1);
        status = status.replacen("TRANSACTION (0x7f4f303e2681)", "TRANSACTION 264", 1);
        status = status.replace("trx id 0 lock mode S\u{1}", "trx id 264 lock mode S");
        let (first, second) = status.split_once("*** (2)").unwrap();
        let status = format!(
            "{}*** (2){}",
            first.replace("trx id 0", "trx id 263"),
            second.replace("trx id 0", "trx id 264")
        );
        assert_eq!(
            told(&status),
            [
                "12 wants row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP; 11: [held row 0x80000001 of lab.t (PRIMARY), S,REC_NOT_GAP]",
                "11 wants row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP; 12: [queued row 0x80000001 of lab.t (PRIMARY), X,REC_NOT_GAP]",
            ]
        );
    }

    /// MySQL lists the request of a member under HOLDS, if that is what the other is behind.
    #[test]
    fn a_queued_request_is_not_held() {
        let held = "trx id 1577 lock_mode X locks rec but not gap\n";
        let status = MYSQL.replace(held, "trx id 1577 lock_mode X locks rec but not gap waiting\n");
        assert_eq!(
            told(&status)[0],
            "11 wants row 0x80000002 of lab.t (PRIMARY), X,REC_NOT_GAP; 12: [queued row 0x80000002 of lab.t (PRIMARY), X,REC_NOT_GAP]"
        );
    }

    #[test]
    fn a_deadlock_is_told_from_another() {
        let report = InnodbDeadlock::read(MYSQL).unwrap().report(&Dictionary::default()).unwrap();
        assert_eq!(report.id, "2026-11-16 02:15:31 1404264105141121617");
        assert!(InnodbDeadlock::read("").is_none());
    }

    proptest! {
        /// Cut and glued anywhere, it is a deadlock or it is none.
        #[test]
        fn garbage_is_only_garbage(cuts in proptest::collection::vec((0usize..4000, 0usize..4000), 1..6)) {
            for text in [MYSQL, MARIADB] {
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
