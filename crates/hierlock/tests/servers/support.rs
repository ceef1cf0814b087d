//! One server of each kind for all tests of this binary, and a database for each test.

use hierlock::sql::{Provision, SqlBackend, Strategy};
use hierlock::{Hierarchy, Hierlock, Mode, Step, Target};
use hierlock_engine::introspection::{Introspection, IntrospectionScope};
use hierlock_engine::{Connection, Dialect, ServerAddress, SessionRef};
use hierlock_sandbox::{Engine, Server};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub(crate) const TEST_LIMIT: Duration = Duration::from_secs(30);

/// Few enough to provision quickly, and enough that nodes share a bucket only where a test wants it.
pub(crate) const BUCKETS: u32 = 4_000;

/// A server and a lock strategy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) strategy: Strategy,
}

/// A database for one test, without locks of other tests.
pub(crate) struct Database {
    pub(crate) setup: Setup,
    /// The URL, with the strategy.
    pub(crate) url: String,
}

pub(crate) fn server(engine: Engine) -> Option<&'static Server> {
    // The servers end with this process.
    static SERVERS: [OnceLock<Option<Server>>; 3] = [const { OnceLock::new() }; 3];
    SERVERS[engine as usize].get_or_init(|| Server::for_tests(engine)).as_ref()
}

/// A plain SQL session beside hierlock, to observe and disturb it.
pub(crate) struct OutsideSession(Connection);

/// Connects. Tests set short limits for answers, and connecting may exceed them on a busy machine: then it connects again.
pub(crate) async fn connect(url: &str) -> Hierlock {
    let begun = Instant::now();
    loop {
        match Hierlock::connect(url).await {
            Ok(locks) => return locks,
            Err(error) => assert!(begun.elapsed() < TEST_LIMIT, "{error}"),
        }
    }
}

impl OutsideSession {
    pub(crate) async fn connect(url: &str) -> Self {
        let bare = url.split('?').next().unwrap();
        let address = ServerAddress::from_url(&bare.parse().unwrap()).unwrap();
        Self(address.with_application_name("outside").connect().await.unwrap())
    }

    pub(crate) async fn try_run(&mut self, sql: &str) -> Result<(), sqlx::Error> {
        self.0.as_ref().run(sql).await.map(|_| ())
    }

