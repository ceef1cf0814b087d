//! Tests of `hierlock deadlocks`: on the recorded dumps that the engine's parser is tested with, and on servers.

use crate::support::{code, hierlock, stderr, stdout};
use crate::test_database::TestDatabase;
use hierlock_engine::{ServerAddress, Session};
use hierlock_sandbox::{Engine, Sandbox, on_each_server};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

on_each_server!(a_deadlock_of_a_server_is_explained, scenarios_repeat_the_deadlocks_of_dumps);

/// Longer than any statement of these tests takes on a busy machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

fn dumps() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hierlock-engine/tests/deadlocks")
}

fn dump(name: &str) -> String {
    dumps().join(name).to_str().unwrap().to_owned()
}

fn run(arguments: &[&str]) -> Output {
    hierlock(&[&["deadlocks"], arguments].concat()).output().unwrap()
}

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(code(&output), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(arguments: &[&str]) -> Vec<Value> {
    serde_json::from_str(&ok(&[arguments, &["--json"]].concat())).unwrap()
}

/// Runs `hierlock deadlocks` with a text on its standard input.
fn run_with_input(arguments: &[&str], text: &str) -> Output {
    TestDatabase::file().output_with_input(&[&["deadlocks"], arguments].concat(), text.as_bytes())
}

#[test]
fn a_deadlock_is_explained_in_plain_words() {
    let text = ok(&[&dump("mysql-gap.txt")]);
    for part in [
        "deadlock: MySQL, 2026-11-17 22:24:19\n  A ─► B ─► A\n",
        "A  session 23, root@127.0.0.1, transaction 1577, open for 0 s, 2 row locks\n",
        "   ran    insert into orders values (5, 'new')\n",
        "   waits  to insert into the gap before key 10 of shop.orders  [X,GAP,INSERT_INTENTION on PRIMARY]\n",
        "   holds  the gap before key 10 of shop.orders, so that nobody else inserts into it  [X,GAP on PRIMARY]\n",
        "← victim, rolled back\n   ran    insert into orders values (6, 'new')\n",
        "  - They lock a gap and then insert into it. Run these transactions at READ COMMITTED",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let text = ok(&[&dump("mysql-update.txt")]);
    assert!(text.contains("   waits  to lock id 2 of shop.accounts exclusively"), "{text}");
    assert!(text.contains("in the same order everywhere"), "{text}");
    let text = ok(&[&dump("mariadb-shared.txt")]);
    assert!(text.contains("hold a row shared and then want to change it"), "{text}");
    let text = ok(&["--last", "1", &dump("postgres-ja.log")]);
    let place = "to be next to lock the row at (0,1) of table number 16404";
    for part in ["A ─► B ─► C ─► A", place, "40P01"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn a_directory_of_dumps_is_read() {
    let deadlocks = json(&[dumps().to_str().unwrap()]);
    assert!(deadlocks.len() > 60, "{}", deadlocks.len());
    for deadlock in &deadlocks {
        let sessions = deadlock["sessions"].as_array().unwrap();
        let names: Vec<&Value> = sessions.iter().map(|session| &session["name"]).collect();
        assert!(names.contains(&&deadlock["victim"]), "{deadlock}");
        for session in sessions {
            assert!(session["session"].is_i64() && session["statement"].is_string(), "{deadlock}");
            assert!(names.contains(&&session["waits_for"]), "{deadlock}");
            assert!(
                session["wants"]["words"].as_str().unwrap().starts_with("waits "),
                "{deadlock}"
            );
        }
    }
    assert_eq!(json(&[dumps().to_str().unwrap(), "--last", "3"]), deadlocks[deadlocks.len() - 3..]);
}

#[test]
fn the_json_has_the_documented_fields() {
    let deadlock = json(&[&dump("mysql-update.txt")]).remove(0);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&deadlock),
        ["server", "time", "victim", "cut", "guessed_keys", "sessions", "advice"]
    );
    let session = &deadlock["sessions"][0];
    assert_eq!(
        keys(session),
        [
            "name",
            "session",
            "transaction",
            "user",
            "host",
            "database",
            "program",
            "active_seconds",
            "row_locks",
            "changed_rows",
            "statement",
            "waits_for",
            "wants",
            "holds",
            "row",
        ]
    );
    let lock = &session["wants"];
    assert_eq!(
        keys(lock),
        ["kind", "schema", "object", "index", "columns", "record", "mode", "granted", "words"]
    );
    assert_eq!((&lock["mode"], &lock["record"]), (&"X,REC_NOT_GAP".into(), &"2".into()));
}

#[test]
fn a_pasted_text_on_standard_input_is_read() {
    let text = fs::read_to_string(dump("mysql-unicode.txt")).unwrap();
    let quoted: String = text.lines().map(|line| format!("> {line}\r\n")).collect();
    for arguments in [&[][..], &["-"]] {
        let output = run_with_input(arguments, &quoted);
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        let printed = stdout(&output);
        assert!(
            printed.contains("to lock 名前 '大阪''s' of shop.注文 書 exclusively"),
            "{printed}"
        );
        assert!(printed.contains("set n = 3 where `名前` = '大阪''s'\n"), "{printed}");
    }
    let (half, _) = text.split_once("*** (2) WAITING").unwrap();
    let printed = stdout(&run_with_input(&["-"], half));
    assert!(
        printed.contains("the text is cut off") && !printed.contains("victim, rolled back"),
        "{printed}"
    );
}

#[test]
fn exit_codes_distinguish_the_results() {
    let none =
        run_with_input(&["-"], "2026-11-17 22:42:14.541 UTC [7] LOG:  checkpoint starting: time\n");
    assert_eq!(
        (code(&none), stdout(&none)),
        (Some(0), "there is no deadlock in the text\n".to_owned())
    );
    let none = run_with_input(
        &["-", "--json"],
        "2026-11-17 22:42:14.541 UTC [7] LOG:  checkpoint starting: time\n",
    );
    assert_eq!((code(&none), stdout(&none)), (Some(0), "[]\n".to_owned()));
    let unknown = run_with_input(&["-"], "Dear all,\nit does not work.\n");
    assert_eq!((code(&unknown), stdout(&unknown)), (Some(65), String::new()));
    assert!(stderr(&unknown).contains("LATEST DETECTED DEADLOCK"), "{}", stderr(&unknown));
    for (arguments, exit) in [
        (&["/no/such/file"][..], 69),
        (&["--url", "mysql://root@127.0.0.1:1/x"], 69),
        (&["--url", "memory:"], 64),
        (&["--url", "file:/tmp/x"], 64),
        (&["--json", "--mermaid", "-"], 64),
        (&["--svg", "--scenario", "-"], 64),
        (&["--last", "0", "-"], 64),
        (&["--format", "xml", "-"], 64),
    ] {
        let output = run(arguments);
        assert_eq!(code(&output), Some(exit), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn no_password_and_no_control_character_is_printed() {
    let text = fs::read_to_string(dump("mysql-update.txt")).unwrap();
    let statement = "update accounts set balance = balance + 5 where id = 2";
    let secret = "update accounts set password = 's3cret', note = '\u{1b}[2J' where id = 2";
    let text =
        text.replace(statement, secret).replace("`shop`.`accounts`", "`sh\u{7}op`.`accounts`");
    for format in ["text", "json", "mermaid", "svg", "scenario"] {
        let output = run_with_input(&["-", "--format", format], &text);
        assert_eq!(code(&output), Some(0), "{}", stderr(&output));
        let printed = stdout(&output);
        assert!(
            !printed.contains("s3cret") && printed.contains("set password = …"),
            "{format}: {printed}"
        );
        assert!(!printed.contains(['\u{1b}', '\u{7}']), "{format}: {printed}");
    }
}

#[test]
fn a_deadlock_is_drawn_as_the_lab_draws_it() {
    let diagram = ok(&["--mermaid", &dump("mysql-update.txt")]);
    for part in [
        "sequenceDiagram\n",
        "participant server as MySQL\n",
        "A->>server: update accounts set balance = balance + 5 where id = 2\n",
        "Note over A: blocked by B on row 2 of accounts (PRIMARY), X,REC_NOT_GAP\n",
        "Note over B: ☠ deadlock, the victim was B\n",
    ] {
        assert!(diagram.contains(part), "{part} in\n{diagram}");
    }
}

#[test]
fn the_picture_in_the_docs_is_current() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/deadlock.svg");
    let is_current = fs::read_to_string(docs).unwrap() == ok(&["--svg", &dump("mysql-gap.txt")]);
    assert!(is_current, "run: hierlock deadlocks mysql-gap.txt --svg > docs/deadlock.svg");
}

#[test]
fn the_graph_shows_who_waits_for_whom_and_who_was_rolled_back() {
    let picture = ok(&["--svg", &dump("mysql-three.txt")]);
    for part in [
        "<svg xmlns=",
        "A waits for B, B waits for C, C waits for A; B was rolled back</desc>",
        "class=\"node s1 victim\"",
        "row 3 of seats (PRIMARY),",
    ] {
        assert!(picture.contains(part), "{part} in\n{picture}");
    }
    assert_eq!(picture.matches("<circle").count(), 3);
    assert_eq!(
        picture.matches("<path d=\"M").count(),
        4,
        "three waits, and the head of the arrows"
    );
    let text = fs::read_to_string(dump("mysql-update.txt")).unwrap();
    let first = text.split("*** (2) TRANSACTION").next().unwrap();
    let output = run_with_input(&["-", "--svg"], first);
    assert_eq!((code(&output), stdout(&output)), (Some(65), String::new()));
    assert!(stderr(&output).contains("the whole cycle"), "{}", stderr(&output));
}

/// The lab parses the scenario of every dump, also of dumps that are cut off.
#[test]
fn the_scenario_of_every_dump_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dumps()).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let boundary = |at: usize| (at..).find(|at| text.is_char_boundary(*at)).unwrap();
        let (third, half) = (boundary(text.len() / 3), boundary(text.len() / 2));
        for text in [&text[..], &text[third..], &text[..half]] {
            let output = run_with_input(&["-", "--scenario"], text);
            let scenario = stdout(&output);
            if scenario.is_empty() {
                continue;
            }
            let file = directory.path().join("x.lab");
            fs::write(&file, &scenario).unwrap();
            let checked = hierlock(&["lab", "fmt", file.to_str().unwrap()]).output().unwrap();
            assert_eq!(
                code(&checked),
                Some(0),
                "{}: {}\n{scenario}",
                path.display(),
                stderr(&checked)
            );
        }
    }
}

/// Returns a dump unchanged, as MySQL before 8.0.18 writes it (without the locks that the first transaction holds), and
/// without records.
fn dump_variants(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once("*** (1) HOLDS THE LOCK(S):") else {
        return vec![text.to_owned()];
    };
    let (_, after) = rest.split_once("*** (1) WAITING").unwrap();
    let old = format!("{before}*** (1) WAITING{after}");
    let is_no_record = |line: &&str| !line.starts_with("Record lock") && !line.contains(": len ");
    let short = old.lines().filter(is_no_record).collect::<Vec<_>>().join("\n");
    vec![text.to_owned(), old, short]
}

/// Runs the scenarios of all dumps of a server on that server.
async fn scenarios_repeat_the_deadlocks_of_dumps(engine: Engine) {
    let Some(server) = Sandbox::for_tests(engine) else { return };
    let directory = tempfile::tempdir().unwrap();
    let mut count = 0;
    for entry in fs::read_dir(dumps()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // MariaDB reports to that victim that it cannot read the counter, instead of a deadlock.
        if name.starts_with(&engine.to_string()) && !name.contains("auto-increment") {
            for text in dump_variants(&fs::read_to_string(&path).unwrap()) {
                let scenario = stdout(&run_with_input(&["-", "--scenario"], &text));
                fs::write(directory.path().join(format!("{name}{count}.lab")), scenario).unwrap();
                count += 1;
            }
        }
    }
    assert!(count > 10, "{count}");
    let directory = directory.path().to_str().unwrap();
    let output = hierlock(&["lab", "run", directory, "--url", server.url()]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}{}", stdout(&output), stderr(&output));
    assert!(
        stdout(&output).contains(&format!("{count} agreed, 0 disagreed")),
        "{}",
        stdout(&output)
    );
}

/// Causes a deadlock of two updates; returns the ids of sessions A and B, and whether A was the victim.
async fn make_deadlock(url: &str) -> ([i64; 2], bool) {
    let address = ServerAddress::from_url(&url.parse().unwrap()).unwrap();
    let connect = async || Session::connect_alone(&address, ANSWER_LIMIT).await.unwrap();
    let (mut a, mut b) = (connect().await, connect().await);
    a.run("CREATE TABLE accounts (id INT PRIMARY KEY, balance INT)").await.unwrap();
    a.run("INSERT INTO accounts VALUES (1, 30), (2, 10)").await.unwrap();
    let update = |id: u32| format!("UPDATE accounts SET balance = balance + 1 WHERE id = {id}");
    for (session, id) in [(&mut a, 1), (&mut b, 2)] {
        session.run("BEGIN").await.unwrap();
        session.run(&update(id)).await.unwrap();
    }
    let sessions = [a.id.pid, b.id.pid];
    // The second of these updates closes the cycle.
    let updates = [update(2), update(1)];
    let (first, second) = tokio::join!(a.run(&updates[0]), b.run(&updates[1]));
    assert_ne!(first.is_ok(), second.is_ok(), "{first:?} {second:?}");
    (sessions, first.is_err())
}

async fn a_deadlock_of_a_server_is_explained(engine: Engine) {
    let Some(server) = Sandbox::for_tests(engine) else { return };
    let url = server.url();
    let before = ok(&["--url", url]);
    let none = if engine == Engine::Postgres {
        "there were 0"
    } else {
        "no deadlock since it was started"
    };
    assert!(before.contains(none), "{before}");
    let (sessions, is_first_victim) = make_deadlock(url).await;
    let log = server.directory().join("log");
    let arguments = match engine {
        Engine::Postgres => {
            assert!(json(&["--url", url]).is_empty());
            let printed = ok(&["--url", url]);
            assert!(
                printed.contains("pg_stat_database") && printed.contains("hierlock deadlocks - <"),
                "{printed}"
            );
            vec![log.to_str().unwrap()]
        }
        Engine::Mysql | Engine::Mariadb => vec!["--url", url],
    };
    let deadlock = json(&arguments).remove(0);
    let members = deadlock["sessions"].as_array().unwrap();
    assert_eq!(members.len(), 2, "{deadlock}");
    let victim = sessions[usize::from(!is_first_victim)];
    for member in members {
        let session = member["session"].as_i64().unwrap();
        let id = if session == sessions[0] { 2 } else { 1 };
        assert!(sessions.contains(&session), "{deadlock}");
        let statement = format!("UPDATE accounts SET balance = balance + 1 WHERE id = {id}");
        assert_eq!(member["statement"], statement, "{deadlock}");
        assert_eq!(member["name"] == deadlock["victim"], session == victim, "{deadlock}");
        if engine != Engine::Postgres {
            let words = member["wants"]["words"].as_str().unwrap();
            assert!(
                words.contains(&format!("waits to lock id {id} of hierlock.accounts")),
                "{words}"
            );
            assert_eq!(
                (&member["user"], &deadlock["guessed_keys"]),
                (&"root".into(), &false.into())
            );
        }
    }
    if engine != Engine::Postgres {
        missing_privileges_are_reported(url).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("again.lab");
    fs::write(&file, ok(&[&arguments[..], &["--scenario"]].concat())).unwrap();
    let output = hierlock(&["lab", "run", file.to_str().unwrap(), "--url", url]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}{}", stdout(&output), stderr(&output));
}

/// Without PROCESS the error names the missing privilege. Without SELECT the keys are guessed.
async fn missing_privileges_are_reported(url: &str) {
    let address = ServerAddress::from_url(&url.parse().unwrap()).unwrap();
    let mut session = Session::connect_alone(&address, ANSWER_LIMIT).await.unwrap();
    session.run("CREATE USER monitor IDENTIFIED BY 's3cret'").await.unwrap();
    let (scheme, place) = url.split_once("://root@").unwrap();
    let place = place.split('/').next().unwrap();
    let url = format!("{scheme}://monitor:s3cret@{place}");
    let output = run(&["--url", &url]);
    assert_eq!((code(&output), stdout(&output)), (Some(69), String::new()));
    let printed = stderr(&output);
    assert!(printed.contains("PROCESS") && !printed.contains("s3cret"), "{printed}");
    session.run("GRANT PROCESS ON *.* TO monitor").await.unwrap();
    let deadlock = json(&["--url", &url]).remove(0);
    let words = deadlock["sessions"][0]["wants"]["words"].as_str().unwrap();
    assert!(words.starts_with("waits to lock id ") && !words.contains("0x"), "{words}");
    assert_eq!(deadlock["guessed_keys"], true);
}
