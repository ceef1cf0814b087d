//! The environment on real servers. A test whose server is not installed says so and is skipped, except in CI.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod circles;
mod endings;
mod unusual;
mod waits;

use super::connection::LabConnection;
use super::{Reply, TestDatabase, TestServer};
use crate::observation::{Answer, Failure, FailureKind, LockKind, SessionName, Wait};
use crate::place::{Engine, Place};
use crate::scenario::{Action, Case, Scenario, SettingValue, Statement, Step};
use crate::text::join;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const TAKE: &str = "select * from numbers where id = 1 for update";

/// Longer than anything here takes, however busy the machine.
const LONG: Duration = Duration::from_secs(30);

/// A test for each engine: with its server or, behind `on numbers`, with a database of three rows.
macro_rules! on_all {
    ($($name:ident),* $(,)? $(; on numbers: $($case:ident),* $(,)?)?) => {
        on_all!(@ mysql Mysql, [$($name)*] [$($($case)*)?]);
        on_all!(@ mariadb Mariadb, [$($name)*] [$($($case)*)?]);
        on_all!(@ postgres Postgres, [$($name)*] [$($($case)*)?]);
    };
    (@ $module:ident $engine:ident, [$($name:ident)*] [$($case:ident)*]) => {
        mod $module {
            use crate::environment::tests::{OpenDatabase, server};
            use crate::place::Engine;

            $(#[tokio::test]
            async fn $name() {
                if let Some(server) = server(Engine::$engine).await {
                    super::$name(server).await;
                }
            })*

            $(#[tokio::test]
            async fn $case() {
                if let Some(server) = server(Engine::$engine).await {
                    let db = OpenDatabase::numbers(&server).await;
                    super::$case(&db).await;
                    db.close().await;
                }
            })*
        }
    };
}
pub(super) use on_all;

/// Returns the server of an engine, which is one for all tests of this program.
async fn server(engine: Engine) -> Option<Arc<TestServer>> {
    static SERVERS: [OnceLock<Option<hierlock_sandbox::Server>>; 3] =
        [const { OnceLock::new() }; 3];
    let kind = engine.server()?;
    let place = Engine::SERVERS.iter().position(|known| *known == engine)?;
    let start = move || SERVERS[place].get_or_init(|| hierlock_sandbox::Server::for_tests(kind));
    let server = tokio::task::spawn_blocking(start).await.unwrap().as_ref()?;
    let server = TestServer::connect(engine, server.url()).await.unwrap();
    if engine == Engine::Mariadb {
        // Ours has it; one that was given may have yet to load it, or does so already.
        let mut connection = LabConnection::open(&server.address).await.unwrap();
        let _ = connection.try_query("INSTALL SONAME 'metadata_lock_info'").await.unwrap();
        connection.close().await;
    }
    Some(server)
}

impl TestServer {
    fn engine(&self) -> Engine {
        let is_it = |engine: &Engine| engine.dialect() == Some(self.dialect());
        Engine::SERVERS.into_iter().find(is_it).unwrap()
    }
}

/// Whether we may do everything on it. Deadlocks are found sooner then, and all locks are listed.
async fn is_superuser(server: &TestServer) -> bool {
    let sql = match server.engine() {
        Engine::Postgres => "SELECT rolsuper::int FROM pg_roles WHERE rolname = current_user",
        _ => {
            "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'SUPER' \
             AND GRANTEE = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')"
        }
    };
    let mut connection = LabConnection::open(&server.address).await.unwrap();
    let rows = connection.query(sql).await.unwrap();
    connection.close().await;
    rows[0][0].as_deref() == Some("1")
}

fn name(text: &str) -> SessionName {
    SessionName::new(text).unwrap()
}

fn case(engine: Engine, setup: &[&str]) -> Case {
    let scenario = Scenario { name: "test/environment".to_owned(), ..Scenario::default() };
    Case {
        limit: LONG,
        setup: setup.iter().map(|sql| statement(sql)).collect(),
        sessions: ["A", "B", "C", "D"].map(|text| (name(text), Vec::new())).into(),
        ..Case::new(Arc::new(scenario), Place { engine, strategy: None })
    }
}

