//! A worker process that leases nodes and writes under its leases.

use super::{StopSignal, Task, WorkerArgs, join_tasks};
use crate::soak::history::{Event, Reason, Recorder};
use crate::soak::{MAX_LEASE_TTL, Result, clock, tree};
use hierlock::database::Database;
use hierlock::lease::{Lease, LeaseGuard, LeaseRequest, Leases};
use hierlock::{Claim, Mode, Target};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const TASKS: u32 = 4;

pub(super) async fn work(args: WorkerArgs, stop: StopSignal) -> Result<()> {
    let recorder = Arc::new(Recorder::open(&args.history)?);
    let connect = async || Database::connect(&args.url).await;
    let Some(database) = stop.retry_until_stopped(connect).await else { return Ok(()) };
    let args = Arc::new(args);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (database, leases) = (database.clone(), Leases::new(database.clone()));
            let task = Task::new(&args, &recorder, &stop, task);
            (task.activity.clone(), tokio::spawn(LeaseTask { task, database, leases }.run()))
        })
        .collect();
    join_tasks(tasks, stop).await?;
    Ok(())
}

struct LeaseTask {
    task: Task,
    database: Database,
    leases: Leases,
}

impl LeaseTask {
    async fn run(mut self) {
        while !self.task.stop.is_set() {
            self.task.visit.number += 1;
            self.lease_and_write().await;
            sleep(Duration::from_millis(self.task.random.below(20))).await;
        }
    }

    async fn lease_and_write(&mut self) {
        let target = tree::random_node(&mut self.task.random);
        let claims = vec![Claim { target: target.clone(), mode: Mode::Exclusive }];
        self.task.record(Event::Ask(claims.clone()));
        let owner = format!("w{}t{}", self.task.visit.worker, self.task.visit.task);
        let (ttl, wait_limit) = (self.ttl(), self.task.random.below(1500));
        let request = LeaseRequest::new(tree::node_to_lock(&target, self.task.broken), owner)
            .ttl(ttl)
            .wait_up_to(Duration::from_millis(wait_limit));
        self.task.set_activity("acquire");
        let acquire = self.leases.acquire(request);
        let lease = if self.task.random.chance(10) {
            let limit = Duration::from_micros(self.task.random.below(20_000));
            match timeout(limit, acquire).await {
                Ok(lease) => lease,
                Err(_) => return self.task.not_granted(Reason::Dropped).await,
            }
        } else {
            acquire.await
        };
        let lease = match lease {
            Ok(lease) => lease,
            Err(error) => return self.task.not_granted(Reason::from_error(&error)).await,
        };
        self.task.record(Event::Begin(claims));
        self.task.record(Event::Valid { until: clock::from_system_time(lease.expires_at()) });
        let token = u64::try_from(lease.token()).unwrap_or(0);
        self.task.record(Event::Token { asked: clock::now(), token });
        if self.task.random.chance(40) {
            self.hold_with_keep_alive(lease.keep(), &target).await;
        } else {
            self.hold(lease, &target).await;
        }
    }

    fn ttl(&mut self) -> Duration {
        Duration::from_millis(self.task.random.between(200, MAX_LEASE_TTL.as_millis() as u64))
    }

    /// Holds the lease without keep-alive. It is renewed explicitly, or expires.
    async fn hold(&mut self, mut lease: Lease, target: &Target) {
        for _ in 0..self.task.random.between(1, 3) {
            sleep(self.task.hold_time()).await;
            if self.task.random.chance(50) && !self.write(&lease, target).await {
                return;
            }
            if self.task.random.chance(30) {
                self.task.set_activity("renew");
                match lease.renew().await {
                    Ok(()) => {
                        let until = clock::from_system_time(lease.expires_at());
                        self.task.record(Event::Valid { until });
                    }
                    Err(error) if error.is_lost() => return self.task.record(Event::Lost),
                    Err(_) => {}
                }
            }
        }
        self.task.record(Event::End);
        if self.task.random.chance(80) {
            self.task.set_activity("release");
            let _ = lease.release().await;
        }
    }

    /// Holds the lease with keep-alive: a task renews it.
    async fn hold_with_keep_alive(&mut self, guard: LeaseGuard, target: &Target) {
        for _ in 0..self.task.random.between(1, 4) {
            let hold_time = self.task.hold_time();
            tokio::select! {
                () = sleep(hold_time) => {}
                _ = guard.lost() => return self.task.record(Event::Lost),
            }
            self.task.record(Event::Valid { until: clock::from_system_time(guard.expires_at()) });
            if self.task.random.chance(50) && !self.write(guard.lease(), target).await {
                return;
            }
        }
        self.task.record(Event::End);
        if self.task.random.chance(70) {
            self.task.set_activity("release");
            let _ = guard.release().await;
        }
    }

    /// Makes a checked write. Returns false if the lease was lost.
    async fn write(&mut self, lease: &Lease, target: &Target) -> bool {
        self.task.set_activity("begin");
        let Ok(mut tx) = self.database.begin().await else { return true };
        self.task.set_activity("check");
        match lease.check_in(&mut tx).await {
            Ok(()) => self.task.record(Event::Check),
            Err(error) => {
                self.task.set_activity("roll back");
                let _ = tx.rollback().await;
                if error.is_lost() {
                    self.task.record(Event::Lost);
                }
                return !error.is_lost();
            }
        }
        let sql = "INSERT INTO soak_writes (path, token) VALUES (?, ?)";
        let values = [target.to_string().into(), lease.token().into()];
        if tx.execute(sql, values).await.is_err() {
            return true;
        }
        // SQLite has one writer at a time, so a long transaction would delay all others.
        let limit = if self.task.args.url.starts_with("sqlite:") { 3 } else { 40 };
        let is_slow = limit > 3 && self.task.random.chance(5);
        let pause = if is_slow {
            self.task.random.between(500, 2500)
        } else {
            self.task.random.below(limit)
        };
        sleep(Duration::from_millis(pause)).await;
        self.task.record(Event::Commit);
        self.task.set_activity("commit");
        if tx.commit().await.is_ok() {
            self.task.record(Event::Committed);
        }
        true
    }
}
