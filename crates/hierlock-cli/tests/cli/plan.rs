//! Tests of `hierlock plan`, completions and man pages, which run the command.

use crate::support::{Holder, TestDirectory, code, hierlock, stderr, stdout};
use hierlock::{Buckets, Target};
use hierlock_sandbox::{Engine, Sandbox};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::collections::BTreeSet;
use std::fs;
use tokio::runtime::Runtime;

#[test]
fn slots_are_printed_as_json() {
    let output = hierlock(&["plan", "--json", "u1/a1/r1"]).output().unwrap();
    assert_eq!(code(&output), Some(0));
    let slots: Value = serde_json::from_str(&stdout(&output)).unwrap();
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
    let slots: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(slots[1]["mode"], "exclusive");
}

#[test]
fn slots_and_sql_are_printed_as_text() {
    let output = hierlock(&["plan", "u1/a1/r2", "u1/a1/r1", "ユーザー"]).output().unwrap();
    insta::assert_snapshot!(stdout(&output));
}

#[test]
fn custom_levels_and_buckets_are_accepted() {
    let arguments =
        ["plan", "--json", "--levels", "org,team,project,doc", "--buckets", "7", "o/t/p/d"];
    let output = hierlock(&arguments).output().unwrap();
    let slots: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(slots.as_array().unwrap().len(), 4);
    assert!(slots.as_array().unwrap().iter().all(|slot| slot["bucket"].as_u64().unwrap() < 7));
}

