//! The tables of leases. Pure text.

use crate::Hierarchy;
use crate::database::{Driver, Schema};

/// The rows that an acquire locks on MySQL and MariaDB.
pub(super) const SLOT_TABLE: &str = "hier_lease_slots";
/// The number of slots per level: few are enough, since an acquire is short.
pub(super) const SLOT_ROWS_PER_LEVEL: u32 = 256;

pub(crate) const SCHEMA: Schema = Schema {
    part: "lease",
    command: "hierlock lease provision",
    steps: &[statements],
    tables: |driver| match driver {
        Driver::Mysql => &["hier_leases", "hier_lease_audit", SLOT_TABLE],
        Driver::Postgres | Driver::Sqlite => &["hier_leases", "hier_lease_audit"],
    },
    functions: &[],
    rows: fill_slots,
};

fn statements(driver: Driver) -> Vec<String> {
    let (generated_key, node) = (driver.generated_key(), driver.bytes(2100));
    let (word, path) = (driver.text(255), driver.text(6200));
    // The columns that both tables have.
    let columns = format!(
        "path {path} NOT NULL, owner {word} NOT NULL, session {word}, reason {word}, \
         acquired_ms BIGINT NOT NULL, expires_ms BIGINT NOT NULL"
    );
    let leases =
        format!("token {generated_key}, node {node} NOT NULL, {columns}, ttl_ms BIGINT NOT NULL");
    let audit = format!(
        "id {generated_key}, token BIGINT NOT NULL, {columns}, actor {word} NOT NULL, \
         why {word} NOT NULL, released_ms BIGINT NOT NULL"
    );
    let mut statements =
        table(driver, "hier_leases", &leases, &["node", "owner", "session", "expires_ms"]);
    statements.extend(table(driver, "hier_lease_audit", &audit, &["token"]));
    #[cfg(feature = "_server")]
    if driver == Driver::Mysql {
        let scheme = super::slots::scheme(driver, &Hierarchy::default());
        statements.extend(scheme.and_then(|scheme| scheme.create_rows()));
    }
    statements.extend(fill_slots(driver));
    statements
}

/// Returns the statement that inserts missing slots.
fn fill_slots(driver: Driver) -> Option<String> {
    let (last, levels) = (SLOT_ROWS_PER_LEVEL - 1, Hierarchy::MAX_LEVELS);
    let fill = format!(
        "INSERT IGNORE INTO {SLOT_TABLE} (level, bucket) \
         WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}) \
         SELECT levels.n, buckets.n FROM numbers levels, numbers buckets \
         WHERE levels.n < {levels} ORDER BY levels.n, buckets.n"
    );
    (driver == Driver::Mysql).then_some(fill)
}

/// Returns the statements that create a table with an index on each of these columns.
fn table(driver: Driver, name: &str, columns: &str, indexed: &[&str]) -> Vec<String> {
    let options = driver.table_options();
    let create = |columns: &str| format!("CREATE TABLE IF NOT EXISTS {name} ({columns}){options}");
    if driver == Driver::Mysql {
        // MySQL has no CREATE INDEX that can be repeated.
        let indexes: String = indexed.iter().map(|column| format!(", INDEX ({column})")).collect();
        return vec![create(&format!("{columns}{indexes}"))];
    }
    let index =
        |column: &&str| format!("CREATE INDEX IF NOT EXISTS {name}_{column} ON {name} ({column})");
    std::iter::once(create(columns)).chain(indexed.iter().map(index)).collect()
}
