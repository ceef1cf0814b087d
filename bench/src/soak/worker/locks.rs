//! A worker that locks, in every way in which the library can be asked to.

use super::{StopSignal, Task, WorkerArgs, all_end};
use crate::soak::history::{Event, Reason, Recorder};
use crate::soak::{Result, clock, tree};
use hierlock::backend::Backend;
use hierlock::database::Database;
use hierlock::{Claim, Guard, Hierlock, Mode, Request};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TASKS: u32 = 4;
/// In one process there is nobody else to meet.
const TASKS_IN_MEMORY: u32 = 16;
/// How long a client may take to free everything when its tasks have ended.
const FREE_WITHIN: Duration = Duration::from_secs(20);

pub(super) async fn work(args: WorkerArgs, stop: StopSignal) -> Result<()> {
    let recorder = Arc::new(Recorder::open(&args.history)?);
    let connect = async || Hierlock::connect(&args.url).await;
    let Some(locks) = stop.until_it_works(connect).await else { return Ok(()) };
    let database = if args.url.contains("://") {
        let url = args.url.split('?').next().unwrap_or_default();
        stop.until_it_works(async || Database::connect(url).await).await
    } else {
        None
    };
    let is_in_memory = args.url.starts_with("memory:");
    let tasks = if is_in_memory { TASKS_IN_MEMORY } else { TASKS };
    let args = Arc::new(args);
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let task = Task::new(&args, &recorder, &stop, task);
            let locker = Locker { task, locks: locks.clone(), database: database.clone() };
            (locker.task.doing.clone(), tokio::spawn(locker.run()))
        })
        .collect();
    all_end(tasks, stop).await?;
    if is_in_memory {
        let everything = locks.request_all(tree::roots()).within(FREE_WITHIN).acquire();
        let all = everything.await;
        all.map_err(|error| format!("something is still held in memory: {error}"))?
            .release()
            .await?;
    }
    Ok(())
}

struct Locker {
    task: Task,
    locks: Hierlock,
    database: Option<Database>,
}

/// For how long a request waits.
#[derive(Clone, Copy)]
enum Patience {
    Forever,
    Within(Duration),
    Never,
}

impl Patience {
    fn apply<By>(self, request: Request<By>) -> Request<By> {
        match self {
            Patience::Forever => request,
            Patience::Within(span) => request.within(span),
            Patience::Never => request.no_wait(),
        }
    }
}

/// Asks for claims; if the run is to fail, for the wrong ones.
fn request<'a, B: Backend>(
    locks: &'a Hierlock<B>,
    claims: &[Claim],
    broken: bool,
) -> Request<&'a Hierlock<B>> {
    claims.iter().fold(locks.request_all([]), |request, claim| {
        request.and(tree::locked(&claim.target, broken), claim.mode)
    })
}

impl Locker {
    async fn run(mut self) {
        while !self.task.stop.is_set() {
            self.task.visit.number += 1;
            match self.task.random.below(20) {
                0..=1 => self.upgrade().await,
                2..=4 => self.extend().await,
                5..=7 => self.dropped().await,
                8..=10 if self.database.is_some() => self.in_transaction().await,
                _ => self.plain().await,
            }
            if self.task.random.chance(30) {
                sleep(Duration::from_millis(self.task.random.below(10))).await;
            }
        }
    }

    fn patience(&mut self) -> Patience {
        match self.task.random.below(10) {
            0..=3 => Patience::Forever,
            4..=5 => Patience::Never,
            _ => Patience::Within(self.short()),
        }
    }

    fn short(&mut self) -> Duration {
        Duration::from_millis(self.task.random.between(20, 3000))
    }

    fn ask(&mut self) -> Vec<Claim> {
        let claims = tree::claims(&mut self.task.random);
        self.task.record(Event::Ask(claims.clone()));
        claims
    }

    fn request(&self, claims: &[Claim]) -> Request<&Hierlock> {
        request(&self.locks, claims, self.task.broken)
    }

    /// Asks for claims and begins a visit.
    async fn enter(&mut self, claims: Vec<Claim>) -> Option<Guard> {
        let patience = self.patience();
        self.task.does("acquire");
        match patience.apply(self.request(&claims)).acquire().await {
            Ok(guard) => {
                self.task.record(Event::Begin(claims));
                Some(guard)
            }
            Err(error) => {
                self.task.not_granted(Reason::of(&error)).await;
                None
            }
        }
    }

    async fn plain(&mut self) {
        let claims = self.ask();
        let Some(guard) = self.enter(claims).await else { return };
        if self.stays(&guard).await {
            self.leave(guard).await;
        }
    }

