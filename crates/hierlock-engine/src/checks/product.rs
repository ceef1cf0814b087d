//! The product of a server, by its description of itself. Some products only implement the protocol, and accept locks
//! without taking them.

use super::{Area, Check, Finding, ServerCheck, ServerFacts};
use crate::{Dialect, printable};

/// A server that implements the protocol of another.
struct Product {
    name: &'static str,
    /// A part of its version or description.
    mark: &'static str,
    /// A relative clause about its locks.
    note: &'static str,
    /// The condition under which hierlock can lock on it; None if it cannot.
    condition: Option<&'static str>,
}

const WRITER: &str = "connect to the endpoint of the writer";
const TRY_EXCLUSION: &str =
    "make sure by `hierlock doctor`, or with check_exclusion=true in the URL";

const fn refused(name: &'static str, mark: &'static str, note: &'static str) -> Product {
    Product { name, mark, note, condition: None }
}

const POSTGRES_PRODUCTS: &[Product] = &[
    refused("CockroachDB", "CockroachDB", "whose advisory locks do nothing"),
    Product {
        name: "YugabyteDB",
        mark: "-YB-",
        note: "which has advisory locks only since 2025.1, and has a setting that accepts them and does nothing",
        condition: Some(TRY_EXCLUSION),
    },
    refused("Amazon Redshift", "Redshift", "which has neither row locks nor advisory locks"),
    Product {
        name: "Greenplum",
        mark: "Greenplum",
        note: "which may lock a whole table where a row is asked for",
        condition: Some("use strategy=advisory, and only on the coordinator"),
    },
    refused("openGauss", "openGauss", "which is PostgreSQL 9.2 to its clients"),
    refused("GaussDB", "GaussDB", "which is PostgreSQL 9.2 to its clients"),
    refused("CrateDB", "CrateDB", "which has no transactions"),
    refused("Materialize", "Materialize", "which has no row locks"),
    refused("RisingWave", "RisingWave", "which has no row locks"),
    refused("QuestDB", "QuestDB", "which has no row locks"),
];

const INNODB_PRODUCTS: &[Product] = &[
    refused("TiDB", "TiDB", "which takes no shared row locks by default"),
    refused(
        "Vitess",
        "Vitess",
        "whose gateway gives a transaction another connection and ends long ones (PlanetScale too)",
    ),
    refused("PlanetScale", "PlanetScale", "whose gateway ends long transactions"),
    refused("SingleStore", "SingleStore", "which has no shared row locks"),
    refused("SingleStore", "MemSQL", "which has no shared row locks"),
    refused("OceanBase", "OceanBase", "whose shared row locks are not those of InnoDB"),
    refused("StarRocks", "StarRocks", "which has no row locks"),
    refused("Doris", "Doris", "which has no row locks"),
    refused("ClickHouse", "ClickHouse", "which has no row locks"),
    refused("Dolt", "Dolt", "which has no row locks"),
    refused("MatrixOne", "MatrixOne", "which has no shared row locks"),
    refused("Databend", "Databend", "which has no row locks"),
    refused("Manticore Search", "Manticore", "which has no transactions"),
];

/// The server is a product that hierlock supports.
pub const PRODUCT: ServerCheck = ServerCheck::new(
    Area::Server,
    "product",
    "a server that only speaks the protocol may accept FOR SHARE or advisory locks and do nothing",
    product,
);

