//! Sessions of MySQL and MariaDB.

/// Its number, and the host and port from which it has come.
pub(super) const OWN_IDENTITY: &str = "CONNECTION_ID(), \
     (SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID())";

pub(super) const VERSION: &str = "VERSION(), @@read_only";

pub(super) fn cancel(pid: i64) -> String {
    format!("KILL QUERY {pid}")
}

pub(super) fn terminate(pid: i64) -> String {
    format!("KILL {pid}")
}

pub(super) fn identity_of(pid: i64) -> String {
    format!("SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = {pid}")
}

pub(super) fn is_idle(pid: i64) -> String {
    format!("SELECT COMMAND = 'Sleep' FROM information_schema.PROCESSLIST WHERE ID = {pid}")
}
