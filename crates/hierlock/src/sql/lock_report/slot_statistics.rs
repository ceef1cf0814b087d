//! The waits for each slot over a series of snapshots. Pure code.

use super::slot_wait::slot_wait;
use super::{FalseContention, LockSlot, LockSnapshot};
use crate::Target;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, SystemTime};

/// The waits for slots in a series of snapshots.
///
/// Snapshots are summed up in periods of time, so that memory does not grow with their number. The oldest period is removed when
/// it is out of the window.
#[derive(Clone, Debug, Default)]
pub struct SlotStatistics {
    window: Option<Duration>,
    periods: VecDeque<Period>,
    /// The waits of the last snapshot, by process id and slot. A period counts them when they end.
    under_way: BTreeMap<(i64, LockSlot), FalseContention>,
}

/// The number of periods in a window.
const PERIODS: u32 = 30;

#[derive(Clone, Debug)]
struct Period {
    /// The times of the first and the last snapshot in the period.
    begun: SystemTime,
    ended: SystemTime,
    samples: usize,
    slots: BTreeMap<LockSlot, SlotCounts>,
}

/// The counts of a slot in one period.
#[derive(Clone, Debug, Default)]
struct SlotCounts {
    /// The numbers of waits that ended in the period, by [`FalseContention`].
    waits: [u64; 3],
    max_waiting: usize,
    /// The sum of the waiting sessions of all snapshots.
    sum_waiting: usize,
    waited: Duration,
    wanted: BTreeSet<Target>,
    held: BTreeSet<Target>,
}

/// The waits for one slot.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SlotSummary {
    /// The slot.
    pub slot: LockSlot,
    /// The number of waits.
    pub waits: u64,
    /// The number of waits for the holder of another path.
    pub false_waits: u64,
    /// The number of waits with unknown paths.
    pub unknown_waits: u64,
    /// The greatest number of sessions that waited at one moment.
    pub max_waiting: usize,
    /// The average number of waiting sessions over all snapshots.
    pub mean_waiting: f64,
    /// The total time of all waits between the first and the last snapshot.
    pub waited: Duration,
    /// The known paths that sessions waited for.
    pub wanted: BTreeSet<Target>,
    /// The known paths of the blockers.
    pub held: BTreeSet<Target>,
}

impl SlotSummary {
    /// Returns whether a session waited for the holder of another path in the same bucket.
    pub fn false_contention(&self) -> FalseContention {
        if self.false_waits > 0 {
            FalseContention::Yes
        } else if self.unknown_waits < self.waits {
            FalseContention::No
        } else {
            FalseContention::Unknown
        }
    }
}

impl SlotStatistics {
    /// Makes statistics of the snapshots of the last `window`. The default statistics keep all snapshots.
    pub fn of_the_last(window: Duration) -> Self {
        Self { window: Some(window), ..Self::default() }
    }

    /// Adds a snapshot, which must be later than those before.
    pub fn add(&mut self, snapshot: &LockSnapshot) {
        let taken = snapshot.taken;
        let elapsed = self.periods.back().map_or(Duration::ZERO, |last| age(last.ended, taken));
        let waits = snapshot.sessions.iter().filter_map(|session| slot_wait(session, snapshot));
        let waits: Vec<_> = waits.collect();
        let mut ended = std::mem::take(&mut self.under_way);
        for wait in &waits {
            let key = (wait.pid, wait.slot.clone());
            // The session may have started another wait since the last snapshot.
            let is_new = wait.waiting_for.is_some_and(|waited| waited < elapsed);
            let known = if is_new { None } else { ended.remove(&key) };
            // `Yes` before `No` before `Unknown`: false contention stays false contention, since without it the session
            // would have waited less.
            let contention = wait.contention.min(known.unwrap_or(FalseContention::Unknown));
            self.under_way.insert(key, contention);
        }
        if let Some(period) = self.periods.back_mut() {
            for ((_, slot), contention) in ended {
                period.slots.entry(slot).or_default().waits[contention as usize] += 1;
            }
        }
        self.rotate_periods(taken);
        let Some(period) = self.periods.back_mut() else { return };
        period.ended = taken;
        period.samples += 1;
        let mut waiting: BTreeMap<LockSlot, usize> = BTreeMap::new();
        for wait in waits {
            let waiting = waiting.entry(wait.slot.clone()).or_default();
            *waiting += 1;
            let counts = period.slots.entry(wait.slot).or_default();
            counts.max_waiting = counts.max_waiting.max(*waiting);
            counts.sum_waiting += 1;
            counts.waited += wait.waiting_for.map_or(elapsed, |waited| waited.min(elapsed));
            counts.wanted.extend(wait.wanted);
            counts.held.extend(wait.held);
        }
    }

