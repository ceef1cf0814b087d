//! Histories that are wrong must be found wrong, and those that only look so must not.

use super::*;
use crate::soak::history::{Event, VisitId, read_claims};

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
        self.line(at, worker, Event::Ask(read_claims(claims).unwrap()))
    }

    fn begin(self, at: u64, worker: u32, claims: &str) -> Self {
        self.line(at, worker, Event::Begin(read_claims(claims).unwrap()))
    }

    fn extend(self, at: u64, worker: u32, claims: &str) -> Self {
        self.line(at, worker, Event::Extend(read_claims(claims).unwrap()))
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
        self.0.disturbances.push(Disturbance { slot, since, until, severs: true });
        self
    }

    fn stalled(mut self, since: u64, until: u64, slot: usize) -> Self {
        let slot = Some(slot);
        self.0.disturbances.push(Disturbance { slot, since, until, severs: false });
        self
    }

    fn found(&self) -> Vec<String> {
        self.found_by(Rules::Locks)
    }

    fn found_by(&self, rules: Rules) -> Vec<String> {
        check(&self.0, rules).violations.iter().map(Violation::to_string).collect()
    }
}

fn story() -> HistoryBuilder {
    HistoryBuilder::default()
}

#[test]
fn an_overlap_is_found_at_above_and_below_a_node() {
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
        let overlapping = story().begin(1, 1, first).begin(5, 2, second).end(6, 2).end(9, 1);
        assert_eq!(overlapping.found().len(), usize::from(is_wrong), "{first}, {second}");
        let in_turns = story().begin(1, 1, first).end(4, 1).begin(5, 2, second).end(6, 2);
        assert_eq!(in_turns.found(), [""; 0], "{first}, {second}");
    }
    let said = story().begin(1, 1, "exclusive:u1").begin(5, 2, "shared:u1/a1").end(8, 2).end(9, 1);
    let expected =
        "overlap: visit 2.0.0 was given u1/a1 shared while 1.0.0 held u1 exclusive, for 3ns";
    assert_eq!(said.found(), [expected]);
}

#[test]
fn what_an_extension_adds_is_held_from_then_on() {
    let story = |extended| {
        let both = story().begin(1, 1, "update:u1").begin(2, 2, "shared:u1").end(6, 2);
        both.extend(extended, 1, "exclusive:u1").end(9, 1)
    };
    assert_eq!(story(7).found(), [""; 0]);
    assert_eq!(story(5).found().len(), 1);
}

/// Its lock is free only when it is dead, and not a moment before.
#[test]
fn a_killed_holder_holds_until_it_is_killed() {
    let story =
        |killed| story().begin(1, 1, "exclusive:u1").killed(killed, 1).begin(5, 2, "exclusive:u1");
    assert_eq!(story(4).end(9, 2).found(), [""; 0]);
    assert_eq!(story(6).end(9, 2).found().len(), 1);
}

#[test]
fn a_stopped_holder_still_holds() {
    // Stopped from 2 to 7, and goes on as if nothing had been.
    let story = story().begin(1, 1, "exclusive:u1").stalled(7, 7, 1);
    let story = story.begin(5, 2, "exclusive:u1").end(6, 2).end(9, 1);
    assert_eq!(story.found().len(), 1);
}

#[test]
fn a_cut_holder_holds_until_the_cut() {
    let story = |at| {
        let cut = story().begin(1, 1, "exclusive:u1").cut(at, at + 1, Some(1)).lost(8, 1);
        cut.begin(5, 2, "exclusive:u1").end(6, 2)
    };
    assert_eq!(story(4).found(), [""; 0]);
    // Lost, but nothing was done to it before 7: held at least until the server's last answer.
    assert_eq!(story(7).found(), [""; 0]);
    assert_eq!(story(7).token(6, 1, 1).found().len(), 1);
    // Cut between its request and its beginning: it may never have held anything, unless it was released.
    let before = || self::story().ask(1, 1, "exclusive:u1").cut(2, 3, Some(1));
    let before = || before().begin(4, 1, "exclusive:u1").begin(5, 2, "exclusive:u1").end(8, 2);
    assert_eq!(before().killed(9, 1).found(), [""; 0]);
    assert_eq!(before().end(9, 1).found().len(), 1);
    // What is done to another slot changes nothing.
    let other = |story: HistoryBuilder| story.begin(5, 2, "exclusive:u1").end(6, 2).end(9, 1);
    let story = self::story().begin(1, 1, "exclusive:u1").cut(3, 4, Some(3));
    assert_eq!(other(story).found().len(), 1);
}

