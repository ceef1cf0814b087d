//! Provisioning as an SQL script, for administrators who must run it themselves.

use super::chunk::Chunks;
use super::fill::inserts;
use super::series::Series;
use crate::sql::agreement::SCHEMA;
use crate::sql::{Dialect, Scheme, Strategy};

pub(super) fn script(scheme: &Scheme, series: Series, chunks: Chunks) -> String {
    let is_striped = scheme.strategy == Strategy::Striped;
    let mut sql = SCHEMA.statements(scheme.dialect.driver());
    sql.extend(scheme.insert_agreement());
    sql.extend(scheme.create_rows());
    if is_striped {
        sql.extend(series.set_recursion_limit(scheme.dialect));
        sql.extend(chunks.iter().flat_map(|chunk| inserts(scheme, series, &[chunk])));
        sql.extend(analyse(scheme));
        sql.push(scheme.update_ready());
    }
    if scheme.dialect != Dialect::Postgres {
        // The client may have autocommit off.
        sql.push("COMMIT".to_owned());
    }
    sql.join(";\n") + ";\n"
}

/// Returns the statement that updates the statistics of PostgreSQL. Without them it may scan the table for the first lock
/// statements. InnoDB updates its statistics itself.
pub(super) fn analyse(scheme: &Scheme) -> Option<String> {
    let is_postgres = scheme.dialect == Dialect::Postgres;
    is_postgres.then(|| format!("ANALYZE {}", scheme.quoted_table()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Buckets;

    #[test]
    fn a_script_sets_ready_after_inserting_the_rows() {
        let scheme = Scheme::new(Dialect::Mariadb).buckets(Buckets::new(200).unwrap());
        let chunks = Chunks { levels: 1, buckets: (0, 200), size: 100 };
        let script = script(&scheme, Series::Sequence, chunks);
        let order = ["'filling'", "of_200", "seq_0_to_99", "seq_100_to_199", "'ready'", "COMMIT"];
        let places: Vec<usize> = order.iter().map(|text| script.find(text).unwrap()).collect();
        assert!(places.is_sorted(), "{script}");
        let by_id = scheme.strategy(Strategy::PerId).unwrap();
        assert!(super::script(&by_id, Series::Sequence, chunks).contains("lock_key"));
    }
}
