//! A database for each test, on each of the four engines.

use crate::servers;
use hierlock::database::{Database, Transaction};
use hierlock::retry::{RetryPolicy, retry};
use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The engine of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestEngine {
    Server(Engine),
    Sqlite,
}

/// An empty database.
pub(crate) struct Store {
    pub(crate) engine: TestEngine,
    /// The URL, for other clients and other processes.
    pub(crate) url: String,
    pub(crate) database: Database,
    _directory: Option<TempDir>,
}

impl Store {
    /// Returns `None` if the server is not installed, except in CI.
    pub(crate) async fn new(engine: TestEngine) -> Option<Self> {
        let (url, directory) = match engine {
            TestEngine::Server(engine) => {
                let setup = servers::Setup { engine, strategy: Strategy::Striped };
                let server = servers::Database::empty(setup).await?;
                (server.bare_url().to_owned(), None)
            }
            TestEngine::Sqlite => {
                let directory = tempfile::tempdir().unwrap();
                let file = directory.path().join("test.db");
                (format!("sqlite:{}", file.display()), Some(directory))
            }
        };
        let database = Database::connect(&url).await.unwrap();
        Some(Self { engine, url, database, _directory: directory })
    }

    /// Connects another client.
    pub(crate) async fn other(&self) -> Database {
        Database::connect(&self.url).await.unwrap()
    }

    /// Runs statements, each in a separate transaction.
    pub(crate) async fn run(&self, sql: &str) {
        // Others may hold the file for longer than the busy timeout.
        let ran = retry(RetryPolicy::default().attempts(20), |_| async {
            let mut tx = self.database.begin().await?;
            tx.run(sql).await?;
            tx.commit().await
        });
        ran.await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Returns the number of a query.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.database.query(sql, []).await.unwrap()[0].int(0).unwrap()
    }
}

/// Returns the number of a query inside a transaction.
pub(crate) async fn number_in(tx: &mut Transaction, sql: &str) -> i64 {
    tx.fetch(sql, []).await.unwrap()[0].int(0).unwrap()
}

/// Returns a client, and a function that returns whether all its connections are idle.
pub(crate) async fn database_with_idle_check(
    url: &str,
) -> (Database, Box<dyn Fn() -> bool + Send + Sync>) {
    macro_rules! database_with_idle_check {
        ($pool:ident, $url:expr) => {{
            let pool = sqlx::$pool::connect($url).await.unwrap();
            let database = Database::from(pool.clone());
            (database, Box::new(move || pool.num_idle() == pool.size() as usize))
        }};
    }
    if url.starts_with("postgres") {
        database_with_idle_check!(PgPool, url)
    } else {
        database_with_idle_check!(MySqlPool, &url.replacen("mariadb", "mysql", 1))
    }
}

/// Polls until the condition is true. `name` completes the sentence "timed out waiting until …".
pub(crate) async fn eventually(name: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < servers::TEST_LIMIT, "timed out waiting until {name}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Defines a test for each engine, from a function of a [`Store`].
macro_rules! on_every_engine {
    ($($test:ident),* $(,)?) => {
        $crate::support::on_every_engine!(@ [$($test)*]
            mysql: Server(hierlock_sandbox::Engine::Mysql);
            mariadb: Server(hierlock_sandbox::Engine::Mariadb);
            postgres: Server(hierlock_sandbox::Engine::Postgres);
            sqlite: Sqlite;
        );
    };
    (@ $tests:tt $($name:ident: $variant:ident $(($server:expr))?;)*) => {
        $(mod $name {
            $crate::support::on_every_engine!(! $tests $crate::support::TestEngine::$variant $(($server))?);
        })*
    };
    (! [$($test:ident)*] $engine:expr) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            if let Some(store) = $crate::support::Store::new($engine).await {
                super::$test(store).await;
            }
        })*
    };
}
pub(crate) use on_every_engine;
