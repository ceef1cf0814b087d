//! `--bless`: the observations are written into the file, and nothing else changes.

use crate::formatting::meaning;
use crate::reading::parse;
use hierlock_lab::parts::{
    Answer, Deadlock, Failure, FailureKind, LockKind, LockTarget, Observation, SessionName,
    SessionSelector, SessionWait, StepRecord, WaitEdge,
};
use hierlock_lab::{Case, Engine, Record};
use std::time::Duration;

fn name(text: &str) -> SessionName {
    SessionName::new(text).unwrap()
}

fn done() -> Observation {
    Observation::Done(Answer::default())
}

fn rows(rows: &[&[Option<&str>]]) -> Observation {
    let rows = rows.iter().map(|row| row.iter().map(|cell| cell.map(str::to_owned)).collect());
    Observation::Done(Answer { rows: Some(rows.collect()), changed: 0, is_matched: false })
}

fn blocked(by: &[&str]) -> Observation {
    let target = LockTarget::new(LockKind::Gap, "demo", "X");
    let blockers = by.iter().map(|by| name(by)).collect();
    Observation::Blocked(SessionWait {
        waiter: name("B"),
        blockers,
        has_outside_blocker: false,
        target: Some(target),
    })
}

fn failed(kind: FailureKind, code: &str, message: &str) -> Observation {
    let (code, message) = (code.to_owned(), message.to_owned());
    Observation::Failed(Failure { kind, code, message, detail: None })
}

/// Returns the run of a case in which the observations of some lines differ from the file.
fn run(case: &Case, different: impl Fn(usize) -> Option<Observation>) -> Record {
    let steps = case
        .steps
        .iter()
        .map(|step| {
            let seen = different(step.line);
            let session = match &step.session {
                SessionSelector::Session(name) => name.clone(),
                _ => name("A"),
            };
            StepRecord {
                difference: seen.as_ref().map(|_| "it differs".to_owned()),
                seen: seen.unwrap_or_else(done),
                ..StepRecord::new(step.line, session, String::new(), Duration::ZERO)
            }
        })
        .collect();
    let variant = case.variant.clone();
    Record { variant, steps, ..Record::new(&case.scenario, case.backend) }
}

/// Runs every case with the observations of `different`, and blesses. The result must be a valid scenario.
fn blessed(text: &str, different: impl Fn(&Case, usize) -> Option<Observation>) -> String {
    let scenario = parse(text);
    let cases = scenario.cases();
    let records: Vec<Record> =
        cases.iter().map(|case| run(case, |line| different(case, line))).collect();
    let blessed = scenario.bless(&records);
    parse(&blessed);
    blessed
}

fn has_value(case: &Case, name: &str, value: &str) -> bool {
    case.variant.iter().any(|(n, v)| n == name && v == value)
}

#[test]
fn a_file_that_agrees_does_not_change() {
    let text = "A>   begin   # untidy\nB> select 1\n  =   rows 1\n\n\n";
    assert_eq!(blessed(text, |_, _| None), text);
    // Records of other scenarios are ignored.
    let scenario = parse(text);
    let mut other = run(&scenario.cases()[0], |_| Some(blocked(&["A"])));
    other.scenario = "else".to_owned();
    assert_eq!(scenario.bless(&[other]), text);
}

