//! The business cases of `examples/cases`: the broken way fails every time, the right way never does.

#[path = "../../examples/cases/card.rs"]
mod card;
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
#[path = "../../examples/cases/stage.rs"]
mod stage;
#[path = "../../examples/cases/transfer.rs"]
mod transfer;
#[path = "../../examples/cases/withdrawal.rs"]
mod withdrawal;

use crate::support::{Place, Store, on_every_engine};
use children::Family;
use online::Member;
use payment::Books;
use resident::Job;
use stage::Stage;
use transfer::Tally;
use withdrawal::Account;

on_every_engine! {
    opposite_transfers_deadlock_unless_sorted,
    a_withdrawal_reads_under_its_lock,
    one_seat_is_sold_once,
    nobody_is_charged_without_a_seat,
    five_children_and_never_six,
    users_edit_beside_a_batch,
    two_batches_do_each_job_once,
}

async fn stage(store: &Store) -> Stage {
    Stage::connect(&store.url).await.unwrap()
}

async fn opposite_transfers_deadlock_unless_sorted(store: Store) {
    let figures = transfer::run(&stage(&store).await).await.unwrap();
    let (deadlocks, busy) = match store.place {
        Place::Server(_) => (3, 0),
        Place::Sqlite => (0, 3),
    };
    assert_eq!(figures.broken, Tally { done: 3, deadlocks, busy, total: 600 }, "{figures}");
    // A retry succeeds for everyone, at the cost of repeating the work.
    assert_eq!(figures.retried.done, 6, "{figures}");
    assert!(figures.retried.attempts >= 9, "{figures}");
    let all_done = |done| Tally { done, deadlocks: 0, busy: 0, total: 600 };
    assert_eq!(figures.right, all_done(6), "{figures}");
    assert_eq!(figures.crowd, all_done(96), "{figures}");
}

async fn a_withdrawal_reads_under_its_lock(store: Store) {
    let figures = withdrawal::run(&stage(&store).await).await.unwrap();
    assert_eq!(figures.broken, Account { paid_out: 480, left: 40 }, "{figures}");
    assert_eq!(figures.broken.out_of_nothing(), 420);
    assert_eq!(figures.locked, Account { paid_out: 60, left: 40 }, "{figures}");
    assert_eq!(figures.checked, Account { paid_out: 60, left: 40 }, "{figures}");
    assert_eq!(figures.checked.out_of_nothing(), 0);
}

async fn one_seat_is_sold_once(store: Store) {
    let figures = seats::run(&stage(&store).await).await.unwrap();
    assert_eq!((figures.told_yes_broken, figures.told_yes_right), (8, 1), "{figures}");
    assert_eq!((figures.seated, figures.holders), (4, 4), "{figures}");
}

async fn nobody_is_charged_without_a_seat(store: Store) {
    let figures = payment::run(&stage(&store).await).await.unwrap();
    let books = |charged, seated, charged_without_seat| Books {
        charged,
        seated,
        charged_without_seat,
        seated_without_charge: 0,
    };
    assert_eq!(figures.broken, books(2, 1, 1), "{figures}");
    assert_eq!(figures.right, books(1, 1, 0), "{figures}");
    assert_eq!(figures.refused, books(0, 0, 0), "{figures}");
    // The gap that no order of the steps avoids.
    assert_eq!(figures.answer_lost, books(1, 0, 1), "{figures}");
    assert_eq!(figures.crashed, books(1, 0, 1), "{figures}");
    assert_eq!((figures.with_orders.open, figures.with_orders.settled), (3, 3), "{figures}");
    assert_eq!(figures.with_orders.books, books(3, 3, 0), "{figures}");
}

async fn five_children_and_never_six(store: Store) {
    let figures = children::run(&stage(&store).await).await.unwrap();
    assert_eq!(figures.broken, Family { told_yes: 16, children: 16 }, "{figures}");
    assert_eq!(figures.parent_locked, Family { told_yes: 5, children: 5 }, "{figures}");
    assert_eq!(figures.hierlock, Family { told_yes: 5, children: 5 }, "{figures}");
}

async fn users_edit_beside_a_batch(store: Store) {
    let figures = online::run(&stage(&store).await).await.unwrap();
    assert_eq!((figures.shut_out_broken, figures.shut_out_right), (5, 0), "{figures}");
    let member = |renamed, points| Member { renamed, points };
    assert_eq!(figures.old_form_broken, member(true, 100), "{figures}");
    assert_eq!(figures.old_form_right, member(true, 110), "{figures}");
    assert_eq!(figures.early_check_broken, member(true, 100), "{figures}");
    assert_eq!(figures.early_check_right, member(true, 110), "{figures}");
    assert_eq!(figures.old_page_broken, member(false, 110), "{figures}");
    assert_eq!(figures.old_page_right, member(false, 60), "{figures}");
    assert_eq!(figures.crowd_points, 5 * 110 - 60, "{figures}");
}

async fn two_batches_do_each_job_once(store: Store) {
    let figures = resident::run(&stage(&store).await).await.unwrap();
    let job = |payments, failures, is_done| Job { payments, is_done, failures };
    assert_eq!(figures.same_job_broken, job(2, 0, true), "{figures}");
    assert_eq!(figures.same_job_right, job(1, 0, true), "{figures}");
    assert_eq!(figures.skip_locked, [20, 20], "{figures}");
    assert_eq!(figures.rolled_back_broken, job(0, 0, false), "{figures}");
    assert_eq!(figures.rolled_back_right, job(0, 2, false), "{figures}");
    assert_eq!(figures.both_fail_broken, job(0, 2, false), "{figures}");
    assert_eq!(figures.both_fail_right, job(0, 1, false), "{figures}");
    // It is paid, and will be paid again.
    assert_eq!(figures.other_succeeds_broken, job(1, 1, false), "{figures}");
    assert_eq!(figures.other_succeeds_right, job(1, 0, true), "{figures}");
    assert_eq!((figures.savepoint, figures.has_no_gap), (job(0, 1, false), true));
}
