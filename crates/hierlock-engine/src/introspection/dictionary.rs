//! What InnoDB knows of the columns of an index: enough to turn the bytes of a key into what a person would write.

use super::key_value::{KeyColumn, fields};
use super::{Result, if_allowed};
use crate::row::{CellRow, cell, number_cell};
use crate::{Dialect, SessionRef};
use std::collections::HashMap;

/// The types of the columns of indexes, by schema, table and index.
#[derive(Debug, Default)]
pub(super) struct Dictionary(HashMap<[String; 3], Vec<KeyColumn>>);

/// The bit of the type of an index: the table itself is stored in it.
const CLUSTERED: i64 = 1;

impl Dictionary {
    /// Learns all indexes of the table of an index, unless that is known.
    pub(super) async fn learn(
        &mut self,
        session: &mut SessionRef<'_>,
        index: [&str; 3],
    ) -> Result<()> {
        if self.columns(index).is_some() {
            return Ok(());
        }
        let [schema, table, _] = index;
        let table_literal = table.replace('\'', "''");
        // MariaDB opens the table for its columns, which may be locked as a whole.
        let (prefix, at_once) = match session.dialect {
            Dialect::Mariadb => ("INNODB_SYS", "SET STATEMENT lock_wait_timeout = 0 FOR "),
            _ => ("INNODB", ""),
        };
        let columns = format!(
            "{at_once}SELECT COLUMN_NAME, CAST(COLUMN_TYPE AS CHAR), CHARACTER_SET_NAME \
             FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = '{schema}' AND TABLE_NAME = '{table_literal}'"
        );
        // InnoDB's own tables, which wait for nobody.
        let indexes = format!(
            "SELECT i.NAME, i.TYPE, f.NAME FROM information_schema.{prefix}_TABLES t \
             JOIN information_schema.{prefix}_INDEXES i ON i.TABLE_ID = t.TABLE_ID \
             LEFT JOIN information_schema.{prefix}_FIELDS f ON f.INDEX_ID = i.INDEX_ID \
             WHERE t.NAME = '{schema}/{table_literal}' ORDER BY i.INDEX_ID, f.POS"
        );
        // Not everyone may ask; then keys stay bytes.
        let columns = if_allowed(session.cells(&columns).await)?.unwrap_or_default();
        let indexes = if_allowed(session.cells(&indexes).await)?.unwrap_or_default();
        let types: HashMap<&str, KeyColumn> = columns
            .iter()
            .map(|row| (cell(row, 0), KeyColumn::parse(cell(row, 1), cell(row, 2))))
            .collect();
        let is_clustered = |row: &&CellRow| number_cell(row, 1).unwrap_or(0) & CLUSTERED != 0;
        let key: Vec<&str> = indexes.iter().filter(is_clustered).map(|row| cell(row, 2)).collect();
        for rows in indexes.chunk_by(|a, b| a[0] == b[0]) {
            let own: Vec<&str> = rows.iter().map(|row| cell(row, 2)).collect();
            // Behind its own columns an index has those of the key, once.
            let of_key = key.iter().filter(|name| !own.contains(name));
            // A table without a key has one of its own making, of six bytes.
            let column = |name: &&str| types.get(name).cloned().unwrap_or(KeyColumn::Bytes);
            let columns = own.iter().chain(of_key).map(column).collect();
            let index = [schema, table, cell(&rows[0], 0)].map(str::to_owned);
            self.0.insert(index, columns);
        }
        Ok(())
    }

    /// A record, by its key: `1`, or `'a', 1`. None if nothing of it is written out.
    pub(super) fn record(&self, index: [&str; 3], fields: &[Option<String>]) -> Option<String> {
        let columns = self.columns(index).unwrap_or(&[KeyColumn::Bytes]);
        let write = |(column, field): (&KeyColumn, &Option<String>)| {
            field.as_ref().map_or_else(|| "NULL".to_owned(), |hex| column.write(hex))
        };
        let fields: Vec<String> = columns.iter().zip(fields).map(write).collect();
        (!fields.is_empty()).then(|| fields.join(", "))
    }

    /// A record as MySQL's table of locks writes it, in the same words.
    pub(super) fn record_of_data(&self, index: [&str; 3], data: &str) -> String {
        let (columns, fields) = (self.columns(index).unwrap_or_default(), fields(data));
        if columns.len() != fields.len() {
            return data.to_owned();
        }
        let pairs = columns.iter().zip(fields);
        pairs.map(|(column, field)| column.rewrite(field)).collect::<Vec<_>>().join(", ")
    }

    fn columns(&self, index: [&str; 3]) -> Option<&[KeyColumn]> {
        self.0.get(&index.map(str::to_owned)).map(Vec::as_slice)
    }
}
