//! The steps as files, for `sqlx migrate` and for people. The files in `migrations/` are written by this test, from the
//! same statements that provisioning runs, when `HIERLOCK_WRITE_MIGRATIONS` is set; else it fails where they differ.

use super::{Driver, Schema, upgrade};
use crate::sql::{Dialect, LOCK_SCHEMA, Scheme, Strategy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The numbers of the files, by part and version. A new step gets the day of its making, to come after the others.
const NUMBERS: [(Schema, &[u64]); 3] = [
    (crate::lease::SCHEMA, &[20_260_101_000_001]),
    (crate::queue::SCHEMA, &[20_260_101_000_002]),
    (LOCK_SCHEMA, &[20_260_101_000_003]),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations")
}

/// The folder of a driver, and whom it is for.
fn folder(driver: Driver) -> (&'static str, &'static str) {
    match driver {
        Driver::Mysql => ("mysql", "MySQL and MariaDB"),
        Driver::Postgres => ("postgres", "PostgreSQL"),
        Driver::Sqlite => ("sqlite", "SQLite"),
    }
}

fn files() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for driver in Driver::ALL {
        let (folder, engine) = folder(driver);
        for (schema, numbers) in NUMBERS {
            assert_eq!(numbers.len(), schema.steps.len(), "each step of `{}` has one", schema.part);
            for (number, version) in numbers.iter().zip(1..) {
                let part = schema.part;
                let mut statements = schema.step(version, driver);
                // Only the version would be written down.
                if statements.len() == 1 {
                    continue;
                }
                statements.insert(0, upgrade::create_versions(driver));
                let mut comment = format!(
                    "-- hierlock on {engine}: version {version} of the tables of part `{part}`.\n\
                     -- Written from the library's own statements; `{}` makes the same.\n",
                    schema.command
                );
                if part == LOCK_SCHEMA.part && version == 1 {
                    comment += lock_comment(driver);
                    statements
                        .splice(statements.len() - 1..statements.len() - 1, lock_rows(driver));
                }
                let statements: String =
                    statements.iter().map(|sql| format!("\n{};\n", broken(sql))).collect();
                let name = format!("{number}_hierlock_{part}_{version}.sql");
                files.insert(directory().join(folder).join(name), comment + &statements);
            }
        }
    }
    files
}

/// The table of rows for the default number of buckets.
fn lock_rows(driver: Driver) -> Option<String> {
    let dialect = match driver {
        Driver::Mysql => Dialect::Mysql,
        Driver::Postgres => Dialect::Postgres,
        Driver::Sqlite => return None,
    };
    Scheme::new(dialect).strategy(Strategy::Striped).ok()?.create_rows()
}

fn lock_comment(driver: Driver) -> &'static str {
    match driver {
        Driver::Mysql => {
            "-- The rows themselves are made by `hierlock provision`, and no client locks before that. The table is for\n\
             -- 10,000,000 buckets; leave it out to have another number of them (`hierlock provision --buckets N`).\n"
        }
        _ => {
            "-- Only for URLs with `?strategy=striped`: without that PostgreSQL needs no tables for locks. The rows\n\
             -- themselves are made by `hierlock provision`. The table is for 10,000,000 buckets; leave it out to have\n\
             -- another number of them (`hierlock provision --buckets N`).\n"
        }
    }
}

/// A table on a line for each column.
fn broken(sql: &str) -> String {
    if !sql.starts_with("CREATE TABLE") {
        return sql.to_owned();
    }
    let (mut depth, mut text) = (0, String::new());
    for c in sql.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        match c {
            '(' if depth == 1 => text.push_str("(\n    "),
            ')' if depth == 0 => text.push_str("\n)"),
            ',' if depth == 1 => text.push_str(",\n   "),
            _ => text.push(c),
        }
    }
    text
}

#[test]
fn files_are_what_provisioning_runs() {
    let files = files();
    if std::env::var_os("HIERLOCK_WRITE_MIGRATIONS").is_some() {
        for (path, text) in &files {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }
    for (path, text) in &files {
        let written = std::fs::read_to_string(path).unwrap_or_default();
        let again = "HIERLOCK_WRITE_MIGRATIONS=1 cargo test -p hierlock --lib migrations";
        assert_eq!(&written, text, "{} differs; write it again: {again}", path.display());
    }
    for driver in Driver::ALL {
        for entry in std::fs::read_dir(directory().join(folder(driver).0)).unwrap() {
            let path = entry.unwrap().path();
            assert!(files.contains_key(&path), "{} is of no step", path.display());
        }
    }
}