/// Returns the slots of `hierlock plan --json --url … u1/a1/r1`.
fn plan_at(url: &str) -> Vec<Value> {
    let output = hierlock(&["plan", "--json", "--url", url, "u1/a1/r1"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    let slots: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(slots[2]["target"], "u1/a1/r1");
    slots.as_array().unwrap().clone()
}

fn numbers(slots: &[Value], name: &str) -> BTreeSet<i64> {
    slots.iter().map(|slot| slot[name].as_i64().unwrap_or_else(|| panic!("{slot}"))).collect()
}

const HOLD: [&str; 5] = ["u1/a1/r1", "--", "sh", "-c", "echo $$; exec cat"];

/// The failure this prevents: the URL was ignored, and buckets were shown instead of bytes.
#[test]
fn a_plan_for_a_file_shows_its_bytes() {
    let place = TestDirectory::new();
    let url = format!("file:{}", place.lock_file().display());
    let slots = plan_at(&url);
    assert!(!place.lock_file().exists(), "`plan` must not create the file");
    let mut by_variable = hierlock(&["plan", "--json", "u1/a1/r1"]);
    let by_variable = stdout(&by_variable.env("HIERLOCK_URL", &url).output().unwrap());
    assert_eq!(serde_json::from_str::<Vec<Value>>(&by_variable).unwrap(), slots);

    let holder = place.hold(&["u1/a1/r1"]);
    let mut held = BTreeSet::new();
    for information in fs::read_dir(format!("/proc/{}/fdinfo", holder.pid())).unwrap() {
        let text = fs::read_to_string(information.unwrap().path()).unwrap();
        // The test may have inherited a descriptor with a lock of another kind.
        let locks =
            text.lines().filter(|line| line.starts_with("lock:") && line.contains("OFDLCK"));
        // lock: 1: OFDLCK ADVISORY WRITE -1 00:1f:42 FIRST LAST
        held.extend(
            locks.map(|line| line.split_whitespace().nth(7).unwrap().parse::<i64>().unwrap()),
        );
    }
    assert_eq!(numbers(&slots, "byte"), held);

    let output = hierlock(&["plan", "--url", &url, "u1/a1/r1"]).output().unwrap();
    let text = stdout(&output);
    assert!(text.starts_with(&format!("{url}: bytes of the file\n")), "{text}");
    assert!(text.contains(" byte ") && !text.contains("SELECT"), "{text}");
}

#[test]
fn an_unusable_url_is_refused() {
    for (url, more, exit, message) in [
        ("redis://x", None, 64, "memory:"),
        (
            "postgres://me:secret@127.0.0.1:1/x",
            None,
            69,
            "cannot connect to postgres at 127.0.0.1:1",
        ),
        ("memory:", Some("--buckets=7"), 64, "?buckets=N"),
    ] {
        let output = hierlock(&["plan", "--url", url, "u1"]).args(more).output().unwrap();
        assert_eq!(code(&output), Some(exit), "{}", stderr(&output));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(!stderr(&output).contains("secret") && stdout(&output).is_empty());
    }
}

/// The failure this prevents: the buckets were not those of the server, and were shown for advisory keys too.
pub(crate) fn a_plan_shows_the_slots_that_a_client_locks(server: &Sandbox) {
    let at = |parameters: &str| format!("{}?{parameters}", server.url());
    let path = |index: usize| ["u1", "u1/a1", "u1/a1/r1"][index].parse::<Target>().unwrap();

    // A plan creates nothing.
    let slots = plan_at(&at("strategy=on-demand&table=plan_on_demand"));
    for (index, slot) in slots.iter().enumerate() {
        assert_eq!(slot["row_key"], path(index).key());
    }
    let per_id = at("strategy=per-id&table=plan_on_demand");
    let output = hierlock(&["plan", "--url", &per_id, "u1"]).output().unwrap();
    assert_eq!(code(&output), Some(69), "{}", stdout(&output));
    let message = "it has no lock table `plan_on_demand` yet; create it with `hierlock provision`";
    assert!(stderr(&output).contains(message), "{}", stderr(&output));

    // The number of buckets is that of the server.
    let striped = at("strategy=striped&table=plan_striped");
    let output = hierlock(&["provision", "--url", &striped, "--buckets", "500"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    for (index, slot) in plan_at(&striped).iter().enumerate() {
        let bucket = path(index).bucket(Buckets::new(500).unwrap());
        assert_eq!((&slot["bucket"], &slot["buckets"]), (&bucket.into(), &500.into()));
    }
    let text = stdout(&hierlock(&["plan", "--url", &striped, "u1"]).output().unwrap());
    assert!(text.contains("rows of plan_striped, 500 buckets a level"), "{text}");
    assert!(text.contains("SELECT of_500 FROM"), "{text}");

    // The planned keys are those that a client locks.
    if server.engine() == Engine::Postgres {
        let mut command = hierlock(&["run", "--url", server.url()]);
        command.args(HOLD);
        let holder = Holder::start(command);
        let held: Vec<i64> = Runtime::new().unwrap().block_on(async {
            let mut session = PgConnection::connect(server.url()).await.unwrap();
            let keys = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks \
                        WHERE locktype = 'advisory'";
            sqlx::query_scalar(keys).fetch_all(&mut session).await.unwrap()
        });
        let slots = plan_at(server.url());
        assert_eq!(numbers(&slots, "advisory_key"), held.into_iter().collect());
        assert_eq!(holder.finish().0, Some(0));
    }
}

#[test]
fn completions_and_man_pages_are_written() {
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
fn the_help_of_every_command_has_examples_and_exit_codes() {
    for command in crate::secrets::commands_below("") {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = stdout(&hierlock(&words).output().unwrap());
        let example = format!("hierlock {command}");
        let (_, examples) = help.split_once("\nExample").unwrap_or_else(|| panic!("{help}"));
        assert!(examples.contains(&example) && examples.contains("\nExit codes:\n"), "{help}");
    }
    for (part, example) in [("lease", "lease acquire u1/a1"), ("queue", "queue work mail")] {
        let help = stdout(&hierlock(&[part, "--help"]).output().unwrap());
        assert!(help.contains("Examples:") && help.contains(example), "{help}");
    }
    let help = stdout(&hierlock(&["--help"]).output().unwrap());
    assert!(help.contains("75") && help.contains("76"), "{help}");
}

/// A closed pipe causes neither an error nor a panic.
#[test]
fn a_closed_pipe_is_no_failure() {
    let script = "\"$1\" completions bash | head -c 1; exit ${PIPESTATUS[0]}";
    let status = std::process::Command::new("bash")
        .args(["-c", script, "bash", env!("CARGO_BIN_EXE_hierlock")])
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(0));
    assert!(status.stderr.is_empty());
}
