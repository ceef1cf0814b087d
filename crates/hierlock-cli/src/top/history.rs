//! Figures from a series of snapshots. Pure, except for [`LockSample::take`].

use crate::exit::CommandError;
use crate::locks::LockSource;
use crate::locks::text::waited;
use crate::time::millis;
use hierlock::sql::lock_report::{LockSnapshot, SessionLocks, SlotStatistics};
use hierlock_engine::introspection::LockTarget;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

/// The period over which waits for slots are counted.
pub(super) const SLOT_WINDOW: Duration = Duration::from_secs(300);
/// The period over which recent deadlocks are counted.
const DEADLOCK_WINDOW: Duration = Duration::from_secs(60);

/// One snapshot, with the deadlock count of the server.
#[derive(Clone, Debug)]
pub(super) struct LockSample {
    pub(super) snapshot: LockSnapshot,
    /// The number of deadlocks since the server was started; `None` if the server does not report it.
    pub(super) deadlocks: Option<u64>,
}

impl LockSample {
    pub(super) async fn take(source: &mut LockSource) -> Result<Self, CommandError> {
        let snapshot = source.snapshot().await?;
        let deadlocks = source.deadlock_count().await?;
        Ok(Self { snapshot, deadlocks })
    }
}

/// The figures of the last sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// The number of sessions that wait.
    pub(super) waiting: usize,
    /// The number of sessions that hold a lock that may block others.
    pub(super) holding: usize,
    pub(super) longest_wait: Option<LongestWait>,
    /// `None` at the first sample.
    pub(super) rates: Option<WaitRates>,
    pub(super) deadlocks: Option<DeadlockFigures>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct LongestWait {
    pub(super) session: i64,
    pub(super) waiting_ms: u64,
}

/// The rates of waits that began and ended between the last two observations. Shorter waits are not counted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct WaitRates {
    pub(super) begun_per_second: f64,
    pub(super) ended_per_second: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct DeadlockFigures {
    /// The deadlocks since the server was started.
    pub(super) total: u64,
    /// The deadlocks of the last minute, or since this command was started.
    pub(super) recent: u64,
    pub(super) recent_ms: u64,
}

/// A wait: the process id of the session, and the lock that it waits for.
type ObservedWait = (i64, Option<LockTarget>);

/// The data of earlier observations that the figures need.
#[derive(Clone, Debug)]
pub(super) struct History {
    waits: BTreeSet<ObservedWait>,
    taken: Option<SystemTime>,
    deadlocks: VecDeque<(SystemTime, u64)>,
    pub(super) figures: Figures,
    pub(super) slots: SlotStatistics,
}

impl Default for History {
    fn default() -> Self {
        Self {
            waits: BTreeSet::new(),
            taken: None,
            deadlocks: VecDeque::new(),
            figures: Figures::default(),
            slots: SlotStatistics::of_the_last(SLOT_WINDOW),
        }
    }
}

impl History {
    pub(super) fn add(&mut self, sample: &LockSample) {
        let snapshot = &sample.snapshot;
        let waiters = snapshot.sessions.iter().filter_map(|it| Some((it, it.wait.as_ref()?)));
        let waits: BTreeSet<ObservedWait> = waiters
            .clone()
            .map(|(it, wait)| (it.info.pid, wait.wanted.as_ref().map(|lock| lock.target.clone())))
            .collect();
        let elapsed = self.taken.and_then(|taken| snapshot.taken.duration_since(taken).ok());
        let per_second = |count: usize, elapsed: Duration| count as f64 / elapsed.as_secs_f64();
        let rates = elapsed.filter(|elapsed| !elapsed.is_zero()).map(|elapsed| WaitRates {
            begun_per_second: per_second(waits.difference(&self.waits).count(), elapsed),
            ended_per_second: per_second(self.waits.difference(&waits).count(), elapsed),
        });
        let longest = waiters.clone().filter_map(|(it, _)| Some((waited(it)?, it.info.pid)));
        let blockers: BTreeSet<i64> = waiters.flat_map(|(_, it)| &it.blockers).copied().collect();
        // PostgreSQL may not list a row lock that blocks another session.
        let holds = |it: &&SessionLocks| {
            it.has_unlisted_locks
                || blockers.contains(&it.info.pid)
                || it.held.iter().any(|lock| !lock.is_routine())
        };
        self.figures = Figures {
            waiting: waits.len(),
            holding: snapshot.sessions.iter().filter(holds).count(),
            longest_wait: longest
                .max()
                .map(|(waited, session)| LongestWait { session, waiting_ms: millis(waited) }),
            rates,
            deadlocks: sample.deadlocks.map(|count| self.count_deadlocks(snapshot.taken, count)),
        };
        self.waits = waits;
        self.taken = Some(snapshot.taken);
        self.slots.add(snapshot);
    }

    fn count_deadlocks(&mut self, now: SystemTime, total: u64) -> DeadlockFigures {
        // The server was restarted, or its counter was reset.
        if self.deadlocks.back().is_some_and(|(_, before)| *before > total) {
            self.deadlocks.clear();
        }
        self.deadlocks.push_back((now, total));
        let age = |taken: SystemTime| now.duration_since(taken).unwrap_or_default();
        while self.deadlocks.front().is_some_and(|(taken, _)| age(*taken) > DEADLOCK_WINDOW) {
            self.deadlocks.pop_front();
        }
        let (since, before) = self.deadlocks.front().copied().unwrap_or((now, total));
        DeadlockFigures { total, recent: total - before, recent_ms: millis(age(since)) }
    }
}
