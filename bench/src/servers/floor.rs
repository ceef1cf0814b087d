//! The lower bound: two round trips with `SELECT 1` on an open connection.

use super::{BenchServer, DedicatedConnection, Nodes};
use hierlock_sandbox::Engine;
use sqlx::{
    ConnectOptions, MySqlConnection, PgConnection, mysql::MySqlConnectOptions,
    postgres::PgConnectOptions,
};
use std::str::FromStr;

/// A connection that makes two round trips per cycle.
pub enum RoundTripFloor {
    /// To MySQL or MariaDB.
    Innodb(Box<MySqlConnection>),
    /// To PostgreSQL.
    Postgres(Box<PgConnection>),
}

impl DedicatedConnection for RoundTripFloor {
    async fn open(server: &BenchServer) -> Result<Self, sqlx::Error> {
        let url = server.bare_url();
        Ok(match server.setup.engine {
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
