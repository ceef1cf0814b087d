//! Labels of holders if `performance_schema` is off (MySQL, MariaDB), and if `application_name` is too short for their paths
//! (PostgreSQL).

use crate::support::{Database, OutsideSession, Setup, TEST_LIMIT, on_every_setup, target};
use hierlock::sql::lock_report::LockInspector;
use hierlock::sql::{Provision, SqlBackend};
use hierlock::{BlockingSession, Hierarchy, Hierlock, Target};
use hierlock_conformance::is_free;
use hierlock_sandbox::{Engine, Sandbox};
use sqlx::MySqlConnection;
use std::time::Duration;

on_every_setup!(@ [
    holders_are_named_without_performance_schema
    no_label_row_outlives_its_hold
    no_label_row_is_committed
    a_label_follows_an_extension
    holds_work_without_label_rows
    a_locked_label_table_disturbs_no_hold
]
    mysql: Mysql Striped,
    mariadb: Mariadb Striped,
);

mod waiters {
    crate::support::on_every_setup!(@ [waiters_are_named_without_performance_schema]
        mariadb: Mariadb Striped,
    );
    use super::waiters_are_named_without_performance_schema;
}

mod postgres {
    crate::support::on_every_setup!(@ [labels_of_long_paths_are_complete]
        advisory: Postgres Advisory,
        striped: Postgres Striped,
    );
    use super::labels_of_long_paths_are_complete;
}

const LABELS: &str = "SELECT label FROM hier_lock_sessions ORDER BY session";

/// A provisioned server on which `performance_schema` is off, for one test.
struct ServerWithoutPerformanceSchema {
    url: String,
    _server: Sandbox,
}

impl ServerWithoutPerformanceSchema {
    async fn start(setup: Setup) -> Option<Self> {
        let server = Sandbox::for_tests_with(setup.engine, &["--performance-schema=OFF"])?;
        let url = format!("{}?strategy={}", server.url(), setup.strategy);
        let few = format!("{url}&buckets=1000");
        let provision = Provision::connect(&few, Hierarchy::default()).await.unwrap();
        provision.run(|_| ()).await.unwrap();
        Some(Self { url, _server: server })
    }

    /// Connects a client that pings its holds after 20 ms.
    async fn connect(&self, program: &str) -> Hierlock<SqlBackend> {
        self.connect_to(&self.url, program).await
    }

    async fn connect_to(&self, url: &str, program: &str) -> Hierlock<SqlBackend> {
        let builder = Hierlock::builder().application("shop").program(program);
        builder.connect_sql(&format!("{url}&keep_alive_ms=20")).await.unwrap()
    }

    /// Opens a session that reads uncommitted rows.
    async fn outside(&self) -> OutsideSession {
        let mut outside = OutsideSession::connect(&self.url).await;
        outside.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await;
        outside
    }
}

