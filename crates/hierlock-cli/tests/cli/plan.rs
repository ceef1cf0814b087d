//! `hierlock plan`, completions and man pages, from the outside.

use crate::support::{code, hierlock, stdout};
use serde_json::json;

#[test]
fn the_slots_as_json() {
    let output = hierlock(&["plan", "--json", "u1/a1/r1"]).output().unwrap();
    assert_eq!(code(&output), Some(0));
    let slots: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        slots,
        json!([
            {"level": 0, "bucket": 2_652_417, "mode": "shared", "target": "u1"},
            {"level": 1, "bucket": 4_854_276, "mode": "shared", "target": "u1/a1"},
            {"level": 2, "bucket": 1_358_050, "mode": "exclusive", "target": "u1/a1/r1"},
        ])
    );
}

#[test]
fn a_shared_lock_of_an_inner_node_is_rounded_up() {
    let output = hierlock(&["plan", "--json", "--mode", "shared", "u1/a1"]).output().unwrap();
    let slots: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(slots[1]["mode"], "exclusive");
}

#[test]
fn the_slots_and_the_sql_as_text() {
    let output = hierlock(&["plan", "u1/a1/r2", "u1/a1/r1", "ユーザー"]).output().unwrap();
    insta::assert_snapshot!(stdout(&output));
}

#[test]
fn levels_and_buckets_of_ones_own() {
    let arguments =
        ["plan", "--json", "--levels", "org,team,project,doc", "--buckets", "7", "o/t/p/d"];
    let output = hierlock(&arguments).output().unwrap();
    let slots: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(slots.as_array().unwrap().len(), 4);
    assert!(slots.as_array().unwrap().iter().all(|slot| slot["bucket"].as_u64().unwrap() < 7));
}

#[test]
fn completions_and_man_pages_are_made() {
    for shell in ["bash", "zsh", "fish"] {
        let output = hierlock(&["completions", shell]).output().unwrap();
        assert!(code(&output) == Some(0) && stdout(&output).contains("within"), "{shell}");
        assert!(stdout(&output).contains("force-release"), "{shell}");
    }
    let page = stdout(&hierlock(&["man"]).output().unwrap());
    assert!(page.contains(".TH hierlock 1"), "{page}");
    let page = stdout(&hierlock(&["man", "run"]).output().unwrap());
    assert!(page.contains("hierlock\\-run") && page.contains("\\-\\-within"), "{page}");
    let page = stdout(&hierlock(&["man", "queue", "work"]).output().unwrap());
    assert!(page.contains("hierlock\\-queue\\-work") && page.contains("until\\-empty"), "{page}");
}

#[test]
fn help_has_examples_and_exit_codes() {
    let help = stdout(&hierlock(&["run", "--help"]).output().unwrap());
    assert!(help.contains("Examples:") && help.contains("hierlock run --try"), "{help}");
    for (part, example) in [("lease", "lease acquire u1/a1"), ("queue", "queue work mail")] {
        let help = stdout(&hierlock(&[part, "--help"]).output().unwrap());
        assert!(help.contains("Examples:") && help.contains(example), "{help}");
    }
    let help = stdout(&hierlock(&["--help"]).output().unwrap());
    assert!(help.contains("75") && help.contains("76"), "{help}");
}

/// A reader that has seen enough is no mistake, and no panic.
#[test]
fn a_closed_pipe_is_no_mistake() {
    let script = "\"$1\" completions bash | head -c 1; exit ${PIPESTATUS[0]}";
    let status = std::process::Command::new("bash")
        .args(["-c", script, "bash", env!("CARGO_BIN_EXE_hierlock")])
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(0));
    assert!(status.stderr.is_empty());
}
