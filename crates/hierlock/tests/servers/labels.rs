//! Session labels: the server shows which client holds or waits for which nodes.

use crate::support::{Database, OutsideSession, Setup, TEST_LIMIT, on_every_setup, target};
use hierlock::sql::{Provision, SessionLabel, Strategy};
use hierlock::{Blocker, Hierarchy, Hierlock, Target};
use hierlock_conformance::{spawn_acquire, until_waiting};
use hierlock_sandbox::{Engine, Sandbox};
use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

on_every_setup!(holders_and_waiters_are_labelled, a_refusal_names_the_blocking_session);

mod contention {
    crate::support::on_every_setup!(@ [waits_for_another_node_of_a_bucket_are_counted]
        mysql: Mysql Striped,
        mariadb: Mariadb Striped,
        postgres: Postgres Striped,
    );
    use super::waits_for_another_node_of_a_bucket_are_counted;
}

impl OutsideSession {
    /// Returns the targets in the labels of a program's sessions, without empty labels.
    async fn labels(&mut self, engine: Engine, program: &str) -> BTreeSet<Vec<Target>> {
        let sql = match engine {
            Engine::Postgres => "SELECT application_name FROM pg_stat_activity",
            _ => {
                "SELECT CONVERT(VARIABLE_VALUE USING utf8mb4) \
                 FROM performance_schema.user_variables_by_thread WHERE VARIABLE_NAME = 'hierlock'"
            }
        };
        let rows = self.rows(sql).await;
        let labels = rows.iter().filter_map(|row| SessionLabel::parse(&row[0]));
        let labels = labels.filter(|label| label.client.program == program);
        let labels = labels.inspect(|label| {
            assert_eq!(label.client.pid, std::process::id());
            if engine == Engine::Postgres && !label.claims.is_empty() {
                let age = SystemTime::now().duration_since(label.since.unwrap()).unwrap();
                assert!(age < Duration::from_secs(60), "{age:?}");
            }
        });
        let targets = |label: SessionLabel| label.targets().cloned().collect::<Vec<_>>();
        labels.map(targets).filter(|targets| !targets.is_empty()).collect()
    }

