//! The meaning of a file: its parts and its cases.

use hierlock_lab::parts::{Action, SettingValue};
use hierlock_lab::{Case, Scenario};
use std::sync::Arc;

pub(crate) const CYCLE: &str = "\
# Cycle deadlock: two transactions take the same two rows in opposite order
#
# Each has what the other wants, so neither can go on. The server sees the cycle and ends one of them.
seed: 004 課題1
engines: mysql mariadb postgres

setup:
  create table numbers (id int primary key, value int not null);
  insert into numbers values (1, 30), (2, 10);

A> begin
B> begin
A> select value from numbers where id = 1 for update
 | 30
B> select value from numbers where id = 2 for update
 | 10
A> select value from numbers where id = 2 for update
 = blocked by B
B> select value from numbers where id = 1 for update
 = deadlock, A or B                      # which one is the engine's choice
victim> rollback
survivor> commit
survivor< = done

advice:
  Take rows in one order everywhere (by primary key, say). Where that cannot be, retry the whole
  transaction on 1213 and 40P01.
";

pub(crate) fn parse(text: &str) -> Arc<Scenario> {
    match Scenario::parse("topic/name", "name.lab", text) {
        Ok(scenario) => scenario,
        Err(found) => {
            let all: Vec<String> = found.iter().map(ToString::to_string).collect();
            panic!("{}", all.join("\n"))
        }
    }
}

fn cases(text: &str) -> Vec<Case> {
    parse(text).cases()
}

/// Returns a case as text.
pub(crate) fn show(case: &Case) -> String {
    let variant: Vec<String> = case.variant.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let mut text = format!("{} [{}]\n", case.backend, variant.join(" "));
    for statement in &case.setup {
        text += &format!("setup {:?}\n", statement.sql);
    }
    for (name, values) in case.sessions.iter().filter(|(_, values)| !values.is_empty()) {
        text += &format!("session {name} {values:?}\n");
    }
    for step in &case.steps {
        let action = match &step.action {
            Action::Sql(sql) => format!("sql {sql:?}"),
            Action::Lock(action, _) => format!("{action:?}"),
            Action::Look => "look".to_owned(),
        };
        let expected = step.expected.as_ref().map(|e| format!(" = {e}")).unwrap_or_default();
        let signs: String = step.anomaly_outcomes.iter().map(|sign| format!(" ! {sign}")).collect();
        text += &format!("{} {}> {action}{expected}{signs}\n", step.line, step.session);
    }
    for statement in &case.teardown {
        text += &format!("teardown {:?}\n", statement.sql);
    }
    text
}

