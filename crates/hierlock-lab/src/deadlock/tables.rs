//! The tables of a deadlock, guessed from its locks and statements.

use super::locks;
use super::statement::StatementParts;
use crate::text::join;
use hierlock_engine::Driver;
use hierlock_engine::introspection::{DeadlockDump, DeadlockLock, LockKind};

/// A table of the scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct GuessedTable {
    /// The name, without quotes.
    pub(super) name: String,
    /// The name as a statement writes it.
    pub(super) text: String,
    /// The columns of the primary key.
    pub(super) key: Vec<String>,
    /// All columns with their types, those of the key first.
    pub(super) columns: Vec<(String, &'static str)>,
    /// The secondary indexes: name and first column.
    pub(super) indexes: Vec<(String, String)>,
    /// The rows, each with the values of some columns.
    pub(super) rows: Vec<Vec<(String, String)>>,
    /// The report contains the keys of rows that were locked.
    has_records: bool,
}

/// Returns the values of a key such as `'a, b', 1`.
pub(super) fn key_values(record: &str) -> Vec<String> {
    let mut is_quoted = false;
    let is_separator = |c: char| {
        is_quoted ^= c == '\'';
        c == ',' && !is_quoted
    };
    record.split(is_separator).map(|value| value.trim().to_owned()).collect()
}

/// Returns whether two literals are the same value, such as `x'ff'` and `0xFF`.
pub(super) fn is_same_value(a: &str, b: &str) -> bool {
    canonical(a) == canonical(b)
}

/// Returns whether two literals are of the same type.
pub(super) fn is_same_type(a: &str, b: &str) -> bool {
    column_type(a, Driver::Mysql) == column_type(b, Driver::Mysql)
}

fn canonical(value: &str) -> String {
    let hex =
        value.strip_prefix(['x', 'X']).and_then(|rest| rest.strip_prefix('\'')?.strip_suffix('\''));
    let hex = hex.or_else(|| value.strip_prefix("0x"));
    hex.map_or_else(|| value.to_owned(), |hex| format!("0x{}", hex.to_uppercase()))
}

/// Returns the name as it is written in a statement, with quotes where it needs them.
pub(super) fn quoted_name(name: &str, driver: Driver) -> String {
    let is_plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && name.starts_with(|c: char| c.is_ascii_lowercase());
    // If the name is not valid, the scenario is written without its tables.
    let quoted = driver.quote_column(name).ok().filter(|_| !is_plain);
    quoted.unwrap_or_else(|| name.to_owned())
}

/// Returns the type of a column that contains this value.
fn column_type(value: &str, driver: Driver) -> &'static str {
    match value.chars().next() {
        Some('x' | 'X') if driver == Driver::Postgres => "bytea",
        Some('x' | 'X') => "varbinary(64)",
        Some('0') if value.starts_with("0x") => "varbinary(64)",
        Some('\'' | 'e' | 'E' | 'n' | 'N' | '"' | '_' | 'u' | 'U') => "varchar(200)",
        Some(c) if (c.is_ascii_digit() || c == '-') && value.contains('.') => "decimal(20,4)",
        _ => "bigint",
    }
}

impl GuessedTable {
    /// Returns all tables of a deadlock.
    pub(super) fn all(
        dump: &DeadlockDump,
        driver: Driver,
        statements: &[StatementParts],
    ) -> Vec<Self> {
        let locks: Vec<&DeadlockLock> = locks(dump).collect();
        let is_of_table = |lock: &&&DeadlockLock| {
            lock.target.index.is_some()
                || lock.target.kind == LockKind::Table && driver == Driver::Mysql
        };
        let named = locks.iter().filter(is_of_table).map(|lock| (lock.target.object.clone(), None));
        let written = statements.iter().filter_map(|parts| {
            let is_plain = !parts.verb.starts_with("create") && !parts.verb.starts_with("alter");
            parts.table.clone().filter(|_| is_plain).map(|name| (name, parts.table_text.clone()))
        });
        let mut tables: Vec<Self> = Vec::new();
        for (name, text) in written.chain(named) {
            if tables.iter().all(|table| table.name != name) {
                let text = text.unwrap_or_else(|| quoted_name(&name, driver));
                tables.push(Self { name, text, ..Self::default() });
            }
        }
        for table in &mut tables {
            table.read(&locks, driver, statements);
        }
        tables
    }

    fn read(&mut self, locks: &[&DeadlockLock], driver: Driver, statements: &[StatementParts]) {
        let statements: Vec<&StatementParts> =
            statements.iter().filter(|parts| parts.table.as_ref() == Some(&self.name)).collect();
        let locks = locks.iter().copied().filter(|lock| lock.target.object == self.name);
        let locks: Vec<&DeadlockLock> = locks.collect();
        self.has_records = locks.iter().any(|lock| lock.target.record.is_some());
        let is_primary = |lock: &&&DeadlockLock| lock.target.index.as_deref() == Some("PRIMARY");
        let named = locks.iter().filter(is_primary).find(|lock| !lock.columns.is_empty());
        let inserted = statements.iter().find_map(|parts| parts.insert_columns.first());
        let condition = statements.iter().flat_map(|parts| &parts.conditions).map(|(name, _)| name);
        let condition = condition.clone().find(|name| name.as_str() == "id").or_else(|| {
            let is_of_other_index =
                locks.iter().any(|lock| lock.target.index.is_some() && !is_primary(&lock));
            // If a condition named the column of a reported record, `guess_columns` would have named the column.
            condition.clone().next().filter(|_| !is_of_other_index && !self.has_records)
        });
        self.key = match (named, inserted, condition) {
            (Some(lock), ..) => lock.columns.clone(),
            (_, Some(name), _) | (.., Some(name)) => vec![name.clone()],
            _ => vec!["id".to_owned()],
        };
        for lock in locks.iter().filter(is_primary) {
            self.add_row(&self.key.clone(), lock, driver);
        }
        let mut others: Vec<_> = locks.iter().filter(|lock| !is_primary(lock)).collect();
        // The supremum has no values, so the locks on records come first: they decide the columns.
        others.sort_by_key(|lock| lock.target.record.as_deref() == Some("supremum"));
        for lock in others {
            self.read_index(lock, &statements, driver);
        }
        for parts in &statements {
            self.read_statement(parts, driver);
        }
        for name in self.key.clone() {
            self.add_column(&name, "", driver);
        }
        let is_key = |name: &String| self.key.contains(name);
        self.columns.sort_by_key(|(name, _)| !is_key(name));
    }

