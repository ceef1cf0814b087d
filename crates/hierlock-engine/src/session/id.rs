//! Who a session is to the server.

use crate::UnreadableAnswer;
use crate::row::TextRow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Who a session is to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionId {
    /// The server's number for it, by which it can be cancelled.
    pub pid: i64,
    /// What tells it from another that has the same number later, because the server was started again. None if
    /// nothing does: over a socket.
    pub identity: Option<u64>,
}

impl SessionId {
    /// Reads the columns that a session has asked for of itself.
    pub(crate) fn read(pid: &str, identity: &str) -> Result<Self, UnreadableAnswer> {
        let pid = pid.parse().map_err(|_| UnreadableAnswer("the number of the session"))?;
        Ok(Self { pid, identity: hashed(identity) })
    }

    /// Returns whether that is what the server says of the session that has the number now.
    pub(crate) fn is(self, rows: &[TextRow]) -> bool {
        let now = rows.first().and_then(|row| hashed(&row[0]));
        !rows.is_empty() && (self.identity.is_none() || now == self.identity)
    }
}

/// A client's port on MySQL and MariaDB, and a time on PostgreSQL. Sockets of one host are all alike.
fn hashed(identity: &str) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    identity.contains([':', '.']).then(|| hasher.finish())
}
