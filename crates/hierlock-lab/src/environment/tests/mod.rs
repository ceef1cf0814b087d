//! The environment on real servers. A test whose server is not installed is skipped with a message, except in CI.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod endings;
mod unusual;
mod waits;

use super::connection::LabConnection;
use super::{Reply, TestDatabase, TestServer};
use crate::engine::Engine;
use crate::observation::{Answer, Failure, FailureKind, LockKind, SessionWait};
use crate::report::fixtures::{backend, name};
use crate::scenario::{Action, Case, Scenario, ScenarioStep, SettingValue, Statement};
use crate::text::join;
use hierlock_engine::CellRow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const LOCK_ROW: &str = "select * from numbers where id = 1 for update";

/// A limit that no operation here reaches, however busy the machine is.
const LONG: Duration = Duration::from_secs(30);

/// Makes a test per engine: with its server or, after `on numbers`, with a database that contains three rows.
macro_rules! on_all {
    ($($name:ident),* $(,)? $(; on numbers: $($case:ident),* $(,)?)?) => {
        on_all!(@ mysql Mysql, [$($name)*] [$($($case)*)?]);
        on_all!(@ mariadb Mariadb, [$($name)*] [$($($case)*)?]);
        on_all!(@ postgres Postgres, [$($name)*] [$($($case)*)?]);
    };
    (@ $module:ident $engine:ident, [$($name:ident)*] [$($case:ident)*]) => {
        mod $module {
            use crate::environment::tests::{open_numbers, server};
            use crate::engine::Engine;

            $(#[tokio::test]
            async fn $name() {
                if let Some(server) = server(Engine::$engine).await {
                    super::$name(server).await;
                }
            })*

            $(#[tokio::test]
            async fn $case() {
                if let Some(server) = server(Engine::$engine).await {
                    let db = open_numbers(&server).await;
                    super::$case(&db).await;
                    db.close().await.unwrap();
                }
            })*
        }
    };
}
pub(super) use on_all;

/// Returns the server of an engine, which all tests of this binary share.
async fn server(engine: Engine) -> Option<Arc<TestServer>> {
    static SERVERS: [OnceLock<Option<hierlock_sandbox::Server>>; 3] =
        [const { OnceLock::new() }; 3];
    let kind = engine.server()?;
    let index = Engine::SERVERS.iter().position(|known| *known == engine)?;
    let start = move || SERVERS[index].get_or_init(|| hierlock_sandbox::Server::for_tests(kind));
    let server = tokio::task::spawn_blocking(start).await.unwrap().as_ref()?;
    let server = TestServer::connect(engine, server.url()).await.unwrap();
    if engine == Engine::Mariadb {
        // The sandbox loads the plugin; another server may have loaded it or not.
        let mut connection = LabConnection::open(&server.address).await.unwrap();
        let _ = connection.try_query("INSTALL SONAME 'metadata_lock_info'").await.unwrap();
        connection.close().await;
    }
    Some(server)
}

impl TestServer {
    fn engine(&self) -> Engine {
        let is_same = |engine: &Engine| engine.server() == Some(self.dialect());
        Engine::SERVERS.into_iter().find(is_same).unwrap()
    }

    /// Returns the first value for PostgreSQL, the second for MySQL and MariaDB.
    fn either<T>(&self, postgres: T, innodb: T) -> T {
        if self.engine() == Engine::Postgres { postgres } else { innodb }
    }

    /// Runs a query outside of all cases.
    async fn query(&self, sql: &str) -> Vec<CellRow> {
        let mut connection = LabConnection::open(&self.address).await.unwrap();
        let rows = connection.query(sql).await.unwrap();
        connection.close().await;
        rows
    }

    /// Returns whether the user is a superuser. Then deadlocks are detected sooner, and all locks are listed.
    async fn is_superuser(&self) -> bool {
        let sql = self.either(
            "SELECT rolsuper::int FROM pg_roles WHERE rolname = current_user",
            "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SUPER' \
             AND GRANTEE = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')",
        );
        self.query(sql).await[0][0].as_deref() == Some("1")
    }
}

/// A statement of the setup or the teardown, in line 7 of a file.
fn statement(sql: &str) -> Statement {
    Statement { line: 7, sql: sql.to_owned() }
}

fn numbers(engine: Engine) -> Case {
    let create = "create table numbers (id int primary key, value int, word varchar(10))";
    let insert = "insert into numbers values (1, 30, 'a'), (2, 10, null), (10, 5, 'c')";
    let scenario = Scenario { name: "test/environment".to_owned(), ..Scenario::default() };
    Case {
        limit: LONG,
        setup: vec![statement(create), statement(insert)],
        sessions: ["A", "B", "C", "D"].map(|text| (name(text), Vec::new())).into(),
        ..Case::new(Arc::new(scenario), backend(engine))
    }
}

/// The case as it is, and with a statement that makes PostgreSQL use a database instead of a schema.
fn numbers_in_each_namespace(engine: Engine) -> [Case; 2] {
    let mut advisory = numbers(engine);
    let lock = Action::Sql("select pg_advisory_lock(1)".to_owned());
    advisory.steps.push(ScenarioStep::new(1, name("A"), lock));
    [numbers(engine), advisory]
}

async fn open(server: &Arc<TestServer>, case: &Case) -> TestDatabase {
    TestDatabase::open(server, case).await.unwrap()
}

async fn open_numbers(server: &Arc<TestServer>) -> TestDatabase {
    open(server, &numbers(server.engine())).await
}

impl TestDatabase {
    fn namespace(&self) -> &str {
        self.guard.namespace.name()
    }

    /// The process ids of the sessions, in the order of their names.
    fn pids(&self) -> Vec<i64> {
        self.sessions.values().map(|session| session.pid).collect()
    }

    fn start(&self, session: &str, sql: &str) -> Reply {
        self.begin(&name(session), sql)
    }

    async fn run(&self, session: &str, sql: &str) -> Result<Answer, Failure> {
        finish(self.start(session, sql)).await
    }

    async fn run_all(&self, session: &str, statements: &[&str]) {
        for sql in statements {
            self.run(session, sql).await.unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
        }
    }

    /// Locks a row as A, and waits until B is blocked by it.
    async fn block_b(&self) -> Reply {
        self.run_all("A", &["begin", LOCK_ROW]).await;
        let reply = self.start("B", LOCK_ROW);
        self.blocked("B").await;
        reply
    }

    /// Returns the wait of a session, once two probes in a row have seen it.
    async fn blocked(&self, session: &str) -> SessionWait {
        let wait = async {
            let mut before = None;
            loop {
                let waits = self.waits().await.unwrap();
                let wait = waits.into_iter().find(|wait| wait.waiter == name(session));
                if let Some(wait) = wait.clone().filter(|_| wait == before) {
                    return wait;
                }
                before = wait;
            }
        };
        tokio::time::timeout(LONG, wait)
            .await
            .unwrap_or_else(|_| panic!("session {session} did not wait within the limit"))
    }
}

async fn finish(reply: Reply) -> Result<Answer, Failure> {
    tokio::time::timeout(LONG, reply)
        .await
        .expect("the statement did not end within the limit")
        .unwrap()
}

async fn failure_kind(reply: Reply) -> FailureKind {
    finish(reply).await.unwrap_err().kind
}

fn blocker_names(wait: &SessionWait) -> String {
    assert!(!wait.has_outside_blocker, "{wait:?}");
    join(&wait.blockers, " ")
}
