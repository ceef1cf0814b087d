//! What the clients of a server have agreed about, as it is stored there. A client that differs would lock other rows
//! than the rest, and exclude nobody: so it is refused. Pure; `lock_table.rs` reads and writes it.

use super::scheme::{DEFAULT_SPACE, KEY_VERSION, META_TABLE};
use super::statement::{Literal as _, hex};
use super::{Dialect, Scheme, Strategy};
use crate::database::{Driver, Schema};
use crate::{Buckets, Target};

/// What the clients of a lock table have agreed about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// Its name in the table of agreements.
    pub(super) space: String,
    pub(super) strategy: String,
    pub(super) buckets: u32,
    /// The names of the levels.
    pub(super) levels: String,
    pub(super) key_version: i64,
    pub(super) state: ProvisionState,
}

/// How far provisioning has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProvisionState {
    Filling,
    Ready,
}

impl ProvisionState {
    pub(super) fn name(self) -> &'static str {
        match self {
            ProvisionState::Filling => "filling",
            ProvisionState::Ready => "ready",
        }
    }
}

impl Agreement {
    pub(super) fn parse(row: &[String]) -> Option<Self> {
        let [space, strategy, buckets, levels, key_version, state] = row else { return None };
        let is_ready = state == ProvisionState::Ready.name();
        Some(Self {
            space: space.clone(),
            strategy: strategy.clone(),
            buckets: u32::try_from(buckets.parse::<i64>().ok()?).unwrap_or(0),
            levels: levels.clone(),
            key_version: key_version.parse().ok()?,
            state: if is_ready { ProvisionState::Ready } else { ProvisionState::Filling },
        })
    }
}

/// The table of agreements. Tables of rows are made by their agreement, and their form is in the name of a column.
pub(crate) const SCHEMA: Schema = Schema {
    part: "locks",
    command: "hierlock provision",
    steps: &[meta_statements],
    tables: |_| &[META_TABLE],
    functions: &[],
    rows: |_| None,
};

/// Makes the table of the agreements of all lock tables of a database. On MySQL and MariaDB it says what else would be
/// the server's default. SQLite has no locks of ours.
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

impl Scheme {
    /// What makes the table of its rows; advisory keys have none.
    pub(crate) fn create_rows(&self) -> Option<String> {
        let (table, fence) = (self.quoted_table(), self.fence());
        let (numbers, bytes, engine) = match self.dialect {
            Dialect::Postgres => (["SMALLINT", "INT"], "BYTEA", ""),
            // Eight IDs of 255 bytes, each behind its length, and the level.
            _ => (["TINYINT UNSIGNED", "INT UNSIGNED"], "VARBINARY(2100)", " ENGINE = InnoDB"),
        };
        let columns = match self.strategy {
            Strategy::Advisory => return None,
            Strategy::Striped => format!(
                "level {} NOT NULL, bucket {} NOT NULL, {fence} BOOLEAN, \
                 PRIMARY KEY (level, bucket)",
                numbers[0], numbers[1]
            ),
            _ => format!("lock_key {bytes} NOT NULL PRIMARY KEY"),
        };
        Some(format!("CREATE TABLE IF NOT EXISTS {table} ({columns}){engine}"))
    }

