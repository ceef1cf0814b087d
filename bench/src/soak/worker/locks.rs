//! A worker process that uses all lock functions of the library.

use super::{StopSignal, Task, WorkerArgs, join_tasks};
use crate::soak::history::{Event, Reason, Recorder};
use crate::soak::{Result, clock, tree};
use hierlock::backend::Backend;
use hierlock::database::Database;
use hierlock::{Claim, Guard, Hierlock, Mode, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TASKS: u32 = 4;
/// With `memory:` there is only one process, so it has more tasks.
const TASKS_IN_MEMORY: u32 = 16;
/// The time limit for all locks of a client to become free after its tasks have ended.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) async fn work(args: WorkerArgs, stop: StopSignal) -> Result<()> {
    let recorder = Arc::new(Recorder::open(&args.history)?);
    let connect = async || Hierlock::connect(&args.url).await;
    let Some(locks) = stop.retry_until_stopped(connect).await else { return Ok(()) };
    let database = if args.url.contains("://") {
        let url = args.url.split('?').next().unwrap_or_default();
        stop.retry_until_stopped(async || Database::connect(url).await).await
    } else {
        None
    };
    let is_in_memory = args.url.starts_with("memory:");
    let tasks = if is_in_memory { TASKS_IN_MEMORY } else { TASKS };
    let args = Arc::new(args);
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let task = Task::new(&args, &recorder, &stop, task);
            let lock_task = LockTask { task, locks: locks.clone(), database: database.clone() };
            (lock_task.task.activity.clone(), tokio::spawn(lock_task.run()))
        })
        .collect();
    join_tasks(tasks, stop).await?;
    if is_in_memory {
        let everything = locks.request_all(tree::roots()).within(RELEASE_TIMEOUT).acquire();
        let all = everything.await;
        all.map_err(|error| format!("a lock is still held in memory: {error}"))?.release().await?;
    }
    Ok(())
}

struct LockTask {
    task: Task,
    locks: Hierlock,
    database: Option<Database>,
}

/// The limit of a request's wait.
#[derive(Clone, Copy)]
enum WaitLimit {
    Forever,
    Within(Duration),
    Never,
}

impl WaitLimit {
    fn apply<By>(self, request: Request<By>) -> Request<By> {
        match self {
            WaitLimit::Forever => request,
            WaitLimit::Within(limit) => request.within(limit),
            WaitLimit::Never => request.no_wait(),
        }
    }
}

/// Returns a request for claims, or for other nodes if `broken`.
fn request<'a, B: Backend>(
    locks: &'a Hierlock<B>,
    claims: &[Claim],
    broken: bool,
) -> Request<&'a Hierlock<B>> {
    claims.iter().fold(locks.request_all([]), |request, claim| {
        request.and(tree::node_to_lock(&claim.target, broken), claim.mode)
    })
}

impl LockTask {
    async fn run(mut self) {
        while !self.task.stop.is_set() {
            self.task.visit.number += 1;
            match self.task.random.below(20) {
                0..=1 => self.upgrade().await,
                2..=4 => self.extend().await,
                5..=7 => self.acquire_and_drop().await,
                8..=10 if self.database.is_some() => self.in_transaction().await,
                _ => self.acquire_and_release().await,
            }
            if self.task.random.chance(30) {
                sleep(Duration::from_millis(self.task.random.below(10))).await;
            }
        }
    }

    fn wait_limit(&mut self) -> WaitLimit {
        match self.task.random.below(10) {
            0..=3 => WaitLimit::Forever,
            4..=5 => WaitLimit::Never,
            _ => WaitLimit::Within(self.short_timeout()),
        }
    }

    fn short_timeout(&mut self) -> Duration {
        Duration::from_millis(self.task.random.between(20, 3000))
    }

    fn record_request(&mut self) -> Vec<Claim> {
        let claims = tree::random_claims(&mut self.task.random);
        self.task.record(Event::Ask(claims.clone()));
        claims
    }

    fn request(&self, claims: &[Claim]) -> Request<&Hierlock> {
        request(&self.locks, claims, self.task.broken)
    }

    /// Acquires claims and begins a visit.
    async fn acquire(&mut self, claims: Vec<Claim>) -> Option<Guard> {
        let wait_limit = self.wait_limit();
        self.task.set_activity("acquire");
        match wait_limit.apply(self.request(&claims)).acquire().await {
            Ok(guard) => {
                self.task.record(Event::Begin(claims));
                Some(guard)
            }
            Err(error) => {
                self.task.not_granted(Reason::from_error(&error)).await;
                None
            }
        }
    }

    async fn acquire_and_release(&mut self) {
        let claims = self.record_request();
        let Some(guard) = self.acquire(claims).await else { return };
        if self.hold(&guard).await {
            self.release(guard).await;
        }
    }