    /// Adds the row that an index lock is on.
    fn add_row(&mut self, columns: &[String], lock: &DeadlockLock, driver: Driver) {
        let record = lock.target.record.as_deref().filter(|record| *record != "supremum");
        let Some(record) = record.filter(|record| !record.contains('…')) else { return };
        let values: Vec<(String, String)> =
            columns.iter().cloned().zip(key_values(record)).collect();
        for (name, value) in &values {
            self.add_column(name, value, driver);
        }
        self.push_row(values);
    }

    fn read_index(&mut self, lock: &DeadlockLock, statements: &[&StatementParts], driver: Driver) {
        let Some(index) = lock.target.index.as_ref().filter(|index| *index != "GEN_CLUST_INDEX")
        else {
            return;
        };
        let record = lock.target.record.as_deref().unwrap_or_default();
        let value = key_values(record).into_iter().next().unwrap_or_default();
        let conditions = || statements.iter().flat_map(|parts| &parts.conditions);
        let named = conditions().find(|(_, known)| is_same_value(known, &value));
        let named = named.or_else(|| conditions().find(|(name, _)| !self.key.contains(name)));
        let named = named.map(|(name, _)| name.clone());
        let Some(column) = lock.columns.first().cloned().or(named) else { return };
        if self.indexes.iter().all(|(known, _)| known != index) {
            self.indexes.push((index.clone(), column.clone()));
        }
        let columns: Vec<String> = std::iter::once(column).chain(self.key.clone()).collect();
        self.add_row(&columns, lock, driver);
    }

    fn read_statement(&mut self, parts: &StatementParts, driver: Driver) {
        for (name, value) in parts.conditions.iter().chain(&parts.assignments) {
            self.add_column(name, value, driver);
        }
        for (at, value) in parts.insert_values.iter().enumerate() {
            let named = parts.insert_columns.get(at).cloned();
            let name = named
                .or_else(|| self.key.get(at).cloned())
                .unwrap_or_else(|| format!("column{}", at + 1));
            self.add_column(&name, value, driver);
        }
        // The rows that a statement selects exist.
        let conditions = &parts.conditions;
        let has_key = self.key.iter().all(|key| conditions.iter().any(|(name, _)| name == key));
        let exists = |row: &Vec<(String, String)>| conditions.iter().all(|pair| row.contains(pair));
        if has_key && !conditions.is_empty() {
            self.push_row(conditions.clone());
        } else if let ([key], false) = (&self.key[..], conditions.is_empty())
            && !self.has_records
            && !self.rows.iter().any(exists)
        {
            let key = (key.clone(), (self.rows.len() + 1).to_string());
            self.push_row(std::iter::once(key).chain(conditions.clone()).collect());
        }
    }

    fn add_column(&mut self, name: &str, value: &str, driver: Driver) {
        match self.columns.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) if *known == "bigint" && !value.is_empty() => {
                *known = column_type(value, driver)
            }
            Some(_) => {}
            None => self.columns.push((name.to_owned(), column_type(value, driver))),
        }
    }

    /// Adds a row, or adds its columns to the row with the same key.
    fn push_row(&mut self, row: Vec<(String, String)>) {
        let key_of = |row: &[(String, String)]| -> Vec<Option<String>> {
            let value = |name: &String| {
                row.iter().find(|(known, _)| known == name).map(|(_, value)| canonical(value))
            };
            self.key.iter().map(value).collect()
        };
        let key = key_of(&row);
        match self.rows.iter().position(|known| key_of(known) == key) {
            Some(at) => {
                for (name, value) in row {
                    if self.rows[at].iter().all(|(known, _)| *known != name) {
                        self.rows[at].push((name, value));
                    }
                }
            }
            None if key.iter().all(Option::is_some) => self.rows.push(row),
            None => {}
        }
    }

    /// Returns the statements that create and fill the table.
    pub(super) fn setup(&self, driver: Driver) -> Vec<String> {
        let name = |name: &String| quoted_name(name, driver);
        let columns = self.columns.iter().map(|(column, kind)| format!("{} {kind}", name(column)));
        let key = format!("primary key ({})", join(self.key.iter().map(name), ", "));
        // PostgreSQL has no indexes in CREATE TABLE.
        let indexes = self.indexes.iter().filter(|_| driver == Driver::Mysql);
        let indexes =
            indexes.map(|(index, column)| format!("key {} ({})", name(index), name(column)));
        let parts = join(columns.chain([key]).chain(indexes), ", ");
        let inserts = self.rows.iter().map(|row| {
            let columns = join(row.iter().map(|(column, _)| name(column)), ", ");
            let values = join(row.iter().map(|(_, value)| value), ", ");
            format!("insert into {} ({columns}) values ({values})", self.text)
        });
        let create = format!("create table {} ({parts})", self.text);
        std::iter::once(create).chain(inserts).collect()
    }
}