    /// Removes periods that are out of the window, and begins a new one if the last is full.
    fn rotate_periods(&mut self, taken: SystemTime) {
        if let Some(window) = self.window {
            while self.periods.front().is_some_and(|period| age(period.ended, taken) > window) {
                self.periods.pop_front();
            }
        }
        let length = self.window.map(|window| window / PERIODS);
        let is_full =
            |period: &Period| length.is_some_and(|length| age(period.begun, taken) >= length);
        if self.periods.back().is_none_or(is_full) {
            let slots = BTreeMap::new();
            self.periods.push_back(Period { begun: taken, ended: taken, samples: 0, slots });
        }
    }

    /// Returns the number of snapshots.
    pub fn samples(&self) -> usize {
        self.periods.iter().map(|period| period.samples).sum()
    }

    /// Returns the times of the first and the last snapshot.
    pub fn period(&self) -> Option<(SystemTime, SystemTime)> {
        Some((self.periods.front()?.begun, self.periods.back()?.ended))
    }

    /// Returns all slots with waits, the one with the longest total wait first.
    pub fn hottest(&self) -> Vec<SlotSummary> {
        let mut found: BTreeMap<&LockSlot, SlotCounts> = BTreeMap::new();
        for (slot, counts) in self.periods.iter().flat_map(|period| &period.slots) {
            found.entry(slot).or_default().merge(counts);
        }
        for ((_, slot), contention) in &self.under_way {
            found.entry(slot).or_default().waits[*contention as usize] += 1;
        }
        let samples = self.samples().max(1) as f64;
        let summary = |(slot, counts): (&LockSlot, SlotCounts)| SlotSummary {
            slot: slot.clone(),
            waits: counts.waits.iter().sum(),
            false_waits: counts.waits[FalseContention::Yes as usize],
            unknown_waits: counts.waits[FalseContention::Unknown as usize],
            max_waiting: counts.max_waiting,
            mean_waiting: counts.sum_waiting as f64 / samples,
            waited: counts.waited,
            wanted: counts.wanted,
            held: counts.held,
        };
        let mut slots: Vec<SlotSummary> = found.into_iter().map(summary).collect();
        // Stable: slots with equal waits stay in their order.
        slots.sort_by_key(|it| Reverse((it.waited, it.max_waiting, it.waits)));
        slots
    }
}

/// Returns the time from `then` to `now`, or zero if `now` is earlier.
fn age(then: SystemTime, now: SystemTime) -> Duration {
    now.duration_since(then).unwrap_or_default()
}