    /// Takes more under the same guard.
    async fn extend(&mut self) {
        let claims = self.ask();
        let Some(mut guard) = self.enter(claims).await else { return };
        if !self.stays(&guard).await {
            return;
        }
        let patience = match self.patience() {
            Patience::Forever => Patience::Within(self.short()),
            patience => patience,
        };
        let more = tree::claims(&mut self.task.random);
        let broken = self.task.broken;
        let request = more.iter().fold(guard.request_all([]), |request, claim| {
            request.and(tree::locked(&claim.target, broken), claim.mode)
        });
        self.task.does("extend");
        let extended = patience.apply(request).acquire();
        // A dropped extension keeps what the guard had.
        let limit = Duration::from_millis(self.task.random.between(1, 4000));
        if let Ok(Ok(())) = timeout(limit, extended).await {
            self.task.record(Event::Extend(more));
        }
        if self.stays(&guard).await {
            self.leave(guard).await;
        }
    }

    /// Reads, then writes.
    async fn upgrade(&mut self) {
        let target = tree::node(&mut self.task.random);
        let claim = |mode| vec![Claim { target: target.clone(), mode }];
        self.task.record(Event::Ask(claim(Mode::Update)));
        let Some(mut guard) = self.enter(claim(Mode::Update)).await else { return };
        if !self.stays(&guard).await {
            return;
        }
        self.task.does("upgrade");
        if let Ok(Ok(())) = timeout(self.short(), guard.upgrade()).await {
            self.task.record(Event::Extend(claim(Mode::Exclusive)));
        }
        if self.stays(&guard).await {
            self.leave(guard).await;
        }
    }

    /// Goes away while it waits, or before it has even been heard.
    async fn dropped(&mut self) {
        let claims = self.ask();
        let limit = Duration::from_micros(self.task.random.below(20_000));
        self.task.does("acquire and drop");
        match timeout(limit, self.request(&claims).acquire()).await {
            Err(_) => self.task.not_granted(Reason::Dropped).await,
            Ok(Err(error)) => self.task.not_granted(Reason::of(&error)).await,
            Ok(Ok(guard)) => {
                self.task.record(Event::Begin(claims));
                if self.stays(&guard).await {
                    self.leave(guard).await;
                }
            }
        }
    }

    /// Locks in a transaction of its own.
    async fn in_transaction(&mut self) {
        let (Some(database), Some(locks)) = (self.database.clone(), &self.locks.as_sql()) else {
            return;
        };
        let claims = self.ask();
        self.task.does("begin");
        let mut tx = match database.begin().await {
            Ok(tx) => tx,
            Err(_) => return self.task.not_granted(Reason::Failed).await,
        };
        let short = self.short();
        self.task.does("acquire in a transaction");
        let request = request(locks, &claims, self.task.broken).within(short);
        if let Err(error) = request.acquire_in(&mut tx).await {
            self.task.not_granted(Reason::of(&error)).await;
            self.task.does("roll back");
            // If that fails its connection is closed, which does the same.
            let _ = tx.rollback().await;
            return;
        }
        self.task.record(Event::Begin(claims));
        sleep(self.task.stay()).await;
        self.task.record(Event::End);
        self.task.does("end a transaction");
        let ended = match self.task.random.chance(50) {
            true => tx.commit().await,
            false => tx.rollback().await,
        };
        self.task.record(if ended.is_ok() { Event::Released } else { Event::Lost });
    }

    /// Holds it for some time; false if it was lost.
    async fn stays(&mut self, guard: &Guard) -> bool {
        if self.task.random.chance(40) && !self.asks_token(guard).await {
            return false;
        }
        self.task.does("stay");
        let stay = self.task.stay();
        tokio::select! {
            () = sleep(stay) => {}
            _ = guard.lost() => {
                self.task.record(Event::Lost);
                return false;
            }
        }
        !self.task.random.chance(20) || self.asks_token(guard).await
    }

    /// Asks for a token; false if the lock was lost.
    async fn asks_token(&self, guard: &Guard) -> bool {
        self.task.does("token");
        let asked = clock::now();
        match guard.token().await {
            Ok(token) => self.task.record(Event::Token { asked, token }),
            Err(error) if error.is_lost() => {
                self.task.record(Event::Lost);
                return false;
            }
            // What is asked on the side may fail by itself.
            Err(_) => {}
        }
        true
    }

    async fn leave(&mut self, guard: Guard) {
        self.task.record(Event::End);
        if self.task.random.chance(30) {
            // Dropped, and nobody says whether it was still held: it must not be known to be lost.
            if timeout(Duration::ZERO, guard.lost()).await.is_ok() {
                self.task.record(Event::Lost);
            }
            return;
        }
        self.task.does("release");
        let released = guard.release().await;
        self.task.record(if released.is_ok() { Event::Released } else { Event::Lost });
    }
}
