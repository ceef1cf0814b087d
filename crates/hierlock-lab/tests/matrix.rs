//! Runs the exhaustive matrix: every ordered pair of 2×2×2 on every backend, and controls that show that it can disagree.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::sql::Strategy;
use hierlock_lab::parts::PairOutcome;
use hierlock_lab::{
    BackendKind, Engine, Lab, MatrixOptions, MatrixReport, ModePair, RunEvent, TreeSize,
};
use hierlock_sandbox::Server;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection, Row};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};

fn server(engine: Engine) -> Option<&'static Server> {
    // The servers end with this process, even if it is killed.
    static SERVERS: [OnceLock<Option<Server>>; 3] = [const { OnceLock::new() }; 3];
    let index = Engine::SERVERS.iter().position(|server| *server == engine)?;
    SERVERS[index].get_or_init(|| Server::for_tests(engine.server()?)).as_ref()
}

/// Returns `None` if the server is not installed and this is not CI.
async fn run(options: MatrixOptions) -> Option<MatrixReport> {
    let mut lab = Lab::new().unwrap();
    for backend in &options.backends {
        if backend.engine.server().is_some() && !lab.has(backend.engine) {
            lab.connect(backend.engine, server(backend.engine)?.url()).await.unwrap();
        }
    }
    let mut report = MatrixReport::new(&options).unwrap();
    lab.matrix(&options, &mut report, |_| ()).await;
    Some(report)
}

async fn every_pair_agrees(engine: Engine) {
    let options =
        MatrixOptions { backends: BackendKind::all([engine]), ..MatrixOptions::default() };
    let Some(report) = run(options).await else { return };
    assert!(report.agrees(), "{}", report.text(false));
    for board in &report.boards {
        let counts = board.counts();
        assert_eq!((counts.pairs, counts.blocked, counts.granted), (196, 54, 142));
    }
    assert_eq!(report.distinct_boards().len(), 1);
    wait_until_no_database_is_left(engine).await;
}

/// All nine combinations, on a tree in which each relation occurs once.
async fn every_mode_agrees(engine: Engine) {
    let options = MatrixOptions {
        tree: TreeSize { users: 1, accounts: 1, resources: 2 },
        backends: BackendKind::all([engine]),
        modes: ModePair::all(),
        ..MatrixOptions::default()
    };
    let Some(report) = run(options).await else { return };
    assert!(report.agrees(), "{}", report.text(false));
}

/// Waits until the lab has no databases on the server: other tests have some too, but not for long.
async fn wait_until_no_database_is_left(engine: Engine) {
    let nothing = async {
        while !leftovers(engine).await.is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), nothing)
        .await
        .expect("databases were not removed within the limit");
}