/// A statement of the setup or the teardown, as if it stood in line 7 of a file.
fn statement(sql: &str) -> Statement {
    Statement { line: 7, sql: sql.to_owned() }
}

fn numbers(engine: Engine) -> Case {
    case(
        engine,
        &[
            "create table numbers (id int primary key, value int, word varchar(10))",
            "insert into numbers values (1, 30, 'a'), (2, 10, null), (10, 5, 'c')",
        ],
    )
}

fn set_all(case: &mut Case, setting: &SettingValue) {
    for settings in case.sessions.values_mut() {
        settings.push(setting.clone());
    }
}

/// Makes the case known as one that will run a statement.
fn will_run(case: &mut Case, sql: &str) {
    case.steps.push(Step::new(1, name("A"), Action::Sql(sql.to_owned())));
}

struct OpenDatabase {
    server: Arc<TestServer>,
    database: TestDatabase,
}

impl Deref for OpenDatabase {
    type Target = TestDatabase;

    fn deref(&self) -> &TestDatabase {
        &self.database
    }
}

impl OpenDatabase {
    async fn open(server: &Arc<TestServer>, case: &Case) -> Self {
        let database = TestDatabase::open(server, case).await.unwrap();
        Self { server: server.clone(), database }
    }

    async fn numbers(server: &Arc<TestServer>) -> Self {
        Self::open(server, &numbers(server.engine())).await
    }

    fn is_postgres(&self) -> bool {
        self.server.engine() == Engine::Postgres
    }

    fn namespace(&self) -> &str {
        self.guard.namespace.name()
    }

    /// The server's numbers of its sessions, in the order of their names.
    fn pids(&self) -> Vec<i64> {
        self.sessions.values().map(|session| session.pid).collect()
    }

    fn start(&self, who: &str, sql: &str) -> Reply {
        self.database.begin(&name(who), sql)
    }

    async fn run(&self, who: &str, sql: &str) -> Result<Answer, Failure> {
        end(self.start(who, sql)).await
    }

    async fn all(&self, who: &str, statements: &[&str]) {
        for sql in statements {
            self.run(who, sql).await.unwrap_or_else(|failure| panic!("{sql}: {failure:?}"));
        }
    }

    /// The wait of a session, once the server has told it twice in the same way.
    async fn blocked(&self, who: &str) -> Wait {
        let wait = async {
            let mut before = None;
            loop {
                let waits = self.database.waits().await.unwrap();
                let wait = waits.into_iter().find(|wait| wait.waiter == name(who));
                if let Some(wait) = wait.clone().filter(|_| wait == before) {
                    return wait;
                }
                before = wait;
            }
        };
        tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{who} never waited"))
    }

    /// Begins a statement that must wait for these sessions and a lock of this kind.
    async fn start_blocked(
        &self,
        who: &str,
        sql: &str,
        blockers: &str,
        lock: LockKind,
    ) -> (Reply, Wait) {
        let reply = self.start(who, sql);
        let wait = self.blocked(who).await;
        assert_eq!((by(&wait).as_str(), kind(&wait)), (blockers, lock), "{wait:?}");
        (reply, wait)
    }

    async fn close(self) {
        self.database.close().await.unwrap();
    }
}

async fn end(reply: Reply) -> Result<Answer, Failure> {
    tokio::time::timeout(LONG, reply).await.expect("it never ended").unwrap()
}

async fn failed(reply: Reply) -> FailureKind {
    end(reply).await.unwrap_err().kind
}

fn by(wait: &Wait) -> String {
    assert!(!wait.has_outside_blocker, "{wait:?}");
    join(&wait.blockers, " ")
}

fn kind(wait: &Wait) -> LockKind {
    wait.target.as_ref().unwrap().kind
}

fn target(wait: &Wait) -> String {
    wait.target.as_ref().unwrap().to_string()
}
