//! Which servers of PostgreSQL are fit.

use super::Suitability;

/// The oldest version that is supported.
const OLDEST: i64 = 13;

/// `version` is `server_version_num`.
pub(super) fn of(version: i64, is_standby: bool) -> Suitability {
    if version / 10_000 < OLDEST {
        let version = version / 10_000;
        return Suitability::Unfit(format!(
            "it is PostgreSQL {version}; {OLDEST} or newer is needed"
        ));
    }
    if is_standby {
        return Suitability::Unfit(
            "it is a standby, whose locks the primary does not see; connect to the primary"
                .to_owned(),
        );
    }
    Suitability::Fit
}
