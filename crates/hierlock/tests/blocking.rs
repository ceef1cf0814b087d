//! The blocking API of locks, leases and queues; and named lock managers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::blocking::{
    ClaimedJob, Database, ExtendRequest, Hierlock, LeaseGuard, Leases, Queue, Request, Transaction,
};
use hierlock::lease::{LeaseFilter, LeaseRequest};
use hierlock::queue::{DeadJobFilter, FailureOutcome, Job, JobOutcome};
use hierlock::{Hierarchy, Mode, SlotMode, Target};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn target(path: &str) -> Target {
    path.parse().unwrap()
}

#[test]
fn threads_wait_for_each_other() {
    let locks = Hierlock::connect("memory:").unwrap();
    let guard = locks.acquire(target("u1")).unwrap();
    let waiter = std::thread::spawn({
        let locks = locks.clone();
        move || locks.acquire(target("u1/a1")).unwrap().modes()
    });
    while !locks.holders().iter().any(|holder| holder.waits.is_some()) {
        std::thread::yield_now();
    }
    guard.release().unwrap();
    assert_eq!(waiter.join().unwrap()[&target("u1/a1")], SlotMode::Exclusive);
}

#[test]
fn every_lock_method_works_without_async() {
    let locks = Hierlock::connect_with("memory:", Hierarchy::default()).unwrap();
    let mut guard = locks.acquire_children(&target("u1/a1"), ["r2", "r1"]).unwrap();
    guard.extend([target("u2")]).unwrap();
    assert!(guard.request(target("u3")).mode(Mode::Shared).try_acquire().unwrap());
    guard.request(target("u4")).within(Duration::from_secs(9)).acquire().unwrap();
    guard.upgrade().unwrap();
    assert_eq!(guard.targets().len(), 5);
    assert_eq!(locks.holders()[0].id, guard.id());
    assert!(guard.lost(Duration::from_millis(1)).is_none());
    let late = locks.request(target("u2")).within(Duration::from_millis(5)).acquire();
    assert!(late.unwrap_err().is_timeout());
    assert!(locks.request(target("u2")).no_wait().acquire().unwrap_err().is_would_block());
    drop(guard);
    let both = locks.request_all([target("u1"), target("u2")]).named("both");
    drop(both.and(target("u3"), Mode::Shared).acquire().unwrap());
    assert_eq!(locks.plan([target("u1/a1")], Mode::Shared).unwrap().steps().len(), 2);
    assert_eq!(locks.hierarchy().len(), 3);
}

/// A blocking call blocks the worker thread, but it neither panics nor deadlocks with the runtime.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_calls_work_inside_a_runtime() {
    let locks = Hierlock::connect("memory:").unwrap();
    let guard = locks.acquire(target("u1")).unwrap();
    let late = locks.request(target("u1")).within(Duration::from_millis(5)).acquire();
    assert!(late.unwrap_err().is_timeout());
    let locks2 = locks.clone();
    let waiter = tokio::task::spawn_blocking(move || locks2.acquire(target("u1")).unwrap());
    drop(guard);
    drop(waiter.await.unwrap());
}

#[test]
fn only_a_named_manager_is_shared() {
    let one = Hierlock::connect("memory:shared-by-name").unwrap();
    let two = Hierlock::connect("memory:shared-by-name").unwrap();
    let guard = one.acquire(target("u1")).unwrap();
    assert!(two.try_acquire(target("u1")).unwrap().is_none());
    let alone = Hierlock::connect("memory:").unwrap();
    assert!(alone.try_acquire(target("u1")).unwrap().is_some());

    let other = Hierarchy::new(["org", "team"]).unwrap();
    let error = Hierlock::connect_with("memory:shared-by-name", other.clone()).unwrap_err();
    assert!(error.to_string().contains("user/account/resource"), "{error}");
    drop((guard, one, two));
    // The name is not in use any more, so another tree is allowed.
    Hierlock::connect_with("memory:shared-by-name", other).unwrap();
}