#[test]
fn a_loss_that_is_not_told_is_found() {
    let story = |slot| story().begin(1, 1, "exclusive:u1").cut(3, 4, slot).end(9, 1);
    assert_eq!(story(Some(2)).found(), [""; 0]);
    assert!(story(Some(1)).found()[0].contains("loss not told: the release of visit 1.0.0"));
    assert_eq!(story(None).found().len(), 1);
    // A stall ends, and the connection is still there.
    let stalled = self::story().begin(1, 1, "exclusive:u1").stalled(3, 4, 1).end(9, 1);
    assert_eq!(stalled.found(), [""; 0]);
    // Acquired after the cut had begun: on a connection that may be a new one.
    let after = self::story().begin(4, 1, "exclusive:u1").cut(3, 5, Some(1)).end(9, 1);
    assert_eq!(after.found(), [""; 0]);
}

#[test]
fn a_token_that_goes_back_is_found() {
    let story = |first, second, node| {
        let first = story().begin(1, 1, "exclusive:u1/a1").token(2, 1, first).end(4, 1);
        first.begin(5, 2, node).token(6, 2, second).end(8, 2)
    };
    assert_eq!(story(7, 8, "exclusive:u1").found(), [""; 0]);
    assert_eq!(story(8, 8, "shared:u1/a1").found(), ["token: 2.0.0 has 8 after 1.0.0 had 8"]);
    assert_eq!(story(8, 7, "exclusive:u1/a1/r1").found().len(), 1);
    assert_eq!(story(8, 7, "exclusive:u2").found(), [""; 0]);
}

#[test]
fn a_node_that_a_killed_process_keeps_is_found() {
    let second = 1_000_000_000;
    let story = || {
        let holder = story().begin(1, 1, "exclusive:u1").killed(5, 1);
        holder.ask(2, 2, "exclusive:u1/a1")
    };
    let granted = story().begin(2 * second, 2, "exclusive:u1/a1").end(3 * second, 2);
    assert_eq!(granted.found(), [""; 0]);
    assert!(check(&granted.0, Rules::Locks).freed_after > Duration::from_secs(1));
    let late = story().begin(60 * second, 2, "exclusive:u1/a1").end(61 * second, 2);
    assert!(late.found()[0].starts_with("not freed: the process of visit 1.0.0"));
    assert_eq!(story().found().len(), 1);
    // Most of that time there was no server.
    let away = story().cut(second, 50 * second, None).begin(60 * second, 2, "exclusive:u1/a1");
    assert_eq!(away.end(61 * second, 2).found(), [""; 0]);
    // It gave up in time.
    let timeout = story().line(second, 2, Event::NotGranted(Reason::Timeout));
    assert_eq!(timeout.found(), [""; 0]);
}

#[test]
fn a_lease_is_held_as_long_as_it_is_valid_whoever_is_gone() {
    let story = |valid| {
        let lease = story().begin(1, 1, "exclusive:u1").line(1, 1, Event::Valid { until: valid });
        let lease = lease.killed(3, 1).cut(3, 4, None);
        lease.begin(6, 2, "exclusive:u1").line(6, 2, Event::Valid { until: 99 }).end(9, 2)
    };
    assert_eq!(story(5).found_by(Rules::Leases), [""; 0]);
    assert_eq!(story(8).found_by(Rules::Leases).len(), 1);
    // One that keeps it and is told that it is lost gives it back.
    assert_eq!(story(8).lost(5, 1).found_by(Rules::Leases), [""; 0]);
    // A write that was checked in time is committed under the lease, however late.
    let late =
        |event| story(5).line(4, 1, Event::Check).line(8, 1, Event::Commit).line(9, 1, event);
    assert_eq!(late(Event::Committed).found_by(Rules::Leases).len(), 1);
    assert_eq!(late(Event::Check).found_by(Rules::Leases), [""; 0]);
}

#[test]
fn counts_are_those_of_the_history() {
    let story = story()
        .begin(1, 1, "exclusive:u1")
        .killed(3, 1)
        .begin(4, 2, "exclusive:u1")
        .lost(5, 2)
        .begin(4, 3, "exclusive:u2")
        .cut(5, 6, Some(3))
        .lost(7, 3)
        .line(8, 4, Event::NotGranted(Reason::Busy));
    let findings = check(&story.0, Rules::Locks);
    assert_eq!((findings.visits, findings.killed_inside), (3, 1));
    assert_eq!((findings.lost, findings.lost_undisturbed), (2, 1));
    assert_eq!(findings.not_granted[&Reason::Busy], 1);
}

#[test]
fn jobs_that_are_lost_done_twice_stuck_or_run_twice_for_no_reason_are_found() {
    let good = Jobs {
        added: [1, 2, 3].into(),
        effects: [(1, 1), (2, 1), (3, 1)].into(),
        runs: [(1, vec![7]), (2, vec![7, 8]), (3, vec![8, 8])].into(),
        disturbed: [7].into(),
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
    assert!(found(&|jobs| _ = jobs.disturbed.remove(&7)).starts_with("run twice: job 2"));
    assert!(found(&|jobs| _ = jobs.failed.remove(&3)).starts_with("run twice: job 3"));
}
