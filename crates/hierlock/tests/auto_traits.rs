//! Every public type can be sent to and shared with other threads and shown, and what is async can be spawned.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::backend::{
    AcquireRequest, AnyBackend, AnyHold, FileBackend, FileHold, LockConflict, MemoryBackend,
    MemoryHold, SqlBackend, SqlHold, WaitLimit,
};
use hierlock::database::{Database, Row, Transaction, Value};
use hierlock::lease::{
    ForcedRelease, KeptLease, Lease, LeaseFilter, LeaseInfo, LeaseRequest, Leases,
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

fn travels<T: Send + Sync + Debug>() {}

macro_rules! all_travel {
    ($($of:ty),* $(,)?) => {
        $(travels::<$of>();)*
    };
}

#[test]
fn every_type_is_send_sync_and_debug() {
    all_travel!(
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
    all_travel!(AnyBackend, AnyHold, AcquireRequest, WaitLimit, LockConflict);
    all_travel!(
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
    all_travel!(Database, Transaction, Row, Value);
    all_travel!(RetryPolicy, RetryCause, GiveUpReason, RetryError<Error>);
    all_travel!(RetryError<Box<dyn std::error::Error + Send + Sync>>, RetryError<anyhow::Error>);
    all_travel!(VersionedTable, VersionedRow, Changes, UpdateOutcome, VersionCheck);
    all_travel!(Leases, Lease, KeptLease, LeaseRequest, LeaseFilter, LeaseInfo, ForcedRelease);
    all_travel!(
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
    all_travel!(
        blocking::Hierlock,
        blocking::Guard,
        blocking::Request<'static>,
        blocking::ExtendRequest<'static>,
        blocking::Database,
        blocking::Transaction,
        blocking::Leases,
        blocking::Lease,
        blocking::KeptLease,
        blocking::Queue,
        blocking::ClaimedJob,
        blocking::Worker,
    );
}

fn spawns<F: Future + Send>(future: F) {
    drop(future);
}

fn target() -> Target {
    Target::user("u1").unwrap()
}

/// Made and dropped, never polled: that it compiles is the test.
#[tokio::test]
async fn every_future_can_be_spawned() {
    let locks = Hierlock::connect("memory:").await.unwrap();
    spawns(Hierlock::connect("memory:"));
    spawns(Hierlock::connect_sql("postgres://h/d"));
    spawns(Hierlock::builder().connect("memory:"));
    spawns(Preview::of("memory:", Hierarchy::default()));
    spawns(locks.acquire(target()));
    spawns(locks.try_acquire(target()));
    spawns(locks.acquire_all([target()]));
    spawns(locks.acquire_children(&target(), ["a"]));
    spawns(locks.request(target()).acquire());
    spawns(locks.close(std::time::Duration::ZERO));
    let mut guard = locks.acquire(target()).await.unwrap();
    spawns(guard.extend([target()]));
    spawns(guard.request(target()).try_acquire());
    spawns(guard.upgrade());
    spawns(guard.token());
    spawns(guard.lost());
    spawns(guard.release());
    spawns(retry(RetryPolicy::default(), async |_| anyhow::Ok(())));
    spawns(until_current(3, async |_| Err::<(), Error>("".parse::<Target>().unwrap_err())));
}

/// The same for locks in transactions, and the toolbox.
#[allow(dead_code, reason = "that it compiles is the test")]
fn futures_of_databases_can_be_spawned(
    locks: &Hierlock<SqlBackend>,
    mut guard: Guard<SqlHold>,
    pool: &sqlx::PgPool,
    tx: &mut Transaction,
    (leases, lease, queue): (&Leases, &mut Lease, &Queue),
) {
    spawns(Hierlock::beside(pool));
    spawns(locks.acquire_in(tx, [target()]));
    spawns(locks.request(target()).acquire_in(tx));
    spawns(guard.transaction::<sqlx::PgConnection>());
    spawns(guard.commit());
    spawns(leases.acquire(LeaseRequest::new(target(), "ada")));
    spawns(lease.renew());
    spawns(lease.check_in(tx));
    spawns(queue.enqueue_in(tx, Job::new("x")));
    spawns(queue.claim("w", 1, std::time::Duration::ZERO));
    spawns(queue.worker("w").run(async |_| Ok::<(), String>(())));
}