#[test]
fn equal_observations_of_all_engines_are_one_line() {
    let text = "\
# Title
anomaly: G0
A> begin          # first
B> select 1,
     2            # second
A> select 3
 = rows 3         # third
A> select 4
 | 4              # fourth
C> select 5
 = [mysql] done   # fifth
 = refused        # sixth
 ! done           # a sign
 | 1
B< = done         # seventh
B<
A> select 6
 = done, in any order
 | 6
A> insert 7
 = changed 7
";
    let all = |_: &Case, line: usize| match line {
        4 => Some(rows(&[&[Some("1"), None], &[Some("it's"), Some("a b")]])),
        6 => Some(rows(&[&[Some("30")], &[Some("40")]])),
        8 => Some(rows(&[&[Some("null")], &[Some("two\nlines")]])),
        10 => Some(blocked(&["A", "B"])),
        15 => Some(failed(FailureKind::TimedOut, "1205", "")),
        16 => Some(blocked(&["A"])),
        17 => Some(rows(&[&[Some("7")], &[Some("8")]])),
        20 => Some(Observation::Done(Answer { rows: None, changed: 2, is_matched: false })),
        _ => None,
    };
    insta::assert_snapshot!(blessed(text, all), @r#"
    # Title
    anomaly: G0
    A> begin          # first
    B> select 1,
         2            # second
     | 1       | null
     | 'it''s' | a b
    A> select 3
     = rows 30 40     # third
    A> select 4
     | 'null'         # fourth
     | *
    C> select 5
     = blocked by A and B  # fifth
     # sixth
     ! done           # a sign
     | 1
    B< = timed out    # seventh
    B< = blocked by A
    A> select 6
     = done, in any order
     | 7
     | 8
    A> insert 7
     = changed 2
    "#);
}

#[test]
fn observations_that_differ_by_engine_get_guards() {
    let text = "\
A> begin
B> select 1
C> select 2
 = blocked by A      # really
B> insert into t values (1)
";
    insta::assert_snapshot!(blessed(text, |case, line| match (line, case.backend.engine) {
        (2, Engine::Postgres) => Some(rows(&[&[Some("1")]])),
        (3, Engine::Postgres) => Some(done()),
        (3, Engine::Mysql) => Some(blocked(&["B"])),
        (5, Engine::Postgres) => Some(failed(FailureKind::Other, "23505", "duplicate")),
        (5, _) => Some(failed(FailureKind::Other, "1062", "duplicate")),
        _ => None,
    }), @r#"
    A> begin
    B> select 1
     = [postgres] done
     | 1
     = done
    C> select 2
     = [mysql] blocked by B  # really
     = [mariadb] blocked by A
     = done
    B> insert into t values (1)
     = [postgres] error 23505
     = error 1062
    "#);
}

#[test]
fn an_existing_line_is_changed_in_place() {
    let text = "\
A> begin
B> select 1
 = [mysql mariadb] blocked by A   # InnoDB
 = [postgres] done                # PostgreSQL
 # behind
B< = [mysql] timed out            # inline
";
    insta::assert_snapshot!(blessed(text, |case, line| match (line, case.backend.engine) {
        (2, Engine::Mysql | Engine::Mariadb) => Some(failed(FailureKind::Deadlock, "1213", "")),
        (6, Engine::Mysql) => Some(failed(FailureKind::Conflict, "1020", "")),
        (6, _) => Some(failed(FailureKind::Other, "", "no such\nthing")),
        _ => None,
    }), @r#"
    A> begin
    B> select 1
     = [mysql mariadb] deadlock       # InnoDB
     = [postgres] done                # PostgreSQL
     # behind
    B< = [mysql] conflict             # inline
     = error 'no such'
    "#);
}

#[test]
fn expectations_of_cases_that_were_not_run_stay() {
    let scenario = parse("A> select 1\n = [mysql] rows 1\n = [mariadb] rows 2\n = rows 3\n");
    let cases = scenario.cases();
    let mysql = run(&cases[0], |_| Some(rows(&[&[Some("5")]])));
    insta::assert_snapshot!(scenario.bless(std::slice::from_ref(&mysql)), @r#"
    A> select 1
     = [mysql] rows 5
     = [mariadb] rows 2
     = rows 3
    "#);
    let mut postgres = mysql.clone();
    postgres.backend = cases[2].backend;
    let scenario = parse("A> select 1\n = rows 1\n");
    insta::assert_snapshot!(scenario.bless(&[postgres]), @r#"
    A> select 1
     = [postgres] done
     | 5
     = done
     | 1
    "#);
    // These observations cannot be written.
    for nothing in [Observation::Stuck, failed(FailureKind::Cancelled, "1317", "")] {
        let stuck = run(&scenario.cases()[0], |_| Some(nothing.clone()));
        assert_eq!(scenario.bless(&[stuck]), scenario.text);
    }
}

#[test]
fn observations_that_differ_by_axis_are_a_table() {
    let text = "\
for each isolation: read committed | serializable
A> select 1
B> select 2
 = rows 2             # two
C> select 3
";
    insta::assert_snapshot!(blessed(text, |case, line| match line {
        2 if has_value(case, "isolation", "serializable") => Some(blocked(&["B"])),
        3 if case.backend.engine == Engine::Postgres && has_value(case, "isolation", "serializable") => {
            Some(failed(FailureKind::Conflict, "40001", ""))
        }
        3 => Some(rows(&[&[Some("2"), Some("x y")], &[Some("3"), None]])),
        5 if case.backend.engine == Engine::Postgres => Some(failed(FailureKind::Refused, "55P03", "")),
        _ => None,
    }), @r#"
    for each isolation: read committed | serializable
    A> select 1
     = by isolation   | *
     : read committed | done
     : serializable   | blocked by B
    B> select 2
     = by isolation   | mysql                     | mariadb                   | postgres  # two
     : read committed | rows (2, 'x y') (3, null) | rows (2, 'x y') (3, null) | rows (2, 'x y') (3, null)
     : serializable   | rows (2, 'x y') (3, null) | rows (2, 'x y') (3, null) | conflict
    C> select 3
     = [postgres] refused
     = done
    "#);
}

#[test]
fn the_cells_of_a_table_are_updated() {
    let text = "\
for each isolation: read committed | serializable
for each n: 1 | 2
A> begin
B> select {n}
 = by isolation   | mysql    | *       # head
 : read committed | rows {n} | done    # first
 : serializable   | rows {n} | done    # second
";
    insta::assert_snapshot!(blessed(text, |case, line| {
        let is_changed = has_value(case, "isolation", "serializable") && case.backend.engine != Engine::Mysql;
        (line == 4 && is_changed).then(|| blocked(&["A"]))
    }), @r#"
    for each isolation: read committed | serializable
    for each n: 1 | 2
    A> begin
    B> select {n}
     = by isolation   | mysql    | *       # head
     : read committed | rows {n} | done    # first
     : serializable   | rows {n} | blocked by A  # second
    "#);
    // Two cases of one cell differ: the table is split.
    insta::assert_snapshot!(blessed(text, |case, line| {
        let is_changed = has_value(case, "isolation", "serializable") && case.backend.engine == Engine::Postgres;
        (line == 4 && is_changed).then(|| blocked(&["A"]))
    }), @r#"
    for each isolation: read committed | serializable
    for each n: 1 | 2
    A> begin
    B> select {n}
     = by isolation   | mysql    | mariadb | postgres  # head
     : read committed | rows {n} | done    | done  # first
     : serializable   | rows {n} | done    | blocked by A  # second
    "#);
}

#[test]
fn observations_may_differ_by_several_axes_and_strategies() {
    let text = "\
for each held, wanted: u1, u2 | u1/a1, u1 | u1/a1, u2
A> lock {held}
B> lock {wanted}
";
    insta::assert_snapshot!(blessed(text, |case, line| {
        (line == 3 && has_value(case, "wanted", "u1")).then(|| blocked(&["A"]))
    }), @r#"
    for each held, wanted: u1, u2 | u1/a1, u1 | u1/a1, u2
    A> lock {held}
    B> lock {wanted}
     = by wanted | *
     : u2        | done
     : u1        | blocked by A
    "#);
    let text = "A> lock u1\nB> lock u2\n";
    insta::assert_snapshot!(blessed(text, |case, line| {
        (line == 2 && case.backend.to_string().ends_with("striped")).then(|| blocked(&["A"]))
    }), @r#"
    A> lock u1
    B> lock u2
     = [striped] blocked by A
     = done
    "#);
    insta::assert_snapshot!(blessed(text, |case, line| {
        (line == 2 && case.backend.to_string() == "mysql striped").then(|| blocked(&["A"]))
    }), @r#"
    A> lock u1
    B> lock u2
     = [mysql, striped] blocked by A
     = done
    "#);
}

#[test]
fn a_deadlock_names_the_sessions_of_the_cycle() {
    let text = "A> begin\nB> begin\n = blocked by A on gap of demo\n";
    let scenario = parse(text);
    let mut record = run(&scenario.cases()[0], |line| {
        (line == 2).then(|| failed(FailureKind::Deadlock, "1213", ""))
    });
    let records: Vec<Record> = scenario
        .cases()
        .into_iter()
        .map(|case| {
            record.backend = case.backend;
            record.deadlocks = vec![Deadlock {
                step: 1,
                victim: name("B"),
                cycle: [("A", "B"), ("B", "A")]
                    .map(|(waiter, holder)| WaitEdge::new(name(waiter), name(holder), None))
                    .into(),
            }];
            record.clone()
        })
        .collect();
    insta::assert_snapshot!(scenario.bless(&records), @r#"
    A> begin
    B> begin
     = deadlock, A or B
    "#);
    // The object is written only if the file contains one.
    insta::assert_snapshot!(blessed(text, |_, line| (line == 2).then(|| blocked(&["A"]))), @r#"
    A> begin
    B> begin
     = blocked by A on gap of demo
    "#);
}

#[test]
fn rounds_that_differ_are_alternatives() {
    let scenario = parse("engines: mysql\nA> begin\nB> select 1\n = blocked by A\n");
    let case = &scenario.cases()[0];
    let records = [
        run(case, |_| None),
        run(case, |line| (line == 3).then(|| rows(&[&[Some("1")]]))),
        run(case, |line| (line == 3).then(|| failed(FailureKind::Deadlock, "", ""))),
    ];
    let text = scenario.bless(&records);
    insta::assert_snapshot!(text, @r#"
    engines: mysql
    A> begin
    B> select 1
     = blocked by A or done or deadlock
     | 1
    "#);
    assert_ne!(meaning(&parse(&text)), meaning(&scenario));
}
