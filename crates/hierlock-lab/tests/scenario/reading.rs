//! What a file means: its parts, and the cases that come of it.

use hierlock_lab::scenario::{Case, CaseDeed, Scenario, SettingValue};
use std::sync::Arc;

pub(crate) const CYCLE: &str = "\
# Cycle deadlock: two transactions take the same two rows in opposite order
#
# Each has what the other wants, so neither can go on. The server sees the circle and ends one of them.
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
        Ok(scenario) => Arc::new(scenario),
        Err(mistakes) => {
            let all: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            panic!("{}", all.join("\n"))
        }
    }
}

fn cases(text: &str) -> Vec<Case> {
    parse(text).cases().unwrap()
}

/// A case as one reads it.
pub(crate) fn show(case: &Case) -> String {
    let variant: Vec<String> = case.variant.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let mut text = format!("{} [{}]\n", case.place, variant.join(" "));
    for statement in &case.setup {
        text += &format!("setup {statement:?}\n");
    }
    for (name, values) in case.sessions.iter().filter(|(_, values)| !values.is_empty()) {
        text += &format!("session {name} {values:?}\n");
    }
    for step in &case.steps {
        let deed = match &step.deed {
            CaseDeed::Sql(sql) => format!("sql {sql:?}"),
            CaseDeed::Lock(deed, _) => format!("{deed:?}"),
            CaseDeed::Look => "look".to_owned(),
        };
        let expected = step.expected.as_ref().map(|e| format!(" = {e}")).unwrap_or_default();
        let signs: String = step.signs.iter().map(|sign| format!(" ! {sign}")).collect();
        text += &format!("{} {}> {deed}{expected}{signs}\n", step.line, step.who);
    }
    for statement in &case.teardown {
        text += &format!("teardown {statement:?}\n");
    }
    text
}

#[test]
fn the_example_of_the_documents() {
    let scenario = parse(CYCLE);
    assert_eq!(
        scenario.title,
        "Cycle deadlock: two transactions take the same two rows in opposite order"
    );
    assert!(scenario.why.starts_with("Each has what the other wants"));
    assert_eq!(scenario.seeds, ["004 課題1"]);
    assert!(scenario.advice.contains("say). Where that cannot be, retry the whole\ntransaction"));
    let cases = scenario.cases().unwrap();
    let places: Vec<String> = cases.iter().map(|case| case.place.to_string()).collect();
    assert_eq!(places, ["mysql", "mariadb", "postgres"]);
    insta::assert_snapshot!(show(&cases[0]), @r#""#);
}
