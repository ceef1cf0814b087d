//! What InnoDB knows of the columns of an index: enough to turn the bytes of a key into what a person
//! would write.

use super::if_allowed;
use super::key_value::{KeyColumn, fields};
use crate::row::{CellRow, cell, number_cell};
use crate::{Dialect, SessionRef};
use std::collections::HashMap;

/// The types of the columns of indexes, by table and index.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    indexes: HashMap<[String; 3], Vec<KeyColumn>>,
}

/// The bit of the type of an index: the table itself is stored in it.
const CLUSTERED: i64 = 1;

/// An index: its name, whether the table is stored in it, and its columns.
type Index = (String, bool, Vec<(String, KeyColumn)>);

impl Dictionary {
    /// Is it known?
    pub(super) fn has(&self, [schema, table, index]: [&str; 3]) -> bool {
        self.indexes.contains_key(&[schema.to_owned(), table.to_owned(), index.to_owned()])
    }

    /// Learns all indexes of a table.
    pub(super) async fn learn(
        &mut self,
        session: &mut SessionRef<'_>,
        dialect: Dialect,
        schema: &str,
        table: &str,
    ) -> Result<(), sqlx::Error> {
        let types = column_types(session, dialect, schema, table).await?;
        let prefix = if dialect == Dialect::Mariadb { "INNODB_SYS" } else { "INNODB" };
        let from = |name: &str| format!("information_schema.{prefix}_{name}");
        // InnoDB's own tables, which wait for nobody.
        let sql = format!(
            "SELECT i.NAME, i.TYPE, f.NAME FROM {} t JOIN {} i ON i.TABLE_ID = t.TABLE_ID \
             LEFT JOIN {} f ON f.INDEX_ID = i.INDEX_ID \
             WHERE t.NAME = '{schema}/{}' ORDER BY i.INDEX_ID, f.POS",
            from("TABLES"),
            from("INDEXES"),
            from("FIELDS"),
            table.replace('\'', "''")
        );
        // Not everyone may ask; then keys stay bytes.
        let rows = if_allowed(session.cells(&sql).await)?.unwrap_or_default();
        let mut indexes: Vec<Index> = Vec::new();
        for row in &rows {
            let name = cell(row, 2);
            // A table without a key has one of its own making, of six bytes.
            let column = types.get(name).cloned().unwrap_or(KeyColumn::Bytes);
            match indexes.last_mut().filter(|(index, ..)| index == cell(row, 0)) {
                Some((.., columns)) => columns.push((name.to_owned(), column)),
                None => {
                    let is_clustered = number_cell(row, 1).unwrap_or(0) & CLUSTERED != 0;
                    let columns = vec![(name.to_owned(), column)];
                    indexes.push((cell(row, 0).to_owned(), is_clustered, columns));
                }
            }
        }
        let key = indexes.iter().find(|(_, is_clustered, _)| *is_clustered);
        let key: Vec<(String, KeyColumn)> = key.map(|(.., key)| key.clone()).unwrap_or_default();
        for (index, _, mut columns) in indexes {
            // Behind its own columns an index has those of the key, once.
            let more = key.iter().filter(|(name, _)| !columns.iter().any(|(own, _)| own == name));
            columns.extend(more.cloned().collect::<Vec<_>>());
            let columns = columns.into_iter().map(|(_, column)| column).collect();
            self.indexes.insert([schema.to_owned(), table.to_owned(), index], columns);
        }
        Ok(())
    }

    /// A record, by its key: `1`, or `'a', 1`. None if nothing of it is written out.
    pub(super) fn record(&self, place: [&str; 3], fields: &[Option<String>]) -> Option<String> {
        let columns = self.columns(place).unwrap_or(&[KeyColumn::Bytes]);
        let fields: Vec<String> = columns
            .iter()
            .zip(fields)
            .map(|(column, field)| match field {
                Some(hex) => column.write(hex),
                None => "NULL".to_owned(),
            })
            .collect();
        (!fields.is_empty()).then(|| fields.join(", "))
    }

    /// A record as MySQL's table of locks writes it, in the same words.
    pub(super) fn record_of_data(&self, place: [&str; 3], data: &str) -> String {
        let (columns, fields) = (self.columns(place).unwrap_or_default(), fields(data));
        match columns.len() == fields.len() {
            true => {
                let pairs = columns.iter().zip(fields);
                pairs.map(|(column, field)| column.rewrite(field)).collect::<Vec<_>>().join(", ")
            }
            false => data.to_owned(),
        }
    }

    fn columns(&self, place: [&str; 3]) -> Option<&[KeyColumn]> {
        self.indexes.get(&place.map(str::to_owned)).map(Vec::as_slice)
    }
}

/// The types of the columns of a table, by name.
async fn column_types(
    session: &mut SessionRef<'_>,
    dialect: Dialect,
    schema: &str,
    table: &str,
) -> Result<HashMap<String, KeyColumn>, sqlx::Error> {
    // MariaDB opens the table for this, which may be locked as a whole.
    let at_once = match dialect {
        Dialect::Mariadb => "SET STATEMENT lock_wait_timeout = 0 FOR ",
        _ => "",
    };
    let sql = format!(
        "{at_once}SELECT COLUMN_NAME, CAST(COLUMN_TYPE AS CHAR), CHARACTER_SET_NAME \
         FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = '{schema}' AND TABLE_NAME = '{}'",
        table.replace('\'', "''")
    );
    let rows = if_allowed(session.cells(&sql).await)?.unwrap_or_default();
    let column =
        |row: &CellRow| (cell(row, 0).to_owned(), KeyColumn::parse(cell(row, 1), cell(row, 2)));
    Ok(rows.iter().map(column).collect())
}
