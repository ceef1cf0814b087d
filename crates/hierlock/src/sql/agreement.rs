//! What the clients of a server have agreed about, as the server keeps it beside the rows. A client
//! that differs would lock other rows than the rest, and exclude nobody: so it is told at connect.

use super::failure::LockFailure;
use super::scheme::{DEFAULT_SPACE, KEY_VERSION, META_TABLE};
use super::statement::{Value, hex};
use super::{Dialect, Scheme, Strategy};
use crate::database::{DatabaseConnection, Driver, Schema};
use crate::key::Buckets;
use crate::target::Target;
use hierlock_engine::{ErrorClass, Session};

/// What is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// Its name in the table of agreements.
    pub(super) space: String,
    pub(super) strategy: String,
    pub(super) buckets: u32,
    /// The names of the levels.
    pub(super) levels: String,
    pub(super) key_version: i64,
    pub(super) state: State,
}

/// How far provisioning has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Filling,
    Ready,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Filling => "filling",
            State::Ready => "ready",
        }
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

fn meta_statements(driver: Driver) -> Vec<String> {
    match driver {
        Driver::Mysql => vec![create_meta(Dialect::Mysql)],
        Driver::Postgres => vec![create_meta(Dialect::Postgres)],
        // It has no locks of ours.
        Driver::Sqlite => Vec::new(),
    }
}

/// Keeps the agreements of all lock tables of a database. On MySQL and MariaDB it says what else would be the server's
/// default.
fn create_meta(dialect: Dialect) -> String {
    let options = match dialect {
        Dialect::Postgres => "",
        _ => " ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4",
    };
    format!(
        "CREATE TABLE IF NOT EXISTS {META_TABLE} (\
         space VARCHAR(64) NOT NULL PRIMARY KEY, strategy VARCHAR(16) NOT NULL, \
         buckets BIGINT NOT NULL, levels VARCHAR(2200) NOT NULL, key_version BIGINT NOT NULL, \
         state VARCHAR(16) NOT NULL){options}"
    )
}

impl Scheme {
    /// What makes the table of its rows; advisory keys have none.
    pub(crate) fn create_rows(&self) -> Option<String> {
        let (table, fence) = (self.quoted_table(), self.fence());
        let columns = match (self.dialect, self.strategy) {
            (_, Strategy::Advisory) => return None,
            (Dialect::Postgres, Strategy::Striped) => format!(
                "level SMALLINT NOT NULL, bucket INT NOT NULL, {fence} BOOLEAN, \
                 PRIMARY KEY (level, bucket)"
            ),
            (_, Strategy::Striped) => format!(
                "level TINYINT UNSIGNED NOT NULL, bucket INT UNSIGNED NOT NULL, {fence} BOOLEAN, \
                 PRIMARY KEY (level, bucket)"
            ),
            (Dialect::Postgres, _) => "lock_key BYTEA NOT NULL PRIMARY KEY".to_owned(),
            // Eight IDs of 255 bytes, each behind its length, and the level.
            (_, _) => "lock_key VARBINARY(2100) NOT NULL PRIMARY KEY".to_owned(),
        };
        let engine = if self.dialect == Dialect::Postgres { "" } else { " ENGINE = InnoDB" };
        Some(format!("CREATE TABLE IF NOT EXISTS {table} ({columns}){engine}"))
    }

    /// The same for striped rows whose primary key comes later, on PostgreSQL.
    pub(super) fn create_rows_without_key(&self) -> Option<String> {
        self.create_rows().map(|sql| sql.replace(", PRIMARY KEY (level, bucket)", ""))
    }

