//! The main loop of a worker, which makes one database call at a time; heartbeats run beside it.
//!
//! ```text
//!   claim ──► waiting ──► running: a task each ──► done ──► complete_all
//!      ▲                     │ fails: counted by its task
//!      └── after a wake, a poll, or a claim that found jobs
//! ```

use super::background::{self, ActiveJobs};
use super::stop::{
    RECORD_LIMIT, RETRY_PAUSE, SHARED_RECORD_LIMIT, STOP_GRACE, retry_until_answered,
};
use super::{Worker, WorkerSummary};
use crate::database::with_time_limit;
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

/// The time limit of one database call, which is then retried on another connection.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How long a finished job waits for others, to be completed together with them.
const COMPLETE_DELAY: Duration = Duration::from_millis(5);

/// Runs a job; its error is the text of a failure.
pub(super) type Handler =
    Arc<dyn Fn(ClaimedJob) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

struct WorkLoop {
    worker: Worker,
    active: ActiveJobs,
    /// Claimed jobs that are not started yet.
    waiting: VecDeque<ClaimedJob>,
    running: JoinSet<AttemptResult>,
    /// Jobs whose handler has succeeded and that are not completed yet.
    done: Vec<ClaimedJob>,
    /// The time when the last handler returned.
    ended_at: Instant,
    /// The latest time to complete the jobs in `done`.
    complete_at: Instant,
    may_claim: bool,
    /// Whether the last claim found no job.
    found_nothing: bool,
    is_stopping: bool,
    summary: WorkerSummary,
}

pub(super) async fn run(worker: Worker, handler: Handler) -> Result<WorkerSummary> {
    let mut wakes = worker.queue.wakes.subscribe();
    let handle = worker.handle.clone();
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
        // Before another job is started: a handler may have stopped the worker.
        work.is_stopping |= handle.stopped_at().is_some();
        while work.has_room()
            && let Some(job) = work.waiting.pop_front()
        {
            work.running.spawn(attempt(handler.clone(), job));
        }
        work.complete_if_due().await?;
        if work.is_stopping {
            work.give_back().await;
        }
        if work.should_claim() {
            work.claim().await?;
            if !work.waiting.is_empty() {
                continue;
            }
        }
        if work.is_finished() {
            return Ok(work.summary);
        }
        let (is_running, has_done) = (!work.running.is_empty(), !work.done.is_empty());
        tokio::select! {
            Some(ended) = work.running.join_next(), if is_running => work.collect_ended(ended),
            () = sleep_until(work.complete_at), if has_done => {}
            _ = handle.stopped(), if !work.is_stopping => work.is_stopping = true,
            Ok(()) = wakes.changed() => work.may_claim = true,
            _ = poll.tick(), if !work.is_stopping => work.promote().await?,
        }
    }
}

impl WorkLoop {
    fn has_room(&self) -> bool {
        !self.is_stopping && self.running.len() < self.worker.concurrency
    }

