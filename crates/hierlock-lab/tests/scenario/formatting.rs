//! `hierlock lab fmt`: the standard layout, with the same meaning.

use crate::reading::{CYCLE, parse};
use hierlock_lab::Scenario;
use std::sync::Arc;

/// Returns everything that a file means, without line numbers.
pub(crate) fn meaning(scenario: &Arc<Scenario>) -> String {
    let s = scenario;
    let cases: Vec<String> = s
        .cases()
        .into_iter()
        .map(|mut case| {
            case.steps.iter_mut().for_each(|step| step.line = 0);
            let statements = case.setup.iter_mut().chain(&mut case.teardown);
            statements.for_each(|statement| statement.line = 0);
            let parts = (case.backend, case.variant, case.limit, case.buckets);
            format!(
                "{parts:?} {:?} {:?} {:?} {:?}",
                case.setup, case.teardown, case.sessions, case.steps
            )
        })
        .collect();
    format!("{} {} {:?} {:?} {} {cases:#?}", s.title, s.why, s.seeds, s.anomaly, s.advice)
}

const UNFORMATTED: &str = "

# Title
#   why

# about the header

seed:004 課題1,  003    # seeds
engines :mysql,mariadb   postgres # where
for each isolation:read committed|serializable
for each   table,many : a,1|b ,  'x,  y'
sessions [ mysql ,mariadb ] :   autocommit   off


setup:
      create table {table} (id int); # one
        # two
      insert into {table}
        values ({many});
# three
A>begin
B   >   select '  x  '
         , 2     # kept


  where x  =  1
= rows (1,   2)
  =   [ mysql   mariadb ,serializable ]   rows (1,  'a   b')   # here
 =blocked   by A
A> select 1
 =  by isolation|mysql|*    # a table
 : read committed | rows 1 |blocked  by B
 # between
 :*|rows 10000 10000|done
 !   [mysql]  rows 2
B<=done
A>[postgres]    select 1
   |1|  'a | b'   |x
   | 100   | 課題 | y   # wide
anomaly
teardown:
 drop table {table};
advice:
      Do this.


        And that.  # not a comment
";

pub(crate) fn untidy() -> String {
    UNFORMATTED
        .replace("\n= rows", "\n  = [b] rows")
        .replace("\nanomaly\n", "\n")
        .replace("seed:004", "anomaly:   G1a   dirty\nseed:004")
}

#[test]
fn a_file_is_formatted_without_changing_its_meaning() {
    let text = untidy();
    let tidy = Scenario::format("x.lab", &text).unwrap_or_else(|m| panic!("{}", m[0]));
    assert_eq!(meaning(&parse(&text)), meaning(&parse(&tidy)));
    assert_eq!(Scenario::format("x.lab", &tidy).unwrap(), tidy);
    insta::assert_snapshot!(tidy, @r#"
    # Title
    #   why

    # about the header

    anomaly: G1a dirty
    seed: 004 課題1, 003    # seeds
    engines: mysql mariadb postgres   # where
    for each isolation: read committed | serializable
    for each table, many: a, 1 | b, 'x,  y'
    sessions [mysql, mariadb]: autocommit off

    setup:
      create table {table} (id int);     # one
        # two
      insert into {table}
        values ({many});

    # three
    A> begin
    B> select '  x  '
             , 2     # kept

      where x  =  1
     = [b] rows (1, 2)
     = [mysql mariadb, serializable] rows (1, 'a   b')             # here
     = blocked by A
    A> select 1
     = by isolation   | mysql            | *  # a table
     : read committed | rows 1           | blocked by B
     # between
     : *              | rows 10000 10000 | done
     ! [mysql] rows 2
    B< = done
    A> [postgres] select 1
     | 1   | 'a | b' | x
     | 100 | 課題    | y    # wide

    teardown:
      drop table {table};

    advice:
      Do this.


        And that.  # not a comment
    "#);
}

#[test]
fn a_formatted_file_stays_as_it_is() {
    assert_eq!(Scenario::format("x.lab", CYCLE).unwrap(), CYCLE);
}

#[test]
fn an_invalid_file_is_not_formatted() {
    let diagnostics = Scenario::format("x.lab", "A>   select 1\n = doen\n").unwrap_err();
    assert_eq!((diagnostics[0].line, diagnostics[0].column), (2, 4));
}
