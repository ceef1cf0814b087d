//! The rules of metadata locks of MySQL and MariaDB, which list these locks but not who waits for whom.

use super::wait_list::WaitList;
use super::{LockKind, LockTarget, SessionLock};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetadataLock {
    pub(super) owner: i64,
    pub(super) namespace: Namespace,
    pub(super) schema: String,
    pub(super) name: String,
    /// Such as `SHARED_READ`.
    pub(super) mode: String,
    pub(super) granted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Namespace {
    /// A table, a routine, a trigger.
    Object,
    /// A lock by name.
    User,
    /// Something that contains others, such as a schema or the server, in the server's word.
    Other(String),
}

/// The modes of objects, from weak to strong, with whom they wait for (`-`): those who have a lock, and those in front.
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
        let place = |mode: &str| MODES.iter().position(|(known, ..)| *known == mode);
        match &self.namespace {
            // Only one has it; those who wait stand in line.
            Namespace::User => other.granted,
            // Many may change what is inside, or somebody has the whole.
            Namespace::Other(_) => {
                other.granted && (self.mode != other.mode || self.mode == "EXCLUSIVE")
            }
            Namespace::Object => {
                let (Some(wanted), Some(held)) = (place(&self.mode), place(&other.mode)) else {
                    // A mode of a newer server.
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

    /// What it is on. What is in its way may say more of that.
    fn target(&self, blockers: &[&Self]) -> LockTarget {
        // LOCK TABLES has modes of its own; all others guard the definition.
        let is_of_table =
            |lock: &Self| matches!(lock.mode.as_str(), "SHARED_NO_READ_WRITE" | "SHARED_READ_ONLY");
        let is_of_table = is_of_table(self) || blockers.iter().any(|lock| is_of_table(lock));
        let kind = if is_of_table { LockKind::Table } else { LockKind::Metadata };
        match &self.namespace {
            Namespace::User => LockTarget::new(LockKind::Advisory, &self.name, &self.mode),
            Namespace::Object => LockTarget::of_table(kind, &self.schema, &self.name, &self.mode),
            Namespace::Other(word) => {
                let mut name = vec![word.to_lowercase(), self.schema.clone(), self.name.clone()];
                name.retain(|part| !part.is_empty());
                LockTarget::new(LockKind::Metadata, name.join(" "), &self.mode)
            }
        }
    }

    /// Adds that its session waits for it because of these.
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
        let (schema, name) = ("lab".to_owned(), "t".to_owned());
        MetadataLock {
            owner,
            namespace: Namespace::Object,
            schema,
            name,
            mode: mode.into(),
            granted,
        }
    }

    #[test]
    fn the_table_of_granted_locks_is_symmetric() {
        for (wanted, (mode, granted, _)) in MODES.iter().enumerate() {
            for (held, sign) in granted.chars().enumerate() {
                let (other, mirrored, _) = MODES[held];
                assert_eq!(Some(sign), mirrored.chars().nth(wanted), "{mode} and {other}");
            }
        }
    }

    /// A reader waits behind an ALTER that waits for a transaction, not for the transaction.
    #[test]
    fn a_reader_waits_for_who_goes_first() {
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
    fn lock_tables_locks_the_table() {
        let (held, wanted) = (lock(1, "SHARED_NO_READ_WRITE", true), lock(2, "SHARED_READ", false));
        assert_eq!(wanted.target(&[&held]).kind, LockKind::Table);
        assert_eq!(wanted.target(&[]).kind, LockKind::Metadata);
        let user = MetadataLock { namespace: Namespace::User, schema: String::new(), ..wanted };
        assert_eq!(user.target(&[]).to_string(), "advisory t, SHARED_READ");
    }
}
