//! Every public type is Send, Sync and Debug, and every async method returns a future that can be spawned.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::backend::{
    AcquireRequest, AnyBackend, AnyHold, FileBackend, FileHold, LockConflict, MemoryBackend,
    MemoryHold, SqlBackend, SqlHold, WaitLimit,
};
use hierlock::database::{Database, Row, Transaction, Value};
use hierlock::lease::{
    ForcedRelease, Lease, LeaseFilter, LeaseGuard, LeaseInfo, LeaseRequest, Leases,
};
use hierlock::optimistic::{
    Changes, UpdateOutcome, VersionCheck, VersionedRow, VersionedTable, until_current,
};
use hierlock::queue::{
    ClaimedJob, DeadJob, DeadJobFilter, EnqueueOutcome, FailureOutcome, Job, JobOutcome,
    PromotionCounts, Queue, QueueStats, Worker, WorkerHandle, WorkerSummary,
};
use hierlock::retry::{GiveUpReason, RetryCause, RetryError, RetryPolicy, retry};
use hierlock::sql::{
    Dialect, GuardTransaction, Provision, ProvisionProgress, ProvisionReport, Scheme, Scope,
    Strategy, TableCheck,
};
use hierlock::{
    Blocker, Buckets, Builder, Claim, Error, Guard, Hierarchy, Hierlock, Holder, Mode, ModeSet,
    Plan, Preview, Request, ServerUrl, SlotMode, Slots, Statistics, Step, Target, TransactionState,
    Wait, blocking,
};
use std::fmt::Debug;

fn assert_send_sync_debug<T: Send + Sync + Debug>() {}

macro_rules! assert_all_send_sync_debug {
    ($($type:ty),* $(,)?) => {
        $(assert_send_sync_debug::<$type>();)*
    };
}

#[test]
fn every_type_is_send_sync_and_debug() {
    assert_all_send_sync_debug!(
        Hierlock,
        Hierlock<SqlBackend>,
        Hierlock<MemoryBackend>,
        Hierlock<FileBackend>,
        Builder,
        Guard,
        Guard<SqlHold>,
        Guard<MemoryHold>,
        Guard<FileHold>,
        Request<&'static Hierlock>,
        Request<&'static mut Guard>,
        Error,
        Blocker,
        TransactionState,
        Preview,
        Plan,
        Step,
        Claim,
        Slots,
        Buckets,
        Hierarchy,
        Target,
        Mode,
        SlotMode,
        ModeSet,
        Holder,
        Wait,
        Statistics,
        ServerUrl,
    );
    assert_all_send_sync_debug!(AnyBackend, AnyHold, AcquireRequest, WaitLimit, LockConflict);
    assert_all_send_sync_debug!(
        Scheme,
        Dialect,
        Strategy,
        Scope,
        Provision,
        TableCheck,
        ProvisionProgress,
        ProvisionReport,
        GuardTransaction<'static, sqlx::PgConnection>,
        GuardTransaction<'static, sqlx::MySqlConnection>,
    );
    assert_all_send_sync_debug!(Database, Transaction, Row, Value);
    assert_all_send_sync_debug!(RetryPolicy, RetryCause, GiveUpReason, RetryError<Error>);
    assert_all_send_sync_debug!(
        RetryError<Box<dyn std::error::Error + Send + Sync>>,
        RetryError<anyhow::Error>
    );
    assert_all_send_sync_debug!(VersionedTable, VersionedRow, Changes, UpdateOutcome, VersionCheck);
    assert_all_send_sync_debug!(
        Leases,
        Lease,
        LeaseGuard,
        LeaseRequest,
        LeaseFilter,
        LeaseInfo,
        ForcedRelease
    );
    assert_all_send_sync_debug!(
        Queue,
        ClaimedJob,
        Worker,
        WorkerHandle,
        Job,
        EnqueueOutcome,
        FailureOutcome,
        JobOutcome,
        WorkerSummary,
        DeadJobFilter,
        DeadJob,
        PromotionCounts,
        QueueStats,
    );
    assert_all_send_sync_debug!(
        blocking::Hierlock,
        blocking::Guard,
        blocking::Request<'static>,
        blocking::ExtendRequest<'static>,
        blocking::Database,
        blocking::Transaction,
        blocking::Leases,
        blocking::Lease,
        blocking::LeaseGuard,
        blocking::Queue,
        blocking::ClaimedJob,
        blocking::Worker,
    );
}

fn assert_spawnable<F: Future + Send>(future: F) {
    drop(future);
}

fn target() -> Target {
    Target::user("u1").unwrap()
}

/// The futures are created and dropped, never polled. The test is that this compiles.
#[tokio::test]
async fn every_future_can_be_spawned() {
    let locks = Hierlock::connect("memory:").await.unwrap();
    assert_spawnable(Hierlock::connect("memory:"));
    assert_spawnable(Hierlock::connect_sql("postgres://h/d"));
    assert_spawnable(Hierlock::builder().connect("memory:"));
    assert_spawnable(Preview::of("memory:", Hierarchy::default()));
    assert_spawnable(locks.acquire(target()));
    assert_spawnable(locks.try_acquire(target()));
    assert_spawnable(locks.acquire_all([target()]));
    assert_spawnable(locks.acquire_children(&target(), ["a"]));
    assert_spawnable(locks.request(target()).acquire());
    assert_spawnable(locks.close(std::time::Duration::ZERO));
    let mut guard = locks.acquire(target()).await.unwrap();
    assert_spawnable(guard.extend([target()]));
    assert_spawnable(guard.request(target()).try_acquire());
    assert_spawnable(guard.upgrade());
    assert_spawnable(guard.token());
    assert_spawnable(guard.lost());
    assert_spawnable(guard.release());
    assert_spawnable(retry(RetryPolicy::default(), async |_| anyhow::Ok(())));
    assert_spawnable(until_current(3, async |_| {
        Err::<(), Error>("".parse::<Target>().unwrap_err())
    }));
}

/// Checks the futures of locks in transactions and of the toolbox.
#[allow(dead_code, reason = "that it compiles is the test")]
fn futures_of_databases_can_be_spawned(
    locks: &Hierlock<SqlBackend>,
    mut guard: Guard<SqlHold>,
    pool: &sqlx::PgPool,
    tx: &mut Transaction,
    (leases, lease, queue): (&Leases, &mut Lease, &Queue),
) {
    assert_spawnable(Hierlock::beside(pool));
    assert_spawnable(locks.acquire_in(tx, [target()]));
    assert_spawnable(locks.request(target()).acquire_in(tx));
    assert_spawnable(guard.transaction::<sqlx::PgConnection>());
    assert_spawnable(guard.commit());
    assert_spawnable(leases.acquire(LeaseRequest::new(target(), "ada")));
    assert_spawnable(lease.renew());
    assert_spawnable(lease.check_in(tx));
    assert_spawnable(queue.enqueue_in(tx, Job::new("x")));
    assert_spawnable(queue.claim("w", 1, std::time::Duration::ZERO));
    assert_spawnable(queue.worker("w").run(async |_| Ok::<(), String>(())));
}
