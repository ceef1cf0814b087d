//! The settings that all clients of a lock table share, stored on the server. A client with other settings would lock
//! other rows and exclude nobody, so it is refused. Pure code; `lock_table.rs` reads and writes the rows.

use super::scheme::{DEFAULT_SPACE, KEY_VERSION, META_TABLE};
use super::statement::{Literal as _, hex};
use super::{Dialect, Scheme, Strategy};
use crate::database::{Driver, Schema};
use crate::{Buckets, Target};
use hierlock_engine::introspection::LABEL_TABLE;

/// The settings that all clients of a lock table share: a row of [`META_TABLE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// The primary key of the row: the name of the lock table, or [`DEFAULT_SPACE`].
    pub(super) space: String,
    pub(super) strategy: String,
    pub(super) buckets: u32,
    /// The names of the levels.
    pub(super) levels: String,
    pub(super) key_version: i64,
    /// Whether all rows that are inserted in advance exist.
    pub(super) is_ready: bool,
}

/// The columns of [`META_TABLE`], in the order of [`Agreement::parse`].
pub(super) const COLUMNS: &str = "space, strategy, buckets, levels, key_version, state";

/// The values of the column `state`.
const FILLING: &str = "filling";
const READY: &str = "ready";

impl Agreement {
    pub(super) fn parse(row: &[String]) -> Option<Self> {
        let [space, strategy, buckets, levels, key_version, state] = row else { return None };
        Some(Self {
            space: space.clone(),
            strategy: strategy.clone(),
            buckets: u32::try_from(buckets.parse::<i64>().ok()?).unwrap_or(0),
            levels: levels.clone(),
            key_version: key_version.parse().ok()?,
            is_ready: state == READY,
        })
    }
}

/// The schema of [`META_TABLE`]. Lock tables are not part of it: their columns depend on the agreement.
pub(crate) const SCHEMA: Schema = Schema {
    part: "locks",
    command: "hierlock provision",
    steps: &[meta_statements, label_statements],
    tables: |driver| match driver {
        Driver::Mysql => &[META_TABLE, LABEL_TABLE],
        _ => &[META_TABLE],
    },
    functions: &[],
    rows: |_| None,
};

/// Returns the statements that create [`META_TABLE`]. On MySQL and MariaDB engine and character set are explicit, since
/// the server's defaults vary. SQLite has no lock tables.
fn meta_statements(driver: Driver) -> Vec<String> {
    let options = match driver {
        Driver::Mysql => " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4",
        Driver::Postgres => "",
        Driver::Sqlite => return Vec::new(),
    };
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {META_TABLE} (\
         space VARCHAR(64) NOT NULL PRIMARY KEY, strategy VARCHAR(16) NOT NULL, \
         buckets BIGINT NOT NULL, levels VARCHAR(2200) NOT NULL, key_version BIGINT NOT NULL, \
         state VARCHAR(16) NOT NULL){options}"
    )]
}

/// Makes the table of labels, on servers that may have no other place for them (`label_rows.rs`).
fn label_statements(driver: Driver) -> Vec<String> {
    if driver != Driver::Mysql {
        return Vec::new();
    }
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {LABEL_TABLE} (session BIGINT UNSIGNED NOT NULL PRIMARY KEY, \
         label VARCHAR(1000) NOT NULL) ENGINE = InnoDB DEFAULT CHARACTER SET ascii"
    )]
}

impl Scheme {
    /// Returns the statement that creates the lock table. Advisory keys have none.
    pub(crate) fn create_rows(&self) -> Option<String> {
        let (table, column) = (self.quoted_table(), self.selected_column());
        let ([level, bucket], bytes, engine) = match self.dialect {
            Dialect::Postgres => (["SMALLINT", "INT"], "BYTEA", ""),
            // The longest key: eight IDs of 255 bytes, each after its length, and the level.
            _ => (["TINYINT UNSIGNED", "INT UNSIGNED"], "VARBINARY(2100)", " ENGINE = InnoDB"),
        };
        let columns = match self.strategy {
            Strategy::Advisory => return None,
            Strategy::Striped => format!(
                "level {level} NOT NULL, bucket {bucket} NOT NULL, {column} BOOLEAN, \
                 PRIMARY KEY (level, bucket)"
            ),
            _ => format!("lock_key {bytes} NOT NULL PRIMARY KEY"),
        };
        Some(format!("CREATE TABLE IF NOT EXISTS {table} ({columns}){engine}"))
    }

