//! The check finds violations in wrong histories, and none in correct ones that look similar.

use super::*;
use crate::soak::history::{Event, VisitId, parse_claims};

fn visit(worker: u32) -> VisitId {
    VisitId { worker, task: 0, number: 0 }
}

/// A history in which worker n has slot n.
#[derive(Default)]
struct HistoryBuilder(History);

impl HistoryBuilder {
    fn line(mut self, at: u64, worker: u32, event: Event) -> Self {
        let process = Process { slot: worker as usize, ..Process::default() };
        self.0.processes.entry(worker).or_insert(process);
        self.0.lines.push(HistoryLine { at, visit: visit(worker), event });
        self
    }

    fn ask(self, at: u64, worker: u32, claims: &str) -> Self {
        self.line(at, worker, Event::Ask(parse_claims(claims).unwrap()))
    }

    fn begin(self, at: u64, worker: u32, claims: &str) -> Self {
        self.line(at, worker, Event::Begin(parse_claims(claims).unwrap()))
    }

    fn extend(self, at: u64, worker: u32, claims: &str) -> Self {
        self.line(at, worker, Event::Extend(parse_claims(claims).unwrap()))
    }

    fn token(self, asked: u64, worker: u32, token: u64) -> Self {
        self.line(asked + 1, worker, Event::Token { asked, token })
    }

    fn end(self, at: u64, worker: u32) -> Self {
        self.line(at, worker, Event::End).line(at + 1, worker, Event::Released)
    }

    fn lost(self, at: u64, worker: u32) -> Self {
        self.line(at, worker, Event::Lost)
    }

    fn killed(mut self, at: u64, worker: u32) -> Self {
        let process = self.0.processes.get_mut(&worker).unwrap();
        (process.killed, process.ended) = (Some(at), true);
        self
    }

    fn cut(mut self, since: u64, until: u64, slot: Option<usize>) -> Self {
        self.0.faults.push(Fault { slot, since, until, closes_connections: true });
        self
    }

    fn stalled(mut self, since: u64, until: u64, slot: usize) -> Self {
        let slot = Some(slot);
        self.0.faults.push(Fault { slot, since, until, closes_connections: false });
        self
    }

    fn violations(&self) -> Vec<String> {
        self.violations_by(Rules::Locks)
    }

    fn violations_by(&self, rules: Rules) -> Vec<String> {
        check(&self.0, rules).violations.iter().map(Violation::to_string).collect()
    }
}

fn history() -> HistoryBuilder {
    HistoryBuilder::default()
}

#[test]
fn an_overlap_is_found_on_same_and_related_nodes() {
    for (first, second, is_wrong) in [
        ("exclusive:u1", "exclusive:u1", true),
        ("exclusive:u1", "exclusive:u1/a1/r1", true),
        ("exclusive:u1/a1/r1", "exclusive:u1", true),
        ("exclusive:u1/a1", "shared:u1/a1", true),
        ("update:u1/a1", "update:u1/a1", true),
        ("update:u1/a1", "shared:u1/a1", false),
        ("shared:u1", "shared:u1/a1", false),
        ("exclusive:u1/a1", "exclusive:u1/a2", false),
        ("exclusive:u1,exclusive:u2/a1", "exclusive:u3,shared:u2", true),
    ] {
        let overlapping = history().begin(1, 1, first).begin(5, 2, second).end(6, 2).end(9, 1);
        assert_eq!(overlapping.violations().len(), usize::from(is_wrong), "{first}, {second}");
        let in_turns = history().begin(1, 1, first).end(4, 1).begin(5, 2, second).end(6, 2);
        assert_eq!(in_turns.violations(), [""; 0], "{first}, {second}");
    }
    let overlapping =
        history().begin(1, 1, "exclusive:u1").begin(5, 2, "shared:u1/a1").end(8, 2).end(9, 1);
    let expected =
        "overlap: visit 2.0.0 was granted u1/a1 shared while 1.0.0 held u1 exclusive, for 3ns";
    assert_eq!(overlapping.violations(), [expected]);
}

