//! Claims, heartbeats, and lost claims.

use super::{LONG, add, claim_one, end_leases, payloads, provision_queue, states};
use crate::servers::TEST_LIMIT;
use crate::support::{Store, TestEngine, eventually, on_every_engine};
use futures_util::FutureExt as _;
use hierlock::queue::{DeadJobFilter, FailureOutcome, Job, Queue};
use hierlock::retry::{RetryPolicy, retry};
use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

on_every_engine! {
    a_job_can_be_claimed_again_after_its_lease_ended,
    a_lease_ends_by_the_clock_of_the_database,
    a_heartbeat_extends_leases_and_returns_lost_jobs,
    a_heartbeat_does_not_wait_for_locked_jobs,
    a_claimed_job_reports_its_loss,
    a_job_with_too_many_failures_is_dead_until_retried,
    a_job_that_always_kills_its_worker_is_dead_in_the_end,
    completing_many_jobs_returns_the_lost_ones,
    giving_back_counts_no_attempt,
    a_completion_is_part_of_the_callers_transaction,
    a_claim_dropped_at_any_point_gives_back_its_jobs,
    eight_workers_do_each_job_exactly_once,
}

async fn a_job_can_be_claimed_again_after_its_lease_ended(store: Store) {
    let queue = provision_queue(&store).await;
    store.run("CREATE TABLE effects (id BIGINT)").await;
    add(&queue, ["x"]).await;
    let old = claim_one(&queue, "old").await;
    assert_eq!((old.worker(), old.attempt(), old.claim_number()), ("old", 1, 1));
    assert_eq!(queue.promote().await.unwrap().returned, 0);
    end_leases(&store).await;
    assert_eq!(queue.promote().await.unwrap().returned, 1);
    // Also while no other worker has it yet, and while one has.
    assert!(old.complete().await.unwrap_err().is_lost());
    let new = claim_one(&queue, "new").await;
    assert_eq!((new.id(), new.attempt(), new.claim_number()), (old.id(), 2, 2));
    let error = old.complete().await.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains(&format!("job {}", old.id())), "{error}");
    assert!(old.fail("late").await.unwrap_err().is_lost());
    assert!(old.give_back().await.unwrap_err().is_lost());
    let mut tx = store.database.begin().await.unwrap();
    tx.execute("INSERT INTO effects VALUES (1)", []).await.unwrap();
    assert!(old.complete_in(&mut tx).await.unwrap_err().is_lost());
    tx.rollback().await.unwrap();
    assert_eq!(states(&queue).await, [0, 0, 1, 0]);
    new.complete().await.unwrap();
    assert!(new.complete().await.unwrap_err().is_lost(), "a job can be completed only once");
    assert_eq!(states(&queue).await, [0; 4]);
}

async fn a_lease_ends_by_the_clock_of_the_database(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x"]).await;
    let job = queue.claim("w", 1, Duration::from_millis(30)).await.unwrap().pop().unwrap();
    eventually("the lease ends", async || queue.promote().await.unwrap().returned == 1).await;
    assert!(job.complete().await.unwrap_err().is_lost());
}

async fn a_heartbeat_extends_leases_and_returns_lost_jobs(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["a", "b", "c"]).await;
    let jobs = queue.claim("w", 3, LONG).await.unwrap();
    end_leases(&store).await;
    assert_eq!(queue.heartbeat(&jobs, LONG).await.unwrap(), [0; 0]);
    assert_eq!(queue.promote().await.unwrap().returned, 0, "the leases were not extended");
    end_leases(&store).await;
    assert_eq!(queue.heartbeat(&jobs[..1], LONG).await.unwrap(), [0; 0]);
    assert_eq!(queue.promote().await.unwrap().returned, 2);
    let again = queue.claim("other", 1, LONG).await.unwrap();
    assert_eq!(again[0].id(), jobs[1].id());
    let lost = [jobs[1].id(), jobs[2].id()];
    assert_eq!(queue.heartbeat(&jobs, LONG).await.unwrap(), lost);
    assert_eq!(queue.heartbeat(&again, LONG).await.unwrap(), [0; 0]);
    // The failure this prevents: a new claim of a job made its lost claim count as held.
    let both = [jobs[1].clone(), again[0].clone()];
    assert_eq!(queue.heartbeat(&both, LONG).await.unwrap(), [jobs[1].id()]);
    assert_eq!(queue.heartbeat(&[], LONG).await.unwrap(), [0; 0]);
}

