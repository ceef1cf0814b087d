//! Whether a server is fit to be locked on.

use crate::introspection::if_allowed;
use crate::{Dialect, Session};

/// Whether a server is fit to be locked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// It is.
    Fit,
    /// It may be, if whoever reads the reason knows what it means.
    Doubtful(String),
    /// It is not, for this reason.
    Unfit(String),
}

const OLDEST_POSTGRES: i64 = 13;

/// How many members of a group of MySQL accept writes.
const MYSQL_WRITERS: &str = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ROLE = 'PRIMARY'";

/// How many nodes a cluster of MariaDB has; no row without one.
const MARIADB_WRITERS: &str = "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM \
     information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_cluster_size'";

/// Does MariaDB roll back a whole transaction in which a lock was refused? NOWAIT is a timeout to it.
const MARIADB_ROLLS_BACK: &str = "SELECT @@innodb_rollback_on_timeout";

/// Why a server that follows another is unfit.
const READ_ONLY: &str = "it is read-only, so it follows another whose locks it does not share; \
     connect to the primary";
const STANDBY: &str =
    "it is a standby, whose locks the primary does not see; connect to the primary";

impl Session {
    /// Returns why the server must not be locked on, if it follows another, as it may after a failover.
    pub fn why_read_only(&self) -> Option<String> {
        let suitability = match self.dialect {
            Dialect::Postgres => self.postgres_suitability(),
            Dialect::Mysql | Dialect::Mariadb => Suitability::Unfit(READ_ONLY.to_owned()),
        };
        match suitability {
            Suitability::Unfit(why) if self.is_read_only => Some(why),
            _ => None,
        }
    }

    /// Asks whether the server is fit to be locked on. Fails with what the server says if that is no answer.
    pub async fn suitability(&mut self) -> Result<Suitability, sqlx::Error> {
        let (is_mariadb, writers) = match self.dialect {
            Dialect::Postgres => return Ok(self.postgres_suitability()),
            Dialect::Mysql => (false, MYSQL_WRITERS),
            Dialect::Mariadb => (true, MARIADB_WRITERS),
        };
        let writers = if_allowed(self.rows(writers).await)?.unwrap_or_default();
        let writers = writers.first().and_then(|row| row[0].parse().ok()).unwrap_or(0);
        let rolls_back = if is_mariadb { self.rows(MARIADB_ROLLS_BACK).await? } else { Vec::new() };
        self.run("ROLLBACK").await?;
        if rolls_back.first().is_some_and(|row| row[0] == "1") {
            return Ok(Suitability::Unfit(
                "its innodb_rollback_on_timeout is on, so one lock that is refused would cost a transaction all \
                 others; start it with that off, which is the default"
                    .to_owned(),
            ));
        }
        Ok(Suitability::of_innodb(is_mariadb, &self.version, self.is_read_only, writers))
    }

    /// The version is `server_version_num`.
    fn postgres_suitability(&self) -> Suitability {
        let version = self.version.parse::<i64>().unwrap_or(0) / 10_000;
        if version < OLDEST_POSTGRES {
            Suitability::Unfit(format!(
                "it is PostgreSQL {version}; {OLDEST_POSTGRES} or newer is needed"
            ))
        } else if self.is_read_only {
            Suitability::Unfit(STANDBY.to_owned())
        } else {
            Suitability::Fit
        }
    }
}

impl Suitability {
    /// `version` is as the server says it, such as `10.11.19-MariaDB-0+deb12u1`.
    fn of_innodb(is_mariadb: bool, version: &str, is_read_only: bool, writers: i64) -> Self {
        let (name, oldest, group) = if is_mariadb {
            ("MariaDB", (10, 6), format!("a Galera cluster of {writers} nodes"))
        } else {
            ("MySQL", (8, 0), format!("a group of {writers} primaries"))
        };
        // Old clients see `5.5.5-` before the true version of MariaDB.
        let version = version.strip_prefix("5.5.5-").filter(|_| is_mariadb).unwrap_or(version);
        let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        if (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0)) < oldest {
            let (major, minor) = oldest;
            return Suitability::Unfit(format!(
                "it is {name} {version}; {major}.{minor} or newer is needed"
            ));
        }
        if !is_mariadb && version.contains("TiDB") {
            let why = "it is TiDB, which takes no shared row locks unless told to";
            return Suitability::Unfit(why.to_owned());
        }
        if is_read_only {
            return Suitability::Unfit(READ_ONLY.to_owned());
        }
        if writers <= 1 {
            return Suitability::Fit;
        }
        Suitability::Doubtful(format!(
            "it is one of {group}, which do not share row locks: all clients must lock on the same \
             one, or they do not exclude each other"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_version() {
        let mysql = |version, read_only, writers| {
            Suitability::of_innodb(false, version, read_only, writers)
        };
        let mariadb =
            |version, read_only, writers| Suitability::of_innodb(true, version, read_only, writers);
        for fit in [
            mysql("9.7.4", false, 0),
            mysql("8.0.36-0ubuntu0", false, 1),
            mariadb("10.11.19-MariaDB-0+deb12u1", false, 0),
            mariadb("5.5.5-10.6.1-MariaDB", false, 1),
            mariadb("11.8.2-MariaDB", false, 0),
        ] {
            assert_eq!(fit, Suitability::Fit);
        }
        for (unfit, says) in [
            (mysql("5.7.44", false, 0), "5.7.44"),
            (mysql("8.0.11-TiDB-v8.5.0", false, 0), "TiDB"),
            (mysql("8.4.0", true, 0), "read-only"),
            (mariadb("10.5.29-MariaDB", false, 0), "10.5.29"),
            (mariadb("11.4.2-MariaDB", true, 0), "read-only"),
        ] {
            assert!(matches!(&unfit, Suitability::Unfit(why) if why.contains(says)), "{unfit:?}");
        }
        for (doubtful, says) in [
            (mysql("8.4.0", false, 3), "3 primaries"),
            (mariadb("11.4.2-MariaDB", false, 3), "Galera"),
        ] {
            assert!(matches!(&doubtful, Suitability::Doubtful(why) if why.contains(says)));
        }
    }
}