    /// Extends a guard.
    async fn extend(&mut self) {
        let claims = self.record_request();
        let Some(mut guard) = self.acquire(claims).await else { return };
        if !self.hold(&guard).await {
            return;
        }
        let wait_limit = match self.wait_limit() {
            WaitLimit::Forever => WaitLimit::Within(self.short_timeout()),
            wait_limit => wait_limit,
        };
        let further = tree::random_claims(&mut self.task.random);
        let broken = self.task.broken;
        let request = further.iter().fold(guard.request_all([]), |request, claim| {
            request.and(tree::node_to_lock(&claim.target, broken), claim.mode)
        });
        self.task.set_activity("extend");
        let extended = wait_limit.apply(request).acquire();
        // After a dropped extension the guard holds the same locks as before.
        let limit = Duration::from_millis(self.task.random.between(1, 4000));
        if let Ok(Ok(())) = timeout(limit, extended).await {
            self.task.record(Event::Extend(further));
        }
        if self.hold(&guard).await {
            self.release(guard).await;
        }
    }

    /// Upgrades an update lock to exclusive.
    async fn upgrade(&mut self) {
        let target = tree::random_node(&mut self.task.random);
        let claim = |mode| vec![Claim { target: target.clone(), mode }];
        self.task.record(Event::Ask(claim(Mode::Update)));
        let Some(mut guard) = self.acquire(claim(Mode::Update)).await else { return };
        if !self.hold(&guard).await {
            return;
        }
        self.task.set_activity("upgrade");
        if let Ok(Ok(())) = timeout(self.short_timeout(), guard.upgrade()).await {
            self.task.record(Event::Extend(claim(Mode::Exclusive)));
        }
        if self.hold(&guard).await {
            self.release(guard).await;
        }
    }

    /// Drops the future of an acquire after a short time.
    async fn acquire_and_drop(&mut self) {
        let claims = self.record_request();
        let limit = Duration::from_micros(self.task.random.below(20_000));
        self.task.set_activity("acquire and drop");
        match timeout(limit, self.request(&claims).acquire()).await {
            Err(_) => self.task.not_granted(Reason::Dropped).await,
            Ok(Err(error)) => self.task.not_granted(Reason::from_error(&error)).await,
            Ok(Ok(guard)) => {
                self.task.record(Event::Begin(claims));
                if self.hold(&guard).await {
                    self.release(guard).await;
                }
            }
        }
    }

    /// Acquires locks in a transaction of the caller.
    async fn in_transaction(&mut self) {
        let (Some(database), Some(locks)) = (self.database.clone(), &self.locks.as_sql()) else {
            return;
        };
        let claims = self.record_request();
        self.task.set_activity("begin");
        let mut tx = match database.begin().await {
            Ok(tx) => tx,
            Err(_) => return self.task.not_granted(Reason::Failed).await,
        };
        let short = self.short_timeout();
        self.task.set_activity("acquire in a transaction");
        let request = request(locks, &claims, self.task.broken).within(short);
        if let Err(error) = request.acquire_in(&mut tx).await {
            self.task.not_granted(Reason::from_error(&error)).await;
            self.task.set_activity("roll back");
            // If this fails, closing the connection rolls back.
            let _ = tx.rollback().await;
            return;
        }
        self.task.record(Event::Begin(claims));
        sleep(self.task.hold_time()).await;
        self.task.record(Event::End);
        self.task.set_activity("end a transaction");
        let result =
            if self.task.random.chance(50) { tx.commit().await } else { tx.rollback().await };
        self.task.record(if result.is_ok() { Event::Released } else { Event::Lost });
    }

    /// Holds the lock for some time. Returns false if it was lost.
    async fn hold(&mut self, guard: &Guard) -> bool {
        if self.task.random.chance(40) && !self.request_token(guard).await {
            return false;
        }
        self.task.set_activity("hold");
        let hold_time = self.task.hold_time();
        tokio::select! {
            () = sleep(hold_time) => {}
            _ = guard.lost() => {
                self.task.record(Event::Lost);
                return false;
            }
        }
        !self.task.random.chance(20) || self.request_token(guard).await
    }

    /// Requests a token. Returns false if the lock was lost.
    async fn request_token(&self, guard: &Guard) -> bool {
        self.task.set_activity("token");
        let asked = clock::now();
        match guard.token().await {
            Ok(token) => self.task.record(Event::Token { asked, token }),
            Err(error) if error.is_lost() => {
                self.task.record(Event::Lost);
                return false;
            }
            // The request uses another connection, which may fail while the lock is held.
            Err(_) => {}
        }
        true
    }

    async fn release(&mut self, guard: Guard) {
        self.task.record(Event::End);
        if self.task.random.chance(30) {
            // Dropping a guard does not confirm the release, so only a loss that is already known is recorded.
            if timeout(Duration::ZERO, guard.lost()).await.is_ok() {
                self.task.record(Event::Lost);
            }
            return;
        }
        self.task.set_activity("release");
        let released = guard.release().await;
        self.task.record(if released.is_ok() { Event::Released } else { Event::Lost });
    }
}