    /// Returns the statements that insert and commit the rows of these nodes. Existing rows stay.
    pub(super) fn insert<'a>(&self, nodes: impl Iterator<Item = &'a Target>) -> String {
        let key = |node: &Target| format!("({})", node.key().into_bytes().literal(self.dialect));
        let (table, keys) = (self.quoted_table(), nodes.map(key).collect::<Vec<_>>().join(", "));
        let [insert, on_conflict] = self.insert_words();
        format!("{insert} {table} (lock_key) VALUES {keys}{on_conflict}; COMMIT")
    }

    /// Returns the words before the table and after the rows of an INSERT that skips existing rows.
    pub(super) fn insert_words(&self) -> [&'static str; 2] {
        match self.dialect {
            Dialect::Postgres => ["INSERT INTO", " ON CONFLICT DO NOTHING"],
            _ => ["INSERT IGNORE INTO", ""],
        }
    }

    /// Returns the statements that store the agreement of a new table. An existing agreement stays.
    pub(super) fn insert_agreement(&self) -> Vec<String> {
        let [insert, on_conflict] = self.insert_words();
        let Agreement { space, strategy, buckets, levels, key_version, is_ready } =
            self.agreement();
        let state = if is_ready { READY } else { FILLING };
        let levels = text(&levels, self.dialect);
        let insert = |space: &str, condition: &str| {
            format!(
                "{insert} {META_TABLE} ({COLUMNS}) SELECT '{space}', '{strategy}', {buckets}, \
                 {levels}, {key_version}, '{state}'{condition}{on_conflict}"
            )
        };
        let mut statements = vec![insert(&space, "")];
        if space == DEFAULT_SPACE && self.table.is_some() {
            // The default agreement may be for another strategy, and so for another table.
            let (table, is_ours) = (self.rows_table(), self.agreement_condition());
            let condition = format!(
                " FROM (SELECT COUNT(*) AS n FROM {META_TABLE} WHERE {is_ours}) a WHERE a.n = 0"
            );
            statements.push(insert(table, &condition));
        }
        statements
    }

    /// Returns the condition for the rows of [`META_TABLE`] about this lock table.
    fn agreement_condition(&self) -> String {
        let table = self.rows_table();
        let is_default = |strategy: &Strategy| strategy.default_table() == table;
        let strategies = Strategy::ALL.into_iter().filter(is_default);
        let strategies: Vec<String> = strategies.map(|name| format!("'{name}'")).collect();
        if strategies.is_empty() {
            return format!("space = '{table}'");
        }
        let strategies = strategies.join(", ");
        format!("(space = '{table}' OR (space = '{DEFAULT_SPACE}' AND strategy IN ({strategies})))")
    }

    /// Returns the statement that stores another bucket count.
    pub(super) fn update_buckets(&self, buckets: u32) -> String {
        format!("UPDATE {META_TABLE} SET buckets = {buckets} WHERE {}", self.agreement_condition())
    }

    /// Returns the statement that stores that all rows exist.
    pub(super) fn update_ready(&self) -> String {
        format!("UPDATE {META_TABLE} SET state = '{READY}' WHERE {}", self.agreement_condition())
    }

    /// Returns the agreement of clients with this scheme, for a new table.
    fn agreement(&self) -> Agreement {
        let is_striped = self.strategy == Strategy::Striped;
        Agreement {
            space: self.space().to_owned(),
            strategy: self.strategy.name().to_owned(),
            buckets: if is_striped { self.buckets.count() } else { 0 },
            levels: self.hierarchy.to_string(),
            key_version: KEY_VERSION,
            // Only striped rows are inserted in advance.
            is_ready: !is_striped,
        }
    }

    /// Fails with the reason if a stored agreement excludes clients with this scheme.
    pub(super) fn compare(&self, stored: &Agreement) -> Result<(), String> {
        let ours = self.agreement();
        let (table, space) = (self.rows_table(), &stored.space);
        // Both strategies use the same rows.
        let rows = |strategy: &str| strategy.replace("on-demand", "per-id");
        if rows(&ours.strategy) != rows(&stored.strategy) {
            return Err(format!(
                "its clients have agreed on the strategy {}, not {} (`{space}` in {META_TABLE}): \
                 connect with ?strategy={}, or keep the locks apart with table=NAME",
                stored.strategy, ours.strategy, stored.strategy
            ));
        }
        if ours.buckets != stored.buckets {
            return Err(format!(
                "`{table}` is striped over {} buckets, not {}; leave buckets= away to follow it",
                stored.buckets, ours.buckets
            ));
        }
        if ours.levels != stored.levels {
            let (stored, ours) = (&stored.levels, &ours.levels);
            return Err(format!("`{table}` is for the levels {stored}, not {ours}"));
        }
        if ours.key_version != stored.key_version {
            return Err(format!(
                "`{table}` is used with version {} of the keys, not {}; all clients must have the \
                 same release of hierlock",
                stored.key_version, ours.key_version
            ));
        }
        if !stored.is_ready {
            return Err(format!(
                "`{table}` is not filled yet; run `hierlock provision` again to finish it"
            ));
        }
        Ok(())
    }

    /// Adopts the stored bucket count, unless another count was given.
    pub(super) fn follow(&mut self, stored: &Agreement) {
        if let Ok(buckets) = Buckets::new(stored.buckets)
            && self.follows_table
        {
            self.buckets = buckets;
        }
    }

    /// Returns the agreements that bind clients with this scheme, the most important first.
    pub(super) fn relevant(&self, mut all: Vec<Agreement>) -> Vec<Agreement> {
        let is_about_table = |stored: &Agreement| {
            let strategy = stored.strategy.parse::<Strategy>();
            stored.space != DEFAULT_SPACE
                || strategy.is_ok_and(|strategy| strategy.default_table() == self.rows_table())
        };
        // Clients that name no table share one agreement, even if it is for another strategy's table.
        if let Some(elsewhere) = all.iter().position(|stored| !is_about_table(stored)) {
            let stored = all.swap_remove(elsewhere);
            if self.table.is_none() {
                return vec![stored];
            }
        }
        all.sort_by_key(|stored| (!stored.is_ready, stored.space != DEFAULT_SPACE));
        all
    }
}