#[test]
fn the_example_of_the_documentation_is_parsed() {
    let scenario = parse(CYCLE);
    assert_eq!(
        scenario.title,
        "Cycle deadlock: two transactions take the same two rows in opposite order"
    );
    assert!(scenario.why.starts_with("Each has what the other wants"));
    assert_eq!(scenario.seeds, ["004 課題1"]);
    assert!(scenario.advice.contains("say). Where that cannot be, retry the whole\ntransaction"));
    let cases = scenario.cases();
    let backends: Vec<String> = cases.iter().map(|case| case.backend.to_string()).collect();
    assert_eq!(backends, ["mysql", "mariadb", "postgres"]);
    insta::assert_snapshot!(show(&cases[0]), @r#"
    mysql []
    setup "create table numbers (id int primary key, value int not null)"
    setup "insert into numbers values (1, 30), (2, 10)"
    11 A> sql "begin"
    12 B> sql "begin"
    13 A> sql "select value from numbers where id = 1 for update" = rows 30
    15 B> sql "select value from numbers where id = 2 for update" = rows 10
    17 A> sql "select value from numbers where id = 2 for update" = blocked by B
    19 B> sql "select value from numbers where id = 1 for update" = deadlock, A or B
    21 victim> sql "rollback"
    22 survivor> sql "commit"
    23 survivor> look = done
    "#);
}

#[test]
fn brackets_axes_and_settings_are_resolved() {
    let text = "\
engines: mysql postgres
anomaly: G1a
for each isolation: read committed | Serializable
for each table, many: a, 1 | b, 2
session B: autocommit off, set x = '{table}'
sessions: lock wait timeout 1s
sessions [postgres]: set y = 1
setup:
  create table {table} (id int);   # a comment
  -- it's only a comment; really
  insert into {table} values ('x;y'),
    (2);
setup [postgres]:
  create function f() returns int as $$ begin; return 1; # no comment
  end $$ language plpgsql;
A> select *
     from {table}
    where '{\"a\": 1}' = '{other}';
 = by isolation   | mysql        | *
 : read committed | rows {many}  | blocked by B on gap of {table}
 : *              | no rows      | done or deadlock
 ! [mysql, read committed] rows 9
 ! conflict
B> [postgres, serializable, a] select 2
B> select 3
 = [mysql] rows (1, null) (*, 'it''s')
 = [b] done, in any order
 | 1 | 2
 | 3 | 4
 = changed 1
B<
 | 'null' | ' x '
teardown:
  drop table {table};
";
    let cases = cases(text);
    let shown: Vec<String> = cases.iter().map(show).collect();
    assert_eq!(shown.len(), 8);
    insta::assert_snapshot!(shown[0], @r#"
    mysql [isolation=read committed table=a many=1]
    setup "create table a (id int)"
    setup "-- it's only a comment; really\ninsert into a values ('x;y'),\n  (2)"
    session A [Isolation("read committed"), LockWaitTimeout(1s)]
    session B [Isolation("read committed"), LockWaitTimeout(1s), Autocommit(false), Sql("set x = 'a'")]
    16 A> sql "select *\n from a\nwhere '{\"a\": 1}' = '{other}'" = rows 1 ! rows 9 ! conflict
    25 B> sql "select 3" = rows (1, null) (*, 'it''s')
    31 B> look = rows ('null', ' x ')
    teardown "drop table a"
    "#);
    insta::assert_snapshot!(shown[5], @r#"
    postgres [isolation=serializable table=a many=1]
    setup "create table a (id int)"
    setup "-- it's only a comment; really\ninsert into a values ('x;y'),\n  (2)"
    setup "create function f() returns int as $$ begin; return 1; # no comment\nend $$ language plpgsql"
    session A [Isolation("serializable"), LockWaitTimeout(1s), Sql("set y = 1")]
    session B [Isolation("serializable"), LockWaitTimeout(1s), Sql("set y = 1"), Autocommit(false), Sql("set x = 'a'")]
    16 A> sql "select *\n from a\nwhere '{\"a\": 1}' = '{other}'" = done or deadlock ! conflict
    24 B> sql "select 2"
    25 B> sql "select 3" = changed 1
    31 B> look = rows ('null', ' x ')
    teardown "drop table a"
    "#);
    insta::assert_snapshot!(shown[7], @r#"
    postgres [isolation=serializable table=b many=2]
    setup "create table b (id int)"
    setup "-- it's only a comment; really\ninsert into b values ('x;y'),\n  (2)"
    setup "create function f() returns int as $$ begin; return 1; # no comment\nend $$ language plpgsql"
    session A [Isolation("serializable"), LockWaitTimeout(1s), Sql("set y = 1")]
    session B [Isolation("serializable"), LockWaitTimeout(1s), Sql("set y = 1"), Autocommit(false), Sql("set x = 'b'")]
    16 A> sql "select *\n from b\nwhere '{\"a\": 1}' = '{other}'" = done or deadlock ! conflict
    25 B> sql "select 3" = rows (1, 2) (3, 4), in any order
    31 B> look = rows ('null', ' x ')
    teardown "drop table b"
    "#);
    assert_eq!(cases[0].sessions.len(), 2);
}

#[test]
fn a_scenario_runs_on_the_engines_and_strategies_that_fit() {
    for (header, step, backends) in [
        ("", "select 1", "mysql, mariadb, postgres"),
        ("engines: file", "lock u1", "file"),
        ("engines: mysql postgres", "select 1", "mysql, postgres"),
        (
            "",
            "lock u1",
            "mysql striped, mysql per-id, mysql on-demand, mariadb striped, mariadb per-id, \
             mariadb on-demand, postgres striped, postgres per-id, postgres on-demand, \
             postgres advisory, memory, file",
        ),
        ("strategies: advisory", "lock u1", "postgres advisory, memory, file"),
        ("strategies: striped, per-id\nengines: mysql", "lock u1", "mysql striped, mysql per-id"),
        ("engines: mysql memory", "[memory] lock u1", "mysql, memory"),
    ] {
        let cases = cases(&format!("{header}\nA> {step}\n"));
        let shown: Vec<String> = cases.iter().map(|case| case.backend.to_string()).collect();
        assert_eq!(shown.join(", "), backends, "{header} {step}");
    }
}

#[test]
fn expectations_are_written_as_they_are_parsed() {
    for text in [
        "done",
        "rows 30",
        "rows 30 10",
        "rows (1, 30) (2, 10)",
        "rows (null, *) ('null', '*')",
        "rows 'a b' 'it''s' '' 'or' '(x)', in any order",
        "rows 1, changed 2, in any order",
        "no rows",
        "changed 3",
        "blocked",
        "blocked by A",
        "blocked by A and B",
        "blocked by victim and survivor on row",
        "blocked on gap of demo",
        "blocked by B on node u1/a1",
        "blocked on table 'my table'",
        "deadlock",
        "deadlock, A or B",
        "deadlock, A or B or done or timed out",
        "refused or conflict or error",
        "error 1062 or error 40P01 'it''s'",
        "error 'x' or done",
    ] {
        let file = format!(
            "A> select 1\nB> select 1\nC> select 1\n = deadlock, A or B\nC> select 1\n = {text}\n"
        );
        let cases = cases(&file);
        let expected = cases[0].steps[3].expected.as_ref().unwrap();
        assert_eq!(expected.to_string(), text);
    }
}

#[test]
fn comments_blanks_and_line_ends_do_not_matter() {
    let plain = "A> select 1\n   , 2\n = rows (1, 2)\nB> select a#b\n";
    let windows = "\u{feff}A> select 1   \r\n\r\n# why\r\n \t , 2 # two\r\n # x\r\n\t= rows (1, 2) #\r\nB>   select a#b ;\r\n";
    let steps = |text: &str| -> Vec<_> {
        cases(text)[0]
            .steps
            .iter()
            .map(|step| (step.action.clone(), step.expected.clone()))
            .collect()
    };
    assert_eq!(steps(plain), steps(windows));
    assert_eq!(steps(plain)[0].0, Action::Sql("select 1\n, 2".to_owned()));
}

#[test]
fn a_file_without_an_opening_comment_has_its_name_as_the_title() {
    let scenario = parse("A> select 1\n# no title\n");
    assert_eq!((scenario.title.as_str(), scenario.why.as_str()), ("topic/name", ""));
    let scenario = parse("\n# Title\n#\n# First.\n#  - second\n#\n\n# else\nA> select 1\n");
    assert_eq!((scenario.title.as_str(), scenario.why.as_str()), ("Title", "First.\n - second"));
}

#[test]
fn settings_of_all_sessions_come_before_those_of_one() {
    let cases = cases(
        "session A: isolation serializable\nsessions: isolation read committed\nA> select 1\nB> select 1\n",
    );
    let level = |level: &str| SettingValue::Isolation(level.to_owned());
    let settings: Vec<_> = cases[0].sessions.values().collect();
    assert_eq!(*settings[0], [level("read committed"), level("serializable")]);
    assert_eq!(*settings[1], [level("read committed")]);
}

#[test]
fn lock_steps_and_sql_are_distinguished() {
    for (statement, is_lock) in [
        ("lock u1", true),
        ("lock\n  u1", true),
        ("upgrade", true),
        ("release", true),
        ("try shared u1/a1", true),
        ("lock tables t write", false),
        ("lock TABLE t in share mode", false),
        ("LOCK numbers in share mode", false),
        ("release savepoint s", false),
        // The failure this prevents: this was parsed as a lock of the nodes `instance`, `for` and `backup`.
        ("lock instance for backup", false),
        ("lock instance\n  for backup;", false),
        ("lock instance u1", true),
        ("lock numbers in share mode", false),
        ("lock only numbers in access exclusive mode nowait", false),
        ("lock shared mode", true),
        ("RELEASE s", false),
        ("select 1", false),
    ] {
        let cases = cases(&format!("A> {statement}\n"));
        let action = &cases[0].steps[0].action;
        assert_eq!(matches!(action, Action::Lock(..)), is_lock, "{statement}");
    }
}

#[test]
fn lock_steps_and_settings_are_parsed() {
    let cases = cases(
        "\
engines: mysql
limit: 24h
sessions: isolation READ  committed, autocommit off, lock wait timeout 1s, set sql_mode = 'A,B'
A> lock u1
A> lock shared within 1.5m u1/a1 u2
A> try 'share' u1
A> extend update u1
A> lock within 0s u1
A> upgrade
A> release
",
    );
    assert_eq!(cases[0].limit.as_secs(), 24 * 60 * 60);
    insta::assert_snapshot!(show(&cases[0]), @r#"
    mysql striped []
    session A [Isolation("read committed"), Autocommit(false), LockWaitTimeout(1s), Sql("set sql_mode = 'A,B'")]
    4 A> Lock(LockRequest { mode: Exclusive, targets: [Target(u1)], within: None })
    5 A> Lock(LockRequest { mode: Shared, targets: [Target(u1/a1), Target(u2)], within: Some(90s) })
    6 A> Try(LockRequest { mode: Exclusive, targets: [Target(share), Target(u1)], within: None })
    7 A> Extend(LockRequest { mode: Update, targets: [Target(u1)], within: None })
    8 A> Lock(LockRequest { mode: Exclusive, targets: [Target(u1)], within: Some(0ns) })
    9 A> Upgrade
    10 A> Release
    "#);
}