    /// What makes rows by ID for these nodes, in a transaction of its own; those that are there stay.
    pub(super) fn insert<'a>(&self, nodes: impl Iterator<Item = &'a Target>) -> String {
        let key = |node: &Target| format!("({})", node.key().into_bytes().literal(self.dialect));
        let (table, keys) = (self.quoted_table(), nodes.map(key).collect::<Vec<_>>().join(", "));
        let [insert, or_not] = self.insert_words();
        format!("{insert} {table} (lock_key) VALUES {keys}{or_not}; COMMIT")
    }

    /// What stands before the table and behind the rows of an INSERT that leaves rows which are there.
    pub(super) fn insert_words(&self) -> [&'static str; 2] {
        match self.dialect {
            Dialect::Postgres => ["INSERT INTO", " ON CONFLICT DO NOTHING"],
            _ => ["INSERT IGNORE INTO", ""],
        }
    }

    /// The state before its rows are there; rows by ID come later, one by one.
    pub(super) fn first_state(&self) -> ProvisionState {
        match self.strategy {
            Strategy::Striped => ProvisionState::Filling,
            _ => ProvisionState::Ready,
        }
    }

    /// What writes the agreement down; an earlier one stays.
    pub(super) fn agree(&self, state: ProvisionState) -> Vec<String> {
        let [insert, or_not] = self.insert_words();
        let Agreement { space, strategy, buckets, levels, key_version, state } =
            self.agreement(state);
        let state = state.name();
        let levels = text(&levels, self.dialect);
        let insert = |space: &str, condition: &str| {
            format!(
                "{insert} {META_TABLE} (space, strategy, buckets, levels, key_version, state) \
                 SELECT '{space}', '{strategy}', {buckets}, {levels}, {key_version}, \
                 '{state}'{condition}{or_not}"
            )
        };
        let mut statements = vec![insert(&space, "")];
        if space == DEFAULT_SPACE && self.table.is_some() {
            // Those who name no table may have agreed on another strategy, and so on another table.
            let (table, is_about) = (self.rows_table(), self.is_about());
            let condition = format!(
                " FROM (SELECT COUNT(*) AS n FROM {META_TABLE} WHERE {is_about}) a WHERE a.n = 0"
            );
            statements.push(insert(table, &condition));
        }
        statements
    }

    /// Which rows of the table of agreements are about the table of its rows.
    pub(super) fn is_about(&self) -> String {
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

    /// What writes down another bucket count.
    pub(super) fn update_buckets(&self, buckets: u32) -> String {
        format!("UPDATE {META_TABLE} SET buckets = {buckets} WHERE {}", self.is_about())
    }

    /// What writes down that all rows are there.
    pub(super) fn update_ready(&self) -> String {
        let ready = ProvisionState::Ready.name();
        format!("UPDATE {META_TABLE} SET state = '{ready}' WHERE {}", self.is_about())
    }

    /// What this scheme would have written down.
    fn agreement(&self, state: ProvisionState) -> Agreement {
        Agreement {
            space: self.space().to_owned(),
            strategy: self.strategy.name().to_owned(),
            buckets: if self.strategy == Strategy::Striped { self.buckets.count() } else { 0 },
            levels: self.hierarchy.to_string(),
            key_version: KEY_VERSION,
            state,
        }
    }

    /// Returns why this scheme and a stored agreement do not go together, if they do not.
    pub(super) fn difference(&self, stored: &Agreement) -> Option<String> {
        let ours = self.agreement(stored.state);
        let (table, space) = (self.rows_table(), &stored.space);
        // By ID or on demand: the same rows, only made by others.
        let rows = |strategy: &str| strategy.replace("on-demand", "per-id");
        if rows(&ours.strategy) != rows(&stored.strategy) {
            return Some(format!(
                "its clients have agreed on the strategy {}, not {} (`{space}` in {META_TABLE}): \
                 connect with ?strategy={}, or keep the locks apart with table=NAME",
                stored.strategy, ours.strategy, stored.strategy
            ));
        }
        if ours.buckets != stored.buckets {
            return Some(format!(
                "`{table}` is striped over {} buckets, not {}; leave buckets= away to follow it",
                stored.buckets, ours.buckets
            ));
        }
        if ours.levels != stored.levels {
            let (stored, ours) = (&stored.levels, &ours.levels);
            return Some(format!("`{table}` is for the levels {stored}, not {ours}"));
        }
        if ours.key_version != stored.key_version {
            return Some(format!(
                "`{table}` is used with version {} of the keys, not {}; all clients must have the \
                 same release of hierlock",
                stored.key_version, ours.key_version
            ));
        }
        (stored.state == ProvisionState::Filling).then(|| {
            format!("`{table}` is not filled yet; run `hierlock provision` again to finish it")
        })
    }

    /// Takes over what a client need not know beforehand.
    pub(super) fn follow(&mut self, stored: &Agreement) {
        if let Ok(buckets) = Buckets::new(stored.buckets) {
            self.buckets = buckets;
        }
    }

    /// Those of the agreements that bind its clients, the first before all others.
    pub(super) fn relevant(&self, mut all: Vec<Agreement>) -> Vec<Agreement> {
        let is_about_table = |stored: &Agreement| {
            let strategy = stored.strategy.parse::<Strategy>();
            stored.space != DEFAULT_SPACE
                || strategy.is_ok_and(|strategy| strategy.default_table() == self.rows_table())
        };
        // Who names no table must agree with all others who name none, whatever table theirs is.
        if let Some(elsewhere) = all.iter().position(|stored| !is_about_table(stored)) {
            let stored = all.swap_remove(elsewhere);
            if self.table.is_none() {
                return vec![stored];
            }
        }
        all.sort_by_key(|stored| {
            (stored.state != ProvisionState::Ready, stored.space != DEFAULT_SPACE)
        });
        all
    }
}

/// A text as SQL has it, whatever the session's settings. A backslash is a character or not, by `sql_mode` and by
/// `standard_conforming_strings`: so a text with one is written otherwise.
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
    fn whoever_differs_is_told_how() {
        let scheme = Scheme::new(Dialect::Mysql);
        let stored = scheme.agreement(ProvisionState::Ready);
        assert_eq!(scheme.difference(&stored), None);
        let per_id = scheme.clone().strategy(Strategy::PerId).unwrap();
        let on_demand = scheme.clone().strategy(Strategy::OnDemand).unwrap();
        assert_eq!(per_id.difference(&on_demand.agreement(ProvisionState::Ready)), None);
        let few = scheme.clone().buckets(Buckets::new(64).unwrap());
        let deep = scheme.clone().hierarchy(Hierarchy::new(["a", "b"]).unwrap());
        let newer = Agreement { key_version: 2, ..stored.clone() };
        for (ours, stored, says) in [
            (&per_id, &stored, "?strategy=striped"),
            (&few, &stored, "10000000 buckets, not 64"),
            (&deep, &stored, "user/account/resource, not a/b"),
            (&scheme, &newer, "version 2"),
            (&scheme, &scheme.agreement(ProvisionState::Filling), "hierlock provision"),
        ] {
            let why = ours.difference(stored).unwrap();
            assert!(why.contains(says), "{why}");
        }
    }
}
