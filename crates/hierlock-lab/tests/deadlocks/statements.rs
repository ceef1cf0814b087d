//! Results and failures of statements on each server: transcripts that agree on every server.

use super::waits::{NUMBERS, agree, run_everywhere};
use hierlock_lab::Verdict;
use hierlock_lab::parts::Observation;

/// The failure this prevents: MariaDB has one error number for a timeout and for NOWAIT, and `EXECUTE s` does not show
/// which it is, so it was reported as "timed out".
#[tokio::test(flavor = "multi_thread")]
async fn nowait_in_a_prepared_statement_is_a_refusal() {
    let lock_row = "select * from numbers where id = 1 for update";
    let records = agree(&format!(
        "{NUMBERS}\
A> begin
A> {lock_row}
B> [postgres] prepare s as {lock_row} nowait
B> [mysql mariadb] prepare s from '{lock_row} nowait'
B> execute s
 = refused
B> [mysql mariadb] set @text = '{lock_row} nowait'
B> [mysql mariadb] PREPARE `s2` FROM @text
B> [mysql mariadb] set @text = 'select 1'
B> [mysql mariadb] EXECUTE `s2`
 = refused
B> [mariadb] execute immediate '{lock_row} nowait'
 = refused
B> [mariadb] execute immediate concat('{lock_row}', ' nowait')
 = refused
B> [postgres] prepare n as select id from numbers where id = 77
B> [mysql mariadb] prepare n from 'select id from numbers where id = 77'
B> execute n
"
    ))
    .await;
    for record in records {
        // The prepared statement also distinguishes an empty result from none.
        let Observation::Done(answer) = &record.steps.last().unwrap().seen else { panic!() };
        assert_eq!(answer.rows, Some(Vec::new()), "{}", record.backend);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setup_that_fails_names_its_statement_and_line() {
    for (text, words) in [
        ("setup:\n  create table t (id int);\n  insert into nowhere values (1);\n", "into nowhere"),
        ("engines: postgres\nsetup:\n  copy numbers from stdin;\n", "INSERT"),
    ] {
        for record in run_everywhere(&format!("{text}A> select 1\n")).await {
            let Verdict::Failed { why } = &record.verdict else { panic!("{record:?}") };
            assert!(why.starts_with("line 3: ") && why.contains("setup"), "{why}");
            // PostgreSQL also reports a line of its own source code.
            assert!(why.contains(words) && !why.contains(" at line "), "{why}");
        }
    }
}
