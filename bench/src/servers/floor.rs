//! Nothing can be faster: two round trips that ask for nothing, on a connection kept open.

use super::{Alone, Bench, Nodes};
use hierlock_sandbox::Engine;
use sqlx::{
    ConnectOptions, MySqlConnection, PgConnection, mysql::MySqlConnectOptions,
    postgres::PgConnectOptions,
};
use std::str::FromStr;

/// A connection.
pub enum Floor {
    /// To MySQL or MariaDB.
    Innodb(Box<MySqlConnection>),
    /// To PostgreSQL.
    Postgres(Box<PgConnection>),
}

impl Alone for Floor {
    async fn open(bench: &Bench) -> Result<Self, sqlx::Error> {
        let url = bench.bare_url();
        Ok(match bench.setup.engine {
            Engine::Postgres => {
                let options = PgConnectOptions::from_str(&url)?.disable_statement_logging();
                Self::Postgres(Box::new(options.connect().await?))
            }
            _ => {
                let options = MySqlConnectOptions::from_str(&url)?.disable_statement_logging();
                Self::Innodb(Box::new(options.connect().await?))
            }
        })
    }

    async fn cycle(&mut self, _: &Nodes) -> Result<(), sqlx::Error> {
        for _ in 0..2 {
            match self {
                Self::Innodb(c) => drop(sqlx::query("SELECT 1").fetch_one(&mut **c).await?),
                Self::Postgres(c) => drop(sqlx::query("SELECT 1").fetch_one(&mut **c).await?),
            }
        }
        Ok(())
    }
}
