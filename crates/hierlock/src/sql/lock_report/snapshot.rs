//! The sessions, locks and waits of a server at one moment, with paths.

use super::lock_tables::LockTable;
use super::update_keys::name_update_keys;
use super::{LockSlot, PathFilter};
use crate::sql::{Dialect, SessionLabel};
use crate::{SlotMode, Target};
use hierlock_engine::introspection::{
    IncompleteLocks, LockKind, LockList, LockTarget, LockWait, MissingPrivilege, SessionInfo,
    WaitTree, wait_trees,
};
use hierlock_engine::redact_statement;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// The holders and waiters at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockSnapshot {
    /// The server, without a password, or the lock file.
    pub server: String,
    /// The kind of server. `None` for a lock file.
    pub dialect: Option<Dialect>,
    /// The time of the snapshot, by the clock of this host.
    pub taken: SystemTime,
    /// The sessions that have locks, wait, or name targets in their label, ascending by process id.
    pub sessions: Vec<SessionLocks>,
    /// The waits as trees by root blocker.
    pub trees: Vec<WaitTree>,
    /// Whether the account may see waits.
    pub are_waits_visible: bool,
    /// The prepared transactions of PostgreSQL. The trees contain them as session 0.
    pub prepared: Vec<PreparedTransaction>,
    /// The privileges that the account lacks.
    pub missing: Vec<MissingPrivilege>,
    /// The account, quoted for SQL.
    pub account: String,
    /// Notes about other gaps of the snapshot, with their reasons.
    pub notes: Vec<String>,
    pub(super) tables: Vec<LockTable>,
}

/// A session with its locks.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionLocks {
    /// The session in the server's list. Passwords are removed from its statement.
    pub info: SessionInfo,
    /// The label that the session has set.
    pub label: Option<SessionLabel>,
    /// The locks that the session holds.
    pub held: Vec<ReportedLock>,
    /// Whether the session holds locks that the server does not list.
    pub has_unlisted_locks: bool,
    /// Whether the session has a lock on a lock table or on a row of one.
    pub uses_lock_table: bool,
    /// The wait of the session, if it waits.
    pub wait: Option<ReportedWait>,
}

/// A lock that is held or wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedLock {
    /// The locked object, as the server describes it.
    pub target: LockTarget,
    /// The slot, if the lock is on a slot of hierlock.
    pub slot: Option<LockSlot>,
    /// The nodes that the session has locked with it: the paths of its label, and their ancestors, that map to the slot.
    pub nodes: Vec<Target>,
}

/// The wait of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReportedWait {
    /// The wanted lock, if the server lists it.
    pub wanted: Option<ReportedLock>,
    /// The process ids of the blockers, ascending. Empty if the server does not list them.
    pub blockers: Vec<i64>,
}

/// A prepared transaction, which has locks but no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTransaction {
    /// The global transaction identifier.
    pub name: String,
    /// The account.
    pub owner: String,
    /// The database.
    pub database: String,
    /// The time of PREPARE TRANSACTION, as the server prints it.
    pub since: String,
}

impl LockSnapshot {
    /// Makes an empty snapshot of a server or lock file of this name.
    pub fn new(server: String) -> Self {
        Self {
            server,
            dialect: None,
            taken: SystemTime::now(),
            sessions: Vec::new(),
            trees: Vec::new(),
            are_waits_visible: true,
            prepared: Vec::new(),
            missing: Vec::new(),
            account: String::new(),
            notes: Vec::new(),
            tables: Vec::new(),
        }
    }

    /// Returns a filter for the sessions that are related to a node.
    pub fn filter(&self, node: &Target) -> PathFilter {
        let nodes = (0..=node.level()).map(|level| node.ancestor(level));
        let slots = nodes.flat_map(|node| {
            let slots = self.tables.iter().map(|table| LockSlot::of(&table.scheme, &node));
            let with_key = |slot: LockSlot| [slot.update_key(), Some(slot)].into_iter().flatten();
            slots.flat_map(with_key).map(|slot| (node.level(), slot)).collect::<Vec<_>>()
        });
        PathFilter::new(node.clone(), slots.collect())
    }

    /// Returns a session by its process id.
    pub fn session(&self, pid: i64) -> Option<&SessionLocks> {
        let place = self.sessions.binary_search_by_key(&pid, |session| session.info.pid).ok()?;
        self.sessions.get(place)
    }

