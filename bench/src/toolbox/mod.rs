//! Compares hierlock's queue and leases with plain SQL that does the same work on the same tables, on each engine.

mod plain_sql;

pub use plain_sql::PlainSql;

use hierlock::database::{Database, Value};
use hierlock::lease::Leases;
use hierlock::queue::{ClaimedJob, Job, Queue};
use hierlock::retry::{RetryPolicy, retry};
use hierlock_sandbox::{Engine, Sandbox};
use tempfile::TempDir;

/// The result of benchmark functions.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The duration of claims and leases: longer than any round.
pub const TTL: std::time::Duration = std::time::Duration::from_secs(600);

/// The kind of database that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseKind {
    /// A throw-away server.
    Server(Engine),
    /// A file of SQLite.
    Sqlite,
}

impl DatabaseKind {
    /// All kinds.
    pub const ALL: [DatabaseKind; 4] = [
        DatabaseKind::Server(Engine::Mysql),
        DatabaseKind::Server(Engine::Mariadb),
        DatabaseKind::Server(Engine::Postgres),
        DatabaseKind::Sqlite,
    ];
}

impl std::fmt::Display for DatabaseKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DatabaseKind::Server(engine) => write!(f, "{engine}"),
            DatabaseKind::Sqlite => f.write_str("sqlite"),
        }
    }
}

/// A database with the tables of the toolbox.
pub struct BenchDatabase {
    /// The URL.
    pub url: String,
    /// hierlock's connections.
    pub database: Database,
    /// The connections of plain SQL, with the same settings.
    pub plain_sql: PlainSql,
    _server: Option<Sandbox>,
    _directory: Option<TempDir>,
}

impl BenchDatabase {
    /// Starts the server or creates the file, and provisions the tables.
    ///
    /// # Errors
    /// Fails if a server is not installed or does not start.
    pub async fn start(kind: DatabaseKind) -> Result<Self> {
        let (server, directory) = match kind {
            DatabaseKind::Server(engine) => {
                (Some(Sandbox::start(engine).map_err(|e| e.to_string())?), None)
            }
            DatabaseKind::Sqlite => (None, Some(tempfile::tempdir()?)),
        };
        let url = match (&server, &directory) {
            (Some(server), _) => server.url().to_owned(),
            (_, Some(directory)) => format!("sqlite:{}", directory.path().join("a.db").display()),
            _ => return Err("no database".into()),
        };
        let database = Database::connect(&url).await?;
        Leases::new(database.clone()).provision().await?;
        Queue::new(database.clone(), "bench")?.provision().await?;
        let plain_sql = PlainSql::connect(&url).await?;
        Ok(Self { url, database, plain_sql, _server: server, _directory: directory })
    }

    /// Returns the queue after adding `jobs` jobs to it.
    ///
    /// # Errors
    /// Fails if the database does.
    pub async fn fill_queue(&self, jobs: usize) -> Result<Queue> {
        let queue = Queue::new(self.database.clone(), "bench")?;
        for chunk in (0..jobs).collect::<Vec<_>>().chunks(500) {
            // Enough attempts that a job never becomes dead because its workers are killed.
            let job = |number: &usize| Job::new(number.to_string()).max_attempts(1000);
            queue.enqueue_all(chunk.iter().map(job)).await?;
        }
        Ok(queue)
    }
}

/// Writes a row in a new transaction, which also completes `job`, if there is one.
///
/// # Errors
/// Fails with the last error of the database after some attempts.
pub async fn write_in_transaction(
    database: &Database,
    sql: &str,
    values: &[Value],
    job: Option<&ClaimedJob>,
) -> hierlock::Result<()> {
    let result = retry(RetryPolicy::default().attempts(10), |_| async {
        let mut tx = database.begin().await?;
        tx.execute(sql, values.iter().cloned()).await?;
        if let Some(job) = job {
            job.complete_in(&mut tx).await?;
        }
        tx.commit().await
    });
    result.await.map_err(|error| error.last)
}
