//! Two resident batches work on one table: four problems. Each test shows the problem with plain SQL, step by step in the
//! harmful order, and then the solution with a queue.

use super::{add, claim_one, end_leases, provision_queue, states};
use crate::support::{Store, on_every_engine};
use hierlock::database::Transaction;
use hierlock::queue::Job;

on_every_engine! {
    two_batches_process_a_row_once,
    a_failure_count_survives_the_rollback_of_the_work,
    a_failure_is_counted_once_if_another_batch_fails_in_between,
    a_late_failure_does_not_mark_a_finished_job,
}

/// A table without a queue: 0 is unprocessed, 1 is done.
const ROWS: &str = "CREATE TABLE batch_rows (id BIGINT, status BIGINT, ng BIGINT, effects BIGINT)";
const UNPROCESSED: &str = "SELECT COUNT(*) FROM batch_rows WHERE status = 0";
const WORK: &str = "UPDATE batch_rows SET status = 1, effects = effects + 1 WHERE id = 1";
const COUNT: &str = "UPDATE batch_rows SET ng = ng + 1 WHERE id = 1";
const COUNT_IF_UNPROCESSED: &str = "UPDATE batch_rows SET ng = ng + 1 WHERE id = 1 AND status = 0";

async fn create_row(store: &Store) {
    store.run(ROWS).await;
    store.run("INSERT INTO batch_rows VALUES (1, 0, 0, 0)").await;
}

async fn begin(store: &Store) -> Transaction {
    store.database.begin().await.unwrap()
}

async fn two_batches_process_a_row_once(store: Store) {
    create_row(&store).await;
    for _ in ["A", "B"] {
        assert_eq!(store.number(UNPROCESSED).await, 1, "both batches must see the row");
    }
    for _ in ["A", "B"] {
        store.run(WORK).await;
    }
    assert_eq!(
        store.number("SELECT effects FROM batch_rows").await,
        2,
        "the work must be done twice"
    );

    let queue = provision_queue(&store).await;
    add(&queue, ["row 1"]).await;
    let claimed = claim_one(&queue, "A").await;
    assert_eq!(queue.claim("B", 10, super::LONG).await.unwrap().len(), 0);
    claimed.complete().await.unwrap();
    assert_eq!(queue.claim("B", 10, super::LONG).await.unwrap().len(), 0);
}

async fn a_failure_count_survives_the_rollback_of_the_work(store: Store) {
    create_row(&store).await;
    let mut tx = begin(&store).await;
    tx.run(WORK).await.unwrap();
    tx.run(COUNT).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(store.number("SELECT ng FROM batch_rows").await, 0, "the count must be rolled back");

    let queue = provision_queue(&store).await;
    add(&queue, ["row 1"]).await;
    let job = claim_one(&queue, "A").await;
    let mut tx = begin(&store).await;
    tx.run(WORK).await.unwrap();
    job.complete_in(&mut tx).await.unwrap();
    tx.rollback().await.unwrap();
    job.fail("the work failed").await.unwrap();
    assert_eq!(store.number("SELECT attempts FROM hier_jobs").await, 1);
    assert_eq!(store.number("SELECT effects FROM batch_rows").await, 0);
}

/// Two runs fail, so there are two failures. Counting by ID alone would count a third, of a run whose end was
/// already counted.
async fn a_failure_is_counted_once_if_another_batch_fails_in_between(store: Store) {
    let queue = provision_queue(&store).await;
    for counts_by_id in [true, false] {
        queue.enqueue(Job::new("row 1").max_attempts(3)).await.unwrap();
        let a = claim_one(&queue, "A").await;
        // A has rolled back, and sleeps before it counts. Its lease expires; B claims the job, and fails too.
        end_leases(&store).await;
        assert_eq!(queue.promote().await.unwrap().returned, 1);
        let b = claim_one(&queue, "B").await;
        b.fail("B failed").await.unwrap();
        if counts_by_id {
            store.run("UPDATE hier_jobs SET attempts = attempts + 1").await;
        } else {
            assert!(a.fail("A failed").await.unwrap_err().is_lost());
        }
        queue.promote().await.unwrap();
        let c = claim_one(&queue, "C").await;
        assert_eq!(c.attempt(), if counts_by_id { 4 } else { 3 });
        c.complete().await.unwrap();
    }
}

async fn a_late_failure_does_not_mark_a_finished_job(store: Store) {
    create_row(&store).await;
    let mut a = begin(&store).await;
    a.run(WORK).await.unwrap();
    a.rollback().await.unwrap();
    store.run(WORK).await; // B
    store.run(COUNT).await; // A
    let done_and_failed = "SELECT COUNT(*) FROM batch_rows WHERE status = 1 AND ng > 0";
    assert_eq!(store.number(done_and_failed).await, 1, "the row is done and marked as failed");
    store.run("UPDATE batch_rows SET ng = 0").await;
    store.run(COUNT_IF_UNPROCESSED).await;
    assert_eq!(store.number(done_and_failed).await, 0, "the condition prevents the wrong mark");

    let queue = provision_queue(&store).await;
    add(&queue, ["row 1"]).await;
    let a = claim_one(&queue, "A").await;
    end_leases(&store).await;
    queue.promote().await.unwrap();
    let b = claim_one(&queue, "B").await;
    // Also while B runs the job.
    assert!(a.fail("A failed").await.unwrap_err().is_lost());
    b.complete().await.unwrap();
    assert!(a.fail("A failed").await.unwrap_err().is_lost());
    assert_eq!(states(&queue).await, [0; 4]);
}
