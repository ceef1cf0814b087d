//! Observations on real servers: results, waits and deadlocks. The explanations of deadlocks are compared with the
//! servers' own reports, read by independent code.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "deadlocks/cases.rs"]
mod cases;
#[path = "deadlocks/statements.rs"]
mod statements;
#[path = "deadlocks/waits.rs"]
mod waits;
#[path = "deadlocks/witness.rs"]
mod witness;

use hierlock_lab::parts::{
    Action, BlockingLock, Deadlock, ExpectedOutcome, LockKind, LockTarget, WaitEdge,
};
use hierlock_lab::{Case, Engine, Lab, Record, Report, RunOptions, Scenario};
use hierlock_sandbox::Server;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::spawn_blocking;
use witness::{TextLock, WitnessRecord, last_deadlock, transactions, with_witness};

/// Returns a lab with the server of an engine, for one test at a time: a server reports only its last deadlock. None if
/// the server is not installed.
async fn lab(engine: Engine) -> Option<(Lab, MutexGuard<'static, ()>)> {
    static SERVERS: [OnceLock<Option<Server>>; 3] = [const { OnceLock::new() }; 3];
    static TURNS: [Mutex<()>; 3] = [const { Mutex::const_new(()) }; 3];
    let at = Engine::SERVERS.iter().position(|known| *known == engine).unwrap();
    let turn = TURNS[at].lock().await;
    let kind = engine.server().unwrap();
    let start = move || SERVERS[at].get_or_init(|| Server::for_tests(kind)).as_ref();
    let server = spawn_blocking(start).await.unwrap()?;
    let mut lab = Lab::new().unwrap();
    lab.connect(engine, server.url()).await.unwrap();
    Some((lab, turn))
}

/// Runs cases one after the other.
async fn run(lab: &Lab, cases: &[Case]) -> Vec<Record> {
    let mut report = Report::default();
    lab.run(cases, RunOptions::default(), &mut report, |_| ()).await;
    report.records
}

fn expects_deadlock(case: &Case) -> bool {
    let mut all = case.steps.iter().flat_map(|step| &step.expected);
    all.any(|expected| {
        expected
            .alternatives
            .iter()
            .any(|outcome| matches!(outcome, ExpectedOutcome::Deadlock { .. }))
    })
}

/// Returns the cases of a scenario on one engine that consist of SQL and expect a deadlock.
fn cases_with_deadlock(scenario: &Arc<Scenario>, engine: Engine) -> Vec<Case> {
    let is_sql =
        |case: &Case| !case.steps.iter().any(|step| matches!(step.action, Action::Lock(..)));
    let cases = scenario.cases().into_iter();
    cases
        .filter(|case| case.backend.engine == engine && expects_deadlock(case) && is_sql(case))
        .collect()
}

