//! What is MySQL's own.

use super::session::Judgement;

/// Values that can be joined, as `v(x)`.
pub(super) fn list(values: Vec<String>) -> String {
    let rows: Vec<String> = values.into_iter().map(|value| format!("ROW({value})")).collect();
    format!("(VALUES {}) v(x)", rows.join(", "))
}

/// The row that a session waits for; no row if it does not.
pub(super) fn waits_for(pid: i64) -> String {
    format!(
        "SELECT l.LOCK_DATA FROM performance_schema.data_lock_waits w \
         JOIN performance_schema.threads t ON t.THREAD_ID = w.REQUESTING_THREAD_ID \
         JOIN performance_schema.data_locks l ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID \
         WHERE t.PROCESSLIST_ID = {pid} LIMIT 1"
    )
}

/// From what a server says to the name of a slot.
pub(super) fn slot_name(lock_data: &str) -> String {
    match lock_data.strip_prefix("0x") {
        Some(key) => key.to_ascii_lowercase(),
        None => lock_data.to_owned(),
    }
}

/// How many members of its group accept writes.
pub(super) const WRITERS: &str = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ROLE = 'PRIMARY'";

/// Is it of use? `version` is as the server says it.
pub(super) fn judge(version: &str, is_read_only: bool, writers: i64) -> Judgement {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < 8) {
        return Judgement::unfit(format!("it is MySQL {version}; 8.0 or newer is needed"));
    }
    if version.contains("TiDB") {
        return Judgement::unfit(
            "it is TiDB, which takes no shared row locks unless told to".to_owned(),
        );
    }
    if is_read_only {
        return Judgement::read_only();
    }
    match writers {
        0 | 1 => Judgement::Fit,
        _ => Judgement::several_writers(&format!("a group of {writers} primaries")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_judged_by_name() {
        assert_eq!(judge("9.7.4", false, 0), Judgement::Fit);
        assert_eq!(judge("8.0.36-0ubuntu0", false, 1), Judgement::Fit);
        for (judged, says) in [
            (judge("5.7.44", false, 0), "5.7.44"),
            (judge("8.0.11-TiDB-v8.5.0", false, 0), "TiDB"),
            (judge("8.4.0", true, 0), "read-only"),
        ] {
            assert!(matches!(&judged, Judgement::Unfit(why) if why.contains(says)), "{judged:?}");
        }
        let several = judge("8.4.0", false, 3);
        assert!(matches!(&several, Judgement::Doubtful(why) if why.contains("3 primaries")));
    }

    #[test]
    fn a_key_is_named_in_hexadecimal() {
        assert_eq!(slot_name("0x307C31"), "307c31");
        assert_eq!(slot_name("2, 1358050"), "2, 1358050");
    }
}