#[test]
fn an_unknown_url_error_lists_the_known_ones() {
    for url in ["", "memory", "redis://x", "u1/a1"] {
        let error = Hierlock::connect(url).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("file:PATH"), "{error}");
    }
    assert!(Hierlock::connect("file:").unwrap_err().to_string().contains("names no file"));
}

/// Functions can take and return blocking requests without naming an async type.
#[test]
fn blocking_requests_have_their_own_types() {
    fn shared<'a>(locks: &'a Hierlock, path: &str) -> Request<'a> {
        locks.request(target(path)).mode(Mode::Shared)
    }
    fn at_once(request: ExtendRequest<'_>) -> bool {
        request.mode(Mode::Shared).no_wait().acquire().is_ok()
    }
    let options = hierlock::Hierlock::builder().hierarchy(Hierarchy::new(["org", "team"]).unwrap());
    let locks = Hierlock::open("memory:", options).unwrap();
    assert_eq!(shared(&locks, "a/b").plan().unwrap().steps().len(), 2);
    let mut guard = shared(&locks, "a").acquire().unwrap();
    let other = locks.acquire(target("b/c")).unwrap();
    assert!(!at_once(guard.request(target("b/c"))));
    assert!(at_once(
        guard.request_all([target("b/d"), target("c")]).and(target("d"), Mode::Shared)
    ));
    assert_eq!(guard.targets().len(), 4);
    assert!(locks.warnings().is_empty() && other.token().unwrap() > 0);
    locks.close(Duration::ZERO).unwrap();
}

/// Returns a new database. No thread of these tests belongs to a runtime.
fn database() -> (TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", directory.path().join("app.db").display());
    (directory, Database::connect(&url).unwrap())
}

fn fetch_number(database: &Database, sql: &str) -> i64 {
    database.query(sql, []).unwrap()[0].int(0).unwrap()
}

/// The failure this prevents: a task closes the connection of a dropped transaction, which panics without a
/// runtime.
#[test]
fn a_dropped_transaction_is_rolled_back() {
    let (_directory, database) = database();
    let mut tx = database.begin().unwrap();
    tx.run("CREATE TABLE t (id BIGINT PRIMARY KEY)").unwrap();
    tx.commit().unwrap();
    let add = |id: i64| -> Transaction {
        let mut tx = database.begin().unwrap();
        assert_eq!(tx.execute("INSERT INTO t VALUES (?)", [id.into()]).unwrap(), 1);
        assert_eq!(tx.fetch("SELECT id FROM t", []).unwrap().len(), 1);
        tx
    };
    drop(add(1));
    add(2).rollback().unwrap();
    assert_eq!(fetch_number(&database, "SELECT COUNT(*) FROM t"), 0);
    add(3).commit().unwrap();
    assert_eq!(fetch_number(&database, "SELECT id FROM t"), 3);
    assert!(database.now().unwrap().elapsed().unwrap() < Duration::from_secs(60));
    assert_eq!(database.for_update(), "");
    database.close();
}