async fn a_claimed_job_reports_its_loss(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x", "y"]).await;
    let [kept, lost] = queue.claim("w", 2, LONG).await.unwrap().try_into().unwrap();
    assert!(kept.lost().now_or_never().is_none() && lost.lost().now_or_never().is_none());
    store.run(&format!("UPDATE hier_jobs SET due_ms = 0 WHERE id = {}", lost.id())).await;
    assert_eq!(queue.promote().await.unwrap().returned, 1);
    let waits = tokio::spawn({
        let lost = lost.clone();
        async move { lost.lost().await }
    });
    let jobs = [kept.clone(), lost.clone()];
    assert_eq!(queue.heartbeat(&jobs, LONG).await.unwrap(), [lost.id()]);
    tokio::time::timeout(TEST_LIMIT, waits).await.expect("the loss was not reported").unwrap();
    assert!(kept.lost().now_or_never().is_none());
    // If no heartbeat succeeds, the claim is lost when its lease expires, unless the job was ended before.
    let short = Duration::from_millis(20);
    assert!(queue.heartbeat(std::slice::from_ref(&kept), short).await.unwrap().is_empty());
    tokio::time::timeout(TEST_LIMIT, kept.lost()).await.expect("the loss was not reported");
    let ended = queue.claim("w", 1, short).await.unwrap().pop().unwrap();
    ended.complete().await.unwrap();
    assert!(tokio::time::timeout(5 * short, ended.lost()).await.is_err());
}

/// A job that is completed in a long transaction must not prevent the leases of others from being extended.
async fn a_heartbeat_does_not_wait_for_locked_jobs(store: Store) {
    if store.engine == TestEngine::Sqlite {
        return; // One writer at a time: there is nothing to skip.
    }
    let queue = provision_queue(&store).await;
    add(&queue, ["a", "b"]).await;
    let jobs = queue.claim("w", 2, LONG).await.unwrap();
    end_leases(&store).await;
    let mut tx = store.database.begin().await.unwrap();
    jobs[0].complete_in(&mut tx).await.unwrap();
    let beat = queue.heartbeat(&jobs, LONG);
    let lost = tokio::time::timeout(Duration::from_secs(10), beat).await;
    let lost = lost.expect("the heartbeat waits for a locked row");
    assert_eq!(lost.unwrap(), [0; 0], "the completion may still be rolled back");
    assert_eq!(queue.promote().await.unwrap().returned, 0);
    tx.commit().await.unwrap();
    assert_eq!(queue.heartbeat(&jobs, LONG).await.unwrap(), [jobs[0].id()]);
}

async fn a_job_with_too_many_failures_is_dead_until_retried(store: Store) {
    let queue = provision_queue(&store).await;
    for payload in ["a", "b", "c"] {
        queue.enqueue(Job::new(payload).max_attempts(2)).await.unwrap();
    }
    let odd = "it's \0 \u{1F980} ".repeat(2000);
    for failed in [FailureOutcome::RetryAfter(Duration::ZERO), FailureOutcome::Dead] {
        for job in queue.claim("w", 3, LONG).await.unwrap() {
            assert_eq!(job.fail(&odd).await.unwrap(), failed);
        }
        queue.promote().await.unwrap();
    }
    assert_eq!(states(&queue).await, [0, 0, 0, 3]);
    let dead = queue.dead(10).await.unwrap();
    assert_eq!((dead.len(), queue.dead(2).await.unwrap().len()), (3, 2));
    assert_eq!((dead[0].attempts, dead[0].worker.as_deref()), (2, Some("w")));
    let error = dead[0].last_error.as_deref().unwrap();
    assert!(error.starts_with("it's  \u{1F980} it's") && error.chars().count() == 10_000);
    assert!(dead[0].died >= dead[0].created);
    let other = Queue::new(store.database.clone(), "other").unwrap();
    assert_eq!(other.retry_dead(DeadJobFilter::All).await.unwrap(), 0);
    let one = dead.iter().find(|job| job.payload == "b").unwrap().id;
    assert_eq!(queue.retry_dead(DeadJobFilter::Ids(vec![one, one, -7])).await.unwrap(), 1);
    assert_eq!(
        queue.retry_dead(DeadJobFilter::Ids(vec![one])).await.unwrap(),
        0,
        "the job is not dead any more"
    );
    let job = claim_one(&queue, "w").await;
    assert_eq!((job.payload(), job.attempt(), job.max_attempts()), ("b", 1, 2));
    assert_eq!(queue.retry_dead(DeadJobFilter::All).await.unwrap(), 2);
    assert_eq!(payloads(&queue).await, ["a", "c"]);
}