impl OutsideSession {
    /// Waits until the table of labels has rows that end with these targets.
    async fn until_label_rows(&mut self, expected: &[&str]) {
        let begun = std::time::Instant::now();
        loop {
            let labels = self.rows(LABELS).await.concat();
            let have_targets = labels.iter().zip(expected).all(|(label, end)| label.ends_with(end));
            if labels.len() == expected.len() && have_targets {
                return;
            }
            assert!(begun.elapsed() < TEST_LIMIT, "{labels:?}, not {expected:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Fails if the table of labels has a committed row.
    async fn assert_nothing_committed(&mut self) {
        let committed = format!("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {LABELS}");
        assert_eq!(self.rows(&committed).await, Vec::<Vec<String>>::new());
    }

    async fn status(&mut self, name: &str) -> i64 {
        self.number(&format!("SHOW GLOBAL STATUS LIKE '{name}'")).await
    }
}

/// Requests a held node until the refusal names the target of the holder. Returns the holder and the message.
async fn refused_by(locks: &Hierlock<SqlBackend>, path: &str) -> (BlockingSession, String) {
    let begun = std::time::Instant::now();
    loop {
        let error = locks.request(target(path)).no_wait().acquire().await.unwrap_err();
        if let [session] = error.blocking_sessions()
            && session.target.is_some()
        {
            return (session.clone(), error.to_string());
        }
        assert!(begun.elapsed() < TEST_LIMIT, "{error}");
    }
}

/// The failure this prevents: with the default settings of MariaDB neither a holder nor its node was visible.
async fn holders_are_named_without_performance_schema(setup: Setup) {
    let Some(server) = ServerWithoutPerformanceSchema::start(setup).await else { return };
    let (holders, others) = (server.connect("holder").await, server.connect("other").await);
    let guard = holders.acquire(target("u0/a0/r0")).await.unwrap();
    server.outside().await.until_label_rows(&[" u0/a0/r0"]).await;
    let mut inspector = LockInspector::connect(&server.url).await.unwrap();
    let snapshot = inspector.snapshot().await.unwrap();
    let labels = snapshot.sessions.iter().filter_map(|session| session.label.as_ref());
    let [label] = &labels.collect::<Vec<_>>()[..] else { panic!("{snapshot:?}") };
    assert_eq!(label.client.application.as_deref(), Some("shop"));
    assert_eq!((&*label.client.program, label.client.pid), ("holder", std::process::id()));
    assert!(label.targets().eq([&target("u0/a0/r0")]));
    assert!(label.since.unwrap().elapsed().unwrap() < TEST_LIMIT);
    if setup.engine == Engine::Mariadb {
        // MySQL lists blockers only in `performance_schema`.
        for path in ["u0/a0/r0", "u0"] {
            let (session, message) = refused_by(&others, path).await;
            assert_eq!(session.client, Some(label.client.to_string()), "{message}");
            assert!(message.contains("shop/holder@"), "{message}");
            let request = others.request(target(path)).within(Duration::from_millis(300));
            let error = request.acquire().await.unwrap_err();
            let [session] = error.blocking_sessions() else { panic!("{error}") };
            assert_eq!(session.client, Some(label.client.to_string()), "{error}");
            assert_eq!(session.target, Some(target(path)), "{error}");
        }
    }
    guard.release().await.unwrap();
}

/// The failure this prevents: MariaDB showed `?` for the label of a prepared statement, so waiters had no program and no path.
async fn waiters_are_named_without_performance_schema(setup: Setup) {
    let Some(server) = ServerWithoutPerformanceSchema::start(setup).await else { return };
    let mut outside = server.outside().await;
    // Logs every statement of later sessions, if it logs any.
    outside.run("SET GLOBAL log_output = 'TABLE', GLOBAL long_query_time = 0").await;
    let (holders, waiters) = (server.connect("holder").await, server.connect("waiter").await);
    let mut inspector = LockInspector::connect(&server.url).await.unwrap();
    let mut until_waiting = async |program: &str, targets: &[Target]| {
        let begun = std::time::Instant::now();
        loop {
            let snapshot = inspector.snapshot().await.unwrap();
            let mut waiting = snapshot.sessions.iter().filter(|session| session.wait.is_some());
            let is_named = waiting.any(|session| {
                session.label.as_ref().is_some_and(|label| {
                    label.client.program == program && label.targets().eq(targets)
                })
            });
            if is_named {
                return;
            }
            assert!(begun.elapsed() < TEST_LIMIT, "{snapshot:?}");
        }
    };
    let quoted = target("u0/it's \\ 利用者");
    let guard = holders.acquire_all([quoted.clone(), target("u3/a3")]).await.unwrap();
    let client = waiters.clone();
    let (held, wanted) = (target("u1"), quoted.clone());
    let extension = tokio::spawn(async move {
        let mut guard = client.acquire(held).await.unwrap();
        guard.extend([wanted]).await.unwrap();
        guard
    });
    until_waiting("waiter", &[target("u1"), quoted]).await;
    let client = server.connect("waiter-for-many").await;
    let many: Vec<Target> = (10..30).map(|number| target(&format!("u3/a3/r{number}"))).collect();
    let wanted = many.clone();
    let acquire_of_many = tokio::spawn(async move { client.acquire_all(wanted).await.unwrap() });
    until_waiting("waiter-for-many", &many).await;
    guard.release().await.unwrap();
    for waiter in [extension, acquire_of_many] {
        waiter.await.unwrap().release().await.unwrap();
    }
    let logged = outside.rows("SELECT sql_text FROM mysql.slow_log").await;
    assert_eq!(logged, Vec::<Vec<String>>::new());
}

async fn no_label_row_outlives_its_hold(setup: Setup) {
    let Some(server) = ServerWithoutPerformanceSchema::start(setup).await else { return };
    let (locks, mut outside) = (server.connect("holder").await, server.outside().await);
    let guard = locks.acquire(target("u0/a0/r0")).await.unwrap();
    outside.until_label_rows(&[" u0/a0/r0"]).await;
    outside.assert_nothing_committed().await;
    guard.release().await.unwrap();
    outside.until_label_rows(&[]).await;

    let guard = locks.acquire(target("u1")).await.unwrap();
    outside.until_label_rows(&[" u1"]).await;
    drop(guard);
    outside.until_label_rows(&[]).await;

    let guard = locks.acquire(target("u2")).await.unwrap();
    outside.until_label_rows(&[" u2"]).await;
    let session = outside.number("SELECT session FROM hier_lock_sessions").await;
    outside.kill(session).await;
    outside.until_label_rows(&[]).await;
    let lost = tokio::time::timeout(TEST_LIMIT, guard.lost())
        .await
        .expect("the loss was not reported within the limit");
    assert!(lost.is_lost(), "{lost}");
}

/// A commit includes the caller's work but not the label, even if the caller itself commits the lent transaction.
async fn no_label_row_is_committed(setup: Setup) {
    let Some(server) = ServerWithoutPerformanceSchema::start(setup).await else { return };
    let (locks, mut outside) = (server.connect("holder").await, server.outside().await);
    outside.run("CREATE TABLE work (n INT PRIMARY KEY) ENGINE = InnoDB").await;
    for is_lent in [false, true] {
        let mut guard = locks.acquire(target("u0")).await.unwrap();
        outside.until_label_rows(&[" u0"]).await;
        if is_lent {
            let mut lent = guard.transaction::<MySqlConnection>().await.unwrap();
            sqlx::query("INSERT INTO work VALUES (1)").execute(&mut *lent).await.unwrap();
            outside.until_label_rows(&[]).await;
            drop(lent);
            // The next ping inserts the row again, after the work.
            outside.until_label_rows(&[" u0"]).await;
        }
        guard.commit().await.unwrap();
        outside.until_label_rows(&[]).await;
        assert!(is_free(&locks, "u0").await);
    }
    assert_eq!(outside.number("SELECT COUNT(*) FROM work").await, 1);

    let mut guard = locks.acquire(target("u0")).await.unwrap();
    outside.until_label_rows(&[" u0"]).await;
    let mut lent = guard.transaction::<MySqlConnection>().await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *lent).await.unwrap();
    drop(lent);
    assert!(guard.lost().await.is_lost());
    outside.until_label_rows(&[]).await;
}

/// A new label is written after a rollback to the savepoint of the old one. InnoDB must keep the locks taken since then.
async fn a_label_follows_an_extension(setup: Setup) {
    let Some(server) = ServerWithoutPerformanceSchema::start(setup).await else { return };
    let (locks, mut outside) = (server.connect("holder").await, server.outside().await);
    let mut guard = locks.acquire(target("u0/a0")).await.unwrap();
    outside.until_label_rows(&[" u0/a0"]).await;
    // The hold's own session locks a held node in a stronger mode.
    guard.extend([target("u0")]).await.unwrap();
    outside.until_label_rows(&[" u0 u0/a0"]).await;
    assert!(!is_free(&locks, "u0/a9").await);
    // A second session locks a new node.
    guard.extend([target("u3")]).await.unwrap();
    outside.until_label_rows(&[" u0 u3 u0/a0", " u0 u3 u0/a0"]).await;
    assert!(!is_free(&locks, "u3").await && !is_free(&locks, "u0/a9").await);
    guard.release().await.unwrap();
    outside.until_label_rows(&[]).await;
}

/// Covers an account without the privilege, and tables of version 1, which had no table of labels.
async fn holds_work_without_label_rows(setup: Setup) {
    let Some(server) = ServerWithoutPerformanceSchema::start(setup).await else { return };
    let mut outside = server.outside().await;
    outside.run("CREATE USER low@'127.0.0.1'").await;
    for table in ["SELECT ON hier_lock_meta", "SELECT, UPDATE ON hier_lock_buckets"] {
        outside.run(&format!("GRANT {table} TO low@'127.0.0.1'")).await;
    }
    let low = server.url.replace("root@", "low@");
    for url in [&low, &server.url] {
        let locks = server.connect_to(url, "holder").await;
        let guard = locks.acquire(target("u0/a0/r0")).await.unwrap();
        let inserts = outside.status("Com_insert").await;
        // The INSERT is refused once, and later pings do not repeat it.
        for _ in 0..2 {
            // A ping begins with DO.
            let pings = outside.status("Com_do").await;
            let begun = std::time::Instant::now();
            while outside.status("Com_do").await < pings + 3 {
                assert!(begun.elapsed() < TEST_LIMIT, "the hold was not pinged within the limit");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        assert!(outside.status("Com_insert").await <= inserts + 1);
        assert!(!is_free(&locks, "u0").await);
        guard.release().await.unwrap();
        if *url == low {
            outside.run("DROP TABLE hier_lock_sessions").await;
        }
    }
}

/// The failure this prevents: a ping waited for a lock of an administrator, and the hold was reported as lost.
async fn a_locked_label_table_disturbs_no_hold(setup: Setup) {
    let Some(server) = ServerWithoutPerformanceSchema::start(setup).await else { return };
    let (locks, mut outside) = (server.connect("holder").await, server.outside().await);
    for (lock, unlock) in [
        // Locks all gaps of the table.
        ("START TRANSACTION; SELECT * FROM hier_lock_sessions FOR UPDATE", "ROLLBACK"),
        ("LOCK TABLES hier_lock_sessions WRITE", "UNLOCK TABLES"),
    ] {
        outside.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").await;
        let inserts = outside.status("Com_insert").await;
        outside.run(lock).await;
        let guard = locks.acquire(target("u0")).await.unwrap();
        let begun = std::time::Instant::now();
        while outside.status("Com_insert").await < inserts + 3 {
            assert!(begun.elapsed() < TEST_LIMIT, "the INSERT was not repeated within the limit");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        outside.run(unlock).await;
        outside.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await;
        outside.until_label_rows(&[" u0"]).await;
        guard.release().await.unwrap();
        outside.until_label_rows(&[]).await;
    }
}

/// The failure this prevents: `application_name` has no room for one UUID of a path, so labels named no complete node.
async fn labels_of_long_paths_are_complete(setup: Setup) {
    let Some(database) = Database::new(setup).await else { return };
    let connect = async |program: &str| {
        let builder = Hierlock::builder().application("shop").program(program);
        builder.connect_sql(&format!("{}&keep_alive_ms=20", database.url)).await.unwrap()
    };
    let (holders, others) = (connect("a-holder-with-a-long-name").await, connect("other").await);
    let uuid = |number: u32| format!("018f3c5a-7b1e-7c3d-9e4f-{number:012x}");
    let path = format!("{}/{}/{}", uuid(1), uuid(2), uuid(3));
    let guard = holders.acquire(target(&path)).await.unwrap();
    let mut inspector = LockInspector::connect(&database.url).await.unwrap();
    let begun = std::time::Instant::now();
    let label = loop {
        let snapshot = inspector.snapshot().await.unwrap();
        let labels = snapshot.sessions.iter().filter_map(|session| session.label.clone());
        let mut labels = labels.filter(|label| label.client.pid == std::process::id());
        if let Some(label) = labels.find(|label| label.targets().eq([&target(&path)])) {
            break label;
        }
        assert!(begun.elapsed() < TEST_LIMIT, "{snapshot:?}");
    };
    assert_eq!(label.client.application.as_deref(), Some("shop"));
    assert_eq!(label.client.program, "a-holder-with-a-long-name");
    assert_eq!((label.cut_target, label.omitted), (None, 0));
    // A request with a timeout waits for the row, so the server lists the holder as its blocker.
    let error = others.request(target(&path)).within(Duration::from_millis(300)).acquire().await;
    let error = error.unwrap_err();
    let [session] = error.blocking_sessions() else { panic!("{error}") };
    assert_eq!(session.client, Some(label.client.to_string()), "{error}");
    assert_eq!(session.target, Some(target(&path)), "{error}");
    guard.release().await.unwrap();
}
