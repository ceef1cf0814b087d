//! One server of each kind for all tests here, a database for each test.

use hierlock::sql::{Provision, Strategy};
use hierlock::{Hierarchy, Hierlock};
use hierlock_sandbox::{Engine, Server};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub(crate) const GENEROUS: Duration = Duration::from_secs(30);

/// So many buckets fill in no time, and collide only where a test wants it.
pub(crate) const BUCKETS: u32 = 4_000;

/// A server and how it is locked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) strategy: Strategy,
}

/// A database of its own: locks of others do not matter in it.
pub(crate) struct Database {
    pub(crate) setup: Setup,
    /// With the strategy.
    pub(crate) url: String,
}

fn server(engine: Engine) -> Option<&'static Server> {
    // They end with this process, however that ends.
    static SERVERS: [OnceLock<Option<Server>>; 3] = [const { OnceLock::new() }; 3];
    SERVERS[engine as usize].get_or_init(|| Server::for_tests(engine)).as_ref()
}

/// A session to look from outside.
pub(crate) enum Outside {
    Innodb(MySqlConnection),
    Postgres(PgConnection),
}

impl Outside {
    pub(crate) async fn connect(url: &str) -> Self {
        let bare = url.split('?').next().unwrap();
        match bare.starts_with("postgres") {
            true => Outside::Postgres(PgConnection::connect(bare).await.unwrap()),
            false => {
                let bare = bare.replacen("mariadb", "mysql", 1);
                Outside::Innodb(MySqlConnection::connect(&bare).await.unwrap())
            }
        }
    }

    pub(crate) async fn try_run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Outside::Innodb(c) => sqlx::raw_sql(sql).execute(c).await.map(|_| ()),
            Outside::Postgres(c) => sqlx::raw_sql(sql).execute(c).await.map(|_| ()),
        }
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        self.try_run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Every row as text.
    pub(crate) async fn rows(&mut self, sql: &str) -> Vec<Vec<String>> {
        let sql = AssertSqlSafe(sql.to_owned());
        macro_rules! text {
            ($c:expr) => {{
                let rows = sqlx::raw_sql(sql).fetch_all($c).await.unwrap();
                let text = |row: &_, i| {
                    let text: Option<String> = Row::get_unchecked(row, i);
                    text.unwrap_or_default()
                };
                rows.iter().map(|row| (0..row.len()).map(|i| text(row, i)).collect()).collect()
            }};
        }
        match self {
            Outside::Innodb(c) => text!(c),
            Outside::Postgres(c) => text!(c),
        }
    }

    /// The number in the last column of the first row.
    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        self.rows(sql).await[0].last().unwrap().parse().unwrap()
    }
}

impl Database {
    /// With the rows that tests need. None where the server is not installed and this is not CI.
    pub(crate) async fn new(setup: Setup) -> Option<Self> {
        let database = Self::empty(setup).await?;
        database.provision().await;
        Some(database)
    }

    /// With nothing in it.
    pub(crate) async fn empty(setup: Setup) -> Option<Self> {
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let server = server(setup.engine)?;
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("hierlock_test_{}_{number}", std::process::id());
        Outside::connect(server.url()).await.run(&format!("CREATE DATABASE {name}")).await;
        let bare = server.url().split('?').next().unwrap();
        let (address, _) = bare.rsplit_once('/').unwrap();
        let url = format!("{address}/{name}?strategy={}", setup.strategy);
        Some(Self { setup, url })
    }

    /// Makes the rows that tests need.
    async fn provision(&self) {
        let url = match self.setup.strategy {
            // Nothing to provision, or done by the first client.
            Strategy::Advisory | Strategy::OnDemand => return,
            Strategy::Striped => format!("{}&buckets={BUCKETS}", self.url),
            _ => self.url.clone(),
        };
        let provision = Provision::connect(&url, Hierarchy::default()).await.unwrap();
        provision.run(|_| ()).await.unwrap();
        if self.setup.strategy == Strategy::PerId {
            // A row for each node that the suite locks.
            let resources = (0..1000).map(|number| {
                let [user, account, resource] = [number / 100, number / 10 % 10, number % 10];
                format!("u{user}/a{account}/r{resource}").parse().unwrap()
            });
            provision.add(&resources.collect::<Vec<_>>()).await.unwrap();
        }
    }

    pub(crate) async fn connect(&self) -> Hierlock {
        Hierlock::connect(&self.url).await.unwrap()
    }

    pub(crate) async fn outside(&self) -> Outside {
        Outside::connect(&self.url).await
    }
}
