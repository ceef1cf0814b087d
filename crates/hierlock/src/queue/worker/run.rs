//! The loop of a worker. All that it does in the database for many jobs, it does here, one after the
//! other; heartbeats go on beside it.
//!
//! ```text
//!   claim ──► waiting ──► running: a task each ──► done ──► complete_all
//!      ▲                     │ fails: counted by its task
//!      └── a wake, a poll, or something before
//! ```

use super::attempt::{Outcome, attempt};
use super::beside::{Beside, Hand};
use super::{Worked, Worker};
use crate::error::{Error, Result};
use crate::queue::{Claimed, Queue};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

/// For so long a job that is done waits for others, to be completed together with them.
const LINGER: Duration = Duration::from_millis(5);

struct Loop {
    worker: Worker,
    queue: Queue,
    hand: Hand,
    /// Claimed, but not begun.
    waiting: VecDeque<Claimed>,
    running: JoinSet<(Claimed, Outcome)>,
    done: Vec<Claimed>,
    /// When these are completed at the latest.
    complete_at: Instant,
    /// May there be something to claim?
    may_claim: bool,
    /// Did the last claim find that there was nothing?
    found_nothing: bool,
    is_stopping: bool,
    worked: Worked,
}

pub(super) async fn run<F, W, E>(worker: Worker, handler: F) -> Result<Worked>
where
    F: Fn(Claimed) -> W + Send + Sync + 'static,
    W: Future<Output = Result<(), E>> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    let handler = Arc::new(handler);
    let queue = worker.queue.clone();
    let mut wakes = queue.wakes();
    let mut stop = worker.stop.subscribe();
    let mut poll = interval(worker.poll_every);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let hand = Hand::default();
    let _beside = Beside::start(&queue, &hand, worker.lease);
    let mut work = Loop::new(worker, queue, hand);
    loop {
        // Before anything is begun: a handler may have stopped it.
        work.is_stopping |= *stop.borrow();
        work.begin(&handler);
        work.complete_if_worth_it().await?;
        if work.is_stopping {
            work.give_back().await;
        }
        if work.wants_more() {
            work.claim().await?;
            if !work.waiting.is_empty() {
                continue;
            }
        }
        if work.is_over() {
            return Ok(work.worked);
        }
        let (is_running, has_done) = (!work.running.is_empty(), !work.done.is_empty());
        tokio::select! {
            Some(ended) = work.running.join_next(), if is_running => work.ended(ended),
            () = sleep_until(work.complete_at), if has_done => {}
            () = stopped(&mut stop), if !work.is_stopping => work.is_stopping = true,
            Ok(()) = wakes.changed() => work.may_claim = true,
            _ = poll.tick(), if !work.is_stopping => work.promote().await?,
        }
    }
}

/// The worker has the other end, so that one is never gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

impl Loop {
    fn new(worker: Worker, queue: Queue, hand: Hand) -> Self {
        Self {
            worker,
            queue,
            hand,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            done: Vec::new(),
            complete_at: Instant::now(),
            may_claim: false,
            found_nothing: false,
            is_stopping: false,
            worked: Worked::default(),
        }
    }

    fn begin<F, W, E>(&mut self, handler: &Arc<F>)
    where
        F: Fn(Claimed) -> W + Send + Sync + 'static,
        W: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        while !self.is_stopping && self.running.len() < self.worker.concurrency {
            let Some(job) = self.waiting.pop_front() else { break };
            self.running.spawn(attempt(handler.clone(), job));
        }
    }

    /// A task has ended, and with it perhaps others.
    fn ended(&mut self, first: Result<(Claimed, Outcome), tokio::task::JoinError>) {
        let mut next = Some(first);
        while let Some(ended) = next {
            // It catches panics by itself; what is cancelled with its runtime is not settled.
            if let Ok((job, outcome)) = ended {
                self.settle(job, outcome);
            }
            next = self.running.try_join_next();
        }
    }

    fn settle(&mut self, job: Claimed, outcome: Outcome) {
        match outcome {
            Outcome::Done => {
                if self.done.is_empty() {
                    self.complete_at = Instant::now() + LINGER;
                }
                self.done.push(job);
                return;
            }
            Outcome::Completed => self.worked.done += 1,
            Outcome::Failed => self.worked.failed += 1,
            Outcome::GivenBack => self.worked.given_back += 1,
            Outcome::Lost => self.worked.lost += 1,
        }
        self.hand.remove(&[job]);
    }

    /// Fast jobs are completed together: when there are enough, or no others, or it is time.
    async fn complete_if_worth_it(&mut self) -> Result<()> {
        let is_last = self.running.is_empty() && (self.waiting.is_empty() || self.is_stopping);
        let is_enough = self.done.len() >= self.worker.batch || is_last;
        let is_time = Instant::now() >= self.complete_at;
        if self.done.is_empty() || !(is_time || is_enough && !self.is_putting_off()) {
            return Ok(());
        }
        match self.queue.complete_all(&self.done).await {
            Ok(lost) => {
                self.worked.lost += lost.len() as u64;
                self.worked.done += (self.done.len() - lost.len()) as u64;
                self.hand.remove(&self.done);
                self.done.clear();
            }
            Err(error) if self.is_stopping => return Err(error),
            Err(error) => {
                self.bear(error)?;
                self.complete_at = Instant::now() + self.worker.poll_every;
            }
        }
        Ok(())
    }

    /// Has completing failed just now?
    fn is_putting_off(&self) -> bool {
        self.complete_at > Instant::now() + LINGER
    }

    fn wants_more(&self) -> bool {
        let has_room = self.waiting.is_empty() && self.running.len() < self.worker.concurrency;
        // Those that cannot be completed for now are not to become ever more.
        self.may_claim && !self.is_stopping && has_room && self.done.len() <= self.worker.batch
    }

    async fn claim(&mut self) -> Result<()> {
        let Worker { name, batch, lease, .. } = &self.worker;
        match self.queue.claim(name, *batch, *lease).await {
            Ok(claimed) => {
                self.found_nothing = claimed.is_empty();
                // Where there was something, more may have come by the time that it is done.
                self.may_claim = !self.found_nothing;
                self.hand.add(&claimed);
                self.waiting.extend(claimed);
                Ok(())
            }
            Err(error) => {
                self.may_claim = false;
                self.bear(error)
            }
        }
    }

    async fn promote(&mut self) -> Result<()> {
        self.may_claim = true;
        match self.queue.promote().await {
            Ok(_) => Ok(()),
            Err(error) => self.bear(error),
        }
    }

    async fn give_back(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting: Vec<Claimed> = self.waiting.drain(..).collect();
        self.hand.remove(&waiting);
        match self.queue.give_back_all(&waiting).await {
            Ok(given) => self.worked.given_back += given,
            Err(error) => tracing::warn!(%error, "jobs come back only when their lease ends"),
        }
    }

    /// Nothing in hand, and nothing to come that it waits for.
    fn is_over(&self) -> bool {
        let is_empty = self.running.is_empty() && self.waiting.is_empty() && self.done.is_empty();
        is_empty && (self.is_stopping || self.worker.until_empty && self.found_nothing)
    }

    /// A database may fail for a while. Without a table there is nothing to wait for.
    fn bear(&self, error: Error) -> Result<()> {
        if error.is_not_provisioned() {
            return Err(error);
        }
        tracing::warn!(%error, queue = self.queue.name(), "a worker tries again");
        Ok(())
    }
}
