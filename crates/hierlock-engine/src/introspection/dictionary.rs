//! The index columns of InnoDB tables, which are needed to decode keys.

use super::key_value::{KeyColumn, fields};
use super::{Result, rows_if_allowed};
use crate::row::{CellRow, cell, number_cell};
use crate::{Dialect, SessionRef};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A cache of index columns.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    /// The columns by schema, table and index.
    indexes: HashMap<[String; 3], IndexColumns>,
    /// Whether unknown columns are guessed from their bytes.
    pub(super) guesses: bool,
    /// The time at which a table could not be read, for example because it is locked.
    unreadable: HashMap<[String; 2], Instant>,
}

/// The columns of an index.
#[derive(Debug, Default)]
struct IndexColumns {
    names: Vec<String>,
    types: Vec<KeyColumn>,
    /// Whether the account may see the types; otherwise they are all bytes.
    has_types: bool,
}

/// The time before an unreadable table is read again. Otherwise each of its locks would try.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The bit of the index type that marks a clustered index.
const CLUSTERED: i64 = 1;

impl Dictionary {
    /// Reads all indexes of the table of an index, unless the index is known.
    pub(super) async fn load(
        &mut self,
        session: &mut SessionRef<'_>,
        index: [&str; 3],
    ) -> Result<()> {
        if self.columns(index).is_some() {
            return Ok(());
        }
        let [schema, table, _] = index;
        let unreadable = [schema, table].map(str::to_owned);
        if self.unreadable.get(&unreadable).is_some_and(|since| since.elapsed() < RETRY_INTERVAL) {
            return Ok(());
        }
        let table_literal = table.replace('\'', "''");
        // Both queries open the table, which may be locked: MariaDB for its columns, MySQL for its indexes.
        let (prefix, at_once, limit) = match session.dialect {
            Dialect::Mariadb => ("INNODB_SYS", "SET STATEMENT lock_wait_timeout = 0 FOR ", ""),
            _ => ("INNODB", "", "/*+ MAX_EXECUTION_TIME(200) */ "),
        };
        let columns = format!(
            "{at_once}SELECT {limit}COLUMN_NAME, CAST(COLUMN_TYPE AS CHAR), CHARACTER_SET_NAME \
             FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = '{schema}' AND TABLE_NAME = '{table_literal}'"
        );
        let indexes = format!(
            "SELECT {limit}i.NAME, i.TYPE, f.NAME FROM information_schema.{prefix}_TABLES t \
             JOIN information_schema.{prefix}_INDEXES i ON i.TABLE_ID = t.TABLE_ID \
             LEFT JOIN information_schema.{prefix}_FIELDS f ON f.INDEX_ID = i.INDEX_ID \
             WHERE t.NAME = '{schema}/{table_literal}' ORDER BY i.INDEX_ID, f.POS"
        );
        // Without the privilege, keys stay hexadecimal.
        let columns = rows_if_allowed(session, &columns).await?;
        let indexes = rows_if_allowed(session, &indexes).await?;
        if columns.is_empty() || indexes.is_empty() {
            self.unreadable.insert(unreadable, Instant::now());
        }
        let types: HashMap<&str, KeyColumn> = columns
            .iter()
            .map(|row| (cell(row, 0), KeyColumn::parse(cell(row, 1), cell(row, 2))))
            .collect();
        let is_clustered = |row: &&CellRow| number_cell(row, 1).unwrap_or(0) & CLUSTERED != 0;
        let key: Vec<&str> = indexes.iter().filter(is_clustered).map(|row| cell(row, 2)).collect();
        for rows in indexes.chunk_by(|a, b| a[0] == b[0]) {
            let own_columns: Vec<&str> = rows.iter().map(|row| cell(row, 2)).collect();
            // A secondary index also contains the columns of the clustered key that it does not have itself.
            let key_columns = key.iter().filter(|name| !own_columns.contains(name));
            // A table without a primary key has a hidden row id of six bytes.
            let column = |name: &&str| types.get(name).cloned().unwrap_or(KeyColumn::Bytes);
            let names: Vec<&str> = own_columns.iter().chain(key_columns).copied().collect();
            let types = names.iter().map(column).collect();
            let names = names.into_iter().map(str::to_owned).collect();
            let index = [schema, table, cell(&rows[0], 0)].map(str::to_owned);
            let has_types = !columns.is_empty();
            self.indexes.insert(index, IndexColumns { names, types, has_types });
        }
        Ok(())
    }

    /// Formats a record by its key: `1`, or `'a', 1`. None if the fields are not listed.
    pub(super) fn record(&self, index: [&str; 3], fields: &[Option<String>]) -> Option<String> {
        let guessed =
            (self.guesses && !self.has_types(index)).then(|| KeyColumn::guess_all(fields));
        let columns = guessed.as_deref().or_else(|| Some(&*self.columns(index)?.types));
        let columns = columns.unwrap_or(&[KeyColumn::Bytes]);
        let format_field = |(column, field): (&KeyColumn, &Option<String>)| {
            field.as_ref().map_or_else(|| "NULL".to_owned(), |hex| column.format(hex))
        };
        let fields: Vec<String> = columns.iter().zip(fields).map(format_field).collect();
        (!fields.is_empty()).then(|| fields.join(", "))
    }

    /// Formats a record of MySQL's `data_locks` in the same way.
    pub(super) fn record_of_data(&self, index: [&str; 3], data: &str) -> String {
        let fields = fields(data);
        let columns = self.columns(index).filter(|columns| columns.types.len() == fields.len());
        let Some(columns) = columns else { return data.to_owned() };
        let pairs = columns.types.iter().zip(fields);
        pairs.map(|(column, field)| column.reformat(field)).collect::<Vec<_>>().join(", ")
    }

    /// Returns whether the column types of an index are known.
    pub(super) fn has_types(&self, index: [&str; 3]) -> bool {
        self.columns(index).is_some_and(|columns| columns.has_types)
    }

    /// Returns the column names of an index; none if they are not known.
    pub(super) fn names(&self, index: [&str; 3]) -> &[String] {
        self.columns(index).map_or(&[], |columns| &columns.names)
    }

    fn columns(&self, index: [&str; 3]) -> Option<&IndexColumns> {
        self.indexes.get(&index.map(str::to_owned))
    }
}