/// Returns the lab's databases that no session is connected to.
async fn leftovers(engine: Engine) -> Vec<String> {
    let Some(server) = server(engine) else { return Vec::new() };
    let named = "LIKE 'hierlock~_lab~_%' ESCAPE '~'";
    if engine == Engine::Postgres {
        let sql = format!(
            "SELECT datname FROM pg_database WHERE datname {named} AND NOT EXISTS \
             (SELECT 1 FROM pg_stat_activity a WHERE a.datname = pg_database.datname)"
        );
        let mut connection = PgConnection::connect(server.url()).await.unwrap();
        let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
        return rows.iter().map(|row| row.get(0)).collect();
    }
    let sql = format!(
        "SELECT CONVERT(SCHEMA_NAME USING utf8mb4) FROM information_schema.SCHEMATA \
         WHERE SCHEMA_NAME {named} AND SCHEMA_NAME NOT IN \
         (SELECT COALESCE(DB, '') FROM information_schema.PROCESSLIST)"
    );
    let url = server.url().replacen("mariadb:", "mysql:", 1);
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

macro_rules! on_each_engine {
    ($($engine:ident: $name:ident),* $(,)?) => {
        $(mod $name {
            use super::Engine;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_pair_agrees() {
                super::every_pair_agrees(Engine::$engine).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn every_mode_agrees() {
                super::every_mode_agrees(Engine::$engine).await;
            }
        })*
    };
}
on_each_engine!(
    Memory: memory,
    File: file,
    Mysql: mysql,
    Mariadb: mariadb,
    Postgres: postgres,
);

/// The control on a server: with one bucket per level, all nodes conflict. If outcomes were taken from the rules
/// instead of the server, this would agree.
#[tokio::test]
async fn false_contention_is_seen_and_disagrees() {
    for engine in Engine::SERVERS {
        let options = MatrixOptions {
            tree: TreeSize { users: 2, accounts: 1, resources: 1 },
            backends: vec![BackendKind { engine, strategy: Some(Strategy::Striped) }],
            buckets: Some(1),
            ..MatrixOptions::default()
        };
        let Some(report) = run(options).await else { continue };
        let counts = report.counts();
        assert_eq!((counts.blocked, counts.granted), (36, 0), "{}", report.text(false));
        assert_eq!(counts.disagreements, 18, "not the pairs of different users");
        assert!(!report.agrees());
    }
}

#[tokio::test]
async fn a_missing_server_is_reported_and_the_others_run() {
    let engines = [Engine::Mysql, Engine::Memory];
    let options = MatrixOptions { backends: BackendKind::all(engines), ..MatrixOptions::default() };
    let mut report = MatrixReport::new(&options).unwrap();
    Lab::new().unwrap().matrix(&options, &mut report, |_| ()).await;
    assert_eq!((report.boards.len(), report.unusable.len()), (1, 3));
    assert!(report.boards[0].cells.iter().all(|cell| cell.agrees()));
    assert!(!report.agrees());
    let text = report.text(false);
    assert!(text.contains("mysql striped") && text.contains("3 backends not run"), "{text}");
}

#[tokio::test]
async fn every_case_and_step_is_an_event() {
    let options = MatrixOptions { modes: ModePair::all(), ..MatrixOptions::default() };
    let (started, finished, steps) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let lab = Lab::new().unwrap();
    let mut report = MatrixReport::new(&options).unwrap();
    let count = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::Relaxed);
    let running = lab.matrix(&options, &mut report, |event| match event {
        RunEvent::RunStarted { planned } => assert_eq!(planned, 2 * 9 * 196),
        RunEvent::CaseStarted(_) => _ = count(&started),
        RunEvent::StepObserved(_) => _ = count(&steps),
        RunEvent::CaseFinished(record) => {
            assert!(count(&finished) < started.load(Ordering::Relaxed));
            assert!(record.agrees(), "{record:?}");
        }
        RunEvent::RunFinished => assert_eq!(finished.load(Ordering::Relaxed), 2 * 9 * 196),
    });
    running.await;
    assert_eq!((finished.into_inner(), steps.into_inner()), (2 * 9 * 196, 4 * 2 * 9 * 196));
    assert!(report.agrees(), "{}", report.text(false));
    let is_unexpected = |seen: &PairOutcome| matches!(seen, PairOutcome::Unexpected { .. });
    assert!(
        !report.boards.iter().flat_map(|board| &board.cells).any(|cell| is_unexpected(&cell.seen))
    );
}

/// A run that is dropped half way removes its databases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_run_leaves_no_database() {
    for engine in Engine::SERVERS {
        let Some(server) = server(engine) else { continue };
        let backends = vec![BackendKind { engine, strategy: engine.strategies().first().copied() }];
        let options = MatrixOptions { backends, ..MatrixOptions::default() };
        let mut lab = Lab::new().unwrap();
        lab.connect(engine, server.url()).await.unwrap();
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let mut report = MatrixReport::new(&options).unwrap();
        let running = lab.matrix(&options, &mut report, |event| {
            if let RunEvent::CaseFinished(_) = event {
                let _ = begun.send(());
            }
        });
        tokio::select! {
            _ = running => panic!("the run ended before it was dropped"),
            _ = has_begun.recv() => {}
        }
        wait_until_no_database_is_left(engine).await;
        assert!(report.boards.is_empty() && report.unusable[0].why.contains("interrupted"));
    }
}

#[test]
fn options_without_places_or_with_too_many_nodes_are_an_error() {
    let no_backends = MatrixOptions { backends: Vec::new(), ..MatrixOptions::default() };
    assert!(MatrixReport::new(&no_backends).is_err());
    let tree = TreeSize { users: 9, accounts: 9, resources: 9 };
    let too_large = MatrixOptions { tree, ..MatrixOptions::default() };
    assert!(MatrixReport::new(&too_large).unwrap_err().to_string().contains("819"));
}
