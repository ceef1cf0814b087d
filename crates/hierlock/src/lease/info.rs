//! The data of a lease, and how it is read from its row.

use crate::database::{Driver, Row, time_from_ms};
use crate::{Result, Target};
use jiff::Timestamp;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The data of a lease: node, owner, times, and reason. All times are by the database's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// The token, which is greater than the tokens of all earlier conflicting leases.
    pub token: i64,
    /// The node, which is leased with all nodes below it.
    pub target: Target,
    /// The owner.
    pub owner: String,
    /// The login, browser tab or process that the lease belongs to.
    pub session: Option<String>,
    /// The reason, as text for other people.
    pub reason: Option<String>,
    /// The time of the acquire.
    pub acquired: SystemTime,
    /// The end of the lease, unless it is renewed.
    pub expires: SystemTime,
    /// Whether the lease had expired when it was read.
    pub is_expired: bool,
}

/// A forced release of a lease, as stored in the audit table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForcedRelease {
    /// The lease before its release.
    pub lease: LeaseInfo,
    /// The person or program that ended the lease.
    pub actor: String,
    /// The reason.
    pub why: String,
    /// The time of the release, by the database's clock.
    pub released: SystemTime,
}

/// Columns of both tables, in the order in which they are read.
pub(super) const COLUMNS: &str = "token, path, owner, session, reason, acquired_ms, expires_ms";
/// The index of the first column after those of [`columns`].
pub(super) const NEXT_COLUMN: usize = 8;

/// Returns [`COLUMNS`], and whether the lease had expired at `time`, which is an SQL expression.
pub(super) fn columns(driver: Driver, time: &str) -> String {
    let is_expired = driver.as_int(&format!("CASE WHEN expires_ms <= {time} THEN 1 ELSE 0 END"));
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

/// Formats a time in RFC 3339: `2026-11-16T08:30:00Z`.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
///
/// let time = UNIX_EPOCH + Duration::from_secs(951_827_696);
/// assert_eq!(hierlock::lease::utc(time), "2000-02-29T12:34:56Z");
/// ```
pub fn utc(time: SystemTime) -> String {
    // Times of the database start in 1970. A time after the year 9999 is shown as the end of that year.
    let time = Timestamp::try_from(time.max(UNIX_EPOCH)).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_formatted_in_utc_with_leap_days() {
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
