//! The lock tables of a server: reads, compares and creates the agreement and the table of rows.

use super::agreement::{Agreement, COLUMNS, SCHEMA};
use super::scheme::META_TABLE;
use super::{Dialect, LockPool, Scheme, Strategy};
use crate::database::DatabaseConnection;
use crate::error::{Error, SqlError};
use hierlock_engine::checks::{POOLER, ServerFacts, Severity};
use hierlock_engine::{ErrorClass, ServerAddress, ServerError, Session, Suitability};

pub(super) type Result<T, E = LockTableError> = std::result::Result<T, E>;

/// The number of attempts to create tables that another client creates at the same time.
const MAX_CREATE_TRIES: usize = 5;

/// Whether to create the tables of the strategy `on-demand` if they do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingTables {
    Create,
    Ignore,
}

/// The failure to read, create or use lock tables.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockTableError {
    #[error(transparent)]
    Statement(#[from] sqlx::Error),
    #[error(transparent)]
    Server(#[from] ServerError),
    /// This client cannot use the server or its tables, for this reason.
    #[error("{0}")]
    Unusable(String),
    /// The server's answer cannot be parsed.
    #[error("{0}")]
    Unreadable(&'static str),
    /// The error for the caller.
    #[error(transparent)]
    Other(#[from] Error),
}

impl LockTableError {
    /// Returns the error for the caller, with the name of the server.
    pub(super) fn at(self, address: &ServerAddress) -> Error {
        let server = address.to_string();
        match self {
            LockTableError::Statement(source) => ServerError::Failed { server, source }.into(),
            LockTableError::Unusable(why) => SqlError::Unusable { server, why }.into(),
            LockTableError::Unreadable(what) => SqlError::Unexpected { server, what }.into(),
            LockTableError::Server(error) => error.into(),
            LockTableError::Other(error) => error,
        }
    }
}

impl Scheme {
    /// Returns the error for a table of rows that does not exist.
    pub(super) fn no_table(&self) -> LockTableError {
        let table = self.rows_table();
        LockTableError::Unusable(format!(
            "it has no lock table `{table}` yet; create it with `hierlock provision`"
        ))
    }
}

/// Returns warnings about a server. Fails if it cannot be used.
pub(super) async fn check_server(
    session: &mut Session,
    address: &ServerAddress,
) -> Result<Vec<String>> {
    match session.suitability().await? {
        Suitability::Unusable(why) => Err(LockTableError::Unusable(why)),
        Suitability::Usable(warnings) => {
            Ok(warnings.into_iter().map(|why| format!("{address}: {why}")).collect())
        }
    }
}

/// Fails if there is a pooler in between that gives each transaction another connection.
pub(super) async fn check_pooler(session: &mut Session, pool: &LockPool) -> Result<()> {
    let is_pooled = Some(pool.server.is_behind_pooler(session).await?);
    let facts = ServerFacts { is_pooled, ..ServerFacts::new(session.dialect) };
    match POOLER.judge(&facts) {
        Some(found) if found.severity == Severity::Problem => {
            Err(LockTableError::Unusable(found.reason()))
        }
        _ => Ok(()),
    }
}

/// Compares a scheme with the stored agreement. The scheme adopts the stored bucket count unless a count was given. With the
/// strategy `on-demand`, creates the tables if they are `missing`. Returns whether the table of rows exists, striped as agreed.
pub(super) async fn agree(
    session: &mut Session,
    scheme: &mut Scheme,
    missing: MissingTables,
) -> Result<bool> {
    let is_on_demand = scheme.strategy == Strategy::OnDemand;
    let creates_tables = is_on_demand && missing == MissingTables::Create;
    let needs_no_table = is_on_demand && missing == MissingTables::Ignore;
    let mut stored = read(session, scheme).await?;
    let mut tries = if creates_tables { MAX_CREATE_TRIES } else { 0 };
    while stored.is_none() && tries > 0 {
        tries -= 1;
        let created = create_on_demand(session, scheme).await;
        if let Err(LockTableError::Unusable(why)) = created {
            return Err(LockTableError::Unusable(why));
        }
        stored = read(session, scheme).await?;
        // If two clients create a table at the same time, PostgreSQL fails one of them, although the table exists then.
        if stored.is_none() && tries == 0 {
            created?;
        }
    }
    let Some(stored) = stored else {
        // Advisory keys need no table, and no other agreement forbids them.
        let is_fine = scheme.strategy == Strategy::Advisory || needs_no_table;
        return if is_fine { Ok(true) } else { Err(scheme.no_table()) };
    };
    scheme.follow(&stored);
    scheme.compare(&stored).map_err(LockTableError::Unusable)?;
    if scheme.dialect.is_innodb() {
        RowTable::find(session, scheme).await?;
    }
    Ok(needs_no_table || has_row_table(session, scheme).await?)
}

/// Creates the tables of the strategy `on-demand`, which needs no provisioning, and stores the agreement.
async fn create_on_demand(session: &mut Session, scheme: &Scheme) -> Result<()> {
    make_meta(session).await?;
    for statement in scheme.create_rows().into_iter().chain(scheme.insert_agreement()) {
        session.run(&statement).await?;
    }
    if scheme.dialect.is_innodb() {
        session.run("COMMIT").await?;
    }
    Ok(())
}

/// Returns the stored agreement that binds clients with this scheme, if there is one. Fails if a newer release has written
/// it.
pub(super) async fn read(session: &mut Session, scheme: &Scheme) -> Result<Option<Agreement>> {
    let spaces: Vec<String> = scheme.spaces().iter().map(|space| format!("'{space}'")).collect();
    let spaces = spaces.join(", ");
    let sql = format!("SELECT {COLUMNS} FROM {META_TABLE} WHERE space IN ({spaces})");
    let rows = match session.rows(&sql).await {
        Ok(rows) => rows,
        Err(error) => {
            return match ErrorClass::of(&error) {
                ErrorClass::UndefinedColumn => fail_if_newer(session).await.map(|()| None),
                ErrorClass::UndefinedTable => Ok(None),
                _ => Err(error.into()),
            };
        }
    };
    let all: Option<Vec<Agreement>> = rows.iter().map(|row| Agreement::parse(row)).collect();
    let all =
        all.ok_or(LockTableError::Unreadable("it stores an agreement that cannot be read"))?;
    let mut relevant = scheme.relevant(all);
    // Older releases may have written two agreements for one table, and changed the bucket count of only one.
    if let [first, second] = &relevant[..]
        && first.buckets != second.buckets
    {
        let buckets = RowTable::find(session, scheme).await?.and_then(|table| table.buckets);
        relevant.sort_by_key(|stored| buckets != Some(stored.buckets));
    }
    Ok(relevant.into_iter().next())
}

/// Fails if [`META_TABLE`] is from a newer release.
async fn fail_if_newer(session: &mut Session) -> Result<()> {
    if session.dialect == Dialect::Postgres && session.in_transaction {
        // The failed statement has aborted the transaction.
        session.leave_transaction().await?;
    }
    let version = match session.rows(&SCHEMA.version_query()).await {
        Ok(rows) => rows.first().and_then(|row| row[0].parse().ok()),
        Err(error) if ErrorClass::of(&error).is_undefined() => None,
        Err(error) => return Err(error.into()),
    };
    match SCHEMA.compare(version.unwrap_or(1)) {
        Err(why) if why.is_newer_schema() => Err(LockTableError::Unusable(why.to_string())),
        _ => Ok(()),
    }
}

/// Creates or upgrades [`META_TABLE`]. Fails if a newer release has created it.
pub(super) async fn make_meta(session: &mut Session) -> Result<()> {
    let mut connection = DatabaseConnection::of_caller(session.as_ref().connection);
    let upgraded = SCHEMA.upgrade_alone(&mut connection).await?;
    upgraded.map_err(|why| LockTableError::Unusable(why.to_string()))
}

/// Returns whether the table of rows exists, striped as agreed. True for advisory keys, which need none.
async fn has_row_table(session: &mut Session, scheme: &Scheme) -> sqlx::Result<bool> {
    if scheme.strategy == Strategy::Advisory {
        return Ok(true);
    }
    let (column, table) = (scheme.selected_column(), scheme.quoted_table());
    match session.rows(&format!("SELECT {column} FROM {table} WHERE 1 = 0")).await {
        Ok(_) if scheme.dialect == Dialect::Postgres => Ok(true),
        Ok(_) => session.run("ROLLBACK").await.map(|()| true),
        Err(error) if ErrorClass::of(&error).is_undefined() => Ok(false),
        Err(error) => Err(error),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowTable {
    /// The bucket count in the name of a column, if there is one.
    pub(super) buckets: Option<u32>,
    /// Whether there is a primary key. Provisioning may create it last, which is faster.
    pub(super) has_key: bool,
}

impl RowTable {
    /// Returns the table of rows, if it exists. Fails if its storage engine has no row locks. On InnoDB it first ends the
    /// session's transaction, which has only read: otherwise MariaDB leaves a table out that is being altered, and some of the
    /// values below are missing.
    pub(super) async fn find(session: &mut Session, scheme: &Scheme) -> Result<Option<Self>> {
        let table = scheme.rows_table();
        // A row for each column: its name, whether there is a primary key, and the storage engine (not on PostgreSQL).
        let sql = match scheme.dialect {
            Dialect::Postgres => format!(
                "SELECT attname::text, EXISTS (SELECT 1 FROM pg_index WHERE indrelid = attrelid \
                 AND indisprimary)::int::text, '' FROM pg_attribute \
                 WHERE attrelid = to_regclass('{table}') AND attnum > 0 AND NOT attisdropped"
            ),
            _ => {
                // Constants in each query: MariaDB opens every table that no constant excludes.
                let is_it = format!("TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'");
                format!(
                    "ROLLBACK; SELECT COLUMN_NAME, EXISTS (SELECT 1 FROM information_schema.STATISTICS \
                     WHERE {is_it} AND INDEX_NAME = 'PRIMARY'), (SELECT ENGINE \
                     FROM information_schema.TABLES WHERE {is_it}) \
                     FROM information_schema.COLUMNS WHERE {is_it}"
                )
            }
        };
        let columns = session.rows(&sql).await?;
        let Some([_, has_key, engine]) = columns.first().map(|column| &column[..]) else {
            return Ok(None);
        };
        if scheme.dialect.is_innodb() && engine != "InnoDB" {
            return Err(LockTableError::Unusable(format!(
                "`{table}` is a table of {engine}, which has no row locks; ALTER TABLE {table} \
                 ENGINE = InnoDB"
            )));
        }
        let buckets = columns.iter().find_map(|column| column[0].strip_prefix("of_")?.parse().ok());
        Ok(Some(Self { buckets, has_key: has_key == "1" }))
    }
}
