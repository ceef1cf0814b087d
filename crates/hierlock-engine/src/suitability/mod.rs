//! Whether a server is fit to be locked on.

mod mariadb;
mod mysql;
mod postgres;

use crate::{Dialect, ErrorClass, Session};

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

impl Suitability {
    fn read_only() -> Self {
        let why = "it is read-only, so it follows another whose locks it does not share; connect to \
                   the primary";
        Suitability::Unfit(why.to_owned())
    }

    fn several_writers(group: &str) -> Self {
        Suitability::Doubtful(format!(
            "it is one of {group}, which do not share row locks: all clients must lock on the same \
             one, or they do not exclude each other"
        ))
    }
}

impl Session {
    /// Returns why the server must not be locked on, if it follows another: after a failover the address may be that of
    /// one.
    pub fn why_read_only(&self) -> Option<String> {
        let suitability = match self.dialect {
            Dialect::Postgres => postgres::of(self.postgres_version(), self.is_read_only),
            Dialect::Mysql | Dialect::Mariadb => Suitability::read_only(),
        };
        match suitability {
            Suitability::Unfit(why) if self.is_read_only => Some(why),
            _ => None,
        }
    }

    /// Returns whether the server is fit to be locked on. Asks what it must.
    ///
    /// # Errors
    /// What the server says, if it is no answer.
    pub async fn suitability(&mut self) -> Result<Suitability, sqlx::Error> {
        let writers = match self.dialect {
            Dialect::Postgres => {
                return Ok(postgres::of(self.postgres_version(), self.is_read_only));
            }
            Dialect::Mysql => mysql::WRITERS,
            Dialect::Mariadb => mariadb::WRITERS,
        };
        // Not everyone may ask; then it is not known.
        let writers = match self.rows(writers).await {
            Ok(rows) => rows.first().and_then(|row| row[0].parse().ok()).unwrap_or(0),
            Err(error) if ErrorClass::of(&error).is_connection_lost() => return Err(error),
            Err(_) => 0,
        };
        let rolls_back = match self.dialect {
            Dialect::Mariadb => self.rows(mariadb::ROLLS_BACK).await?,
            Dialect::Mysql | Dialect::Postgres => Vec::new(),
        };
        self.run("ROLLBACK").await?;
        if rolls_back.first().is_some_and(|row| row[0] == "1") {
            return Ok(mariadb::rolls_back_on_refusal());
        }
        Ok(match self.dialect {
            Dialect::Mariadb => mariadb::of(&self.version, self.is_read_only, writers),
            Dialect::Mysql | Dialect::Postgres => {
                mysql::of(&self.version, self.is_read_only, writers)
            }
        })
    }

    fn postgres_version(&self) -> i64 {
        self.version.parse().unwrap_or(0)
    }
}
