//! The upgrade steps as files in `migrations/`, for `sqlx migrate` and for people. This test fails if the files differ from
//! the statements that provisioning runs, and writes them if `HIERLOCK_WRITE_MIGRATIONS` is set.

use super::{Driver, Schema, upgrade};
use crate::sql::{Dialect, LOCK_SCHEMA, Scheme, Strategy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The numbers of the files, by part and version. A new step gets the date of its creation, to come after the others.
const NUMBERS: [(Schema, &[u64]); 3] = [
    (crate::lease::SCHEMA, &[20_260_101_000_001]),
    (crate::queue::SCHEMA, &[20_260_101_000_002]),
    (LOCK_SCHEMA, &[20_260_101_000_003, 20_261_118_000_001]),
];

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations")
}

/// The folder of each driver, and the names of its engines.
const FOLDERS: [(Driver, &str, &str); 3] = [
    (Driver::Mysql, "mysql", "MySQL and MariaDB"),
    (Driver::Postgres, "postgres", "PostgreSQL"),
    (Driver::Sqlite, "sqlite", "SQLite"),
];

fn files() -> BTreeMap<PathBuf, String> {
    let mut files = BTreeMap::new();
    for (driver, folder, engine) in FOLDERS {
        for (schema, numbers) in NUMBERS {
            let Schema { part, command, steps, .. } = schema;
            assert_eq!(numbers.len(), steps.len(), "a step of `{part}` has no file number");
            for (number, version) in numbers.iter().zip(1..) {
                let mut statements = schema.step(version, driver);
                // The step would only write the version.
                if statements.len() == 1 {
                    continue;
                }
                statements.insert(0, upgrade::create_versions(driver));
                let mut comment = format!(
                    "-- hierlock on {engine}: version {version} of the tables of part `{part}`.\n\
                     -- Written from the library's own statements; `{command}` makes the same.\n"
                );
                if part == LOCK_SCHEMA.part && version == 1 {
                    comment += lock_comment(driver);
                    let last = statements.len() - 1;
                    statements.splice(last..last, lock_rows(driver));
                }
                let text = |sql: &String| format!("\n{};\n", with_line_breaks(sql));
                let statements: String = statements.iter().map(text).collect();
                let name = format!("{number}_hierlock_{part}_{version}.sql");
                files.insert(directory().join(folder).join(name), comment + &statements);
            }
        }
    }
    files
}

/// Returns the statement that creates the table of lock rows, for the default number of buckets.
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

/// Formats a CREATE TABLE with one line per column.
fn with_line_breaks(sql: &str) -> String {
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
fn migration_files_match_the_statements_of_provisioning() {
    let files = files();
    let is_writing = std::env::var_os("HIERLOCK_WRITE_MIGRATIONS").is_some();
    for (path, text) in &files {
        if is_writing {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        let command = "HIERLOCK_WRITE_MIGRATIONS=1 cargo test -p hierlock --lib migrations";
        assert_eq!(&written, text, "{} differs; write it with: {command}", path.display());
    }
    for (_, folder, _) in FOLDERS {
        for entry in std::fs::read_dir(directory().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            assert!(files.contains_key(&path), "{} belongs to no step", path.display());
        }
    }
}