fn product(check: &Check, facts: &ServerFacts) -> Option<Finding> {
    let (text, products, others) = match facts.dialect {
        Dialect::Postgres => (facts.product.clone(), POSTGRES_PRODUCTS, "PostgreSQL"),
        _ => (format!("{} {}", facts.version, facts.product), INNODB_PRODUCTS, "MySQL or MariaDB"),
    };
    let lower = text.to_lowercase();
    if let Some(product) =
        products.iter().find(|product| lower.contains(&product.mark.to_lowercase()))
    {
        let message = format!("it is {}, {}", product.name, product.note);
        return Some(match product.condition {
            Some(condition) => check.warning(message, condition),
            None => check.problem(message, format!("lock on a {others} server")),
        });
    }
    let is_unknown = facts.dialect == Dialect::Postgres && !text.starts_with("PostgreSQL ");
    if is_unknown && !text.is_empty() {
        let begin: String = text.chars().take(60).collect();
        let message = format!(
            "it calls itself `{}`, which hierlock has not been tried on",
            printable(&begin)
        );
        return Some(check.warning(message, TRY_EXCLUSION));
    }
    let name = facts.dialect.product_name();
    let version = version_text(facts);
    let is_aurora = facts.state.number("aurora") == Some(1)
        || facts.settings.get("aurora_version").is_some_and(|version| !version.is_empty());
    let is_neon = facts.settings.get("neon.timeline_id").is_some();
    Some(check.ok(if is_aurora {
        format!("it is {name} {version} (Amazon Aurora); {WRITER}, locks end with a failover")
    } else if is_neon {
        format!("it is {name} {version} (Neon); use the endpoint without `-pooler`")
    } else if lower.contains("percona") {
        format!("it is {name} {version} (Percona Server)")
    } else {
        format!("it is {name} {version}")
    }))
}

/// The version is new enough.
pub(super) const VERSION: ServerCheck = ServerCheck::new(
    Area::Server,
    "version",
    "older servers lack NOWAIT, or lock other rows than those that were named",
    |check, facts| {
        let (name, version) = (facts.dialect.product_name(), version_text(facts));
        let (oldest, needed) = match facts.dialect {
            Dialect::Postgres => ((13, 0), "13"),
            Dialect::Mysql => ((8, 0), "8.0"),
            Dialect::Mariadb => ((10, 6), "10.6"),
        };
        Some(if version_number(&version) < oldest {
            check.problem(format!("it is {name} {version}"), format!("{needed} or newer is needed"))
        } else {
            check.ok(format!("{version} is {needed} or newer"))
        })
    },
);

/// Returns the version in the usual form.
fn version_text(facts: &ServerFacts) -> String {
    if facts.dialect == Dialect::Postgres {
        let number = facts.version.parse::<i64>().unwrap_or(0);
        return format!("{}.{}", number / 10_000, number % 10_000);
    }
    let version = &*facts.version;
    // MariaDB sends `5.5.5-` before its version, for old clients.
    let is_mariadb = facts.dialect == Dialect::Mariadb;
    version.strip_prefix("5.5.5-").filter(|_| is_mariadb).unwrap_or(version).to_owned()
}