    /// Returns the locks that other sessions want and this session blocks, with the process ids of the direct waiters.
    pub fn wanted_from(&self, pid: i64) -> impl Iterator<Item = (i64, &ReportedLock)> {
        self.sessions.iter().filter_map(move |session| {
            let wait = session.wait.as_ref().filter(|wait| wait.blockers.contains(&pid))?;
            Some((session.info.pid, wait.wanted.as_ref()?))
        })
    }

    /// Combines the server's lists of sessions, waits and locks.
    pub(super) fn assemble(
        &mut self,
        infos: Vec<SessionInfo>,
        waits: Vec<LockWait>,
        locks: LockList,
        lock_tables: Vec<LockTable>,
    ) {
        let tables = &lock_tables[..];
        self.trees = wait_trees(&waits);
        let mut sessions: BTreeMap<i64, SessionLocks> =
            infos.into_iter().map(|info| (info.pid, SessionLocks::of(info))).collect();
        for lock in locks.locks.into_iter().filter(|lock| lock.granted) {
            let session = session_of(&mut sessions, lock.session);
            session.uses_lock_table |= tables.iter().any(|table| table.is_of(&lock.target));
            let lock = ReportedLock::new(lock.target, session, tables);
            session.held.push(lock);
        }
        let mut reasons: BTreeSet<String> = BTreeSet::new();
        for IncompleteLocks { session, reason } in locks.incomplete {
            if let Some(pid) = session {
                session_of(&mut sessions, pid).has_unlisted_locks = true;
                reasons.insert(reason);
            } else {
                self.notes.push(reason);
            }
        }
        self.notes.extend(reasons);
        for LockWait { waiter, blockers, wanted } in waits {
            for blocker in blockers.iter().filter(|blocker| **blocker != 0) {
                session_of(&mut sessions, *blocker);
            }
            let session = session_of(&mut sessions, waiter);
            let wanted = wanted.map(|target| ReportedLock::new(target, session, tables));
            session.wait = Some(ReportedWait { wanted, blockers });
        }
        name_update_keys(&mut sessions, tables);
        if self.dialect == Some(Dialect::Postgres) {
            for session in sessions.values_mut() {
                session.has_unlisted_locks |= session.has_unread_rows(tables);
            }
        }
        let rows = self.trees.iter().flat_map(|tree| &tree.rows);
        let in_trees: BTreeSet<i64> = rows.map(|row| row.session).collect();
        let is_shown = |it: &SessionLocks| {
            let names_targets = it.label.as_ref().is_some_and(|label| !label.claims.is_empty());
            in_trees.contains(&it.info.pid) || it.has_locks() || names_targets
        };
        self.sessions = sessions.into_values().filter(is_shown).collect();
        self.add_wanted_nodes(tables);
        self.tables = lock_tables;
    }

    /// Adds locks that the server does not list to their holders: the slots that others want from a session, with the nodes
    /// of its label that map to them.
    fn add_wanted_nodes(&mut self, tables: &[LockTable]) {
        let wanted_of = |session: &SessionLocks| {
            let mut locks: Vec<ReportedLock> = Vec::new();
            for (_, wanted) in self.wanted_from(session.info.pid) {
                // The session may also be a blocker because it waits for the same slot ahead in the queue.
                if wanted.slot.is_none() || session.locks().any(|lock| lock.slot == wanted.slot) {
                    continue;
                }
                let target = LockTarget { mode: String::new(), ..wanted.target.clone() };
                let lock = ReportedLock::new(target, session, tables);
                if !locks.contains(&lock) {
                    locks.push(lock);
                }
            }
            locks
        };
        let found: Vec<Vec<ReportedLock>> = self.sessions.iter().map(wanted_of).collect();
        for (session, locks) in self.sessions.iter_mut().zip(found) {
            session.held.extend(locks);
        }
    }
}

/// Returns a session, also one that the account may not see in the list of sessions.
fn session_of(sessions: &mut BTreeMap<i64, SessionLocks>, pid: i64) -> &mut SessionLocks {
    let unseen = || SessionLocks::of(SessionInfo { pid, ..SessionInfo::default() });
    sessions.entry(pid).or_insert_with(unseen)
}

impl SessionLocks {
    /// Makes a session without locks.
    pub(super) fn of(mut info: SessionInfo) -> Self {
        let label = info.label.as_deref().and_then(SessionLabel::parse);
        info.statement = info.statement.map(|sql| redact_statement(&sql).into_owned());
        Self { info, label, ..Self::default() }
    }