#[test]
fn an_extension_is_held_from_its_grant_on() {
    let history = |extended| {
        let both = history().begin(1, 1, "update:u1").begin(2, 2, "shared:u1").end(6, 2);
        both.extend(extended, 1, "exclusive:u1").end(9, 1)
    };
    assert_eq!(history(7).violations(), [""; 0]);
    assert_eq!(history(5).violations().len(), 1);
}

#[test]
fn a_killed_holder_holds_until_the_kill() {
    let history = |killed| {
        history().begin(1, 1, "exclusive:u1").killed(killed, 1).begin(5, 2, "exclusive:u1")
    };
    assert_eq!(history(4).end(9, 2).violations(), [""; 0]);
    assert_eq!(history(6).end(9, 2).violations().len(), 1);
}

#[test]
fn a_stopped_holder_still_holds() {
    // Stopped from 2 to 7, then it continues.
    let history = history().begin(1, 1, "exclusive:u1").stalled(7, 7, 1);
    let history = history.begin(5, 2, "exclusive:u1").end(6, 2).end(9, 1);
    assert_eq!(history.violations().len(), 1);
}

#[test]
fn a_cut_holder_holds_until_the_cut() {
    let history = |at| {
        let cut = history().begin(1, 1, "exclusive:u1").cut(at, at + 1, Some(1)).lost(8, 1);
        cut.begin(5, 2, "exclusive:u1").end(6, 2)
    };
    assert_eq!(history(4).violations(), [""; 0]);
    // Lost, but without a fault before 7: held at least until the server's last response.
    assert_eq!(history(7).violations(), [""; 0]);
    assert_eq!(history(7).token(6, 1, 1).violations().len(), 1);
    // Cut between request and beginning: it may never have held the lock, unless its release was confirmed.
    let before = || self::history().ask(1, 1, "exclusive:u1").cut(2, 3, Some(1));
    let before = || before().begin(4, 1, "exclusive:u1").begin(5, 2, "exclusive:u1").end(8, 2);
    assert_eq!(before().killed(9, 1).violations(), [""; 0]);
    assert_eq!(before().end(9, 1).violations().len(), 1);
    // A fault of another slot changes nothing.
    let other = |history: HistoryBuilder| history.begin(5, 2, "exclusive:u1").end(6, 2).end(9, 1);
    let history = self::history().begin(1, 1, "exclusive:u1").cut(3, 4, Some(3));
    assert_eq!(other(history).violations().len(), 1);
}

#[test]
fn an_unreported_loss_is_found() {
    let history = |slot| history().begin(1, 1, "exclusive:u1").cut(3, 4, slot).end(9, 1);
    assert_eq!(history(Some(2)).violations(), [""; 0]);
    assert!(
        history(Some(1)).violations()[0].contains("loss not reported: the release of visit 1.0.0")
    );
    assert_eq!(history(None).violations().len(), 1);
    // After a stall the connection still exists.
    let stalled = self::history().begin(1, 1, "exclusive:u1").stalled(3, 4, 1).end(9, 1);
    assert_eq!(stalled.violations(), [""; 0]);
    // Acquired after the cut had begun, so possibly on a new connection.
    let after = self::history().begin(4, 1, "exclusive:u1").cut(3, 5, Some(1)).end(9, 1);
    assert_eq!(after.violations(), [""; 0]);
}

#[test]
fn a_token_that_does_not_ascend_is_found() {
    let history = |first, second, node| {
        let first = history().begin(1, 1, "exclusive:u1/a1").token(2, 1, first).end(4, 1);
        first.begin(5, 2, node).token(6, 2, second).end(8, 2)
    };
    assert_eq!(history(7, 8, "exclusive:u1").violations(), [""; 0]);
    assert_eq!(
        history(8, 8, "shared:u1/a1").violations(),
        ["token: 2.0.0 has 8 after 1.0.0 had 8"]
    );
    assert_eq!(history(8, 7, "exclusive:u1/a1/r1").violations().len(), 1);
    assert_eq!(history(8, 7, "exclusive:u2").violations(), [""; 0]);
}

