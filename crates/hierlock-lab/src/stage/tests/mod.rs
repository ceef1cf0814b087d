//! The stage on real servers: one of each engine for all tests. Where none is installed a test says so
//! and is skipped, except in CI.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answers;
mod circles;
mod endings;
mod unusual;
mod waits;

use super::connection::StageConnection;
use super::{Reply, Server, SqlStage, Stage};
use crate::observation::{Answer, Failure, FailureKind, LockKind, Name, Wait};
use crate::place::{Engine, Place};
use crate::scenario::{Actor, Case, CaseDeed, Scenario, SettingValue, Statement, Step};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Longer than anything here takes, however busy the machine.
const LONG: Duration = Duration::from_secs(30);

/// A test for each engine.
macro_rules! on_all {
    ($($name:ident),* $(,)?) => {
        on_all!(@ mysql Mysql, $($name),*);
        on_all!(@ mariadb Mariadb, $($name),*);
        on_all!(@ postgres Postgres, $($name),*);
    };
    (@ $module:ident $engine:ident, $($name:ident),*) => {
        mod $module {
            $(#[tokio::test]
            async fn $name() {
                if let Some(server) = crate::stage::tests::server(crate::place::Engine::$engine).await {
                    super::$name(server).await;
                }
            })*
        }
    };
}
pub(super) use on_all;

/// The server of an engine, for all tests of this program.
async fn server(engine: Engine) -> Option<Server> {
    static SERVERS: [OnceLock<Option<hierlock_sandbox::Server>>; 3] =
        [const { OnceLock::new() }; 3];
    let kind = engine.server()?;
    let place = Engine::SERVERS.iter().position(|known| *known == engine)?;
    let start = move || SERVERS[place].get_or_init(|| hierlock_sandbox::Server::for_tests(kind));
    let server = tokio::task::spawn_blocking(start).await.unwrap().as_ref()?;
    let server = Server::connect(engine, server.url()).await.unwrap();
    if engine == Engine::Mariadb {
        // Ours has it; one that was given may have yet to load it, or does so already.
        let mut connection = StageConnection::open(&server.inner.address).await.unwrap();
        let _ = connection.try_ask("INSTALL SONAME 'metadata_lock_info'").await.unwrap();
        connection.close().await;
    }
    Some(server)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// A case with sessions A to D.
fn case(engine: Engine, setup: &[&str]) -> Case {
    let scenario = Scenario { name: "test/stage".to_owned(), ..Scenario::default() };
    Case {
        scenario: Arc::new(scenario),
        variant: Vec::new(),
        place: Place { engine, strategy: None },
        limit: LONG,
        buckets: 1009,
        setup: setup.iter().map(|sql| statement(sql)).collect(),
        teardown: Vec::new(),
        sessions: ["A", "B", "C", "D"].map(|text| (name(text), Vec::new())).into(),
        steps: Vec::new(),
    }
}

/// A statement of the setup or the teardown, as if it stood in line 7 of a file.
fn statement(sql: &str) -> Statement {
    Statement { line: 7, sql: sql.to_owned() }
}

/// With a table of four rows.
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
    case.steps.push(Step {
        line: 1,
        who: Actor::Session(name("A")),
        deed: CaseDeed::Sql(sql.to_owned()),
        expected: None,
        signs: Vec::new(),
    });
}

/// A stage in use.
struct Play {
    server: Server,
    stage: SqlStage,
}

impl Play {
    async fn open(server: Server, case: &Case) -> Self {
        let stage = server.open(case).await.unwrap();
        Self { server, stage }
    }

    fn is_postgres(&self) -> bool {
        self.server.engine() == Engine::Postgres
    }

    /// Begins something.
    fn begin(&self, who: &str, sql: &str) -> Reply {
        self.stage.begin(&name(who), &CaseDeed::Sql(sql.to_owned()))
    }

    /// Something that waits for nobody.
    async fn run(&self, who: &str, sql: &str) -> Result<Answer, Failure> {
        end(self.begin(who, sql)).await
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
                let waits = self.stage.waits().await.unwrap();
                let wait = waits.into_iter().find(|wait| wait.waiter == name(who));
                if let Some(wait) = wait.clone().filter(|_| wait == before) {
                    return wait;
                }
                before = wait;
            }
        };
        tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{who} never waited"))
    }

    async fn close(self) {
        self.stage.close().await.unwrap();
    }
}

async fn end(reply: Reply) -> Result<Answer, Failure> {
    tokio::time::timeout(LONG, reply).await.expect("it never ended").unwrap()
}

/// How it failed.
async fn failed(reply: Reply) -> FailureKind {
    end(reply).await.unwrap_err().kind
}

fn by(wait: &Wait) -> String {
    assert!(!wait.strangers, "{wait:?}");
    wait.blockers.iter().map(Name::as_str).collect::<Vec<_>>().join(" ")
}

fn kind(wait: &Wait) -> LockKind {
    wait.thing.as_ref().unwrap().kind
}

fn thing(wait: &Wait) -> String {
    wait.thing.as_ref().unwrap().to_string()
}