    /// Returns the held locks and the wanted one.
    pub(super) fn locks(&self) -> impl Iterator<Item = &ReportedLock> {
        let wanted = self.wait.iter().filter_map(|wait| wait.wanted.as_ref());
        self.held.iter().chain(wanted)
    }

    /// Returns whether the session has locked rows on PostgreSQL that its label does not name.
    fn has_unread_rows(&self, tables: &[LockTable]) -> bool {
        const ROW_SHARE: &str = "RowShareLock";
        let has_rows = self.held.iter().any(|lock| {
            let target = &lock.target;
            target.kind == LockKind::Table
                && target.mode == ROW_SHARE
                && tables.iter().any(|table| table.is_of(target))
        });
        has_rows && !self.label.as_ref().is_some_and(|label| label.is_complete())
    }

    /// Returns whether the session holds locks.
    pub fn has_locks(&self) -> bool {
        !self.held.is_empty() || self.has_unlisted_locks
    }

    /// Returns whether the session belongs to a client of hierlock: it has a label, or a lock on a slot or a lock table.
    pub fn is_hierlock(&self) -> bool {
        let has_slot = self.locks().any(|lock| lock.slot.is_some());
        self.label.is_some() || self.uses_lock_table || has_slot
    }

    /// Returns the paths of the label for which the server lists no lock.
    pub fn unconfirmed_paths(&self) -> impl Iterator<Item = &Target> {
        let known: BTreeSet<&Target> = self.locks().flat_map(|lock| &lock.nodes).collect();
        let paths = self.label.iter().flat_map(SessionLabel::targets);
        paths.filter(move |path| !known.contains(path))
    }
}

impl ReportedLock {
    fn new(target: LockTarget, session: &SessionLocks, tables: &[LockTable]) -> Self {
        let slot = LockSlot::locked_by(&target, session.info.database.as_deref(), tables);
        let named = session.label.as_ref().filter(|_| slot.is_some()).map(SessionLabel::nodes);
        let named = named.unwrap_or_default();
        let nodes = slot.as_ref().map(|slot| slot.nodes_among(&named, tables)).unwrap_or_default();
        Self { target, slot, nodes }
    }

    /// Makes a lock on a slot.
    pub fn on_slot(target: LockTarget, slot: LockSlot, nodes: Vec<Target>) -> Self {
        Self { target, slot: Some(slot), nodes }
    }

    /// Returns whether it is a lock that every statement or transaction takes, and that rarely blocks others.
    pub fn is_routine(&self) -> bool {
        const MODES: [&str; 7] = [
            "IS",
            "IX",
            "AccessShareLock",
            "RowShareLock",
            "RowExclusiveLock",
            "SHARED_READ",
            "SHARED_WRITE",
        ];
        // On PostgreSQL a transaction that writes holds a lock on its own transaction id.
        let is_own =
            self.target.kind == LockKind::Transaction && self.target.mode == "ExclusiveLock";
        is_own || MODES.contains(&&*self.target.mode)
    }

    /// Returns whether another lock is on the same object: the same table or advisory key.
    pub fn is_on_object_of(&self, other: &Self) -> bool {
        let object = |lock: &Self| (lock.target.schema.clone(), lock.target.object.clone());
        object(self) == object(other)
    }

    /// Returns whether the lock is shared: `S` on InnoDB, `ShareLock` on PostgreSQL. False if the mode is unknown.
    pub fn is_shared(&self) -> bool {
        let mode = self.target.mode.as_str();
        // A session that waits for a row FOR SHARE on PostgreSQL takes a tuple lock of this mode.
        let is_for_share = self.target.kind == LockKind::Row && mode == "RowShareLock";
        is_for_share
            || mode.starts_with("S,")
            || matches!(mode, "S" | "ShareLock" | "For Share" | "READ")
    }