/// Returns major and minor version. An unreadable version counts as new.
fn version_number(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Severity::{Ok, Problem, Warning};

    fn facts(dialect: Dialect, version: &str, product: &str) -> ServerFacts {
        let (version, product) = (version.to_owned(), product.to_owned());
        ServerFacts { version, product, ..ServerFacts::new(dialect) }
    }

    /// The texts are those of the servers, or from their documentation.
    #[test]
    fn products_are_recognized() {
        use Dialect::{Mariadb, Mysql, Postgres};
        let debian =
            "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc";
        for (dialect, version, product, severity, part) in [
            (Mysql, "9.7.4", "(Debian)", Ok, "MySQL 9.7.4"),
            (Mysql, "8.0.36-28", "Percona Server (GPL), Release 28", Ok, "Percona"),
            (Mysql, "8.0.11-TiDB-v8.5.0", "TiDB Server (Apache License 2.0)", Problem, "TiDB"),
            (Mysql, "8.0.30-Vitess", "Version: 20.0.0", Problem, "Vitess"),
            (Mysql, "8.0.36", "PlanetScale", Problem, "PlanetScale"),
            (Mysql, "5.7.32", "SingleStoreDB source distribution", Problem, "SingleStore"),
            (Mysql, "5.5.58", "MemSQL source distribution", Problem, "SingleStore"),
            (Mysql, "5.7.25-OceanBase-v4.2.1.0", "OceanBase 4.2.1.0", Problem, "OceanBase"),
            (Mysql, "8.0.33", "StarRocks version 3.3.2", Problem, "StarRocks"),
            (Mysql, "8.0.33", "Dolt", Problem, "Dolt"),
            (Mariadb, "10.11.19-MariaDB-0+deb12u1", "Debian 12", Ok, "MariaDB 10.11.19"),
            (Mariadb, "5.5.5-10.6.1-MariaDB", "", Ok, "MariaDB 10.6.1"),
            (Postgres, "150018", debian, Ok, "PostgreSQL 15.18"),
            (
                Postgres,
                "130000",
                "CockroachDB CCL v23.2.1 (x86_64-pc-linux-gnu, built 2024/01/18)",
                Problem,
                "CockroachDB",
            ),
            (
                Postgres,
                "110002",
                "PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu",
                Warning,
                "YugabyteDB",
            ),
            (
                Postgres,
                "80002",
                "PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.12103",
                Problem,
                "Redshift",
            ),
            (
                Postgres,
                "120012",
                "PostgreSQL 12.12 (Greenplum Database 7.0.0 build commit:0a1b) on x86_64",
                Warning,
                "Greenplum",
            ),
            (
                Postgres,
                "90204",
                "(openGauss 5.0.0 build a07d57c3) compiled at 2023-03-29 03:37:13",
                Problem,
                "openGauss",
            ),
            (Postgres, "140000", "CrateDB 5.6.2 (built 3b3b3b3, Linux)", Problem, "CrateDB"),
            (
                Postgres,
                "90500",
                "PostgreSQL 9.5.0 on x86_64-unknown-linux-gnu (Materialize v0.100.0)",
                Problem,
                "Materialize",
            ),
            (Postgres, "130014", "PostgreSQL 13.14.0-RisingWave-1.9.0", Problem, "RisingWave"),
            (Postgres, "120003", "PostgreSQL 12.3, 64-bit, QuestDB", Problem, "QuestDB"),
            (
                Postgres,
                "140000",
                "Something \u{1b}[2J else",
                Warning,
                "`Something \\u{1b}[2J else`",
            ),
        ] {
            PRODUCT.judge(&facts(dialect, version, product)).unwrap().assert(severity, part);
        }
    }

    #[test]
    fn hosted_servers_have_a_note() {
        let mut aurora = facts(Dialect::Mysql, "8.0.32", "MySQL Community Server (GPL)");
        aurora.settings.set("aurora_version", "3.05.2");
        let mut neon = facts(Dialect::Postgres, "160004", "PostgreSQL 16.4 on x86_64-pc-linux-gnu");
        neon.settings.set("neon.timeline_id", "0a1b");
        for (facts, part) in [(aurora, "writer"), (neon, "-pooler")] {
            PRODUCT.judge(&facts).unwrap().assert(Ok, part);
        }
    }

    #[test]
    fn old_versions_are_a_problem() {
        use Dialect::{Mariadb, Mysql, Postgres};
        for (dialect, version, severity) in [
            (Mysql, "9.7.4", Ok),
            (Mysql, "8.0.36-0ubuntu0", Ok),
            (Mysql, "5.7.44", Problem),
            (Mariadb, "10.11.19-MariaDB-0+deb12u1", Ok),
            (Mariadb, "5.5.5-10.6.1-MariaDB", Ok),
            (Mariadb, "11.8.2-MariaDB", Ok),
            (Mariadb, "10.5.29-MariaDB", Problem),
            (Postgres, "130000", Ok),
            (Postgres, "120019", Problem),
        ] {
            let finding = VERSION.judge(&facts(dialect, version, "")).unwrap();
            assert_eq!(finding.severity, severity, "{finding:?}");
        }
    }
}