    /// Waits until the sessions of a program have exactly these labels.
    async fn until_labels(&mut self, engine: Engine, program: &str, expected: &[&[&str]]) {
        let targets = |paths: &&[&str]| paths.iter().map(|path| target(path)).collect();
        let expected: BTreeSet<Vec<Target>> = expected.iter().map(targets).collect();
        let begun = Instant::now();
        loop {
            let labels = self.labels(engine, program).await;
            if labels == expected {
                return;
            }
            assert!(
                begun.elapsed() < TEST_LIMIT,
                "expected the labels {expected:?} within the limit, found {labels:?}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The failure this prevents: a process held `u1/a1/r1`, and the server showed only `Sleep` and bucket numbers.
async fn holders_and_waiters_are_labelled(setup: Setup) {
    let Setup { engine, strategy } = setup;
    let Some((url, _server)) = server_with_visible_labels(setup).await else { return };
    let program = format!("test-{engine}-{strategy}");
    let locks = Hierlock::builder().program(&program).connect(&url).await.unwrap();
    let mut outside = OutsideSession::connect(&url).await;

    // A holder, then waiters: for an ancestor, and for a list of rows.
    let guard = locks.acquire(target("u0/a0/r0")).await.unwrap();
    outside.until_labels(engine, &program, &[&["u0/a0/r0"]]).await;
    for wanted in [&["u0"][..], &["u0", "u1", "u2", "u3"]] {
        let waiting = tokio::spawn({
            let (locks, wanted) = (locks.clone(), wanted.iter().map(|path| target(path)));
            let wanted: Vec<Target> = wanted.collect();
            async move { locks.acquire_all(wanted).await }
        });
        until_waiting(&locks, 1).await;
        outside.until_labels(engine, &program, &[&["u0/a0/r0"], wanted]).await;
        waiting.abort();
        until_waiting(&locks, 0).await;
    }

    // The label of an extension also contains the earlier targets of its session. A failed one changes nothing.
    let mut guard = guard;
    guard.extend([target("u3")]).await.unwrap();
    let labels = outside.labels(engine, &program).await;
    let targets: BTreeSet<Target> = labels.into_iter().flatten().collect();
    assert!(targets.is_superset(&["u0/a0/r0", "u3"].map(target).into()), "{targets:?}");
    guard.release().await.unwrap();
    if engine == Engine::Postgres {
        // On MySQL and MariaDB the label stays until the session is used again. Reports compare it with the locks.
        outside.until_labels(engine, &program, &[]).await;
    }
    locks.close(Duration::from_secs(5)).await.unwrap();
}

/// The failure this prevents: an error said that a node is locked "by someone else", without a way to find the holder.
async fn a_refusal_names_the_blocking_session(setup: Setup) {
    let Some((url, _server)) = server_with_visible_labels(setup).await else { return };
    let connect = async |program: &str| {
        let builder = Hierlock::builder().application("shop").program(program);
        builder.connect(&url).await.unwrap()
    };
    let (holders, others) = (connect("holder").await, connect("other").await);
    let guard = holders.acquire(target("u0/a0/r0")).await.unwrap();
    let short = Duration::from_millis(300);
    for path in ["u0/a0/r0", "u0"] {
        let request = || others.request(target(path));
        for request in [request().within(short), request().no_wait()] {
            let error = request.acquire().await.unwrap_err();
            let [session] = error.blocking_sessions() else { panic!("{error}") };
            let message = error.to_string();
            let name = session.client.as_deref().unwrap();
            // On PostgreSQL labels are shorter, and may lack the application and a part of the host.
            assert!(
                name.contains("holder@") && name.ends_with(&format!(":{}", std::process::id())),
                "{message}"
            );
            assert!(
                message.contains(name) && message.contains(&format!("session {}", session.pid)),
                "{message}"
            );
            assert!(session.age.is_some_and(|age| age < Duration::from_secs(60)), "{message}");
            assert_eq!(session.target, error.blocked_on().cloned(), "{message}");
        }
    }
    // If the blocker has another node with the same slot, the message names that node.
    if setup.strategy == Strategy::Striped {
        let twin = other_node_in_bucket(&others, "u0/a0/r0");
        let error = others.request(twin).no_wait().acquire().await.unwrap_err();
        let [session] = error.blocking_sessions() else { panic!("{error}") };
        assert_eq!(session.target, Some(target("u0/a0/r0")), "{error}");
        assert!(error.to_string().contains("with `u0/a0/r0`, which has the same slot"), "{error}");
    }
    let waiters = connect("waiter").await;
    let waiter = spawn_acquire(&waiters, "u0");
    until_waiting(&waiters, 1).await;
    a_refusal_behind_a_waiter_names_the_holder_too(setup, &others).await;
    guard.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// A holder has `u0` shared, a waiter wants it exclusive, and a shared request waits behind the waiter.
async fn a_refusal_behind_a_waiter_names_the_holder_too(setup: Setup, locks: &Hierlock) {
    let begun = Instant::now();
    let error = loop {
        let request = locks.request(target("u0/a0/r1")).within(Duration::from_millis(300));
        match request.acquire().await {
            // On PostgreSQL a shared request for a row passes a waiter.
            Ok(guard) => {
                let is_row = setup.strategy != Strategy::Advisory;
                assert!(setup.engine == Engine::Postgres && is_row, "{guard:?}");
                return guard.release().await.unwrap();
            }
            Err(error) if error.blocker() == Some(Blocker::Waiter) => break error,
            // MariaDB does not list a new wait at once.
            Err(error) => assert!(begun.elapsed() < TEST_LIMIT, "{error}"),
        }
    };
    let waits: BTreeSet<bool> =
        error.blocking_sessions().iter().map(|session| session.waiting_for.is_some()).collect();
    assert_eq!(waits, BTreeSet::from([false, true]), "{error}");
    let message = error.to_string();
    let (waiter, holder) = message.split_once(", behind ").unwrap_or_else(|| panic!("{message}"));
    assert!(waiter.contains("waiter@") && waiter.contains("waiting for"), "{message}");
    assert!(holder.contains("holder@"), "{message}");
}

/// Returns another node with the bucket of `path`.
fn other_node_in_bucket(locks: &Hierlock, path: &str) -> Target {
    let slot = |target: &Target| {
        let plan = locks.plan([target.clone()], hierlock::Mode::Exclusive).unwrap();
        plan.steps().last().unwrap().slot
    };
    let wanted = slot(&target(path));
    let mut others = (1..).map(|number| target(&format!("u9/a9/r{number}")));
    others.find(|other| slot(other) == wanted).unwrap()
}

/// The number shows how many waits more buckets would avoid.
async fn waits_for_another_node_of_a_bucket_are_counted(setup: Setup) {
    let Some((url, _server)) = server_with_visible_labels(setup).await else { return };
    let locks = Hierlock::connect(&url).await.unwrap();
    let sql_locks = locks.as_sql().unwrap();
    let guard = locks.acquire(target("u0/a0/r0")).await.unwrap();
    let twin = other_node_in_bucket(&locks, "u0/a0/r0");
    for (wanted, same_node, other_node) in [(twin, 0, 1), (target("u0/a0/r0"), 1, 1)] {
        let waiting = tokio::spawn({
            let locks = locks.clone();
            async move { locks.acquire(wanted).await }
        });
        let is_counted = || {
            let now = sql_locks.contention();
            std::future::ready((now.same_node, now.other_node) == (same_node, other_node))
        };
        hierlock_conformance::until(is_counted).await;
        assert_eq!(sql_locks.contention().waits, same_node + other_node);
        waiting.abort();
        until_waiting(&locks, 0).await;
    }
    guard.release().await.unwrap();
}

/// Returns the URL of a database on a server that shows labels. MariaDB does not by default, so it needs its own server.
async fn server_with_visible_labels(setup: Setup) -> Option<(String, Option<Sandbox>)> {
    let Setup { engine, strategy } = setup;
    if engine != Engine::Mariadb {
        return Some((Database::new(setup).await?.url, None));
    }
    let server = Sandbox::for_tests_with(engine, &["--performance-schema=ON"])?;
    let url = format!("{}?strategy={strategy}", server.url());
    if strategy != Strategy::OnDemand {
        let buckets = if strategy == Strategy::Striped { "&buckets=1000" } else { "" };
        let provision = Provision::connect(&format!("{url}{buckets}"), Hierarchy::default()).await;
        let provision = provision.unwrap();
        provision.run(|_| ()).await.unwrap();
        if strategy == Strategy::PerId {
            let rows = ["u0/a0/r0", "u0/a0/r1", "u1/a0/r0", "u2/a0/r0", "u3/a0/r0"].map(target);
            provision.add(&rows).await.unwrap();
        }
    }
    Some((url, Some(server)))
}
