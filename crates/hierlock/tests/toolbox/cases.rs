//! The business cases of `examples/cases`: the broken way fails every time, the right way never does.

#[path = "../../examples/cases/card.rs"]
mod card;
#[path = "../../examples/cases/case_database.rs"]
mod case_database;
#[path = "../../examples/cases/children.rs"]
mod children;
#[path = "../../examples/cases/online.rs"]
mod online;
#[path = "../../examples/cases/payment.rs"]
mod payment;
#[path = "../../examples/cases/race.rs"]
mod race;
#[path = "../../examples/cases/resident.rs"]
mod resident;
#[path = "../../examples/cases/seats.rs"]
mod seats;
#[path = "../../examples/cases/transfer.rs"]
mod transfer;
#[path = "../../examples/cases/withdrawal.rs"]
mod withdrawal;

use crate::support::{Store, TestEngine, on_every_engine};
use case_database::CaseDatabase;
use children::ChildrenCounts;
use online::Member;
use payment::ChargesAndSeats;
use resident::Job;
use transfer::TransferCounts;
use withdrawal::Account;

on_every_engine! {
    opposite_transfers_deadlock_unless_sorted,
    a_withdrawal_reads_under_its_lock,
    one_seat_is_sold_once,
    no_customer_is_charged_without_a_seat,
    a_parent_never_has_more_than_five_children,
    users_edit_beside_a_batch,
    two_batches_do_each_job_once,
}

async fn db(store: &Store) -> CaseDatabase {
    CaseDatabase::connect(&store.url).await.unwrap()
}

async fn opposite_transfers_deadlock_unless_sorted(store: Store) {
    let results = transfer::run(&db(&store).await).await.unwrap();
    let (deadlocks, busy) = match store.engine {
        TestEngine::Server(_) => (3, 0),
        TestEngine::Sqlite => (0, 3),
    };
    assert_eq!(
        results.broken,
        TransferCounts { done: 3, deadlocks, busy, total: 600 },
        "{results}"
    );
    // A retry succeeds for everyone, at the cost of repeating the work.
    assert_eq!(results.retried.done, 6, "{results}");
    assert!(results.retried.attempts >= 9, "{results}");
    let all_done = |done| TransferCounts { done, deadlocks: 0, busy: 0, total: 600 };
    assert_eq!(results.right, all_done(6), "{results}");
    assert_eq!(results.many_tellers, all_done(96), "{results}");
}

async fn a_withdrawal_reads_under_its_lock(store: Store) {
    let results = withdrawal::run(&db(&store).await).await.unwrap();
    assert_eq!(results.broken, Account { paid_out: 480, left: 40 }, "{results}");
    assert_eq!(results.broken.overpaid(), 420);
    assert_eq!(results.locked, Account { paid_out: 60, left: 40 }, "{results}");
    assert_eq!(results.checked, Account { paid_out: 60, left: 40 }, "{results}");
    assert_eq!(results.checked.overpaid(), 0);
}

async fn one_seat_is_sold_once(store: Store) {
    let results = seats::run(&db(&store).await).await.unwrap();
    assert_eq!((results.confirmed_broken, results.confirmed_right), (8, 1), "{results}");
    assert_eq!((results.seated, results.holders), (4, 4), "{results}");
}

async fn no_customer_is_charged_without_a_seat(store: Store) {
    let results = payment::run(&db(&store).await).await.unwrap();
    let charges_and_seats = |charged, seated, charged_without_seat| ChargesAndSeats {
        charged,
        seated,
        charged_without_seat,
        seated_without_charge: 0,
    };
    assert_eq!(results.broken, charges_and_seats(2, 1, 1), "{results}");
    assert_eq!(results.right, charges_and_seats(1, 1, 0), "{results}");
    assert_eq!(results.refused, charges_and_seats(0, 0, 0), "{results}");
    // The gap that no order of the steps avoids.
    assert_eq!(results.answer_lost, charges_and_seats(1, 0, 1), "{results}");
    assert_eq!(results.crashed, charges_and_seats(1, 0, 1), "{results}");
    assert_eq!((results.with_orders.open, results.with_orders.settled), (3, 3), "{results}");
    assert_eq!(results.with_orders.charges_and_seats, charges_and_seats(3, 3, 0), "{results}");
}

async fn a_parent_never_has_more_than_five_children(store: Store) {
    let results = children::run(&db(&store).await).await.unwrap();
    assert_eq!(results.broken, ChildrenCounts { confirmed: 16, children: 16 }, "{results}");
    assert_eq!(results.parent_locked, ChildrenCounts { confirmed: 5, children: 5 }, "{results}");
    assert_eq!(results.hierlock, ChildrenCounts { confirmed: 5, children: 5 }, "{results}");
}

async fn users_edit_beside_a_batch(store: Store) {
    let results = online::run(&db(&store).await).await.unwrap();
    assert_eq!((results.blocked_saves_broken, results.blocked_saves_right), (5, 0), "{results}");
    let member = |renamed, points| Member { renamed, points };
    assert_eq!(results.outdated_form_broken, member(true, 100), "{results}");
    assert_eq!(results.outdated_form_right, member(true, 110), "{results}");
    assert_eq!(results.version_check_broken, member(true, 100), "{results}");
    assert_eq!(results.version_check_right, member(true, 110), "{results}");
    assert_eq!(results.points_source_broken, member(false, 110), "{results}");
    assert_eq!(results.points_source_right, member(false, 60), "{results}");
    assert_eq!(results.points_after_load, 5 * 110 - 60, "{results}");
}

async fn two_batches_do_each_job_once(store: Store) {
    let results = resident::run(&db(&store).await).await.unwrap();
    let job = |payments, failures, is_done| Job { payments, is_done, failures };
    assert_eq!(results.same_job_broken, job(2, 0, true), "{results}");
    assert_eq!(results.same_job_right, job(1, 0, true), "{results}");
    assert_eq!(results.skip_locked, [20, 20], "{results}");
    assert_eq!(results.rolled_back_broken, job(0, 0, false), "{results}");
    assert_eq!(results.rolled_back_right, job(0, 2, false), "{results}");
    assert_eq!(results.both_fail_broken, job(0, 2, false), "{results}");
    assert_eq!(results.both_fail_right, job(0, 1, false), "{results}");
    // The job is paid, and will be paid again.
    assert_eq!(results.other_succeeds_broken, job(1, 1, false), "{results}");
    assert_eq!(results.other_succeeds_right, job(1, 0, true), "{results}");
    assert_eq!((results.savepoint, results.stays_locked), (job(0, 1, false), true));
}
