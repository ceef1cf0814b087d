//! What is known of a lease, and how it is read from its row.

use crate::database::{Driver, Row, time_from_ms};
use crate::error::Result;
use crate::target::Target;
use jiff::Timestamp;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Who holds a lease, on what, since when, until when, and why. All times are the database's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// Its number: greater than that of every lease that it could have been in conflict with before.
    pub token: i64,
    /// The node, and with it all nodes below.
    pub target: Target,
    /// Who holds it.
    pub owner: String,
    /// The login, browser tab or process that it belongs to.
    pub session: Option<String>,
    /// What for.
    pub reason: Option<String>,
    /// Since when it is held.
    pub acquired: SystemTime,
    /// Until when, unless it is renewed.
    pub expires: SystemTime,
    /// Whether it was over when it was read, by the database's clock.
    pub is_expired: bool,
}

/// A lease that somebody has ended for its owner, as the audit table keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForcedRelease {
    /// The lease, as it was.
    pub lease: LeaseInfo,
    /// Who ended it.
    pub actor: String,
    /// What for.
    pub why: String,
    /// When, by the database's clock.
    pub released: SystemTime,
}

/// Columns of both tables, in the order in which they are read.
pub(super) const COLUMNS: &str = "token, path, owner, session, reason, acquired_ms, expires_ms";
/// Where the columns behind those of [`columns`] begin.
pub(super) const NEXT_COLUMN: usize = 8;

/// The same, and whether it was over at a moment.
pub(super) fn columns(driver: Driver, moment: &str) -> String {
    let is_expired = driver.as_int(&format!("CASE WHEN expires_ms <= {moment} THEN 1 ELSE 0 END"));
    format!("{COLUMNS}, {is_expired}")
}

impl LeaseInfo {
    pub(super) fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            token: row.int(0)?,
            target: row.text(1)?.parse()?,
            owner: row.text(2)?,
            session: row.text_or_null(3)?,
            reason: row.text_or_null(4)?,
            acquired: time_from_ms(row.int(5)?),
            expires: time_from_ms(row.int(6)?),
            is_expired: row.int(7)? != 0,
        })
    }
}

/// `` `u1/a1` is leased by ada (session tab-7) since … until …: edits the address ``
impl fmt::Display for LeaseInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, owner, acquired, expires, .. } = self;
        write!(f, "`{target}` is leased by {owner}")?;
        if let Some(session) = &self.session {
            write!(f, " (session {session})")?;
        }
        write!(f, " since {} until {}", utc(*acquired), utc(*expires))?;
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// Returns a time as people and programs read it: `2026-11-16T08:30:00Z`.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// let time = UNIX_EPOCH + Duration::from_secs(951_827_696);
/// assert_eq!(hierlock::lease::utc(time), "2000-02-29T12:34:56Z");
/// ```
pub fn utc(time: SystemTime) -> String {
    // Times of the database are from 1970 on; one beyond the year 9999 is shown as the last of that year.
    let time = Timestamp::try_from(time.max(UNIX_EPOCH)).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn days_are_counted_as_the_calendar_does() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (68_169_599, "1972-02-28T23:59:59Z"),
            (68_169_600, "1972-02-29T00:00:00Z"),
            (946_684_799, "1999-12-31T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_735_603_200, "2024-12-31T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_millis(seconds * 1000 + 999);
            assert_eq!(utc(time), text);
        }
    }
}
