//! What InnoDB knows of the columns of an index: enough to turn the bytes of a key into what a person
//! would write. Asks InnoDB's own tables, which wait for nobody, not those that open the table.

use super::StageError;
use super::wire::{Wire, cell, number};
use crate::place::Engine;
use std::collections::HashMap;

/// The types of the columns of indexes, by table and index.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    indexes: HashMap<[String; 3], Vec<Column>>,
}

/// How a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Signed,
    Unsigned,
    Text,
    Bytes,
}

/// InnoDB's numbers for its types, and the bit that says that there is no sign.
const INT: i64 = 6;
const TEXTS: [i64; 4] = [1, 2, 12, 13];
const UNSIGNED: i64 = 512;
/// The bit of the type of an index: the table itself is stored in it.
const CLUSTERED: i64 = 1;

impl Dictionary {
    /// Is it known?
    pub(super) fn has(&self, [home, table, index]: [&str; 3]) -> bool {
        self.indexes.contains_key(&[home.to_owned(), table.to_owned(), index.to_owned()])
    }

    /// Learns all indexes of a table.
    pub(super) async fn learn(
        &mut self,
        wire: &mut Wire,
        engine: Engine,
        home: &str,
        table: &str,
    ) -> Result<(), StageError> {
        let prefix = if engine == Engine::Mariadb { "INNODB_SYS" } else { "INNODB" };
        let from = |name: &str| format!("information_schema.{prefix}_{name}");
        let sql = format!(
            "SELECT i.NAME, i.TYPE, f.NAME, c.MTYPE, c.PRTYPE FROM {} t \
             JOIN {} i ON i.TABLE_ID = t.TABLE_ID JOIN {} f ON f.INDEX_ID = i.INDEX_ID \
             LEFT JOIN {} c ON c.TABLE_ID = t.TABLE_ID \
               AND CAST(c.NAME AS CHAR) = CAST(f.NAME AS CHAR) \
             WHERE t.NAME = '{home}/{}' ORDER BY i.INDEX_ID, f.POS",
            from("TABLES"),
            from("INDEXES"),
            from("FIELDS"),
            from("COLUMNS"),
            table.replace('\'', "''")
        );
        // Not everyone may ask; then keys stay bytes.
        let rows = wire.try_ask(&sql).await?.unwrap_or_default();
        let mut indexes: Vec<(String, bool, Vec<(String, Column)>)> = Vec::new();
        for row in &rows {
            let column = match (number(row, 3), number(row, 4)) {
                (Some(INT), Some(kind)) if kind & UNSIGNED != 0 => Column::Unsigned,
                (Some(INT), _) => Column::Signed,
                (Some(kind), _) if TEXTS.contains(&kind) => Column::Text,
                _ => Column::Bytes,
            };
            let column = (cell(row, 2).to_owned(), column);
            match indexes.last_mut().filter(|(name, ..)| name == cell(row, 0)) {
                Some((.., columns)) => columns.push(column),
                None => {
                    let is_clustered = number(row, 1).unwrap_or(0) & CLUSTERED != 0;
                    indexes.push((cell(row, 0).to_owned(), is_clustered, vec![column]));
                }
            }
        }
        let key = indexes.iter().find(|(_, is_clustered, _)| *is_clustered);
        let key: Vec<(String, Column)> = key.map(|(.., key)| key.clone()).unwrap_or_default();
        for (index, _, mut columns) in indexes {
            // Behind its own columns an index has those of the key, once.
            let more = key.iter().filter(|(name, _)| !columns.iter().any(|(own, _)| own == name));
            columns.extend(more.cloned().collect::<Vec<_>>());
            let columns = columns.into_iter().map(|(_, column)| column).collect();
            self.indexes.insert([home.to_owned(), table.to_owned(), index], columns);
        }
        Ok(())
    }

    /// A record, by its key: `1`, or `'a', 1`. None if nothing of it is written out.
    pub(super) fn record(&self, place: [&str; 3], fields: &[Option<String>]) -> Option<String> {
        let place = place.map(str::to_owned);
        let columns = self.indexes.get(&place).map_or(&[Column::Bytes][..], |columns| columns);
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
}

impl Column {
    fn write(self, hex: &str) -> String {
        let bytes = || u64::from_str_radix(hex, 16).ok().filter(|_| hex.len() <= 16);
        let written = match self {
            Column::Unsigned => bytes().map(|number| number.to_string()),
            // Stored with the sign turned over, so that bytes sort as numbers do.
            Column::Signed => bytes().map(|number| {
                let bits = 4 * hex.len() as u32;
                (i128::from(number) - (1i128 << (bits.max(1) - 1))).to_string()
            }),
            Column::Text => {
                let bytes: Option<Vec<u8>> = (0..hex.len() / 2)
                    .map(|at| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok())
                    .collect();
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                text.map(|text| format!("'{}'", text.trim_end_matches(' ')))
            }
            Column::Bytes => None,
        };
        written.unwrap_or_else(|| format!("0x{}", hex.to_uppercase()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_keys_become_values() {
        for (column, hex, written) in [
            (Column::Signed, "80000001", "1"),
            (Column::Signed, "7fffffff", "-1"),
            (Column::Signed, "8000000000000005", "5"),
            (Column::Unsigned, "0014b8e2", "1358050"),
            (Column::Unsigned, "02", "2"),
            (Column::Text, "78797a20", "'xyz'"),
            (Column::Text, "ff", "0xFF"),
            (Column::Bytes, "307c", "0x307C"),
            (Column::Signed, "", "0x"),
            (Column::Signed, "zz", "0xZZ"),
            (Column::Text, "é", "0xÉ"),
        ] {
            assert_eq!(column.write(hex), written);
        }
    }
}
