//! The slots of update locks on PostgreSQL, whose keys `pg_locks` lists as advisory keys. Pure code.

use super::lock_tables::LockTable;
use super::{LockSlot, SessionLocks};
use crate::sql::SessionLabel;
use std::collections::{BTreeMap, BTreeSet};

/// Replaces the keys of update locks by their slots. A key is a hash of its slot. The slot is known if exactly one slot of a
/// label or of a locked row has this hash.
pub(super) fn name_update_keys(sessions: &mut BTreeMap<i64, SessionLocks>, tables: &[LockTable]) {
    let has_keys = |table: &&LockTable| table.oid.is_some();
    let mut by_key: BTreeMap<LockSlot, BTreeSet<LockSlot>> = BTreeMap::new();
    for session in sessions.values() {
        let nodes = session.label.as_ref().map(SessionLabel::nodes).unwrap_or_default();
        let of_label = nodes.iter().flat_map(|node| {
            tables.iter().filter(has_keys).map(|table| LockSlot::of(&table.scheme, node))
        });
        let locked = session.locks().filter_map(|lock| lock.slot.clone());
        for slot in of_label.chain(locked) {
            if let Some(key) = slot.update_key() {
                by_key.entry(key).or_default().insert(slot);
            }
        }
    }
    for session in sessions.values_mut() {
        let nodes = session.label.as_ref().map(SessionLabel::nodes).unwrap_or_default();
        let wanted = session.wait.iter_mut().filter_map(|wait| wait.wanted.as_mut());
        for lock in session.held.iter_mut().chain(wanted) {
            let Some(key @ LockSlot::UpdateKey { .. }) = &lock.slot else { continue };
            let mut slots = by_key.get(key).into_iter().flatten();
            if let (Some(slot), None) = (slots.next(), slots.next()) {
                lock.nodes = slot.nodes_among(&nodes, tables);
                lock.slot = Some(slot.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LockSnapshot;
    use super::super::snapshot::tests::info;
    use super::*;
    use crate::Target;
    use crate::sql::{Dialect, Scheme, Strategy};
    use hierlock_engine::introspection::{
        LockKind, LockList, LockTarget, SessionInfo, SessionLock,
    };

    fn row(record: &str) -> LockTarget {
        LockTarget {
            schema: Some("public".to_owned()),
            record: Some(record.to_owned()),
            ..LockTarget::new(LockKind::Row, "hier_lock_buckets", "For Share")
        }
    }

    /// On PostgreSQL the key of an update lock has two numbers: the oid of the table and a hash of the slot.
    #[test]
    fn keys_of_update_locks_are_replaced_by_their_slots() {
        let scheme = Scheme::new(Dialect::Postgres).strategy(Strategy::Striped).unwrap();
        let table = LockTable { oid: Some(16_391), ..LockTable::new(scheme, "public") };
        let tables = vec![table, LockTable::new(Scheme::new(Dialect::Postgres), "app")];
        // The vector of `docs/keys.md` for `2,1358050`, which is `u1/a1/r1`, as the server shows it.
        let key = |oid: u32| {
            let object = format!("{oid}, {}", (-1_438_805_069_i32).cast_unsigned());
            LockTarget::new(LockKind::Advisory, object, "ExclusiveLock")
        };
        let lock = |target| SessionLock { session: 7, target, granted: true };
        let owner = || info(7, "p@h:1 u1/a1/r1=U");
        let elsewhere = SessionInfo { database: Some("other".to_owned()), ..owner() };
        let (found, unknown) =
            ("bucket 2/1358050 update ", "update key 2856162227 of hier_lock_buckets update ");
        for (infos, locks, expected) in [
            // The label of the holder names the node.
            (vec![owner()], vec![key(16_391)], "bucket 2/1358050 update u1/a1/r1"),
            // The label of another session names the node. So the slot is known, but not the path of the holder.
            (vec![info(7, "psql"), SessionInfo { pid: 8, ..owner() }], vec![key(16_391)], found),
            // The row of the slot is locked too.
            (vec![info(7, "psql")], vec![key(16_391), row("2, 1358050")], found),
            // No label names the node.
            (vec![info(7, "p@h:1 u2=U")], vec![key(16_391)], unknown),
            // Keys of another table and of another database.
            (vec![owner()], vec![key(5)], "no slot"),
            (vec![elsewhere], vec![key(16_391)], "no slot"),
        ] {
            let mut snapshot = LockSnapshot::new("server".to_owned());
            let locks = locks.into_iter().map(lock).collect();
            let locks = LockList { locks, incomplete: Vec::new() };
            snapshot.assemble(infos, Vec::new(), locks, tables.clone());
            let lock = &snapshot.session(7).unwrap().held[0];
            let text = lock.slot.as_ref().map_or("no slot".to_owned(), |slot| {
                let nodes: Vec<String> = lock.nodes.iter().map(Target::to_string).collect();
                format!("{slot} {} {}", lock.slot_mode().unwrap(), nodes.join(" "))
            });
            assert_eq!(text, expected);
        }
    }
}