    /// What makes rows by ID for these nodes, in a transaction of its own; those that are there stay.
    pub(super) fn insert<'a>(&self, nodes: impl Iterator<Item = &'a Target>) -> String {
        let keys: Vec<String> = nodes
            .map(|node| Value::Key(node.key().into_bytes()).literal(self.dialect))
            .map(|key| format!("({key})"))
            .collect();
        let (table, keys) = (self.quoted_table(), keys.join(", "));
        match self.dialect {
            Dialect::Postgres => {
                let or_not = "ON CONFLICT DO NOTHING";
                format!("INSERT INTO {table} (lock_key) VALUES {keys} {or_not}; COMMIT")
            }
            _ => format!("INSERT IGNORE INTO {table} (lock_key) VALUES {keys}; COMMIT"),
        }
    }

    /// What writes the agreement down; an earlier one stays.
    pub(super) fn agree(&self, state: State) -> Vec<String> {
        let (insert, or_not) = match self.dialect {
            Dialect::Postgres => ("INSERT INTO", " ON CONFLICT DO NOTHING"),
            _ => ("INSERT IGNORE INTO", ""),
        };
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
        let strategies: Vec<String> = Strategy::ALL
            .into_iter()
            .filter(|strategy| strategy.default_table() == table)
            .map(|strategy| format!("'{strategy}'"))
            .collect();
        if strategies.is_empty() {
            return format!("space = '{table}'");
        }
        let strategies = strategies.join(", ");
        format!("(space = '{table}' OR (space = '{DEFAULT_SPACE}' AND strategy IN ({strategies})))")
    }

    /// What this scheme would have written down.
    fn agreement(&self, state: State) -> Agreement {
        Agreement {
            space: self.space().to_owned(),
            strategy: self.strategy.name().to_owned(),
            buckets: if self.strategy == Strategy::Striped { self.buckets.count() } else { 0 },
            levels: self.hierarchy.to_string(),
            key_version: KEY_VERSION,
            state,
        }
    }

    /// Why this scheme and what is kept do not go together, if they do not.
    pub(super) fn differs(&self, kept: &Agreement) -> Option<String> {
        let ours = self.agreement(kept.state);
        let (table, space) = (self.rows_table(), &kept.space);
        // By ID or on demand: the same rows, only made by others.
        let same_rows = |strategy: &str| match strategy {
            "on-demand" => "per-id".to_owned(),
            other => other.to_owned(),
        };
        if same_rows(&ours.strategy) != same_rows(&kept.strategy) {
            return Some(format!(
                "its clients have agreed on the strategy {}, not {} (`{space}` in {META_TABLE}): \
                 connect with ?strategy={}, or keep the locks apart with table=NAME",
                kept.strategy, ours.strategy, kept.strategy
            ));
        }
        if ours.buckets != kept.buckets {
            return Some(format!(
                "`{table}` is striped over {} buckets, not {}; leave buckets= away to follow it",
                kept.buckets, ours.buckets
            ));
        }
        if ours.levels != kept.levels {
            return Some(format!(
                "`{table}` is for the levels {}, not {}",
                kept.levels, ours.levels
            ));
        }
        if ours.key_version != kept.key_version {
            return Some(format!(
                "`{table}` is used with version {} of the keys, not {}; all clients must have the \
                 same release of hierlock",
                kept.key_version, ours.key_version
            ));
        }
        (kept.state == State::Filling).then(|| {
            format!("`{table}` is not filled yet; run `hierlock provision` again to finish it")
        })
    }

    /// Takes over what a client need not know beforehand.
    pub(super) fn follow(&mut self, kept: &Agreement) {
        if let Ok(buckets) = Buckets::new(kept.buckets) {
            self.buckets = buckets;
        }
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

/// What a server keeps for these clients, if anything; or why it cannot be read, if a newer release has written it.
pub(super) async fn read(
    session: &mut Session,
    scheme: &Scheme,
) -> Result<Result<Option<Agreement>, String>, sqlx::Error> {
    let spaces: Vec<String> = scheme.spaces().iter().map(|space| format!("'{space}'")).collect();
    let sql = format!(
        "SELECT space, strategy, buckets, levels, key_version, state FROM {META_TABLE} \
         WHERE space IN ({})",
        spaces.join(", ")
    );
    let rows = match session.rows(&sql).await {
        Ok(rows) => rows,
        Err(error) if ErrorClass::of(&error) == ErrorClass::UndefinedColumn => {
            let newer = why_newer(session).await?;
            return Ok(newer.map_or(Ok(None), Err));
        }
        Err(error) if LockFailure::of(&error) == LockFailure::TableChanged => return Ok(Ok(None)),
        Err(error) => return Err(error),
    };
    let all: Result<Vec<Agreement>, _> = rows.iter().map(|row| parse(row)).collect();
    let mut about = scheme.relevant(all?);
    // Older releases may have written two for one table, and changed the bucket count of only one.
    if let [first, second] = &about[..]
        && first.buckets != second.buckets
    {
        let fence = fence_of(&columns(session, scheme).await?);
        about.sort_by_key(|kept| fence != Some(kept.buckets));
    }
    Ok(Ok(about.into_iter().next()))
}

/// Says so if the table of agreements is that of a newer release.
async fn why_newer(session: &mut Session) -> Result<Option<String>, sqlx::Error> {
    if session.dialect == Dialect::Postgres && session.in_transaction {
        // The statement that failed has ended it.
        session.leave_transaction().await?;
    }
    let version = match session.rows(&SCHEMA.version_query()).await {
        Ok(rows) => rows.first().and_then(|row| row[0].parse().ok()),
        Err(error) if LockFailure::of(&error) == LockFailure::TableChanged => None,
        Err(error) => return Err(error),
    };
    let found = version.unwrap_or(1);
    Ok(SCHEMA.compare(found).err().filter(|_| found > SCHEMA.newest()).map(|why| why.to_string()))
}

/// Makes the table of agreements, or upgrades it; or says why not, if a newer release has made it.
pub(super) async fn make_meta(session: &mut Session) -> Result<Result<(), String>, sqlx::Error> {
    let mut connection = DatabaseConnection::of_caller(session.as_ref().connection);
    let made = SCHEMA.upgrade_alone(&mut connection).await?;
    Ok(made.map_err(|why| why.to_string()))
}

fn parse(row: &[String]) -> Result<Agreement, sqlx::Error> {
    let [space, strategy, buckets, levels, key_version, state] = row else {
        return Err(sqlx::Error::RowNotFound);
    };
    let number = |text: &str| text.parse::<i64>().map_err(|_| sqlx::Error::RowNotFound);
    Ok(Agreement {
        space: space.clone(),
        strategy: strategy.clone(),
        buckets: u32::try_from(number(buckets)?).unwrap_or(0),
        levels: levels.clone(),
        key_version: number(key_version)?,
        state: if state == State::Ready.name() { State::Ready } else { State::Filling },
    })
}

impl Scheme {
    /// Those of the agreements that bind its clients, the first before all others.
    fn relevant(&self, mut all: Vec<Agreement>) -> Vec<Agreement> {
        let is_about_table = |kept: &Agreement| {
            kept.space != DEFAULT_SPACE
                || kept
                    .strategy
                    .parse::<Strategy>()
                    .is_ok_and(|strategy| strategy.default_table() == self.rows_table())
        };
        // Who names no table must agree with all others who name none, whatever table theirs is.
        let elsewhere = all.iter().position(|kept| !is_about_table(kept));
        if let Some(elsewhere) = elsewhere {
            let kept = all.swap_remove(elsewhere);
            if self.table.is_none() {
                return vec![kept];
            }
        }
        all.sort_by_key(|kept| (kept.state != State::Ready, kept.space != DEFAULT_SPACE));
        all
    }
}

/// The names of the columns of the table of rows; none if there is no table.
pub(super) async fn columns(
    session: &mut Session,
    scheme: &Scheme,
) -> Result<Vec<String>, sqlx::Error> {
    let table = scheme.rows_table();
    let sql = match scheme.dialect {
        Dialect::Postgres => format!(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass('{table}') \
             AND attnum > 0 AND NOT attisdropped"
        ),
        _ => format!(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() \
             AND TABLE_NAME = '{table}'"
        ),
    };
    Ok(session.rows(&sql).await?.into_iter().map(|mut row| row.swap_remove(0)).collect())
}

/// The bucket count in the name of the fence, if there is one.
pub(super) fn fence_of(columns: &[String]) -> Option<u32> {
    columns.iter().find_map(|column| column.strip_prefix("of_")?.parse().ok())
}

/// Is the table of rows there, striped as agreed?
pub(super) async fn is_there(session: &mut Session, scheme: &Scheme) -> Result<bool, sqlx::Error> {
    if scheme.strategy == Strategy::Advisory {
        return Ok(true);
    }
    let (fence, table) = (scheme.fence(), scheme.quoted_table());
    match session.rows(&format!("SELECT {fence} FROM {table} WHERE 1 = 0")).await {
        Ok(_) if scheme.dialect == Dialect::Postgres => Ok(true),
        Ok(_) => session.run("ROLLBACK").await.map(|()| true),
        Err(error) if LockFailure::of(&error) == LockFailure::TableChanged => Ok(false),
        Err(error) => Err(error),
    }
}

/// The engine of the table of rows on MySQL and MariaDB; others have no row locks.
pub(super) async fn engine(
    session: &mut Session,
    scheme: &Scheme,
) -> Result<Option<String>, sqlx::Error> {
    let sql = format!(
        "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND \
         TABLE_NAME = '{}'",
        scheme.rows_table()
    );
    Ok(session.rows(&sql).await?.into_iter().next().map(|mut row| row.swap_remove(0)))
}

/// Why a table of that engine is of no use, if it is not.
pub(super) fn not_innodb(table: &str, engine: &str) -> Option<String> {
    (engine != "InnoDB").then(|| {
        format!(
            "`{table}` is a table of {engine}, which has no row locks; ALTER TABLE {table} \
             ENGINE = InnoDB"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::Hierarchy;

    #[test]
    fn whoever_differs_is_told_how() {
        let scheme = Scheme::new(Dialect::Mysql);
        let kept = scheme.agreement(State::Ready);
        assert_eq!(scheme.differs(&kept), None);
        let per_id = scheme.clone().strategy(Strategy::PerId).unwrap();
        let on_demand = scheme.clone().strategy(Strategy::OnDemand).unwrap();
        assert_eq!(per_id.differs(&on_demand.agreement(State::Ready)), None);
        let few = scheme.clone().buckets(Buckets::new(64).unwrap());
        let deep = scheme.clone().hierarchy(Hierarchy::new(["a", "b"]).unwrap());
        let newer = Agreement { key_version: 2, ..kept.clone() };
        for (ours, kept, says) in [
            (&per_id, &kept, "?strategy=striped"),
            (&few, &kept, "10000000 buckets, not 64"),
            (&deep, &kept, "user/account/resource, not a/b"),
            (&scheme, &newer, "version 2"),
            (&scheme, &scheme.agreement(State::Filling), "hierlock provision"),
        ] {
            let why = ours.differs(kept).unwrap();
            assert!(why.contains(says), "{why}");
        }
    }
}
