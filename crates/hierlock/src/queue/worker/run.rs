//! The loop of a worker. All that it does in the database for many jobs, it does here, one after the
//! other; heartbeats go on beside it.
//!
//! ```text
//!   claim ──► waiting ──► running: a task each ──► done ──► complete_all
//!      ▲                     │ fails: counted by its task
//!      └── a wake, a poll, or something before
//! ```

use super::attempt::{Attempt, attempt};
use super::beside::{Beside, Hand};
use super::stop::{AGAIN, MOMENT, PATIENCE, Stop, TURN};
use super::{Ended, Worked, Worker};
use crate::database::answered;
use crate::error::{Error, Result};
use crate::queue::{Claimed, Queue};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

/// A database that does not answer the loop in this time is asked again, on another connection.
const ANSWERS: Duration = Duration::from_secs(10);

/// For so long a job that is done waits for others, to be completed together with them.
const LINGER: Duration = Duration::from_millis(5);

struct Loop {
    worker: Worker,
    queue: Queue,
    hand: Hand,
    /// Claimed, but not begun.
    waiting: VecDeque<Claimed>,
    running: JoinSet<Attempt>,
    done: Vec<Claimed>,
    /// When the last handler came back.
    ended_at: Instant,
    /// When these are completed at the latest.
    complete_at: Instant,
    /// May there be something to claim?
    may_claim: bool,
    /// Did the last claim find that there was nothing?
    found_nothing: bool,
    stop: Stop,
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
    let mut stop = worker.stop.listen();
    let mut poll = interval(worker.poll_every);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let hand = Hand::default();
    let _beside = Beside::start(&queue, &hand, worker.lease);
    let mut work = Loop::new(worker, queue, hand);
    loop {
        // Before anything is begun: a handler may have stopped it.
        work.is_stopping |= stop.is_told();
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
            _ = stop.told(), if !work.is_stopping => work.is_stopping = true,
            Ok(()) = wakes.changed() => work.may_claim = true,
            _ = poll.tick(), if !work.is_stopping => work.promote().await?,
        }
    }
}

impl Loop {
    fn new(worker: Worker, queue: Queue, hand: Hand) -> Self {
        Self {
            stop: worker.stop.listen(),
            worker,
            queue,
            hand,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            done: Vec::new(),
            ended_at: Instant::now(),
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
    fn ended(&mut self, first: Result<Attempt, JoinError>) {
        let mut next = Some(first);
        while let Some(ended) = next {
            // It catches panics by itself; what is cancelled with its runtime is not settled.
            if let Ok(attempt) = ended {
                self.settle(attempt);
            }
            next = self.running.try_join_next();
        }
    }

    fn settle(&mut self, Attempt { job, ended, at }: Attempt) {
        self.ended_at = self.ended_at.max(at);
        match ended {
            Some(ended) => self.count(&job, &ended),
            None => {
                if self.done.is_empty() {
                    self.complete_at = Instant::now() + LINGER;
                }
                self.done.push(job);
            }
        }
    }

    fn count(&mut self, job: &Claimed, ended: &Ended) {
        let worked = &mut self.worked;
        *match ended {
            Ended::Done => &mut worked.done,
            Ended::Failed { .. } => &mut worked.failed,
            Ended::GivenBack => &mut worked.given_back,
            Ended::Lost => &mut worked.lost,
            Ended::Unrecorded => &mut worked.unrecorded,
        } += 1;
        self.hand.remove(std::slice::from_ref(job));
        (self.worker.on_end)(job, ended);
    }

    fn count_done(&mut self, ended: impl Fn(&Claimed) -> Ended) {
        for job in std::mem::take(&mut self.done) {
            self.count(&job, &ended(&job));
        }
    }

    /// Fast jobs are completed together: when there are enough, or no others, or it is time.
    async fn complete_if_worth_it(&mut self) -> Result<()> {
        let is_last = self.running.is_empty() && (self.waiting.is_empty() || self.is_stopping);
        let is_enough = self.done.len() >= self.worker.batch || is_last;
        let is_time = Instant::now() >= self.complete_at;
        if self.done.is_empty() || !(is_time || is_enough && !self.is_putting_off()) {
            return Ok(());
        }
        // While others run there is time for more tries, and their end is to be noticed.
        let (patience, since) = match self.running.is_empty() {
            true => (PATIENCE, self.ended_at),
            false => (TURN, Instant::now()),
        };
        let complete = answered(ANSWERS, "complete jobs", self.queue.complete_all(&self.done));
        match self.stop.within(patience, since, complete).await {
            Some(Ok(lost)) => {
                self.count_done(|job| match lost.contains(&job.id()) {
                    true => Ended::Lost,
                    false => Ended::Done,
                });
                return Ok(());
            }
            Some(Err(error)) => self.bear(error)?,
            None => {}
        }
        if self.is_out_of_patience() {
            self.count_done(|_| Ended::Unrecorded);
        }
        self.complete_at = Instant::now() + self.worker.poll_every.min(AGAIN);
        Ok(())
    }

    /// Was it stopped, and has tried for long enough to complete what it has done?
    fn is_out_of_patience(&self) -> bool {
        let is_long = |told: Instant| Instant::now() >= told.max(self.ended_at) + PATIENCE;
        self.running.is_empty() && self.stop.since().is_some_and(is_long)
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
        self.may_claim = false;
        let Worker { name, batch, lease, .. } = &self.worker;
        let claim = answered(ANSWERS, "claim jobs", self.queue.claim(name, *batch, *lease));
        match self.stop.within(MOMENT, Instant::now(), claim).await {
            Some(Ok(claimed)) => {
                self.found_nothing = claimed.is_empty();
                // Where there was something, more may have come by the time that it is done.
                self.may_claim = !self.found_nothing;
                self.hand.add(&claimed);
                self.waiting.extend(claimed);
                Ok(())
            }
            Some(Err(error)) => self.bear(error),
            None => Ok(()),
        }
    }

    async fn promote(&mut self) -> Result<()> {
        self.may_claim = true;
        let promote = answered(ANSWERS, "make jobs ready", self.queue.promote());
        match self.stop.within(MOMENT, Instant::now(), promote).await {
            Some(Err(error)) => self.bear(error),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    async fn give_back(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting: Vec<Claimed> = self.waiting.drain(..).collect();
        self.hand.remove(&waiting);
        let give_back = async {
            loop {
                match self.queue.give_back_all(&waiting).await {
                    Err(error) if !error.is_unfit() => {
                        tracing::warn!(%error, "jobs are not given back yet");
                        sleep(AGAIN).await;
                    }
                    other => return other.unwrap_or_default(),
                }
            }
        };
        match self.stop.within(TURN, Instant::now(), give_back).await {
            Some(given) => self.worked.given_back += given,
            None => tracing::warn!("jobs that were not begun come back only when their lease ends"),
        }
    }

    /// Nothing in hand, and nothing to come that it waits for.
    fn is_over(&self) -> bool {
        let is_empty = self.running.is_empty() && self.waiting.is_empty() && self.done.is_empty();
        is_empty && (self.is_stopping || self.worker.until_empty && self.found_nothing)
    }

    /// A database may fail for a while. Without a table that is known there is nothing to wait for.
    fn bear(&self, error: Error) -> Result<()> {
        if error.is_unfit() {
            return Err(error);
        }
        tracing::warn!(%error, queue = self.queue.name(), "a worker tries again");
        Ok(())
    }
}