#[test]
fn a_lock_that_a_killed_process_keeps_is_found() {
    let second = 1_000_000_000;
    let history = || {
        let holder = history().begin(1, 1, "exclusive:u1").killed(5, 1);
        holder.ask(2, 2, "exclusive:u1/a1")
    };
    let granted = history().begin(2 * second, 2, "exclusive:u1/a1").end(3 * second, 2);
    assert_eq!(granted.violations(), [""; 0]);
    assert!(check(&granted.0, Rules::Locks).freed_after > Duration::from_secs(1));
    let late = history().begin(60 * second, 2, "exclusive:u1/a1").end(61 * second, 2);
    assert!(late.violations()[0].starts_with("not freed: the process of visit 1.0.0"));
    assert_eq!(history().violations().len(), 1);
    // The server was down most of that time.
    let restarted =
        history().cut(second, 50 * second, None).begin(60 * second, 2, "exclusive:u1/a1");
    assert_eq!(restarted.end(61 * second, 2).violations(), [""; 0]);
    // The waiter timed out first.
    let timeout = history().line(second, 2, Event::NotGranted(Reason::Timeout));
    assert_eq!(timeout.violations(), [""; 0]);
}

#[test]
fn a_lease_is_held_until_it_expires_even_after_a_kill() {
    let history = |valid| {
        let lease = history().begin(1, 1, "exclusive:u1").line(1, 1, Event::Valid { until: valid });
        let lease = lease.killed(3, 1).cut(3, 4, None);
        lease.begin(6, 2, "exclusive:u1").line(6, 2, Event::Valid { until: 99 }).end(9, 2)
    };
    assert_eq!(history(5).violations_by(Rules::Leases), [""; 0]);
    assert_eq!(history(8).violations_by(Rules::Leases).len(), 1);
    // An owner that learns of the loss gives the lease up.
    assert_eq!(history(8).lost(5, 1).violations_by(Rules::Leases), [""; 0]);
    // A write that was checked in time holds the lease until its COMMIT, however late.
    let late =
        |event| history(5).line(4, 1, Event::Check).line(8, 1, Event::Commit).line(9, 1, event);
    assert_eq!(late(Event::Committed).violations_by(Rules::Leases).len(), 1);
    assert_eq!(late(Event::Check).violations_by(Rules::Leases), [""; 0]);
}

#[test]
fn visits_losses_and_refusals_are_counted() {
    let history = history()
        .begin(1, 1, "exclusive:u1")
        .killed(3, 1)
        .begin(4, 2, "exclusive:u1")
        .lost(5, 2)
        .begin(4, 3, "exclusive:u2")
        .cut(5, 6, Some(3))
        .lost(7, 3)
        .line(8, 4, Event::NotGranted(Reason::Busy));
    let findings = check(&history.0, Rules::Locks);
    assert_eq!((findings.visits, findings.killed_while_holding), (3, 1));
    assert_eq!((findings.lost, findings.lost_without_fault), (2, 1));
    assert_eq!(findings.not_granted[&Reason::Busy], 1);
}

#[test]
fn lost_duplicated_and_stuck_jobs_are_found() {
    let good = Jobs {
        added: [1, 2, 3].into(),
        effects: [(1, 1), (2, 1), (3, 1)].into(),
        runs: [(1, vec![7]), (2, vec![7, 8]), (3, vec![8, 8])].into(),
        faulted: [7].into(),
        failed: [3].into(),
        left: [("claimed", 0), ("dead", 0)].into(),
    };
    assert_eq!(check_jobs(&good), (JobCounts { added: 3, done: 3, run_again: 2 }, vec![]));
    let found = |change: &dyn Fn(&mut Jobs)| {
        let mut jobs = good.clone();
        change(&mut jobs);
        let (_, found) = check_jobs(&jobs);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].to_string()
    };
    assert!(found(&|jobs| _ = jobs.effects.remove(&2)).starts_with("lost: job 2"));
    assert!(found(&|jobs| _ = jobs.effects.insert(2, 2)).starts_with("done twice"));
    assert!(found(&|jobs| _ = jobs.left.insert("claimed", 4)).starts_with("stuck: 4"));
    assert!(found(&|jobs| _ = jobs.faulted.remove(&7)).starts_with("run twice: job 2"));
    assert!(found(&|jobs| _ = jobs.failed.remove(&3)).starts_with("run twice: job 3"));
}
