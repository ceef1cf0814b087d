//! The inspector lists the row locks of guards on PostgreSQL, even if no session waits for them. The tests compare its list
//! with the modes that the guards report.

use crate::support::{Database, Setup, target};
use hierlock::sql::Dialect;
use hierlock::sql::lock_report::LockInspector;
use hierlock::{Guard, Hierlock, Mode, SlotMode, Target};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

crate::support::on_every_setup!(@ [locks_of_guards_are_listed extensions_are_listed]
    striped: Postgres Striped,
    per_id: Postgres PerId,
    on_demand: Postgres OnDemand,
    advisory: Postgres Advisory,
);

/// The number of locks for each node and mode.
type NodeModes = BTreeMap<(Target, SlotMode), usize>;

fn held_by_guards<'a>(guards: impl IntoIterator<Item = &'a Guard>) -> NodeModes {
    let mut held = NodeModes::new();
    for node in guards.into_iter().flat_map(|guard| guard.modes()) {
        *held.entry(node).or_default() += 1;
    }
    held
}

/// Returns the locks that the inspector reports for a program. An update lock is a shared lock of the row, and an advisory
/// key.
async fn held_by_report(inspector: &mut LockInspector, program: &str) -> NodeModes {
    let snapshot = inspector.snapshot().await.unwrap();
    assert_eq!(snapshot.dialect, Some(Dialect::Postgres));
    let mut held = NodeModes::new();
    for session in &snapshot.sessions {
        if session.label.as_ref().is_none_or(|label| label.client.program != program) {
            continue;
        }
        assert!(!session.has_unlisted_locks, "{session:?}");
        let mut modes: BTreeMap<Target, SlotMode> = BTreeMap::new();
        for lock in &session.held {
            for node in &lock.nodes {
                let mode = lock.slot_mode().unwrap_or_else(|| panic!("{lock:?}"));
                let strongest = modes.entry(node.clone()).or_insert(mode);
                *strongest = mode.max(*strongest);
            }
        }
        for node in modes {
            *held.entry(node).or_default() += 1;
        }
    }
    held
}

/// Waits until the inspector reports these locks. The server may still roll back released ones.
async fn until_reported(inspector: &mut LockInspector, program: &str, expected: &NodeModes) {
    let begun = Instant::now();
    loop {
        let reported = held_by_report(inspector, program).await;
        if reported == *expected {
            return;
        }
        let limit = crate::support::TEST_LIMIT;
        assert!(begun.elapsed() < limit, "{reported:#?}, not {expected:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn connect(setup: Setup) -> Option<(Hierlock, LockInspector, String)> {
    let database = Database::new(setup).await?;
    let program = format!("t{}", setup.strategy);
    let builder = Hierlock::builder().program(&program);
    let locks = builder.connect(&database.url).await.unwrap();
    Some((locks, LockInspector::connect(&database.url).await.unwrap(), program))
}

/// Some guards are released in between, so `xmax` contains ended transactions, and multixacts with ended members.
async fn locks_of_guards_are_listed(setup: Setup) {
    let Some((locks, mut inspector, program)) = connect(setup).await else { return };
    let mut guards: Vec<Guard> = Vec::new();
    let shared = ["u0/a0/r0", "u0/a0/r0", "u0/a0/r1", "u1/a0/r0"].map(|path| (path, Mode::Shared));
    let others = [
        ("u0/a0/r2", Mode::Exclusive),
        ("u0/a0/r0", Mode::Update),
        ("u0/a1", Mode::Shared),
        ("u2", Mode::Exclusive),
        ("u1/a0/r3", Mode::Update),
    ];
    for (round, (path, mode)) in shared.into_iter().chain(others).enumerate() {
        let request = locks.request(target(path)).mode(mode).no_wait();
        match request.acquire().await {
            Ok(guard) => guards.push(guard),
            // With advisory keys an update lock is exclusive.
            Err(error) => assert!(error.is_would_block() && mode == Mode::Update, "{error}"),
        }
        if round % 3 == 2 {
            guards.remove(0).release().await.unwrap();
        }
        until_reported(&mut inspector, &program, &held_by_guards(&guards)).await;
    }
    assert!(guards.len() > 3);
    for guard in guards {
        guard.release().await.unwrap();
    }
    until_reported(&mut inspector, &program, &NodeModes::new()).await;
    locks.close(Duration::from_secs(5)).await.unwrap();
}

/// An extension runs after a savepoint, in a subtransaction with its own id.
async fn extensions_are_listed(setup: Setup) {
    let Some((locks, mut inspector, program)) = connect(setup).await else { return };
    let request = locks.request(target("u0/a0/r0")).mode(Mode::Update);
    let mut guard = request.acquire().await.unwrap();
    let other = locks.request(target("u3/a0/r0")).mode(Mode::Shared).acquire().await.unwrap();
    let held = |guard: &Guard| held_by_guards([guard, &other]);
    until_reported(&mut inspector, &program, &held(&guard)).await;
    guard.extend([target("u1")]).await.unwrap();
    until_reported(&mut inspector, &program, &held(&guard)).await;
    // A refused extension changes nothing.
    let request = guard.request_all([target("u2"), target("u3")]).no_wait();
    assert!(request.acquire().await.unwrap_err().is_would_block());
    until_reported(&mut inspector, &program, &held(&guard)).await;
    guard.upgrade().await.unwrap();
    until_reported(&mut inspector, &program, &held(&guard)).await;
    guard.release().await.unwrap();
    other.release().await.unwrap();
    locks.close(Duration::from_secs(5)).await.unwrap();
}