#[test]
fn leases_work_without_async() {
    let (_directory, database) = database();
    let leases = Leases::new(&database).with_hierarchy(Hierarchy::default());
    assert!(leases.script().contains("hier_leases"));
    leases.provision().unwrap();
    let request = |path: &str, owner: &str| LeaseRequest::new(target(path), owner);

    let mut lease = leases.acquire(request("u1/a1", "ada").session("s1").reason("edits")).unwrap();
    let held = leases.acquire(request("u1", "bob")).unwrap_err();
    assert_eq!(held.lease_holder().unwrap().owner, "ada");
    assert_eq!((lease.owner(), lease.target()), ("ada", &target("u1/a1")));
    lease.renew().unwrap();
    assert!(lease.expires_at() > lease.acquired_at() && lease.ttl() > Duration::ZERO);
    let mut tx = database.begin().unwrap();
    lease.check_in(&mut tx).unwrap();
    leases.check_token_in(&mut tx, lease.token()).unwrap();
    tx.commit().unwrap();
    assert_eq!(leases.find(lease.token()).unwrap().as_ref(), Some(lease.info()));
    assert_eq!(leases.list(LeaseFilter::default().owner("ada")).unwrap().len(), 1);
    let resumed = leases.resume(lease.token()).unwrap();
    assert!(resumed.release().unwrap() && !leases.release(lease.token()).unwrap());
    assert!(lease.renew().unwrap_err().is_lost());

    let ended = leases.acquire(request("u2", "bob")).unwrap();
    leases.force_release(ended.token(), "root", "on holiday").unwrap().unwrap();
    assert_eq!(leases.audit(9).unwrap()[0].actor, "root");
    let mut tx = database.begin().unwrap();
    assert!(ended.check_in(&mut tx).unwrap_err().to_string().contains("root ended it"));
    drop(tx);
    let _leases =
        [leases.acquire(request("u3", "cid").session("s3")), leases.acquire(request("u4", "dan"))];
    assert_eq!(leases.release_session("s3").unwrap(), 1);
    assert_eq!(leases.release_owner("dan").unwrap(), 1);
    leases.sweep().unwrap();
    database.close();
}

#[test]
fn a_guard_renews_its_lease_without_a_runtime() {
    let (_directory, database) = database();
    let leases = Leases::new(&database);
    leases.provision().unwrap();
    let ttl = Duration::from_secs(3);
    let keep = || -> LeaseGuard {
        leases.acquire(LeaseRequest::new(target("u1"), "ada").ttl(ttl)).unwrap().keep()
    };
    let guard = keep();
    let first = guard.expires_at();
    let started = Instant::now();
    while guard.expires_at() == first {
        assert!(started.elapsed() < 2 * ttl, "the lease was never renewed");
        assert!(guard.lost(Duration::from_millis(10)).is_none());
    }
    let mut tx = database.begin().unwrap();
    guard.check_in(&mut tx).unwrap();
    tx.rollback().unwrap();
    assert!(guard.release().unwrap());

    // Dropping a guard releases the lease; `leave` does not.
    drop(keep());
    let left = loop {
        match leases.acquire(LeaseRequest::new(target("u1"), "bob").ttl(ttl)) {
            Ok(lease) => break lease.keep().leave(),
            Err(error) => assert!(error.is_held() && started.elapsed() < 10 * ttl, "{error}"),
        }
    };
    assert!(leases.find(left.token()).unwrap().is_some());
    let guard = leases.resume(left.token()).unwrap().keep();
    assert_eq!((guard.token(), &*guard.info().owner), (left.token(), "bob"));
    leases.force_release(guard.token(), "root", "on holiday").unwrap();
    assert!(guard.lost(Duration::from_secs(30)).unwrap().is_lost());
}

