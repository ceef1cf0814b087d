//! Provisioning, on real servers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fill;
#[cfg(target_os = "linux")]
mod killed_provisioner;
mod rebucket;
mod rows_by_id;
#[path = "../servers/support.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "shared with the tests of locking")]
mod support;
mod table_names;
mod versions;

use hierlock::sql::{Provision, Strategy, TableCheck};
use hierlock::{Hierarchy, Hierlock};
use hierlock_sandbox::Engine;
use support::{Database, Setup};

/// Creates an empty database for striped rows.
async fn striped(engine: Engine) -> Option<Database> {
    Database::empty(Setup { engine, strategy: Strategy::Striped }).await
}

impl Database {
    /// Connects a provisioner with more parameters in the URL.
    async fn provisioner(&self, more: &str) -> Provision {
        let url = format!("{}{more}", self.url);
        Provision::connect(&url, Hierarchy::default()).await.unwrap()
    }

    /// Checks with plain SQL that each level has exactly the rows of `buckets` buckets.
    async fn assert_rows(&self, buckets: u32) {
        let sql = "SELECT level, COUNT(*), COUNT(DISTINCT bucket), MIN(bucket), MAX(bucket) \
                   FROM hier_lock_buckets GROUP BY level ORDER BY level";
        let rows = self.outside().await.rows(sql).await;
        let (count, last) = (buckets.to_string(), (buckets - 1).to_string());
        let expected: Vec<Vec<String>> = (0..3)
            .map(|level| {
                vec![level.to_string(), count.clone(), count.clone(), "0".into(), last.clone()]
            })
            .collect();
        assert_eq!(rows, expected);
    }

    async fn try_connect(&self, more: &str) -> hierlock::Result<Hierlock> {
        Hierlock::connect(&format!("{}{more}", self.url)).await
    }

    async fn check(&self) -> TableCheck {
        self.provisioner("").await.check(|_| ()).await.unwrap()
    }
}