    /// Collects the results of an ended task and of all others that have ended.
    fn collect_ended(&mut self, first: Result<AttemptResult, JoinError>) {
        let mut next = Some(first);
        while let Some(ended) = next {
            next = self.running.try_join_next();
            // The task catches panics itself. A task that is cancelled with its runtime has no outcome.
            let Ok(AttemptResult { job, outcome, ended_at }) = ended else { continue };
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

    /// Runs a database call within the limits of [`WorkerHandle::limit`](super::WorkerHandle::limit). Returns `None` if the
    /// database does not answer, or fails with an error that may pass: then the worker tries again.
    async fn call<T>(
        &self,
        doing: &'static str,
        (grace, since): (Duration, Instant),
        call: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        let call = with_time_limit(ANSWER_LIMIT, doing, call);
        match self.worker.handle.limit(grace, since, call).await {
            Some(Ok(answer)) => Ok(Some(answer)),
            // A retry is useless if the table is missing or of another version.
            Some(Err(error)) if error.is_unusable_schema() => Err(error),
            Some(Err(error)) => {
                tracing::warn!(%error, queue = self.worker.queue.name(), "a worker tries again");
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Completes finished jobs together: when there are enough, or no others are left, or their delay is over.
    async fn complete_if_due(&mut self) -> Result<()> {
        let now = Instant::now();
        let is_last = self.running.is_empty() && (self.waiting.is_empty() || self.is_stopping);
        let is_enough = self.done.len() >= self.worker.batch || is_last;
        let has_just_failed = self.complete_at > now + COMPLETE_DELAY;
        let is_time = now >= self.complete_at || is_enough && !has_just_failed;
        if self.done.is_empty() || !is_time {
            return Ok(());
        }
        // While other jobs run, the limit is shorter: there is time to retry, and the loop must notice their end.
        let limit = if self.running.is_empty() {
            (RECORD_LIMIT, self.ended_at)
        } else {
            (SHARED_RECORD_LIMIT, now)
        };
        let complete = self.worker.queue.complete_all(&self.done);
        let completed = self.call("complete jobs", limit, complete).await?;
        // A stopped worker gives up after the limit.
        let is_over = |sent: Instant| Instant::now() >= sent.max(self.ended_at) + RECORD_LIMIT;
        let is_out_of_time =
            self.running.is_empty() && self.worker.handle.stopped_at().is_some_and(is_over);
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

    fn should_claim(&self) -> bool {
        // While jobs cannot be completed, their number must not grow without limit.
        let may_have_more = self.waiting.is_empty() && self.done.len() <= self.worker.batch;
        self.may_claim && self.has_room() && may_have_more
    }

    async fn claim(&mut self) -> Result<()> {
        self.may_claim = false;
        let Worker { queue, name, batch, lease, .. } = &self.worker;
        let claim = queue.claim(name, *batch, *lease);
        let limit = (STOP_GRACE, Instant::now());
        if let Some(claimed) = self.call("claim jobs", limit, claim).await? {
            self.found_nothing = claimed.is_empty();
            // If there were jobs, there may be more when these are done.
            self.may_claim = !self.found_nothing;
            self.active.add(&claimed);
            self.waiting.extend(claimed);
        }
        Ok(())
    }

    async fn promote(&mut self) -> Result<()> {
        self.may_claim = true;
        let limit = (STOP_GRACE, Instant::now());
        self.call("make jobs ready", limit, self.worker.queue.promote()).await.map(drop)
    }

    async fn give_back(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let waiting: Vec<ClaimedJob> = self.waiting.drain(..).collect();
        self.active.remove(&waiting);
        let queue = &self.worker.queue;
        let give_back =
            retry_until_answered("jobs are not given back yet", || queue.give_back_all(&waiting));
        match self.worker.handle.limit(SHARED_RECORD_LIMIT, Instant::now(), give_back).await {
            Some(count) => self.summary.given_back += count.unwrap_or_default(),
            None => {
                tracing::warn!("jobs that were not started become ready only when their lease ends")
            }
        }
    }

    fn is_finished(&self) -> bool {
        let is_empty = self.running.is_empty() && self.waiting.is_empty() && self.done.is_empty();
        is_empty && (self.is_stopping || self.worker.until_empty && self.found_nothing)
    }
}

/// A job whose handler has returned.
struct AttemptResult {
    job: ClaimedJob,
    /// None if the handler has succeeded and the job is not completed yet.
    outcome: Option<JobOutcome>,
    ended_at: Instant,
}

async fn attempt(handler: Handler, job: ClaimedJob) -> AttemptResult {
    // The state that a panic leaves behind is dropped with the handler's future.
    let result = AssertUnwindSafe(async { handler(job.clone()).await }).catch_unwind().await;
    let ended_at = Instant::now();
    let outcome = match result {
        Ok(Ok(())) => job.outcome().cloned(),
        Ok(Err(error)) => Some(fail(&job, error).await),
        Err(panic) => Some(fail(&job, format!("panicked: {}", message(&*panic))).await),
    };
    AttemptResult { job, outcome, ended_at }
}

async fn fail(job: &ClaimedJob, error: String) -> JobOutcome {
    // If the lease has ended, that counts as a failure too, so this one need not be counted.
    let is_expired = job.is_expired();
    let limit = if is_expired { STOP_GRACE } else { RECORD_LIMIT };
    let not_yet = format!("a failure of job {} is not counted yet", job.id());
    let count = retry_until_answered(not_yet, || job.fail(&error));
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
