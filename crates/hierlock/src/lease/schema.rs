//! The tables of leases. Pure text.

use super::slots;
use crate::database::{Driver, Schema};

pub(crate) const SCHEMA: Schema = Schema {
    part: "lease",
    command: "hierlock lease provision",
    steps: &[statements],
    tables,
    functions: &[],
    rows: slots::fill,
};

fn tables(driver: Driver) -> &'static [&'static str] {
    match driver {
        Driver::Mysql => &["hier_leases", "hier_lease_audit", slots::TABLE],
        Driver::Postgres | Driver::Sqlite => &["hier_leases", "hier_lease_audit"],
    }
}

/// The columns that leases and the audit table have in common, behind the token.
fn columns(driver: Driver) -> String {
    let (word, path) = (driver.text(255), driver.text(6200));
    format!(
        "path {path} NOT NULL, owner {word} NOT NULL, session {word}, reason {word}, \
         acquired_ms BIGINT NOT NULL, expires_ms BIGINT NOT NULL"
    )
}

fn statements(driver: Driver) -> Vec<String> {
    let (counted, columns, node) = (driver.counted(), columns(driver), driver.bytes(2100));
    let word = driver.text(255);
    let leases =
        format!("token {counted}, node {node} NOT NULL, {columns}, ttl_ms BIGINT NOT NULL");
    let audit = format!(
        "id {counted}, token BIGINT NOT NULL, {columns}, actor {word} NOT NULL, \
         why {word} NOT NULL, released_ms BIGINT NOT NULL"
    );
    let mut statements =
        table(driver, "hier_leases", &leases, &["node", "owner", "session", "expires_ms"]);
    statements.extend(table(driver, "hier_lease_audit", &audit, &["token"]));
    statements.extend(slots::statements(driver));
    statements
}

/// A table with an index on each of these columns.
fn table(driver: Driver, name: &str, columns: &str, indexed: &[&str]) -> Vec<String> {
    let options = driver.table_options();
    let create = |columns: &str| format!("CREATE TABLE IF NOT EXISTS {name} ({columns}){options}");
    if driver == Driver::Mysql {
        // It has no CREATE INDEX that may be run again.
        let indexes: String = indexed.iter().map(|column| format!(", INDEX ({column})")).collect();
        return vec![create(&format!("{columns}{indexes}"))];
    }
    let index =
        |column: &&str| format!("CREATE INDEX IF NOT EXISTS {name}_{column} ON {name} ({column})");
    std::iter::once(create(columns)).chain(indexed.iter().map(index)).collect()
}
