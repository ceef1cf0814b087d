//! The lock tables of a server: the stored agreement and the table of rows, as they are read, compared and made.

use super::agreement::{Agreement, ProvisionState, SCHEMA};
use super::scheme::META_TABLE;
use super::{Dialect, Scheme, Strategy};
use crate::database::DatabaseConnection;
use crate::error::{Error, SqlError};
use hierlock_engine::{ErrorClass, ServerAddress, ServerError, Session, Suitability};

pub(super) type Result<T, E = LockTableError> = std::result::Result<T, E>;

/// How often tables are made by two at once before that is an error.
const MAX_CREATE_TRIES: usize = 5;

/// What to do about tables that are made by the first client, and are not there yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingTables {
    Make,
    Leave,
}

/// Why lock tables could not be read, made or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum LockTableError {
    #[error(transparent)]
    Statement(#[from] sqlx::Error),
    /// The server or its tables are not as this client needs them, for this reason.
    #[error("{0}")]
    Unfit(String),
    /// The server has answered with something that cannot be read.
    #[error("{0}")]
    Unreadable(&'static str),
    /// The caller is told this.
    #[error(transparent)]
    Other(#[from] Error),
}

impl LockTableError {
    /// Returns what the caller is told, with the name of the server.
    pub(super) fn at(self, address: &ServerAddress) -> Error {
        let server = address.to_string();
        match self {
            LockTableError::Statement(source) => ServerError::Failed { server, source }.into(),
            LockTableError::Unfit(why) => SqlError::Unusable { server, why }.into(),
            LockTableError::Unreadable(what) => SqlError::Unexpected { server, what }.into(),
            LockTableError::Other(error) => error,
        }
    }
}

impl Scheme {
    /// Returns that the table of its rows is not there yet.
    pub(super) fn no_table(&self) -> LockTableError {
        let table = self.rows_table();
        LockTableError::Unfit(format!(
            "it has no lock table `{table}` yet; make it with `hierlock provision`"
        ))
    }
}

/// Makes sure that a server can be used; what a person should know before using it comes back.
pub(super) async fn check_server(
    session: &mut Session,
    address: &ServerAddress,
) -> Result<Vec<String>> {
    match session.suitability().await? {
        Suitability::Fit => Ok(Vec::new()),
        Suitability::Unfit(why) => Err(LockTableError::Unfit(why)),
        Suitability::Doubtful(why) => Ok(vec![format!("{address}: {why}")]),
    }
}

/// Compares a scheme with the stored agreement, whose bucket count it takes over if it `follows`. What needs no
/// provisioning is agreed upon here. Returns whether the table of rows is there, striped as agreed.
pub(super) async fn agree(
    session: &mut Session,
    scheme: &mut Scheme,
    follows: bool,
    missing: MissingTables,
) -> Result<bool> {
    let is_on_demand = scheme.strategy == Strategy::OnDemand;
    let makes_tables = is_on_demand && missing == MissingTables::Make;
    let needs_no_table = is_on_demand && missing == MissingTables::Leave;
    let mut stored = read(session, scheme).await?;
    let mut tries = if makes_tables { MAX_CREATE_TRIES } else { 0 };
    while stored.is_none() && tries > 0 {
        tries -= 1;
        let made = make_on_demand(session, scheme).await;
        if let Err(LockTableError::Unfit(why)) = made {
            return Err(LockTableError::Unfit(why));
        }
        stored = read(session, scheme).await?;
        // Two who make the same table at the same time are told so by PostgreSQL; it is there then.
        if stored.is_none() && tries == 0 {
            made?;
        }
    }
    let Some(stored) = stored else {
        // With keys, nobody has agreed on anything else.
        let is_fine = scheme.strategy == Strategy::Advisory || needs_no_table;
        return if is_fine { Ok(true) } else { Err(scheme.no_table()) };
    };
    if follows {
        scheme.follow(&stored);
    }
    if let Some(why) = scheme.difference(&stored) {
        return Err(LockTableError::Unfit(why));
    }
    if scheme.dialect.is_innodb() {
        RowTable::find(session, scheme).await?;
        session.run("ROLLBACK").await?;
    }
    Ok(needs_no_table || is_there(session, scheme).await?)
}

/// What needs no provisioning is made by whoever comes first.
async fn make_on_demand(session: &mut Session, scheme: &Scheme) -> Result<()> {
    make_meta(session).await?;
    for statement in scheme.create_rows().into_iter().chain(scheme.agree(ProvisionState::Ready)) {
        session.run(&statement).await?;
    }
    if scheme.dialect.is_innodb() {
        session.run("COMMIT").await?;
    }
    Ok(())
}

/// Returns the stored agreement of these clients, if there is one. Fails if a newer release has written it.
pub(super) async fn read(session: &mut Session, scheme: &Scheme) -> Result<Option<Agreement>> {
    let spaces: Vec<String> = scheme.spaces().iter().map(|space| format!("'{space}'")).collect();
    let sql = format!(
        "SELECT space, strategy, buckets, levels, key_version, state FROM {META_TABLE} \
         WHERE space IN ({})",
        spaces.join(", ")
    );
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
    let mut about = scheme.relevant(all);
    // Older releases may have written two for one table, and changed the bucket count of only one.
    if let [first, second] = &about[..]
        && first.buckets != second.buckets
    {
        let fence = RowTable::find(session, scheme).await?.and_then(|table| table.fence);
        about.sort_by_key(|stored| fence != Some(stored.buckets));
    }
    Ok(about.into_iter().next())
}

/// Fails if the table of agreements is that of a newer release.
async fn fail_if_newer(session: &mut Session) -> Result<()> {
    if session.dialect == Dialect::Postgres && session.in_transaction {
        // The statement that failed has ended it.
        session.leave_transaction().await?;
    }
    let version = match session.rows(&SCHEMA.version_query()).await {
        Ok(rows) => rows.first().and_then(|row| row[0].parse().ok()),
        Err(error) if ErrorClass::of(&error).is_undefined() => None,
        Err(error) => return Err(error.into()),
    };
    match SCHEMA.compare(version.unwrap_or(1)) {
        Err(why) if why.is_newer_schema() => Err(LockTableError::Unfit(why.to_string())),
        _ => Ok(()),
    }
}

/// Makes the table of agreements, or upgrades it. Fails if a newer release has made it.
pub(super) async fn make_meta(session: &mut Session) -> Result<()> {
    let mut connection = DatabaseConnection::of_caller(session.as_ref().connection);
    let made = SCHEMA.upgrade_alone(&mut connection).await?;
    made.map_err(|why| LockTableError::Unfit(why.to_string()))
}

/// Is the table of rows there, striped as agreed?
async fn is_there(session: &mut Session, scheme: &Scheme) -> Result<bool, sqlx::Error> {
    if scheme.strategy == Strategy::Advisory {
        return Ok(true);
    }
    let (fence, table) = (scheme.fence(), scheme.quoted_table());
    match session.rows(&format!("SELECT {fence} FROM {table} WHERE 1 = 0")).await {
        Ok(_) if scheme.dialect == Dialect::Postgres => Ok(true),
        Ok(_) => session.run("ROLLBACK").await.map(|()| true),
        Err(error) if ErrorClass::of(&error).is_undefined() => Ok(false),
        Err(error) => Err(error),
    }
}

/// What there is of the table of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowTable {
    /// The bucket count in the name of its fence, if it has one.
    pub(super) fence: Option<u32>,
    /// Its primary key is made last where that is faster.
    pub(super) has_key: bool,
}

impl RowTable {
    /// Returns the table of rows, if it is there. Fails if it is of an engine that has no row locks.
    pub(super) async fn find(session: &mut Session, scheme: &Scheme) -> Result<Option<Self>> {
        let table = scheme.rows_table();
        // A row for each column: its name, whether there is a primary key, and the engine of InnoDB's servers.
        let sql = match scheme.dialect {
            Dialect::Postgres => format!(
                "SELECT attname::text, EXISTS (SELECT 1 FROM pg_index WHERE indrelid = attrelid \
                 AND indisprimary)::int::text, '' FROM pg_attribute \
                 WHERE attrelid = to_regclass('{table}') AND attnum > 0 AND NOT attisdropped"
            ),
            _ => {
                // Said of each: MariaDB opens every table that is not excluded by a constant.
                let is_it = format!("TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'");
                format!(
                    "SELECT COLUMN_NAME, EXISTS (SELECT 1 FROM information_schema.STATISTICS \
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
            return Err(LockTableError::Unfit(format!(
                "`{table}` is a table of {engine}, which has no row locks; ALTER TABLE {table} \
                 ENGINE = InnoDB"
            )));
        }
        let fence = columns.iter().find_map(|column| column[0].strip_prefix("of_")?.parse().ok());
        Ok(Some(Self { fence, has_key: has_key == "1" }))
    }
}
