//! The loop of a worker, which does one thing after the other in the database; heartbeats go on beside it.
//!
//! ```text
//!   claim ──► waiting ──► running: a task each ──► done ──► complete_all
//!      ▲                     │ fails: counted by its task
//!      └── a wake, a poll, or something before
//! ```

use super::background::{self, ActiveJobs};
use super::stop::{RECORD_LIMIT, RETRY_PAUSE, SHARED_RECORD_LIMIT, STOP_GRACE, until_answered};
use super::{Worker, WorkerSummary};
use crate::database::answered;
use crate::error::Result;
use crate::queue::{ClaimedJob, JobOutcome};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

/// A database that does not answer the loop in this time is asked again, on another connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// For so long a job that is done waits for others, to be completed together with them.
const COMPLETE_DELAY: Duration = Duration::from_millis(5);

/// Runs a job; its error is the text of a failure.
pub(super) type Handler =
    Arc<dyn Fn(ClaimedJob) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

struct WorkLoop {
    worker: Worker,
    active: ActiveJobs,
    /// Claimed, but not begun.
    waiting: VecDeque<ClaimedJob>,
    running: JoinSet<Attempt>,
    done: Vec<ClaimedJob>,
    /// When the last handler came back.
    ended_at: Instant,
    /// When those that are done are completed at the latest.
    complete_at: Instant,
    may_claim: bool,
    /// The last claim has found that there was nothing.
    found_nothing: bool,
    is_stopping: bool,
    summary: WorkerSummary,
}

pub(super) async fn run(worker: Worker, handler: Handler) -> Result<WorkerSummary> {
    let mut wakes = worker.queue.shared.wakes.subscribe();
    let stop = worker.stop.clone();
    let mut poll = interval(worker.poll_every);
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let active = ActiveJobs::default();
    let _background = background::start(&worker.queue, &active, worker.lease);
    let mut work = WorkLoop {
        worker,
        active,
        waiting: VecDeque::new(),
        running: JoinSet::new(),
        done: Vec::new(),
        ended_at: Instant::now(),
        complete_at: Instant::now(),
        may_claim: false,
        found_nothing: false,
        is_stopping: false,
        summary: WorkerSummary::default(),
    };
    loop {
        // Before anything is begun: a handler may have stopped it.
        work.is_stopping |= stop.sent_at().is_some();
        while work.has_room()
            && let Some(job) = work.waiting.pop_front()
        {
            work.running.spawn(attempt(handler.clone(), job));
        }
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
            return Ok(work.summary);
        }
        let (is_running, has_done) = (!work.running.is_empty(), !work.done.is_empty());
        tokio::select! {
            Some(ended) = work.running.join_next(), if is_running => work.ended(ended),
            () = sleep_until(work.complete_at), if has_done => {}
            _ = stop.received(), if !work.is_stopping => work.is_stopping = true,
            Ok(()) = wakes.changed() => work.may_claim = true,
            _ = poll.tick(), if !work.is_stopping => work.promote().await?,
        }
    }
}

impl WorkLoop {
    fn has_room(&self) -> bool {
        !self.is_stopping && self.running.len() < self.worker.concurrency
    }

    /// A task has ended, and with it perhaps others.
    fn ended(&mut self, first: Result<Attempt, JoinError>) {
        let mut next = Some(first);
        while let Some(ended) = next {
            next = self.running.try_join_next();
            // It catches panics by itself; what is cancelled with its runtime has no outcome.
            let Ok(Attempt { job, outcome, ended_at }) = ended else { continue };
            self.ended_at = self.ended_at.max(ended_at);
            if let Some(outcome) = outcome {
                self.count(&job, &outcome);
                continue;
            }
            if self.done.is_empty() {
                self.complete_at = Instant::now() + COMPLETE_DELAY;
            }
            self.done.push(job);
        }
    }

    fn count(&mut self, job: &ClaimedJob, outcome: &JobOutcome) {
        let summary = &mut self.summary;
        *match outcome {
            JobOutcome::Done => &mut summary.done,
            JobOutcome::Failed { .. } => &mut summary.failed,
            JobOutcome::GivenBack => &mut summary.given_back,
            JobOutcome::Lost => &mut summary.lost,
            JobOutcome::Unrecorded => &mut summary.unrecorded,
        } += 1;
        self.active.remove(std::slice::from_ref(job));
        (self.worker.on_end)(job, outcome);
    }

