//! What is MySQL's own.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_in_hexadecimal() {
        assert_eq!(slot_name("0x307C31"), "307c31");
        assert_eq!(slot_name("2, 1358050"), "2, 1358050");
    }
}