    pub(crate) async fn run(&mut self, sql: &str) {
        self.try_run(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Returns every row as text.
    pub(crate) async fn rows(&mut self, sql: &str) -> Vec<Vec<String>> {
        let answer = self.0.as_ref().packet(sql).await.unwrap();
        answer.rows.into_iter().map(|row| row.into_text().unwrap()).collect()
    }

    /// Returns the number in the last column of the first row.
    pub(crate) async fn number(&mut self, sql: &str) -> i64 {
        self.rows(sql).await[0].last().unwrap().parse().unwrap()
    }
}

impl Database {
    /// Creates a database with the rows that tests need. Returns `None` if the server is not installed, except in
    /// CI.
    pub(crate) async fn new(setup: Setup) -> Option<Self> {
        let database = Self::empty(setup).await?;
        database.provision().await;
        Some(database)
    }

    /// Creates an empty database. Returns `None` if the server is not installed, except in CI.
    pub(crate) async fn empty(setup: Setup) -> Option<Self> {
        static DATABASES: AtomicUsize = AtomicUsize::new(0);
        let server = server(setup.engine)?;
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("hierlock_test_{}_{number}", std::process::id());
        OutsideSession::connect(server.url()).await.run(&format!("CREATE DATABASE {name}")).await;
        let bare = server.url().split('?').next().unwrap();
        let (address, _) = bare.rsplit_once('/').unwrap();
        let url = format!("{address}/{name}?strategy={}", setup.strategy);
        Some(Self { setup, url })
    }

    /// Inserts the rows that tests need.
    async fn provision(&self) {
        let url = match self.setup.strategy {
            // Nothing to provision, or the first client does it.
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

    /// Creates a second table with `buckets` buckets per level.
    pub(crate) async fn stripe(&self, table: &str, buckets: u32) {
        let url = format!("{}?strategy=striped&table={table}&buckets={buckets}", self.bare_url());
        let provision = Provision::connect(&url, Hierarchy::default()).await.unwrap();
        provision.run(|_| ()).await.unwrap();
    }

    /// Inserts rows by ID for these nodes and their ancestors, if the strategy needs them.
    pub(crate) async fn make_rows(&self, paths: &[String]) {
        if self.setup.strategy == Strategy::PerId {
            let nodes: Vec<Target> = paths.iter().map(|path| path.parse().unwrap()).collect();
            let provision = Provision::connect(&self.url, Hierarchy::default()).await.unwrap();
            provision.add(&nodes).await.unwrap();
        }
    }

    pub(crate) async fn connect(&self) -> Hierlock {
        Hierlock::connect(&self.url).await.unwrap()
    }

    /// Connects a client that can lock in transactions.
    pub(crate) async fn connect_sql(&self) -> Hierlock<SqlBackend> {
        Hierlock::connect_sql(&self.url).await.unwrap()
    }

    /// Returns the URL without parameters.
    pub(crate) fn bare_url(&self) -> &str {
        self.url.split('?').next().unwrap()
    }

    /// Connects with more parameters, such as `connections=1`.
    pub(crate) async fn connect_with(&self, parameters: &str) -> Hierlock {
        connect(&format!("{}&{parameters}", self.url)).await
    }

    pub(crate) async fn outside(&self) -> OutsideSession {
        OutsideSession::connect(&self.url).await
    }
}

/// Queries about the other sessions of the database.
impl OutsideSession {
    /// Returns the process ids of all sessions.
    pub(crate) async fn sessions(&mut self) -> BTreeSet<i64> {
        let sql = match &self.0 {
            Connection::Mysql(_) => {
                "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND \
                 ID <> CONNECTION_ID()"
            }
            Connection::Postgres(_) => {
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND \
                 pid <> pg_backend_pid() AND backend_type = 'client backend'"
            }
        };
        self.rows(sql).await.into_iter().map(|row| row[0].parse().unwrap()).collect()
    }

    /// Returns the sessions that hold a lock, wait for one, have an active transaction, or run a statement.
    pub(crate) async fn busy(&mut self) -> BTreeSet<i64> {
        if let Connection::Postgres(_) = &self.0 {
            let sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND \
                       pid <> pg_backend_pid() AND backend_type = 'client backend' AND \
                       (state = 'active' OR state LIKE '%aborted%' OR backend_xid IS NOT NULL) \
                       UNION SELECT pid FROM pg_locks WHERE locktype = 'advisory' \
                       AND database = (SELECT oid FROM pg_database WHERE datname = \
                       current_database())";
            return self.rows(sql).await.into_iter().map(|row| row[0].parse().unwrap()).collect();
        }
        let running = "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND \
                       ID <> CONNECTION_ID() AND COMMAND <> 'Sleep'";
        let mut busy = self.rows(running).await;
        if self.dialect().await == Dialect::Mysql {
            let locking = "SELECT DISTINCT t.PROCESSLIST_ID FROM performance_schema.data_locks l \
                           JOIN performance_schema.threads t USING (THREAD_ID) \
                           WHERE l.OBJECT_SCHEMA = DATABASE()";
            busy.extend(self.rows(locking).await);
            return busy.into_iter().map(|row| row[0].parse().unwrap()).collect();
        }
        let sessions = self.sessions().await;
        let status = self.rows("SHOW ENGINE INNODB STATUS").await[0].last().unwrap().clone();
        // Only the list of transactions: the section of the last deadlock before it looks the same.
        let (_, transactions) = status.split_once("\nTRANSACTIONS\n").unwrap();
        let locking = sessions.into_iter().filter(|session| {
            let thread = format!("MariaDB thread id {session},");
            let mut blocks = transactions.split("\n---TRANSACTION ");
            blocks.any(|block| block.contains(&thread) && !block.contains("\n0 lock struct(s)"))
        });
        let running = busy.into_iter().map(|row| row[0].parse().unwrap());
        running.chain(locking).collect()
    }

    async fn dialect(&mut self) -> Dialect {
        match &self.0 {
            Connection::Postgres(_) => Dialect::Postgres,
            Connection::Mysql(_) => {
                let version = self.rows("SELECT VERSION()").await.concat().concat();
                if version.contains("MariaDB") { Dialect::Mariadb } else { Dialect::Mysql }
            }
        }
    }

    /// Waits until a session of the database waits for a lock of another session.
    pub(crate) async fn until_lock_wait(&mut self) {
        let (begun, dialect) = (Instant::now(), self.dialect().await);
        let mut introspection = Introspection::default();
        loop {
            let scope = IntrospectionScope::of_sessions(self.sessions().await);
            let mut session = SessionRef::of_caller(self.0.as_ref(), dialect, TEST_LIMIT);
            if !introspection.lock_waits(&mut session, &scope).await.unwrap().is_empty() {
                return;
            }
            assert!(begun.elapsed() < TEST_LIMIT, "no session waits for a lock");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until exactly `count` sessions are busy, and returns how long that took.
    pub(crate) async fn until_busy(&mut self, count: usize) -> Duration {
        let begun = Instant::now();
        self.busy_sessions(count).await;
        begun.elapsed()
    }

    /// Waits until exactly one session is busy, and returns its process id.
    pub(crate) async fn busy_session(&mut self) -> i64 {
        self.busy_sessions(1).await.pop_first().unwrap()
    }

    /// Waits until exactly `count` sessions are busy, and returns their process ids.
    async fn busy_sessions(&mut self, count: usize) -> BTreeSet<i64> {
        let begun = Instant::now();
        loop {
            let busy = self.busy().await;
            if busy.len() == count {
                return busy;
            }
            assert!(
                begun.elapsed() < TEST_LIMIT,
                "expected {count} busy sessions within the limit, found {busy:?}"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Kills a session, if it has not ended, and waits until it is gone.
    pub(crate) async fn kill(&mut self, session: i64) {
        match &self.0 {
            Connection::Mysql(_) => drop(self.try_run(&format!("KILL {session}")).await),
            Connection::Postgres(_) => {
                self.run(&format!("SELECT pg_terminate_backend({session})")).await;
            }
        }
        let begun = Instant::now();
        while self.sessions().await.contains(&session) {
            assert!(begun.elapsed() < TEST_LIMIT, "session {session} did not end after a kill");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(crate) fn target(path: &str) -> Target {
    path.parse().unwrap()
}

/// Returns two users in the order of their slots.
pub(crate) fn in_order(locks: &Hierlock) -> (Target, Target) {
    let plan = locks.plan([target("u1"), target("u2")], Mode::Exclusive).unwrap();
    let mut steps = plan.steps().map(|step| step.target);
    (steps.next().unwrap(), steps.next().unwrap())
}

impl Setup {
    /// Returns the SQL that locks the slot of a step exclusively.
    pub(crate) fn lock_statement(self, step: &Step) -> String {
        match self.strategy {
            Strategy::Advisory => format!("SELECT pg_advisory_xact_lock({})", step.slot as i64),
            Strategy::Striped => format!(
                "SELECT 1 FROM hier_lock_buckets WHERE level = {} AND bucket = {} FOR UPDATE",
                step.level, step.slot
            ),
            _ => format!(
                "SELECT 1 FROM hier_locks WHERE lock_key = '{}' FOR UPDATE",
                step.target.key()
            ),
        }
    }
}

/// Calls another macro with its arguments and the list of all setups.
macro_rules! every_setup {
    ([$($then:tt)+] $($before:tt)*) => {
        $($then)+! { $($before)*
            mysql_striped: Mysql Striped,
            mysql_per_id: Mysql PerId,
            mysql_on_demand: Mysql OnDemand,
            mariadb_striped: Mariadb Striped,
            mariadb_per_id: Mariadb PerId,
            mariadb_on_demand: Mariadb OnDemand,
            postgres_advisory: Postgres Advisory,
            postgres_striped: Postgres Striped,
            postgres_per_id: Postgres PerId,
            postgres_on_demand: Postgres OnDemand,
        }
    };
}
pub(crate) use every_setup;

/// Defines a test for each server and strategy, from a function of a [`Setup`].
macro_rules! on_every_setup {
    ($($test:ident),* $(,)?) => {
        $crate::support::every_setup!([$crate::support::on_every_setup] @ [$($test)*]);
    };
    (@ $tests:tt $($name:ident: $engine:ident $strategy:ident,)*) => {
        $(mod $name {
            $crate::support::on_every_setup!(! $tests $engine $strategy);
        })*
    };
    (! [$($test:ident)*] $engine:ident $strategy:ident) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let engine = hierlock_sandbox::Engine::$engine;
            let strategy = hierlock::sql::Strategy::$strategy;
            super::$test($crate::support::Setup { engine, strategy }).await;
        })*
    };
}
pub(crate) use on_every_setup;

/// Defines a test for striped rows on each server and for advisory keys, from a function of a [`Setup`].
macro_rules! on_each_engine {
    ($($test:ident),* $(,)?) => {
        $crate::support::on_every_setup!(@ [$($test)*]
            mysql: Mysql Striped,
            mariadb: Mariadb Striped,
            postgres: Postgres Striped,
            advisory: Postgres Advisory,
        );
    };
}
pub(crate) use on_each_engine;