#[test]
fn queues_work_without_async() {
    let (_directory, database) = database();
    let mails = Queue::new(&database, "mails").unwrap().pauses(Duration::ZERO, Duration::ZERO);
    assert!(mails.script().contains("hier_jobs") && mails.name() == "mails");
    mails.provision().unwrap();
    let (lease, now) = (Duration::from_secs(30), Duration::from_millis(1));
    let claim = |most| -> Vec<ClaimedJob> { mails.claim("w1", most, lease).unwrap() };

    let added = mails.enqueue(Job::new("first").unique("k").priority(1).max_attempts(2)).unwrap();
    assert!(!mails.enqueue(Job::new("again").unique("k")).unwrap().is_added());
    let mut tx = database.begin().unwrap();
    mails.enqueue_in(&mut tx, Job::new("second").priority(2)).unwrap();
    mails.enqueue_all_in(&mut tx, [Job::new("third").priority(3)]).unwrap();
    tx.commit().unwrap();
    mails.enqueue_all([Job::new("fourth").priority(4)]).unwrap();
    mails.wake();

    let jobs = claim(9);
    let payloads: Vec<&str> = jobs.iter().map(ClaimedJob::payload).collect();
    assert_eq!(payloads, ["first", "second", "third", "fourth"]);
    let [first, second, third, fourth] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((first.id(), first.unique_key(), first.priority()), (added.id(), Some("k"), 1));
    assert_eq!((first.worker(), first.attempt(), first.max_attempts()), ("w1", 1, 2));
    assert!(mails.heartbeat(&jobs, lease).unwrap().is_empty() && !first.lost(now));
    let mut tx = database.begin().unwrap();
    second.complete_in(&mut tx).unwrap();
    tx.commit().unwrap();
    third.complete().unwrap();
    assert!(third.complete().unwrap_err().is_lost());
    fourth.give_back().unwrap();
    assert_eq!(mails.complete_all(&claim(9)).unwrap(), [0i64; 0]);

    assert_eq!(first.fail("no network").unwrap(), FailureOutcome::RetryAfter(Duration::ZERO));
    let again = loop {
        mails.promote().unwrap();
        if let Some(again) = claim(1).pop() {
            break again;
        }
    };
    assert_eq!((again.attempt(), again.claim_number()), (2, 2));
    assert_eq!(again.fail("no network").unwrap(), FailureOutcome::Dead);
    assert_eq!(mails.dead(9).unwrap()[0].last_error.as_deref(), Some("no network"));
    assert_eq!(mails.stats().unwrap().dead, 1);
    assert_eq!(Queue::all_stats(&database).unwrap().len(), 1);
    assert_eq!(mails.retry_dead(DeadJobFilter::All).unwrap(), 1);
}

/// A handler may block, fail and panic, and use the other blocking APIs.
#[test]
fn a_worker_runs_handlers_that_block() {
    let (_directory, database) = database();
    let mails = Queue::new(&database, "mails").unwrap().pauses(Duration::ZERO, Duration::ZERO);
    mails.provision().unwrap();
    let jobs =
        ["completes", "fails", "panics", "is fine"].map(|text| Job::new(text).max_attempts(1));
    mails.enqueue_all(jobs).unwrap();
    let (runs, ends) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (counter, outcomes) = (runs.clone(), ends.clone());
    let worker = mails.worker("w1").concurrency(2).batch(2).until_empty();
    let worker = worker.lease(Duration::from_secs(9)).poll_every(Duration::from_millis(10));
    let summary = worker
        .on_end(move |job, ended| {
            let failed = matches!(ended, JobOutcome::Failed { .. });
            outcomes.lock().unwrap().push((job.payload().to_owned(), failed));
        })
        .run(move |job: ClaimedJob| {
            counter.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
            match job.payload() {
                "completes" => {
                    let mut tx = database.begin().map_err(|error| error.to_string())?;
                    job.complete_in(&mut tx).and_then(|()| tx.commit()).map_err(|e| e.to_string())
                }
                "fails" => Err("on purpose".to_owned()),
                "panics" => std::panic::resume_unwind(Box::new("on purpose")),
                _ => Ok(()),
            }
        })
        .unwrap();
    assert_eq!((summary.done, runs.load(Ordering::Relaxed)), (2, 4));
    let mut ends = ends.lock().unwrap().clone();
    ends.sort();
    let expected = [("completes", false), ("fails", true), ("is fine", false), ("panics", true)];
    assert_eq!(ends, expected.map(|(job, failed)| (job.to_owned(), failed)));
    assert_eq!(mails.dead(9).unwrap().len(), 2);
}

#[test]
fn a_worker_is_stopped_from_another_thread() {
    let (_directory, database) = database();
    let mails = Queue::new(&database, "mails").unwrap();
    mails.provision().unwrap();
    let worker = mails.worker("w1");
    let handle = worker.handle();
    let running = std::thread::spawn(move || worker.run(|_| Ok::<(), String>(())).unwrap().done);
    mails.enqueue(Job::new("one")).unwrap();
    let started = Instant::now();
    while mails.stats().unwrap().ready + mails.stats().unwrap().claimed > 0 {
        assert!(started.elapsed() < Duration::from_secs(30), "no worker ran the job");
    }
    handle.stop();
    assert_eq!(running.join().unwrap(), 1);
}