async fn explanations_agree(engine: Engine) {
    let Some((lab, _turn)) = lab(engine).await else { return };
    let all = Scenario::builtin().unwrap();
    let cases: Vec<Case> = all
        .iter()
        .flat_map(|scenario| cases_with_deadlock(scenario, engine))
        .map(with_witness)
        .collect();
    assert!(cases.len() > 5, "{}", cases.len());
    for record in run(&lab, &cases).await {
        let title = format!("{} on {engine}", record.case_name());
        assert!(record.agrees(), "{title}: {:?}", record.verdict);
        // In some cases the engine may also end without a deadlock; every deadlock that occurred is compared.
        for deadlock in &record.deadlocks {
            assert_eq!(deadlock.cycle.len(), 2, "{title}: {deadlock:?}");
            for edge in &deadlock.cycle {
                assert!(edge.unknown.is_empty() && edge.blocking.len() == 1, "{title}: {edge:?}");
                match engine {
                    Engine::Postgres => agrees_with_postgres(&record, deadlock, edge, &title),
                    _ => agrees_with_innodb(&record, deadlock, edge, &title),
                }
            }
        }
        assert!(!record.deadlocks.is_empty(), "{title}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_agree_with_mysql() {
    explanations_agree(Engine::Mysql).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_agree_with_mariadb() {
    explanations_agree(Engine::Mariadb).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn explanations_agree_with_postgres() {
    explanations_agree(Engine::Postgres).await;
}

/// By construction, a node is held since the holder's step that names it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_held_since_the_step_that_names_it() {
    let is_tree =
        |case: &Case| case.steps.iter().any(|step| matches!(step.action, Action::Lock(..)));
    let all = Scenario::builtin().unwrap();
    let cases = all.iter().flat_map(|scenario| scenario.cases()).filter(is_tree);
    let cases: Vec<Case> = cases.filter(expects_deadlock).collect();
    let mut explained = 0;
    for engine in [Engine::Memory, Engine::Mysql, Engine::Mariadb, Engine::Postgres] {
        let is_on_engine = |case: &&Case| case.backend.engine == engine;
        let cases: Vec<Case> = cases.iter().filter(is_on_engine).cloned().collect();
        let (lab, _turn) = match engine {
            Engine::Memory => (Lab::new().unwrap(), None),
            engine => match lab(engine).await {
                Some((lab, turn)) => (lab, Some(turn)),
                None => continue,
            },
        };
        for record in run(&lab, &cases).await {
            let title = format!("{} at {}", record.case_name(), record.backend);
            assert!(record.agrees(), "{title}: {:?}", record.verdict);
            for edge in record.deadlocks.iter().flat_map(|deadlock| &deadlock.cycle) {
                for lock in &edge.blocking {
                    let step = &record.steps[lock.statement.unwrap()];
                    assert_eq!(step.session, edge.holder, "{title}: {edge:?}");
                    assert!(step.text.contains(&lock.target.object), "{title}: {edge:?} {step:?}");
                    explained += 1;
                }
            }
        }
    }
    assert!(explained > 0);
}

/// Compares the first field of a key with InnoDB's text: an integer with inverted sign bit, or characters.
fn is_key(target: &LockTarget, key: &str) -> bool {
    let record = target.record.as_deref().unwrap();
    let first = record.split(", ").next().unwrap();
    let hex = match (first.strip_prefix('\''), first.parse::<i64>()) {
        (Some(text), _) => {
            text.trim_end_matches('\'').bytes().map(|byte| format!("{byte:02x}")).collect()
        }
        (None, Ok(number)) => format!("{:08x}", number + 0x8000_0000),
        _ => first.to_owned(),
    };
    hex == key
}

fn is_lock(target: &LockTarget, lock: &TextLock) -> bool {
    let in_gap =
        lock.keys[0] == "supremum" || lock.mode.contains("GAP,") || lock.mode.ends_with(",GAP");
    target.object == lock.table
        && target.index.as_deref() == Some(lock.index.as_str())
        && lock.keys.iter().any(|key| is_key(target, key))
        && target.mode == lock.mode
        && (target.kind == LockKind::Gap) == (in_gap && !lock.mode.contains("REC_NOT_GAP"))
}

fn line(record: &Record, lock: &BlockingLock) -> usize {
    record.steps[lock.statement.unwrap()].line
}

/// Session, index, record or gap, and mode are compared with the deadlock text, and the line with the locks that the
/// witness saw after each step.
fn agrees_with_innodb(record: &Record, deadlock: &Deadlock, edge: &WaitEdge, title: &str) {
    let witness = WitnessRecord::of(record);
    let members = last_deadlock(&witness.status_after(deadlock.step));
    let member = |session| {
        members.iter().find(|member| witness.session(&member.thread) == Some(session)).unwrap()
    };
    let (waiter, holder) = (member(&edge.waiter), member(&edge.holder));
    let wants = edge.wants.as_ref().unwrap();
    assert!(is_lock(wants, waiter.under("WAITING FOR")[0]), "{title}: {wants} {waiter:?}");
    let blocking = &edge.blocking[0];
    let contains = |locks: Vec<&TextLock>| {
        locks
            .into_iter()
            .any(|lock| is_lock(&blocking.target, lock) && lock.is_waiting != blocking.granted)
    };
    let is_reported = match record.backend.engine {
        Engine::Mysql => contains(holder.under("HOLDS")),
        // Listed below the waiter with the id of the holder; a queued request is listed below the holder.
        _ if blocking.granted => {
            let mut conflicting = waiter.under("CONFLICTING");
            let number = if holder.number.starts_with('(') { "0" } else { &holder.number };
            conflicting.retain(|lock| lock.transaction == number);
            contains(conflicting)
        }
        _ => {
            let own = |lock: &&TextLock| lock.transaction == holder.number;
            assert!(!waiter.under("CONFLICTING").iter().any(own), "{title}: {edge:?}");
            contains(holder.under("WAITING FOR"))
        }
    };
    assert!(is_reported, "{title}: {blocking:?} {waiter:?} {holder:?}");

    let status = if blocking.granted { "GRANTED" } else { "WAITING" };
    let index = blocking.target.index.as_deref().unwrap();
    let key = blocking.target.record.as_deref().unwrap();
    let has = |rows: &[Vec<String>]| match record.backend.engine {
        Engine::Mysql => rows.iter().any(|row| {
            witness.session(&row[0]) == Some(&edge.holder)
                && [&row[1], &row[2], &row[3], &row[5]]
                    == [&blocking.target.object, index, &blocking.target.mode, status]
                && (row[4] == key || row[4].starts_with("supremum") && key == "supremum")
        }),
        _ => transactions(&rows[0][2]).iter().any(|transaction| {
            witness.session(&transaction.thread) == Some(&edge.holder)
                && transaction.locks.iter().any(|(_, lock)| {
                    is_lock(&blocking.target, lock) && lock.is_waiting != blocking.granted
                })
        }),
    };
    let since = witness.since(deadlock.step, has);
    assert_eq!(since, Some(line(record, blocking)), "{title}: {blocking:?}");
}

/// The waits and the row of the victim are compared with its error detail, and the line with the change of the row's
/// `xmax` that the witness saw.
fn agrees_with_postgres(record: &Record, deadlock: &Deadlock, edge: &WaitEdge, title: &str) {
    let witness = WitnessRecord::of(record);
    let detail = record.steps[..=deadlock.step].iter().rev().find_map(|step| {
        let end = step.ended.as_ref().map_or(&step.seen, |ended| &ended.observation);
        let hierlock_lab::parts::Observation::Failed(failure) = end else { return None };
        failure.detail.clone()
    });
    let detail = detail.unwrap();
    let is_reported = detail.lines().any(|line| {
        let numbers: Vec<&str> = line.split([' ', '.']).collect();
        let process = |at: Option<usize>| witness.session(numbers.get(at? + 1)?);
        let waiter = process(numbers.iter().position(|word| *word == "Process"));
        let holder = process(numbers.iter().position(|word| *word == "process"));
        (waiter, holder) == (Some(&edge.waiter), Some(&edge.holder))
    });
    assert!(is_reported, "{title}: {detail}");
    let wants = edge.wants.as_ref().unwrap();
    let blocking = &edge.blocking[0];
    if wants.kind == LockKind::Advisory {
        assert!(detail.contains("on advisory lock [") && blocking.granted, "{title}: {detail}");
        assert_eq!(blocking.target.object, wants.object, "{title}");
        let step = &record.steps[blocking.statement.unwrap()];
        assert!(step.session == edge.holder && step.text.contains("pg_advisory"), "{title}");
        return;
    }
    assert_eq!(wants.kind, LockKind::Row, "{title}: {wants}");
    assert_eq!(
        (&wants.object, &wants.record, true),
        (&blocking.target.object, &blocking.target.record, blocking.granted),
        "{title}"
    );
    // The row as the witness saw it: its values begin with the key.
    let key = wants.record.as_deref().unwrap().replace(", ", ",");
    let row = |rows: &[Vec<String>]| {
        let has_key = |row: &&Vec<String>| {
            let values = row[3].trim_matches(['(', ')']);
            row[0] == wants.object && format!("{values},").starts_with(&format!("{key},"))
        };
        rows.iter().find(has_key).cloned()
    };
    let answers = witness.answers_before(deadlock.step);
    if edge.waiter == deadlock.victim {
        let ctid = &row(&answers[0].1).unwrap()[1];
        let at = format!("tuple {ctid} in relation \"{}\"", wants.object);
        assert!(detail.contains(&at), "{title}: {at}: {detail}");
    }
    let changes: Vec<usize> = answers
        .windows(2)
        .filter(|pair| {
            row(&pair[0].1).map(|row| row[2].clone()) != row(&pair[1].1).map(|row| row[2].clone())
        })
        .map(|pair| pair[0].0)
        .collect();
    let taken = line(record, blocking);
    assert!(changes.contains(&taken), "{title}: {taken} of {changes:?}");
    let step = record.steps.iter().find(|step| step.line == taken).unwrap();
    assert_eq!(step.session, edge.holder, "{title}");
    // Other sessions may have locked the row shared since, but not its holder.
    let later = changes.iter().filter(|line| **line > taken);
    for line in later {
        let step = record.steps.iter().find(|step| step.line == *line).unwrap();
        assert_ne!(step.session, edge.holder, "{title}");
    }
}