    /// Asks the database, within the limits of [`StopSignal::limit`](super::stop::StopSignal::limit). None if it does
    /// not answer, or fails in a way that may pass: then the worker tries again.
    async fn ask<T>(
        &self,
        doing: &'static str,
        (grace, since): (Duration, Instant),
        question: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        let answer = answered(ANSWER_LIMIT, doing, question);
        match self.worker.stop.limit(grace, since, answer).await {
            Some(Ok(answer)) => Ok(Some(answer)),
            // Without a table that is known there is nothing to wait for.
            Some(Err(error)) if error.is_unfit() => Err(error),
            Some(Err(error)) => {
                tracing::warn!(%error, queue = self.worker.queue.name(), "a worker tries again");
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Fast jobs are completed together: when there are enough, or no others, or it is time.
    async fn complete_if_worth_it(&mut self) -> Result<()> {
        let now = Instant::now();
        let is_last = self.running.is_empty() && (self.waiting.is_empty() || self.is_stopping);
        let is_enough = self.done.len() >= self.worker.batch || is_last;
        let has_just_failed = self.complete_at > now + COMPLETE_DELAY;
        let is_time = now >= self.complete_at || is_enough && !has_just_failed;
        if self.done.is_empty() || !is_time {
            return Ok(());
        }
        // While others run there is time for more tries, and their end is to be noticed.
        let limit = if self.running.is_empty() {
            (RECORD_LIMIT, self.ended_at)
        } else {
            (SHARED_RECORD_LIMIT, now)
        };
        let complete = self.worker.queue.complete_all(&self.done);
        let completed = self.ask("complete jobs", limit, complete).await?;
        // Once it was stopped, it has tried for long enough at some time.
        let is_over = |sent: Instant| Instant::now() >= sent.max(self.ended_at) + RECORD_LIMIT;
        let is_out_of_time =
            self.running.is_empty() && self.worker.stop.sent_at().is_some_and(is_over);
        if completed.is_none() {
            self.complete_at = Instant::now() + self.worker.poll_every.min(RETRY_PAUSE);
        }
        if completed.is_some() || is_out_of_time {
            for job in std::mem::take(&mut self.done) {
                let outcome = match &completed {
                    None => JobOutcome::Unrecorded,
                    Some(lost) if lost.contains(&job.id()) => JobOutcome::Lost,
                    Some(_) => JobOutcome::Done,
                };
                self.count(&job, &outcome);
            }
        }
        Ok(())
    }

    fn wants_more(&self) -> bool {
        // Those that cannot be completed for now are not to become ever more.
        let may_have_more = self.waiting.is_empty() && self.done.len() <= self.worker.batch;
        self.may_claim && self.has_room() && may_have_more
    }

    async fn claim(&mut self) -> Result<()> {
        self.may_claim = false;
        let Worker { queue, name, batch, lease, .. } = &self.worker;
        let claim = queue.claim(name, *batch, *lease);
        let limit = (STOP_GRACE, Instant::now());
        if let Some(claimed) = self.ask("claim jobs", limit, claim).await? {
            self.found_nothing = claimed.is_empty();
            // Where there was something, more may have come by the time that it is done.
            self.may_claim = !self.found_nothing;
            self.active.add(&claimed);
            self.waiting.extend(claimed);
        }
        Ok(())
    }

    async fn promote(&mut self) -> Result<()> {
        self.may_claim = true;
        let limit = (STOP_GRACE, Instant::now());
        self.ask("make jobs ready", limit, self.worker.queue.promote()).await.map(drop)
    }

    async fn give_back(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting: Vec<ClaimedJob> = self.waiting.drain(..).collect();
        self.active.remove(&waiting);
        let queue = &self.worker.queue;
        let give_back =
            until_answered("jobs are not given back yet", || queue.give_back_all(&waiting));
        match self.worker.stop.limit(SHARED_RECORD_LIMIT, Instant::now(), give_back).await {
            Some(given) => self.summary.given_back += given.unwrap_or_default(),
            None => tracing::warn!("jobs that were not begun come back only when their lease ends"),
        }
    }

    /// Returns whether there is nothing left to do, and nothing to come that it waits for.
    fn is_over(&self) -> bool {
        let is_empty = self.running.is_empty() && self.waiting.is_empty() && self.done.is_empty();
        is_empty && (self.is_stopping || self.worker.until_empty && self.found_nothing)
    }
}

/// A job whose handler has come back.
struct Attempt {
    job: ClaimedJob,
    /// None: the handler is happy, and the job is still to be completed.
    outcome: Option<JobOutcome>,
    /// When the handler came back.
    ended_at: Instant,
}

/// One attempt at a job, in a task of its own.
async fn attempt(handler: Handler, job: ClaimedJob) -> Attempt {
    // What a panic leaves behind is dropped with the handler's future.
    let ran = AssertUnwindSafe(async { handler(job.clone()).await }).catch_unwind().await;
    let ended_at = Instant::now();
    let outcome = match ran {
        Ok(Ok(())) => job.outcome().cloned(),
        Ok(Err(error)) => Some(fail(&job, error).await),
        Err(panic) => Some(fail(&job, format!("panicked: {}", message(&*panic))).await),
    };
    Attempt { job, outcome, ended_at }
}

async fn fail(job: &ClaimedJob, error: String) -> JobOutcome {
    // The end of its lease counts one, too.
    let is_expired = job.is_expired();
    let limit = if is_expired { STOP_GRACE } else { RECORD_LIMIT };
    let not_yet = format!("a failure of job {} is not counted yet", job.id());
    let count = until_answered(not_yet, || job.fail(&error));
    match timeout(limit, count).await {
        Ok(Ok(next)) => JobOutcome::Failed { error, next },
        Ok(Err(error)) if error.is_lost() => job.outcome().cloned().unwrap_or(JobOutcome::Lost),
        _ if is_expired => JobOutcome::Lost,
        _ => JobOutcome::Unrecorded,
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("?")
}
