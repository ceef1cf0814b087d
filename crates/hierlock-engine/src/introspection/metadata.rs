//! The compatibility rules of metadata locks of MySQL and MariaDB, which list these locks but not who blocks whom.

use super::wait_list::WaitList;
use super::{LockKind, LockTarget, SessionLock};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetadataLock {
    pub(super) owner: i64,
    pub(super) namespace: MetadataNamespace,
    pub(super) schema: String,
    pub(super) name: String,
    /// The mode, such as `SHARED_READ`.
    pub(super) mode: String,
    pub(super) granted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MetadataNamespace {
    /// A table, a routine, a trigger.
    Object,
    /// A user-level lock (GET_LOCK).
    User,
    /// A container such as a schema or the whole server, by its name on the server.
    Other(String),
}

/// The modes of objects, from weak to strong. `-` marks the modes that they wait for: of granted and of earlier pending
/// locks.
const MODES: [(&str, &str, &str); 10] = [
    ("SHARED", "+++++++++-", "+++++++++-"),
    ("SHARED_HIGH_PRIO", "+++++++++-", "++++++++++"),
    ("SHARED_READ", "++++++++--", "++++++++--"),
    ("SHARED_WRITE", "++++++----", "+++++++---"),
    ("SHARED_WRITE_LOW_PRIO", "++++++----", "++++++----"),
    ("SHARED_UPGRADABLE", "+++++-+---", "+++++++++-"),
    ("SHARED_READ_ONLY", "+++--+++--", "+++-++++--"),
    ("SHARED_NO_WRITE", "+++---+---", "+++++++++-"),
    ("SHARED_NO_READ_WRITE", "++--------", "+++++++++-"),
    ("EXCLUSIVE", "----------", "++++++++++"),
];

impl MetadataLock {
    fn waits_for(&self, other: &Self) -> bool {
        let (object, others) = ((&self.schema, &self.name), (&other.schema, &other.name));
        let is_same = self.namespace == other.namespace && object == others;
        if self.owner == other.owner || !is_same {
            return false;
        }
        let position = |mode: &str| MODES.iter().position(|(known, ..)| *known == mode);
        match &self.namespace {
            // There is one holder; the others wait for it alone.
            MetadataNamespace::User => other.granted,
            // Intention locks are compatible with each other; an exclusive lock is compatible with none.
            MetadataNamespace::Other(_) => {
                other.granted && (self.mode != other.mode || self.mode == "EXCLUSIVE")
            }
            MetadataNamespace::Object => {
                let (Some(wanted), Some(held)) = (position(&self.mode), position(&other.mode))
                else {
                    // The mode is of a newer server.
                    return other.granted;
                };
                let (_, granted, pending) = MODES[wanted];
                let signs = if other.granted { granted } else { pending };
                signs.as_bytes()[held] == b'-'
            }
        }
    }

    pub(super) fn blockers<'a>(&self, all: &'a [Self]) -> Vec<&'a Self> {
        all.iter().filter(|other| self.waits_for(other)).collect()
    }

    /// Returns the target of the lock. A blocker by LOCK TABLES makes it a table lock.
    fn target(&self, blockers: &[&Self]) -> LockTarget {
        // LOCK TABLES has its own modes; all others protect the definition of the table.
        let is_of_table =
            |lock: &Self| matches!(lock.mode.as_str(), "SHARED_NO_READ_WRITE" | "SHARED_READ_ONLY");
        let is_of_table = is_of_table(self) || blockers.iter().any(|lock| is_of_table(lock));
        let kind = if is_of_table { LockKind::Table } else { LockKind::Metadata };
        match &self.namespace {
            MetadataNamespace::User => LockTarget::new(LockKind::Advisory, &self.name, &self.mode),
            MetadataNamespace::Object => {
                LockTarget::of_table(kind, &self.schema, &self.name, &self.mode)
            }
            MetadataNamespace::Other(word) => {
                let mut name = vec![word.to_lowercase(), self.schema.clone(), self.name.clone()];
                name.retain(|part| !part.is_empty());
                LockTarget::new(LockKind::Metadata, name.join(" "), &self.mode)
            }
        }
    }

    /// Adds a wait of this lock's session for the blockers.
    pub(super) fn add_wait(&self, blockers: &[&Self], waits: &mut WaitList) {
        let owners = blockers.iter().map(|blocker| blocker.owner);
        waits.add(self.owner, self.target(blockers), owners);
    }

    pub(super) fn session_lock(&self) -> SessionLock {
        SessionLock { session: self.owner, target: self.target(&[]), granted: self.granted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: i64, mode: &str, granted: bool) -> MetadataLock {
        let [schema, name, mode] = ["lab", "t", mode].map(str::to_owned);
        MetadataLock { owner, namespace: MetadataNamespace::Object, schema, name, mode, granted }
    }

    #[test]
    fn the_compatibility_of_granted_locks_is_symmetric() {
        for (wanted, (mode, granted, _)) in MODES.iter().enumerate() {
            for (held, sign) in granted.chars().enumerate() {
                let (other, mirrored, _) = MODES[held];
                assert_eq!(Some(sign), mirrored.chars().nth(wanted), "{mode} and {other}");
            }
        }
    }

    /// A reader behind a pending ALTER waits for the ALTER, not for the transaction that the ALTER waits for.
    #[test]
    fn a_reader_waits_for_the_pending_alter() {
        let all = [
            lock(1, "SHARED_READ", true),
            lock(2, "SHARED_UPGRADABLE", true),
            lock(2, "EXCLUSIVE", false),
            lock(3, "SHARED_READ", false),
        ];
        for (waiter, blocker) in [(2, 0), (3, 2)] {
            assert_eq!(all[waiter].blockers(&all), [&all[blocker]]);
        }
    }

    #[test]
    fn lock_tables_is_a_table_lock() {
        let (held, wanted) = (lock(1, "SHARED_NO_READ_WRITE", true), lock(2, "SHARED_READ", false));
        assert_eq!(wanted.target(&[&held]).kind, LockKind::Table);
        assert_eq!(wanted.target(&[]).kind, LockKind::Metadata);
        let user =
            MetadataLock { namespace: MetadataNamespace::User, schema: String::new(), ..wanted };
        assert_eq!(user.target(&[]).to_string(), "advisory t, SHARED_READ");
    }
}
