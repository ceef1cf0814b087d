//! Tests of `hierlock lab`, which run the command.

use crate::support::{TestDirectory, code, hierlock, stderr, stdout, until};
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const NO_SERVER: [&str; 2] = ["--engine", "memory,file"];

/// Runs `hierlock lab` and returns its output.
fn run_lab(arguments: &[&str]) -> Output {
    hierlock(&["lab"]).args(arguments).output().unwrap()
}

/// Writes a scenario to a file.
fn write_scenario(place: &TestDirectory, name: &str, text: &str) -> PathBuf {
    let path = place.directory.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

const WAITING_SCENARIO: &str = "\
# A node twice
A> lock u1/a1
B> lock u1/a1/r1
 = blocked by A on node u1/a1   # the account is in the way
A> release
B< = done
";

#[test]
fn all_lock_scenarios_pass_without_a_server() {
    let output = run_lab(&["run", "--topic", "hierarchy", NO_SERVER[0], NO_SERVER[1]]);
    assert_eq!(code(&output), Some(0), "{}", stdout(&output));
    let printed = stdout(&output);
    assert!(printed.contains(" on memory, file") && !printed.contains('✗'), "{printed}");
}

#[test]
fn built_in_scenarios_are_listed_and_can_be_named() {
    let listed = stdout(&run_lab(&["list"]));
    assert!(listed.contains("deadlock/cycle  "), "{listed}");
    let topic = stdout(&run_lab(&["list", "--topic", "hierarchy", "--json"]));
    let topic: serde_json::Value = serde_json::from_str(&topic).unwrap();
    assert!(
        topic
            .as_array()
            .unwrap()
            .iter()
            .all(|s| s["name"].as_str().unwrap().starts_with("hierarchy/"))
    );
    let output = run_lab(&["list", "--topic", "nothing"]);
    assert_eq!(code(&output), Some(64));
    assert!(
        stderr(&output).contains("`nothing` is not a topic; there are anomalies, "),
        "{output:?}"
    );

    let output = run_lab(&["run", "hierarchy/same-node", "--engine", "memory", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((code(&output), &report["agrees"]), (Some(0), &true.into()));
    let output = run_lab(&["run", "no/such"]);
    assert_eq!(code(&output), Some(64));
    assert!(stderr(&output).contains("`hierlock lab list` lists them"), "{output:?}");
}

/// Returns the scenarios that `lab run` runs in memory with these arguments, in order.
fn selected_scenarios(arguments: &[&str]) -> Vec<String> {
    let output = run_lab(&[&["run", "--engine", "memory", "--json"], arguments].concat());
    assert_eq!(code(&output), Some(0), "{arguments:?}: {}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let scenarios = report["scenarios"].as_array().unwrap();
    scenarios.iter().map(|scenario| scenario["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_topic_or_a_pattern_selects_built_in_scenarios() {
    let topic = selected_scenarios(&["--topic", "hierarchy"]);
    assert!(topic.len() > 5 && topic.iter().all(|name| name.starts_with("hierarchy/")));
    for pattern in ["hierarchy", "hierarchy/", "hierarchy/*", "hier*"] {
        assert_eq!(selected_scenarios(&[pattern]), topic, "{pattern}");
    }
    let with_s = selected_scenarios(&["hierarchy/s*"]);
    let expected: Vec<&String> =
        topic.iter().filter(|name| name.starts_with("hierarchy/s")).collect();
    assert!(!expected.is_empty() && expected.len() < topic.len());
    assert_eq!(with_s.iter().collect::<Vec<_>>(), expected);
    assert_eq!(selected_scenarios(&["*/same-nod?"]), ["hierarchy/same-node"]);
    // Each scenario once, in the order of the arguments.
    let both = selected_scenarios(&["hierarchy/same-node", "hierarchy", "hierarchy/s*"]);
    assert_eq!((both.len(), both[0].as_str()), (topic.len(), "hierarchy/same-node"));
}

#[test]
fn a_directory_or_a_pattern_selects_files() {
    let place = TestDirectory::new();
    let directory = place.directory.path();
    fs::create_dir_all(directory.join("mine/deep")).unwrap();
    for name in ["mine/b.lab", "mine/a.lab", "mine/deep/a.lab", "mine/notes.txt"] {
        write_scenario(&place, name, WAITING_SCENARIO);
    }
    let at = |pattern: &str| directory.join(pattern).to_str().unwrap().to_owned();
    for (pattern, expected) in [
        ("mine", &["mine/a", "mine/b", "deep/a"][..]),
        ("mine/", &["mine/a", "mine/b", "deep/a"]),
        ("mine/a*", &["mine/a"]),
        ("mine/*.lab", &["mine/a", "mine/b"]),
        ("mine/d*", &["deep/a"]),
        ("m*/a.lab", &["mine/a"]),
        ("mine/b.lab", &["mine/b"]),
    ] {
        assert_eq!(selected_scenarios(&[&at(pattern)]), expected, "{pattern}");
    }
    // A directory is preferred to a topic of the same name. Without the directory the topic is used.
    fs::create_dir(directory.join("hierarchy")).unwrap();
    let run = || {
        let mut command = hierlock(&["lab", "run", "--engine", "memory", "hierarchy"]);
        stdout(&command.current_dir(directory).output().unwrap())
    };
    assert!(run().contains("hierarchy/same-node"));
    write_scenario(&place, "hierarchy/mine.lab", WAITING_SCENARIO);
    assert!(run().contains("hierarchy/mine") && !run().contains("hierarchy/same-node"));
}

#[test]
fn a_misspelled_name_gets_a_suggestion() {
    for (arguments, message) in [
        (["run", "deadlok"], "did you mean `deadlock`?"),
        (["run", "deadlok/"], "did you mean `deadlock`?"),
        (["run", "deadlock/cycel"], "did you mean `deadlock/cycle`?"),
        (["run", "deadlok/c*"], "did you mean `deadlock/c*`?"),
        (["run", "deadlock/zzz*"], "`hierlock lab list` lists them"),
        (["run", "elsewhere"], "`hierlock lab list` lists them"),
        (
            ["run", "--topic=deadlok"],
            "is not a topic; did you mean `deadlock`? There are anomalies, ",
        ),
        (
            ["list", "--topic=deadlok"],
            "is not a topic; did you mean `deadlock`? There are anomalies, ",
        ),
        (["run", "elsewhere.lab"], "elsewhere.lab cannot be read"),
    ] {
        let output = run_lab(&arguments);
        assert_eq!(code(&output), Some(64), "{arguments:?}");
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
    }
}

/// Returns the exit code and the output of the lab on a terminal, which script(1) provides.
fn on_terminal(arguments: &[&str]) -> (Option<i32>, String) {
    let command = format!("{} lab {}", env!("CARGO_BIN_EXE_hierlock"), arguments.join(" "));
    let mut script = Command::new("script");
    let output = script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", "1").output();
    let output = output.unwrap();
    (code(&output), stdout(&output).replace('\r', ""))
}

#[test]
fn a_terminal_shows_a_line_per_topic_and_whole_failures() {
    let place = TestDirectory::new();
    for topic in ["one", "two"] {
        fs::create_dir(place.directory.path().join(topic)).unwrap();
        for name in ["a", "b", "c", "d"] {
            write_scenario(&place, &format!("{topic}/{name}.lab"), WAITING_SCENARIO);
        }
    }
    let directory = place.directory.path().to_str().unwrap();
    let run = ["run", directory, NO_SERVER[0], NO_SERVER[1]];
    let (code, text) = on_terminal(&run);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("✓ one  4 scenarios, 8 cases on memory, file\n✓ two  4 "), "{text}");
    assert!(!text.contains("one/a") && text.contains("16 cases of 8 scenarios"), "{text}");
    // Through a pipe, and for one topic, it prints a line per scenario.
    let piped = stdout(&run_lab(&run));
    assert!(piped.contains("✓ one/a  2 cases on memory, file\n✓ one/b  "), "{piped}");
    let (_, topic) = on_terminal(&["run", "hierarchy", NO_SERVER[0], NO_SERVER[1]]);
    assert!(topic.contains("✓ hierarchy/same-node "), "{topic}");
    let (_, verbose) = on_terminal(&[&run[..], &["--verbose"]].concat());
    assert!(verbose.contains("one/a  A node twice") && verbose.contains("B> lock u1/a1/r1"));

    write_scenario(
        &place,
        "two/b.lab",
        &WAITING_SCENARIO.replace("blocked by A on node u1/a1 ", "done"),
    );
    let (code, text) = on_terminal(&run);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("✓ one  4 scenarios") && text.contains("✗ two  3 of 4 scenarios"),
        "{text}"
    );
    for part in ["two/b  A node twice", "✗ two/b on memory", "expected:", "observed:"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("two/a"), "{text}");
}

#[test]
fn a_difference_is_reported_and_can_be_blessed() {
    let place = TestDirectory::new();
    let text = WAITING_SCENARIO.replace("blocked by A on node u1/a1 ", "done");
    // Cases that were not run are not blessed: the scenario is limited to these two engines.
    let path = write_scenario(
        &place,
        "wrong.lab",
        &text.replace("twice\n", "twice\nengines: memory file\n"),
    );
    let wrong = path.to_str().unwrap();
    let output = run_lab(&["run", wrong, NO_SERVER[0], NO_SERVER[1]]);
    assert_eq!(code(&output), Some(1), "{output:?}");
    let printed = stdout(&output);
    assert!(printed.contains("wrong.lab:4") && printed.contains("blocked by A"), "{printed}");

    let output = run_lab(&["run", wrong, NO_SERVER[0], NO_SERVER[1], "--bless"]);
    assert_eq!(
        code(&output),
        Some(1),
        "the exit code is that of the run before blessing: {output:?}"
    );
    let blessed = fs::read_to_string(&path).unwrap();
    assert!(blessed.contains("\n = blocked by A"), "{blessed}");
    assert!(blessed.contains("# the account is in the way"), "{blessed}");
    let output = run_lab(&["run", wrong, NO_SERVER[0], NO_SERVER[1]]);
    assert_eq!(code(&output), Some(0), "{output:?}");
}

#[test]
fn a_mistake_is_reported_with_its_position() {
    let place = TestDirectory::new();
    let path =
        write_scenario(&place, "bad.lab", "# Title\nA> lock u1\nB> lock u1\n = blokced by A\n");
    let output = run_lab(&["run", path.to_str().unwrap(), NO_SERVER[0], NO_SERVER[1]]);
    assert_eq!(code(&output), Some(64));
    let printed = stderr(&output);
    assert!(printed.contains("bad.lab:4:4: ") && printed.contains("blocked"), "{printed}");
    assert!(
        printed.contains("\n = blokced by A\n") || printed.contains(" = blokced by A\n"),
        "{printed}"
    );
}

#[test]
fn a_stuck_step_is_reported() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let place = TestDirectory::new();
    let text = "# Stuck\nlimit: 300ms\nengines: postgres\nA> select pg_sleep(600)\n";
    let path = write_scenario(&place, "stuck.lab", text);
    let output = run_lab(&["run", path.to_str().unwrap(), "--url", server.url()]);
    assert_eq!(code(&output), Some(1));
    let printed = stdout(&output);
    assert!(printed.contains("neither ended nor was seen to wait"), "{printed}");
    assert_eq!(count(&server, COUNT_LEFTOVERS), 0);
}

/// Counts statements, schemas and databases of the lab on the server.
const COUNT_LEFTOVERS: &str = "SELECT (SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' \
                    AND pid <> pg_backend_pid() AND state = 'active') \
                    + (SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'hierlock_lab%') \
                    + (SELECT count(*) FROM pg_database WHERE datname LIKE 'hierlock_lab%')";

fn count(server: &Sandbox, sql: &str) -> i64 {
    let output = Command::new("psql").args([server.url(), "-Atqc", sql]).output().unwrap();
    stdout(&output).trim().parse().unwrap_or_else(|_| panic!("{output:?}"))
}

/// Interrupts a scenario that never ends, as soon as the query `running` counts its statement, and checks that nothing is
/// left on the server.
fn interrupt_and_check(server: &Sandbox, text: &str, running: &str) {
    let place = TestDirectory::new();
    let path = write_scenario(&place, "long.lab", text);
    let mut command = hierlock(&["lab", "run", path.to_str().unwrap(), "--url", server.url()]);
    let mut process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while count(server, running) == 0 {
        assert!(since.elapsed() < Duration::from_secs(60), "the scenario does not start");
        assert!(process.try_wait().unwrap().is_none(), "the lab has ended too early");
    }
    kill(Pid::from_raw(process.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(process.wait().unwrap().code(), Some(130));
    assert_eq!(count(server, COUNT_LEFTOVERS), 0);
    // A server needs a moment to notice a closed connection.
    until("no statement runs", || count(server, running) == 0);
}

#[test]
fn ctrl_c_leaves_nothing_on_the_server() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let runs = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' \
                AND pid <> pg_backend_pid() AND state = 'active'";
    let sql = "# Long\nlimit: 10m\nengines: postgres\nA> select pg_sleep(600)\n";
    interrupt_and_check(&server, sql, runs);

    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    for strategy in ["striped", "advisory"] {
        let tree = format!(
            "# Long\nlimit: 10m\nengines: postgres\nstrategies: {strategy}\n\
             A> lock u1\nB> lock within 10m u1/a1\n = timed out\n"
        );
        interrupt_and_check(&server, &tree, waits);
    }
}

#[test]
fn fmt_formats_files() {
    let place = TestDirectory::new();
    let path = write_scenario(
        &place,
        "ugly.lab",
        "# Title\nA>   lock u1\nB> lock u1\n      =   blocked by A\n",
    );
    let ugly = path.to_str().unwrap();
    let output = run_lab(&["fmt", "--check", ugly]);
    assert_eq!((code(&output), stdout(&output)), (Some(1), format!("{ugly}\n")));
    assert_eq!(code(&run_lab(&["fmt", ugly])), Some(0));
    assert!(fs::read_to_string(&path).unwrap().contains("\n = blocked by A\n"));
    assert_eq!(code(&run_lab(&["fmt", "--check", ugly])), Some(0));
}

#[test]
fn a_new_scenario_passes_unchanged() {
    let place = TestDirectory::new();
    let path = place.directory.path().join("mine.lab");
    let mine = path.to_str().unwrap();
    assert_eq!(code(&run_lab(&["new", "--tree", mine])), Some(0));
    assert_eq!(code(&run_lab(&["new", mine])), Some(64), "the file exists already");
    let output = run_lab(&["run", mine, NO_SERVER[0], NO_SERVER[1]]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert_eq!(code(&run_lab(&["fmt", "--check", mine])), Some(0));

    let Some(server) = Sandbox::for_tests(Engine::Mariadb) else { return };
    let sql = place.directory.path().join("sql.lab");
    let sql = sql.to_str().unwrap();
    assert_eq!(code(&run_lab(&["new", sql])), Some(0));
    assert_eq!(code(&run_lab(&["fmt", "--check", sql])), Some(0));
    let output = run_lab(&["run", sql, "--engine", "mariadb", "--url", server.url()]);
    assert_eq!(code(&output), Some(0), "{output:?}");
}

#[test]
fn reports_are_written() {
    let place = TestDirectory::new();
    let scenario = write_scenario(&place, "waits.lab", WAITING_SCENARIO);
    let (html, junit) =
        (place.directory.path().join("r.html"), place.directory.path().join("r.xml"));
    let output = run_lab(&[
        "run",
        scenario.to_str().unwrap(),
        NO_SERVER[0],
        NO_SERVER[1],
        "--mermaid",
        "--html",
        html.to_str().unwrap(),
        "--junit",
        junit.to_str().unwrap(),
    ]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(stdout(&output).contains("sequenceDiagram"), "{output:?}");
    assert!(fs::read_to_string(html).unwrap().contains("A node twice"));
    assert!(fs::read_to_string(junit).unwrap().contains("<testsuite"));
}

#[test]
fn the_matrix_is_printed() {
    let place = TestDirectory::new();
    let svg = place.directory.path().join("m.svg");
    let output = run_lab(&["matrix", NO_SERVER[0], NO_SERVER[1], "--svg", svg.to_str().unwrap()]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    assert!(stdout(&output).contains("392 pairs: 108 blocked, 284 granted, no disagreement"));
    // The picture depends only on the observations, so it is the one in the docs.
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/matrix.svg");
    let is_current = fs::read(svg).unwrap() == fs::read(docs).unwrap();
    assert!(is_current, "run: hierlock lab matrix --engine memory,file --svg docs/matrix.svg");
    let output = run_lab(&["matrix", "--size", "2x2"]);
    assert_eq!(code(&output), Some(64));
}

#[test]
fn the_table_of_anomalies_is_printed() {
    let Some(server) = Sandbox::for_tests(Engine::Postgres) else { return };
    let output =
        run_lab(&["anomalies", "--engine", "postgres", "--url", server.url(), "--markdown"]);
    assert_eq!(code(&output), Some(0), "{output:?}");
    let table = stdout(&output);
    let row = table.lines().find(|line| line.contains("write skew")).unwrap();
    assert!(row.contains("shows") && row.contains("prevented"), "{table}");
}