impl SlotCounts {
    fn merge(&mut self, other: &Self) {
        for (count, other) in self.waits.iter_mut().zip(other.waits) {
            *count += other;
        }
        self.max_waiting = self.max_waiting.max(other.max_waiting);
        self.sum_waiting += other.sum_waiting;
        self.waited += other.waited;
        self.wanted.extend(other.wanted.iter().cloned());
        self.held.extend(other.held.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::lock_report::{ReportedLock, ReportedWait, SessionLocks};
    use hierlock_engine::introspection::{LockKind, LockTarget};

    fn lock(bucket: u32, nodes: &[&str]) -> ReportedLock {
        let target = LockTarget::new(LockKind::Row, "hier_lock_buckets", "X");
        let target = LockTarget { record: Some(format!("2, {bucket}")), ..target };
        let slot = LockSlot::Bucket { table: "hier_lock_buckets".to_owned(), level: 2, bucket };
        let nodes = nodes.iter().map(|node| node.parse().unwrap()).collect();
        ReportedLock::on_slot(target, slot, nodes)
    }

    fn session(
        pid: i64,
        held: &[ReportedLock],
        wait: Option<(ReportedLock, &[i64])>,
    ) -> SessionLocks {
        let mut session = SessionLocks { held: held.to_vec(), ..SessionLocks::default() };
        session.info.pid = pid;
        session.wait = wait
            .map(|(lock, blockers)| ReportedWait { wanted: Some(lock), blockers: blockers.into() });
        session
    }

    /// Adds a snapshot with the time `millis`.
    fn add(statistics: &mut SlotStatistics, millis: u64, sessions: Vec<SessionLocks>) {
        let mut snapshot = LockSnapshot::new("test".to_owned());
        snapshot.taken = SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        snapshot.sessions = sessions;
        statistics.add(&snapshot);
    }

    #[test]
    fn paths_of_holders_and_waiters_decide_false_contention() {
        use FalseContention::{No, Unknown, Yes};
        let holder = |nodes: &[&str]| session(1, &[lock(7, nodes)], None);
        let waiter = |nodes: &[&str]| session(2, &[], Some((lock(7, nodes), &[1])));
        // Waits for a session that itself waits.
        let behind = session(3, &[], Some((lock(7, &["u1/a1/r2"]), &[2])));
        for (case, sessions, expected) in [
            ("the same path", vec![holder(&["u1/a1/r1"]), waiter(&["u1/a1/r1"])], No),
            ("another path", vec![holder(&["u1/a1/r1"]), waiter(&["u1/a1/r2"])], Yes),
            ("no label", vec![holder(&[]), waiter(&["u1/a1/r2"])], Unknown),
            ("no label of the waiter", vec![holder(&["u1/a1/r1"]), waiter(&[])], Unknown),
            ("a holder that is not listed", vec![waiter(&["u1/a1/r2"])], Unknown),
            (
                "one of two in the queue",
                vec![holder(&["u1/a1/r1"]), waiter(&["u1/a1/r1"]), behind],
                Yes,
            ),
        ] {
            let mut statistics = SlotStatistics::default();
            add(&mut statistics, 0, sessions);
            let [slot] = &statistics.hottest()[..] else { panic!("{case}") };
            assert_eq!(slot.false_contention(), expected, "{case}");
        }
    }

    #[test]
    fn waits_are_counted_once_and_their_time_is_added_up() {
        let holder = || session(1, &[lock(7, &["u1/a1/r1"]), lock(8, &["u1/a1/r8"])], None);
        let wait = |pid, bucket, nodes: &[&str], waited: Option<u64>| {
            let mut session = session(pid, &[], Some((lock(bucket, nodes), &[1])));
            session.info.waiting_for = waited.map(Duration::from_millis);
            session
        };
        let mut statistics = SlotStatistics::default();
        add(&mut statistics, 0, vec![holder(), wait(2, 7, &["u1/a1/r2"], Some(900))]);
        add(
            &mut statistics,
            100,
            // Session 3 has just begun to wait. The start of session 4's wait is unknown.
            vec![
                holder(),
                wait(2, 7, &["u1/a1/r2"], Some(1000)),
                wait(3, 7, &["u1/a1/r1"], Some(30)),
                wait(4, 8, &[], None),
            ],
        );
        // Session 2 has started another wait, and the path of session 4 is now known.
        add(
            &mut statistics,
            200,
            vec![holder(), wait(2, 7, &["u1/a1/r2"], Some(10)), wait(4, 8, &["u1/a1/r8"], None)],
        );
        add(&mut statistics, 300, vec![holder()]);
        let [first, second] = &statistics.hottest()[..] else { panic!() };
        assert_eq!(first.slot.to_string(), "bucket 2/8", "the slot with the longer waits");
        assert_eq!((first.waits, first.max_waiting, first.waited.as_millis()), (1, 1, 200));
        assert_eq!((first.false_waits, first.unknown_waits), (0, 0));
        assert_eq!(first.false_contention(), FalseContention::No);
        assert_eq!((second.waits, second.false_waits, second.unknown_waits), (3, 2, 0));
        assert_eq!((second.max_waiting, second.mean_waiting), (2, 1.0));
        assert_eq!(second.waited.as_millis(), 100 + 30 + 10);
    }

    #[test]
    fn snapshots_older_than_the_window_are_removed() {
        let waiting = || vec![session(2, &[], Some((lock(7, &[]), &[1])))];
        let mut statistics = SlotStatistics::of_the_last(Duration::from_millis(100));
        for (millis, samples, slots) in [(0, 1, 1), (100, 2, 1), (201, 1, 0)] {
            let sessions = if millis == 0 { waiting() } else { Vec::new() };
            add(&mut statistics, millis, sessions);
            assert_eq!((statistics.samples(), statistics.hottest().len()), (samples, slots));
        }
    }

    #[test]
    fn a_wait_from_before_the_window_counts_while_it_continues() {
        let waiting = || {
            let waiter = session(2, &[], Some((lock(7, &["u1/a1/r2"]), &[1])));
            vec![session(1, &[lock(7, &["u1/a1/r1"])], None), waiter]
        };
        let mut statistics = SlotStatistics::of_the_last(Duration::from_millis(300));
        for millis in (0..2000).step_by(50) {
            add(&mut statistics, millis, waiting());
        }
        let [slot] = &statistics.hottest()[..] else { panic!() };
        assert_eq!((slot.waits, slot.false_waits, slot.waited.as_millis()), (1, 1, 350));
        assert!(statistics.periods.len() <= PERIODS as usize + 1);
        // The wait has ended within the window.
        add(&mut statistics, 2000, Vec::new());
        assert_eq!(statistics.hottest()[0].waits, 1);
        add(&mut statistics, 2301, Vec::new());
        assert_eq!(statistics.hottest(), []);
    }
}
