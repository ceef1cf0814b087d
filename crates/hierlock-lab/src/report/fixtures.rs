//! Reports made by hand: every shape that a report must be able to show, without a server.

use super::Story;
use crate::observation::{
    Answer, Failure, FailureKind, Lock, LockKind, Name, Observation, Thing, Wait,
};
use crate::place::{Engine, Place};
use crate::record::{Deadlock, Ended, Link, Missing, Record, Report, StepRecord, Verdict};
use hierlock::sql::Strategy;
use std::time::Duration;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn place(engine: Engine) -> Place {
    Place { engine, strategy: None }
}

pub(crate) fn done() -> Observation {
    Observation::Done(Answer::default())
}

pub(crate) fn changed(changed: u64) -> Observation {
    Observation::Done(Answer { rows: None, changed })
}

pub(crate) fn rows(rows: &[&[&str]]) -> Observation {
    let cell = |cell: &&str| (*cell != "null").then(|| (*cell).to_owned());
    let rows = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    Observation::Done(Answer { rows: Some(rows), changed: 0 })
}

pub(crate) fn row_of(table: &str, record: &str) -> Thing {
    Thing {
        kind: LockKind::Row,
        object: table.to_owned(),
        index: Some("PRIMARY".to_owned()),
        record: Some(record.to_owned()),
        mode: "X,REC_NOT_GAP".to_owned(),
    }
}

pub(crate) fn node(path: &str) -> Thing {
    Thing {
        kind: LockKind::Node,
        object: path.to_owned(),
        index: None,
        record: None,
        mode: "exclusive".to_owned(),
    }
}

pub(crate) fn blocked(waiter: &str, by: &[&str], thing: Option<Thing>) -> Observation {
    Observation::Blocked(Wait {
        waiter: name(waiter),
        blockers: by.iter().map(|by| name(by)).collect(),
        strangers: false,
        thing,
    })
}

pub(crate) fn failed(kind: FailureKind, code: &str, message: &str) -> Observation {
    Observation::Failed(Failure {
        kind,
        code: code.to_owned(),
        message: message.to_owned(),
        detail: None,
    })
}

pub(crate) fn victim() -> Observation {
    let says = "Deadlock found when trying to get lock; try restarting transaction";
    failed(FailureKind::Deadlock, "1213", says)
}

/// A record that grows step by step; a step takes 2 ms, and its line is 10 and twice its index.
pub(crate) struct Play(Record);

impl Play {
    pub(crate) fn new(scenario: &str, title: &str, place: Place) -> Self {
        let server = match place.engine {
            Engine::Mysql => "MySQL 9.7.4",
            Engine::Mariadb => "MariaDB 10.11.19",
            Engine::Postgres => "PostgreSQL 15.18",
            Engine::Memory => "this process",
            Engine::File => "this kernel",
        };
        Play(Record {
            scenario: scenario.to_owned(),
            file: format!("scenarios/{scenario}.lab"),
            title: title.to_owned(),
            variant: Vec::new(),
            place,
            server: server.to_owned(),
            round: 1,
            took: Duration::ZERO,
            steps: Vec::new(),
            deadlocks: Vec::new(),
            verdict: Verdict::Agrees,
            anomaly: None,
        })
    }