/// Returns a text as an SQL expression that is valid with any session settings. `sql_mode` and
/// `standard_conforming_strings` decide whether a backslash escapes, so a text with one is written in another form.
fn text(text: &str, dialect: Dialect) -> String {
    let quoted = text.replace('\'', "''");
    match dialect {
        _ if !text.contains('\\') => format!("'{quoted}'"),
        Dialect::Postgres => format!("E'{}'", quoted.replace('\\', "\\\\")),
        _ => format!("CONVERT(x'{}' USING utf8mb4)", hex(text.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::Hierarchy;

    #[test]
    fn a_difference_from_the_stored_agreement_is_explained() {
        let scheme = Scheme::new(Dialect::Mysql);
        let new = scheme.agreement();
        let stored = Agreement { is_ready: true, ..new.clone() };
        assert_eq!(scheme.compare(&stored), Ok(()));
        let per_id = scheme.clone().strategy(Strategy::PerId).unwrap();
        let on_demand = scheme.clone().strategy(Strategy::OnDemand).unwrap();
        assert_eq!(per_id.compare(&on_demand.agreement()), Ok(()));
        let few = scheme.clone().buckets(Buckets::new(64).unwrap());
        let deep = scheme.clone().hierarchy(Hierarchy::new(["a", "b"]).unwrap());
        let newer = Agreement { key_version: 2, ..stored.clone() };
        for (ours, stored, says) in [
            (&per_id, &stored, "?strategy=striped"),
            (&few, &stored, "10000000 buckets, not 64"),
            (&deep, &stored, "user/account/resource, not a/b"),
            (&scheme, &newer, "version 2"),
            (&scheme, &new, "hierlock provision"),
        ] {
            let why = ours.compare(stored).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