    /// Returns the mode of a lock on a slot. `None` if it is unknown.
    pub fn slot_mode(&self) -> Option<SlotMode> {
        let is_key = matches!(self.slot, Some(LockSlot::AdvisoryKey(_)));
        match self.target.mode.as_str() {
            "" => None,
            // The advisory key of an update lock.
            _ if self.target.kind == LockKind::Advisory && !is_key => Some(SlotMode::Update),
            _ if self.is_shared() => Some(SlotMode::Shared),
            _ => Some(SlotMode::Exclusive),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::PathRelation;
    use super::*;
    use crate::sql::Scheme;

    pub(in super::super) fn info(pid: i64, label: &str) -> SessionInfo {
        let database = Some("app".to_owned());
        SessionInfo { pid, database, label: Some(label.to_owned()), ..SessionInfo::default() }
    }

    fn bucket(record: &str, mode: &str) -> LockTarget {
        LockTarget {
            schema: Some("app".to_owned()),
            index: Some("PRIMARY".to_owned()),
            record: Some(record.to_owned()),
            ..LockTarget::new(LockKind::Row, "hier_lock_buckets", mode)
        }
    }

    /// A snapshot as MariaDB lists it: session 1 has the buckets of `u1/a1/r313`, which are not listed. Session 2 wants
    /// `r36750`, in the same bucket, and session 3, without a label, wants that bucket too. Session 4 is idle.
    fn snapshot() -> LockSnapshot {
        let scheme = Scheme::new(Dialect::Mariadb);
        let tables = vec![LockTable::new(scheme, "app")];
        let infos = vec![
            info(1, "billing@h:1 u1/a1/r313"),
            info(2, "report@h:2 u1/a1/r36750"),
            info(3, "psql"),
            info(4, "psql"),
        ];
        let wait = |waiter: i64, blockers: &[i64]| LockWait {
            waiter,
            blockers: blockers.to_vec(),
            wanted: Some(bucket("2, 1374946", "X,REC_NOT_GAP")),
        };
        let reason = "not listed".to_owned();
        let incomplete = vec![IncompleteLocks { session: Some(1), reason }];
        let mut snapshot = LockSnapshot::new("server".to_owned());
        let waits = vec![wait(2, &[1]), wait(3, &[1, 2])];
        snapshot.assemble(infos, waits, LockList { locks: Vec::new(), incomplete }, tables);
        snapshot
    }

    #[test]
    fn an_unlisted_lock_is_inferred_from_its_waiters() {
        let snapshot = snapshot();
        let pids: Vec<i64> = snapshot.sessions.iter().map(|session| session.info.pid).collect();
        assert_eq!(pids, [1, 2, 3], "session 4 has no lock and does not wait");
        let nodes =
            |lock: &ReportedLock| lock.nodes.iter().map(Target::to_string).collect::<Vec<_>>();
        let [holder, waiter, other] = &snapshot.sessions[..] else { panic!("{snapshot:?}") };
        assert_eq!(holder.held.iter().map(nodes).collect::<Vec<_>>(), [["u1/a1/r313"]]);
        assert_eq!(holder.held[0].target.mode, "", "the mode is unknown");
        assert!(holder.has_unlisted_locks && holder.unconfirmed_paths().next().is_none());
        // Session 2 blocks session 3 because it is ahead in the queue.
        assert_eq!(waiter.held, []);
        let wanted = |session: &SessionLocks| session.wait.clone().unwrap().wanted.unwrap();
        assert_eq!(nodes(&wanted(waiter)), ["u1/a1/r36750"]);
        assert_eq!((nodes(&wanted(other)), other.label.is_none()), (Vec::new(), true));
        assert_eq!(snapshot.trees.len(), 1);
        assert_eq!(snapshot.notes, ["not listed"]);
    }

    #[test]
    fn a_filter_finds_sessions_of_a_node_and_of_its_bucket() {
        let snapshot = snapshot();
        let relation = |path: &str, pid: i64| {
            let session = snapshot.session(pid).unwrap();
            let wanted = session.wait.as_ref().and_then(|wait| wait.wanted.as_ref());
            let lock = wanted.or(session.held.first()).unwrap();
            snapshot.filter(&path.parse().unwrap()).relation(lock)
        };
        for (path, pid, expected) in [
            ("u1/a1/r313", 1, Some(PathRelation::Node)),
            ("u1/a1/r313", 2, Some(PathRelation::OtherPathInBucket)),
            ("u1/a1/r313", 3, Some(PathRelation::SameSlot)),
            ("u1/a1", 1, Some(PathRelation::Node)),
            ("u1/a1/r1", 1, None),
            ("u1/a1/r1", 3, None),
        ] {
            assert_eq!(relation(path, pid), expected, "{path} and {pid}");
        }
        let found = |path: &str| snapshot.filter(&path.parse().unwrap()).sessions(&snapshot);
        assert_eq!(found("u1/a1/r36750"), BTreeSet::from([1, 2, 3]));
        // Session 1 blocks session 2, which wants a descendant.
        assert_eq!(found("u1"), BTreeSet::from([1, 2]));
        assert_eq!(found("u2"), BTreeSet::new());
    }
}