    pub(crate) fn variant(mut self, axis: &str, value: &str) -> Self {
        self.0.variant.push((axis.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn round(mut self, round: u32) -> Self {
        self.0.round = round;
        self
    }

    pub(crate) fn anomaly(mut self, shows: bool) -> Self {
        self.0.anomaly = Some(shows);
        self
    }

    /// A step, and what was seen of it; with `text` empty, a look.
    pub(crate) fn step(mut self, session: &str, text: &str, seen: Observation) -> Self {
        let began = Duration::from_micros(2_000 * self.0.steps.len() as u64);
        self.0.took = began + Duration::from_millis(2);
        self.0.steps.push(StepRecord {
            line: 10 + 2 * self.0.steps.len(),
            session: name(session),
            text: text.to_owned(),
            began,
            waits: match &seen {
                Observation::Blocked(wait) => vec![wait.clone()],
                _ => Vec::new(),
            },
            seen,
            seen_at: began + Duration::from_millis(1),
            ended: None,
            expected: String::new(),
            difference: None,
            locks: None,
        });
        self
    }

    /// What the file expects of the last step.
    pub(crate) fn expects(mut self, expected: &str) -> Self {
        self.0.steps.last_mut().unwrap().expected = expected.to_owned();
        self
    }

    /// The locks after the last step: session, thing, granted.
    pub(crate) fn locks(mut self, locks: &[(&str, Thing, bool)]) -> Self {
        let lock = |(session, thing, granted): &(&str, Thing, bool)| Lock {
            session: name(session),
            thing: thing.clone(),
            granted: *granted,
        };
        self.0.steps.last_mut().unwrap().locks = Some(locks.iter().map(lock).collect());
        self
    }

    /// The step at `index`, which was blocked, ends during the last one.
    pub(crate) fn lets_go(mut self, index: usize, observation: Observation) -> Self {
        let during = self.0.steps.len() - 1;
        let gone = self.0.steps.iter().filter(|step| step.ended.is_some()).count() as u64;
        let at = self.0.steps[during].began + Duration::from_micros(700 + 100 * gone);
        self.0.steps[index].ended = Some(Ended { observation, at, during });
        self
    }

    /// A deadlock, closed by the last step: each of the circle with what it wants of the next, and in
    /// which step the next took that.
    pub(crate) fn deadlock(mut self, victim: &str, circle: &[(&str, Thing, usize)]) -> Self {
        let n = circle.len();
        let link = |i: usize| Link {
            waiter: name(circle[i].0),
            holder: name(circle[(i + 1) % n].0),
            wants: Some(circle[i].1.clone()),
            holds: vec![circle[(i + n - 1) % n].1.clone()],
            taken_in: Some(circle[i].2),
        };
        self.0.deadlocks.push(Deadlock {
            step: self.0.steps.len() - 1,
            victim: name(victim),
            circle: (0..n).map(link).collect(),
        });
        self
    }

    /// The last step is not what was expected.
    pub(crate) fn differs(mut self, why: &str) -> Self {
        let step = self.0.steps.len() - 1;
        self.0.steps[step].difference = Some(why.to_owned());
        self.0.verdict = Verdict::Disagrees { step, why: why.to_owned() };
        self
    }

    pub(crate) fn fails(mut self, why: &str) -> Self {
        self.0.verdict = Verdict::Failed { why: why.to_owned() };
        self
    }

    pub(crate) fn over(self) -> Record {
        self.0
    }
}

pub(crate) const CYCLE: &str =
    "Cycle deadlock: two transactions take the same two rows in opposite order";

/// Two rows in opposite order; `victim` is A or B.
pub(crate) fn cycle(engine: Engine, chosen: &str) -> Record {
    let one = row_of("numbers", "1");
    let two = row_of("numbers", "2");
    let select = |id: u32| format!("select value from numbers where id = {id} for update");
    let play = Play::new("deadlock/cycle", CYCLE, place(engine))
        .step("A", "begin", done())
        .locks(&[])
        .step("B", "begin", done())
        .locks(&[])
        .step("A", &select(1), rows(&[&["30"]]))
        .expects("| 30")
        .locks(&[("A", one.clone(), true)])
        .step("B", &select(2), rows(&[&["10"]]))
        .expects("| 10")
        .locks(&[("A", one.clone(), true), ("B", two.clone(), true)])
        .step("A", &select(2), blocked("A", &["B"], Some(two.clone())))
        .expects("blocked by B")
        .locks(&[("A", one.clone(), true), ("A", two.clone(), false), ("B", two.clone(), true)]);
    let circle = [("A", two.clone(), 3), ("B", one.clone(), 2)];
    let play = match chosen {
        "A" => play.step("B", &select(1), rows(&[&["30"]])).lets_go(4, victim()),
        _ => play.step("B", &select(1), victim()).lets_go(4, rows(&[&["10"]])),
    };
    let (loser, winner) = if chosen == "A" { ("A", "B") } else { ("B", "A") };
    play.expects("deadlock, A or B")
        .deadlock(chosen, &circle)
        .locks(&[(winner, one, true), (winner, two, true)])
        .step(loser, "rollback", done())
        .step(winner, "commit", done())
        .locks(&[])
        .over()
}

/// The same, where B is not stopped although the file says so.
pub(crate) fn cycle_disagrees(engine: Engine) -> Record {
    let mut record = cycle(engine, "A");
    let why = "line 20 expects B to be the victim of a deadlock, but A was";
    record.steps[5].expected = "deadlock".to_owned();
    record.steps[5].difference = Some(why.to_owned());
    record.verdict = Verdict::Disagrees { step: 5, why: why.to_owned() };
    record
}

/// Three sessions, each with what the one before wants.
pub(crate) fn ring() -> Record {
    let text = |what: &str| format!("lock exclusive {what}");
    let title = "三すくみ: three sessions wait in a ring";
    Play::new("deadlock/ring", title, place(Engine::Memory))
        .step("A", &text("u1/a1"), done())
        .step("B", &text("u1/a2"), done())
        .step("C", &text("ユーザー/a3"), done())
        .step("A", "extend u1/a2", blocked("A", &["B"], Some(node("u1/a2"))))
        .step("B", "extend ユーザー/a3", blocked("B", &["C"], Some(node("ユーザー/a3"))))
        .step("C", "extend u1/a1", failed(FailureKind::Deadlock, "", "a circle of three"))
        .lets_go(4, done())
        .deadlock(
            "C",
            &[("A", node("u1/a2"), 1), ("B", node("ユーザー/a3"), 2), ("C", node("u1/a1"), 0)],
        )
        .step("B", "release", done())
        .lets_go(3, done())
        .step("A", "", done())
        .step("A", "release", done())
        .over()
}

/// One release wakes two, in an order that the round decides.
pub(crate) fn readers(place: Place, round: u32) -> Record {
    let title = "A writer keeps readers out, and its release lets all of them in";
    let play = Play::new("tree/readers", title, place)
        .round(round)
        .variant("held", "u1")
        .step("A", "lock u1", done())
        .step("B", "lock shared u1/a1", blocked("B", &["A"], Some(node("u1"))))
        .expects("blocked by A")
        .step("C", "lock shared u1/a2", blocked("C", &["A"], Some(node("u1"))))
        .expects("blocked by A")
        .step("A", "release", done());
    let play = match round % 2 {
        1 => play.lets_go(1, done()).lets_go(2, done()),
        _ => play.lets_go(2, done()).lets_go(1, done()),
    };
    play.step("B", "", done()).expects("done").step("C", "", done()).over()
}

/// A dirty read at one isolation level.
pub(crate) fn dirty_read(engine: Engine, level: &str) -> Record {
    let shows = level == "read uncommitted" && engine != Engine::Postgres;
    let waits = level == "serializable" && engine != Engine::Postgres;
    let select = "select value from numbers where id = 1";
    let play = Play::new(
        "anomaly/dirty-read",
        "Dirty read: what was never committed is seen",
        place(engine),
    )
    .variant("isolation", level)
    .step("A", "begin", done())
    .step("A", "update numbers set value = 101 where id = 1", changed(1))
    .step("B", "begin", done());
    let play = match (shows, waits) {
        (true, _) => play.step("B", select, rows(&[&["101"]])).step("A", "rollback", done()),
        (_, true) => play
            .step("B", select, blocked("B", &["A"], Some(row_of("numbers", "1"))))
            .step("A", "rollback", done())
            .lets_go(3, rows(&[&["30"]])),
        _ => play.step("B", select, rows(&[&["30"]])).step("A", "rollback", done()),
    };
    play.step("B", "commit", done()).anomaly(shows).over()
}

/// A write skew, which PostgreSQL ends by a conflict and InnoDB by a deadlock, when serializable.
pub(crate) fn write_skew(engine: Engine, level: &str) -> Record {
    let shows = level != "serializable";
    let play =
        Play::new("anomaly/write-skew", "Write skew: two doctors go off call", place(engine))
            .variant("isolation", level)
            .step("A", "update doctors set on_call = false where name = 'alice'", changed(1));
    let says = "could not serialize access due to read/write dependencies among transactions";
    let play = match (shows, engine) {
        (true, _) => play.step("B", "commit", done()),
        (_, Engine::Postgres) => {
            play.step("B", "commit", failed(FailureKind::Conflict, "40001", says))
        }
        _ => play.step("B", "update doctors set on_call = false where name = 'bob'", victim()),
    };
    play.anomaly(shows).over()
}

/// Everything in it wants to be something else: markup, control characters, terminal commands.
pub(crate) fn hostile() -> Record {
    let mut record = Play::new(
        "zoo/<b>&amp;",
        "<script>alert('title')</script> & \"quotes\"; # 日本語",
        place(Engine::Mysql),
    )
    .variant("what", "</script><script>alert(1)</script>")
    .step(
        "A",
        "select '<img src=x onerror=alert(2)>' -- ; #35; %%{init}%%",
        rows(&[&["<b>x</b>", "null", "a | b", "]]>"]]),
    )
    .step(
        "B",
        "insert into t values ('\u{1b}[2J\u{0}')\n  -- second line",
        failed(FailureKind::Other, "1064", "You have an <error> in \"SQL\" & more\u{1b}[31m"),
    )
    .expects("changed 1 <or> so")
    .differs("expected <done> & got \"error\"")
    .over();
    record.server = "MySQL </title><script>9</script>".to_owned();
    record
}

/// All of it together.
pub(crate) fn report() -> Report {
    let striped = Place { engine: Engine::Mysql, strategy: Some(Strategy::Striped) };
    let per_id = Place { engine: Engine::Mysql, strategy: Some(Strategy::PerId) };
    let mut records = vec![cycle(Engine::Mysql, "A"), cycle_disagrees(Engine::Mariadb), ring()];
    records.push(readers(striped, 1));
    records.push(readers(per_id, 1));
    records.push(readers(place(Engine::Memory), 1));
    for engine in [Engine::Mysql, Engine::Mariadb] {
        for level in ["read uncommitted", "read committed", "serializable"] {
            records.push(dirty_read(engine, level));
        }
    }
    records.push(hostile());
    records.push(
        Play::new("zoo/stuck", "A step that never ends", place(Engine::Mariadb))
            .step("A", "select get_lock('x', 1)", rows(&[&["1"]]))
            .step("B", "select sleep(3600)", Observation::Stuck)
            .fails("B neither ended nor was seen to wait within 10 s")
            .over(),
    );
    Report {
        records,
        missing: vec![Missing {
            engine: Engine::Postgres,
            why: "PostgreSQL is not installed; try: apt-get install postgresql".to_owned(),
        }],
        took: Duration::from_millis(4321),
    }
}

pub(crate) fn stories() -> Vec<Story> {
    let story = |name: &str, title: &str, why: &str, advice: &str| Story {
        name: name.to_owned(),
        title: title.to_owned(),
        why: why.to_owned(),
        advice: advice.to_owned(),
        seeds: vec!["004 課題1".to_owned()],
        anomaly: None,
        engines: Engine::SERVERS.to_vec(),
        source_text: format!("# {title}\n#\n# {why}\n"),
    };
    let why = "Each has what the other wants, so neither can go on. The server sees the circle and ends one \
               of them.";
    let advice = "Take rows in one order everywhere (by primary key, say). Where that cannot be, retry the \
                  whole transaction on 1213 and 40P01.";
    vec![
        story("deadlock/cycle", CYCLE, why, advice),
        Story {
            engines: vec![Engine::Memory],
            ..story(
                "deadlock/ring",
                "三すくみ: three sessions wait in a ring",
                "A ring is a circle.",
                "",
            )
        },
        Story {
            anomaly: Some("G1a dirty read".to_owned()),
            ..story(
                "anomaly/dirty-read",
                "Dirty read: what was never committed is seen",
                "A value that is rolled back was never there.",
                "Use READ COMMITTED or above.",
            )
        },
    ]
}
