//! hierlock's queue and leases beside the same work in plain SQL, on each engine, on the same tables.

mod by_hand;

pub use by_hand::ByHand;

use hierlock::database::{Database, Value};
use hierlock::lease::Leases;
use hierlock::queue::{ClaimedJob, Job, Queue};
use hierlock::retry::{RetryPolicy, retry};
use hierlock_sandbox::{Engine, Sandbox};
use tempfile::TempDir;

/// What is returned here.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How long a claim and a lease last: longer than any round.
pub const TTL: std::time::Duration = std::time::Duration::from_secs(600);

/// Where it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// On a server of its own.
    Server(Engine),
    /// In a file.
    Sqlite,
}

impl Where {
    /// All of them.
    pub const ALL: [Where; 4] = [
        Where::Server(Engine::Mysql),
        Where::Server(Engine::Mariadb),
        Where::Server(Engine::Postgres),
        Where::Sqlite,
    ];
}

impl std::fmt::Display for Where {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Where::Server(engine) => write!(f, "{engine}"),
            Where::Sqlite => f.write_str("sqlite"),
        }
    }
}

/// A database with the tables of the toolbox.
pub struct Place {
    /// How to connect.
    pub url: String,
    /// hierlock's connections.
    pub database: Database,
    /// Those of plain SQL, with the same settings.
    pub by_hand: ByHand,
    _server: Option<Sandbox>,
    _directory: Option<TempDir>,
}

impl Place {
    /// Starts it.
    ///
    /// # Errors
    /// A server that is not installed or does not start.
    pub async fn start(at: Where) -> Result<Self> {
        let (server, directory) = match at {
            Where::Server(engine) => {
                (Some(Sandbox::start(engine).map_err(|e| e.to_string())?), None)
            }
            Where::Sqlite => (None, Some(tempfile::tempdir()?)),
        };
        let url = match (&server, &directory) {
            (Some(server), _) => server.url().to_owned(),
            (_, Some(directory)) => format!("sqlite:{}", directory.path().join("a.db").display()),
            _ => return Err("no place".into()),
        };
        let database = Database::connect(&url).await?;
        Leases::new(database.clone()).provision().await?;
        Queue::new(database.clone(), "bench")?.provision().await?;
        let by_hand = ByHand::connect(&url).await?;
        Ok(Self { url, database, by_hand, _server: server, _directory: directory })
    }

    /// The queue, with so many jobs in it.
    ///
    /// # Errors
    /// What the database says.
    pub async fn queue_of(&self, jobs: usize) -> Result<Queue> {
        let queue = Queue::new(self.database.clone(), "bench")?;
        for chunk in (0..jobs).collect::<Vec<_>>().chunks(500) {
            // However often its worker is killed, a job does not die of it.
            let job = |number: &usize| Job::new(number.to_string()).max_attempts(1000);
            queue.enqueue_all(chunk.iter().map(job)).await?;
        }
        Ok(queue)
    }
}

/// Writes a row in a transaction of its own, in which a job may end too.
///
/// # Errors
/// What the database says, after some attempts.
pub async fn write(
    database: &Database,
    sql: &str,
    values: &[Value],
    ends: Option<&ClaimedJob>,
) -> hierlock::Result<()> {
    let written = retry(RetryPolicy::default().attempts(10), |_| async {
        let mut tx = database.begin().await?;
        tx.execute(sql, values.iter().cloned()).await?;
        if let Some(job) = ends {
            job.complete_in(&mut tx).await?;
        }
        tx.commit().await
    });
    written.await.map_err(|given_up| given_up.last)
}