async fn a_job_that_always_kills_its_worker_is_dead_in_the_end(store: Store) {
    let queue = provision_queue(&store).await;
    queue.enqueue(Job::new("poison").max_attempts(3)).await.unwrap();
    for attempt in 1..=3 {
        assert_eq!(claim_one(&queue, "w").await.attempt(), attempt);
        end_leases(&store).await;
        let promoted = queue.promote().await.unwrap();
        let is_last = u64::from(attempt == 3);
        assert_eq!((promoted.returned, promoted.dead), (1 - is_last, is_last));
    }
    assert_eq!(states(&queue).await, [0, 0, 0, 1]);
    let dead = queue.dead(1).await.unwrap().pop().unwrap();
    assert_eq!(dead.attempts, 3);
    assert!(dead.last_error.unwrap().contains("lease"));
}

async fn completing_many_jobs_returns_the_lost_ones(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x"; 700]).await;
    let jobs = queue.claim("w", 700, LONG).await.unwrap();
    store.run(&format!("UPDATE hier_jobs SET due_ms = 0 WHERE id = {}", jobs[3].id())).await;
    assert_eq!(queue.promote().await.unwrap().returned, 1);
    jobs[5].complete().await.unwrap();
    assert_eq!(queue.complete_all(&jobs).await.unwrap(), [jobs[3].id(), jobs[5].id()]);
    assert_eq!(states(&queue).await, [1, 0, 0, 0]);
    assert_eq!(queue.complete_all(&[]).await.unwrap(), [0; 0]);
}

async fn giving_back_counts_no_attempt(store: Store) {
    let queue = provision_queue(&store).await;
    add(&queue, ["x"]).await;
    let old = claim_one(&queue, "w").await;
    old.give_back().await.unwrap();
    assert!(old.complete().await.unwrap_err().is_lost());
    let new = claim_one(&queue, "w").await;
    assert_eq!((new.attempt(), new.claim_number()), (1, 2));
}

async fn a_completion_is_part_of_the_callers_transaction(store: Store) {
    let queue = provision_queue(&store).await;
    store.run("CREATE TABLE effects (id BIGINT)").await;
    add(&queue, ["x"]).await;
    let job = claim_one(&queue, "w").await;
    for end in ["roll back", "commit"] {
        let mut tx = store.database.begin().await.unwrap();
        tx.execute("INSERT INTO effects VALUES (1)", []).await.unwrap();
        job.complete_in(&mut tx).await.unwrap();
        match end {
            "commit" => tx.commit().await.unwrap(),
            _ => tx.rollback().await.unwrap(),
        }
        let is_done = i64::from(end == "commit");
        assert_eq!(store.number("SELECT COUNT(*) FROM effects").await, is_done);
        assert_eq!(states(&queue).await, [0, 0, 1 - is_done as u64, 0]);
    }
}

async fn a_claim_dropped_at_any_point_gives_back_its_jobs(store: Store) {
    let queue = provision_queue(&store).await;
    queue.enqueue_all(vec![Job::new("x").max_attempts(100); 5]).await.unwrap();
    for polls in 0..40 {
        let (mut left, mut is_done) = (polls, false);
        {
            let mut claim = pin!(queue.claim("w", 5, LONG));
            poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                let polled = claim.as_mut().poll(context);
                is_done = polled.is_ready();
                polled.map(drop)
            })
            .await;
        }
        if is_done {
            // The claim completed before it could be dropped.
            end_leases(&store).await;
            queue.promote().await.unwrap();
        }
        eventually("all jobs are ready", async || states(&queue).await == [5, 0, 0, 0]).await;
    }
}

/// The effect of each job is a row with its ID as primary key: a second effect would fail.
async fn eight_workers_do_each_job_exactly_once(store: Store) {
    let queue = provision_queue(&store).await;
    store.run("CREATE TABLE effects (id BIGINT PRIMARY KEY, worker BIGINT)").await;
    add(&queue, ["x"; 2000]).await;
    let workers = (0..8i64).map(|number| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let jobs = queue.claim(&format!("w{number}"), 20, LONG).await.unwrap();
                if jobs.is_empty() {
                    return ids;
                }
                // On SQLite it may have to wait for longer than the busy timeout.
                let transaction = retry(RetryPolicy::default(), |_| queue.database().begin());
                let mut tx = transaction.await.unwrap();
                for job in &jobs {
                    let effect = [job.id().into(), number.into()];
                    tx.execute("INSERT INTO effects VALUES (?, ?)", effect).await.unwrap();
                    job.complete_in(&mut tx).await.unwrap();
                    ids.push(job.id());
                }
                tx.commit().await.unwrap();
            }
        })
    });
    let mut done = BTreeSet::new();
    for worker in workers.collect::<Vec<_>>() {
        for id in worker.await.unwrap() {
            assert!(done.insert(id), "job {id} was done twice");
        }
    }
    assert_eq!((done.len(), states(&queue).await), (2000, [0; 4]));
    assert_eq!(store.number("SELECT COUNT(*) FROM effects").await, 2000);
}
