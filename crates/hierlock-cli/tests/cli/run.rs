//! Tests of `hierlock run`, which run the command.

use crate::support::{Holder, TestDirectory, code, hierlock, is_gone, stderr, stdout, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

fn pid(number: i32) -> Pid {
    Pid::from_raw(number)
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let place = TestDirectory::new();
    for expected in [0, 1, 7, 75, 255] {
        let output = place.run(&["u1", "--", "sh", "-c", &format!("exit {expected}")]).output();
        let output = output.unwrap();
        assert_eq!(code(&output), Some(expected));
        assert_eq!(stderr(&output), "");
    }
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let script = format!("kill -{} $$", signal as i32);
        let output = place.run(&["u1", "--", "sh", "-c", &script]).output().unwrap();
        assert_eq!(code(&output), Some(128 + signal as i32));
    }
}

#[test]
fn arguments_are_passed_without_a_shell() {
    let place = TestDirectory::new();
    let words = ["a b", "$HOME", "; exit 3", "*", "", "'\""];
    let mut arguments = vec!["u1", "--", "printf", "%s\n"];
    arguments.extend(words);
    let output = place.run(&arguments).output().unwrap();
    assert_eq!(stdout(&output), words.join("\n") + "\n");
}

#[test]
fn the_command_gets_targets_and_url_as_variables() {
    let place = TestDirectory::new();
    let show = "printf '%s|%s' \"$HIERLOCK_TARGETS\" \"$HIERLOCK_URL\"";
    let output = place.run(&["u1/a%2Fb", "u2", "--", "sh", "-c", show]).output().unwrap();
    let url = format!("file:{}", place.lock_file().display());
    assert_eq!(stdout(&output), format!("u1/a%2Fb\nu2|{url}"));
}

#[test]
fn a_command_that_cannot_run_exits_with_126_or_127() {
    let place = TestDirectory::new();
    let output = place.run(&["u1", "--", "no-such-command"]).output().unwrap();
    assert_eq!(code(&output), Some(127));
    assert!(stderr(&output).contains("no-such-command"), "{}", stderr(&output));
    let plain = place.directory.path().join("plain");
    fs::write(&plain, "").unwrap();
    let output = place.run(&["u1", "--", plain.to_str().unwrap()]).output().unwrap();
    assert_eq!(code(&output), Some(126));
    assert!(place.is_free("u1"));
}

#[test]
fn a_usage_error_exits_with_64_and_a_hint() {
    for (arguments, message) in [
        (&["run", "u1//r1", "--", "true"][..], "1 to 255 bytes"),
        (&["run", "u1/50%", "--", "true"], "%25"),
        (&["run", "u1/a1/r1/x1", "--", "true"], "only 3 levels (user/account/resource)"),
        (&["run", "u1"], "<COMMAND>"),
        (&["run", "--", "true"], "<TARGET>"),
        (&["run", "--within", "5", "u1", "--", "true"], "300ms, 5s, 2m or 1h"),
        (&["run", "--try", "--within", "5s", "u1", "--", "true"], "cannot be used with"),
        (&["run", "--mode", "write", "u1", "--", "true"], "shared"),
        (&["run", "--levels", "a,,b", "u1", "--", "true"], "level 1"),
        (&["run", "--url", "memory:", "u1", "--", "true"], "file:PATH"),
        (&["run", "--url", "redis://x", "u1", "--", "true"], "memory:"),
        (&["run", "--url", "file:", "u1", "--", "true"], "file:PATH"),
        (&["plan", "u1/"], "level 1"),
        (&["plan", "--buckets", "0", "u1"], "bucket count"),
        (&["man", "nothing"], "run, plan"),
        (&["nothing"], "--help"),
    ] {
        let output = hierlock(arguments).output().unwrap();
        assert_eq!(code(&output), Some(64), "{arguments:?}");
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{arguments:?}");
    }
}

#[test]
fn an_unusable_lock_file_exits_with_69() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    fs::write(&plain, "").unwrap();
    let url = format!("file:{}/locks", plain.display());
    let output = hierlock(&["run", "--url", &url, "u1", "--", "true"]).output().unwrap();
    assert_eq!(code(&output), Some(69));
    assert!(stderr(&output).contains("locks"), "{}", stderr(&output));
}

#[test]
fn the_lock_file_is_private_and_its_directory_is_created() {
    let place = TestDirectory::new();
    assert!(place.is_free("u1"));
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.lock_file()), 0o600);
    assert_eq!(mode(place.lock_file().parent().unwrap().to_owned()), 0o700);
    assert_eq!(fs::metadata(place.lock_file()).unwrap().len(), 0, "the lock file must stay empty");
}

#[test]
fn the_default_lock_file_is_in_the_runtime_or_the_state_directory() {
    let directory = tempfile::tempdir().unwrap();
    let default_url = |runtime: bool| {
        let mut command = hierlock(&["run", "u1", "--", "sh", "-c", "echo $HIERLOCK_URL"]);
        command.env_remove("XDG_RUNTIME_DIR").env("XDG_STATE_HOME", directory.path().join("state"));
        if runtime {
            command.env("XDG_RUNTIME_DIR", directory.path().join("run"));
        }
        stdout(&command.output().unwrap()).trim().to_owned()
    };
    let expected =
        |kind: &str| format!("file:{}/{kind}/hierlock/locks", directory.path().display());
    assert_eq!(default_url(true), expected("run"));
    // If /run/user has a directory for this user, it is used instead of the state directory.
    if !default_url(false).starts_with("file:/run/user/") {
        assert_eq!(default_url(false), expected("state"));
    }
}

#[test]
fn not_acquired_exits_with_75() {
    let place = TestDirectory::new();
    let holder = place.hold(&["u1/a1"]);
    for (how, message) in [(&["--try"][..], "is locked"), (&["--within", "20ms"], "timed out")] {
        let mut arguments = how.to_vec();
        arguments.extend(["u1/a1/r1", "--", "echo", "ran"]);
        let output = place.run(&arguments).output().unwrap();
        assert_eq!(code(&output), Some(75));
        assert_eq!(stdout(&output), "", "the command must not run");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(stderr(&output).contains("u1/a1"), "{}", stderr(&output));

        arguments.insert(0, "--quiet");
        let output = place.run(&arguments).output().unwrap();
        assert_eq!((code(&output), stderr(&output).as_str()), (Some(75), ""));
    }
    assert_eq!(holder.finish(), (Some(0), String::new()));
    assert!(place.is_free("u1/a1/r1"));
}

#[test]
fn json_reports_every_event_on_standard_error() {
    let place = TestDirectory::new();
    let output =
        place.run(&["--json", "u1", "--", "sh", "-c", "echo out; exit 3"]).output().unwrap();
    assert_eq!(stdout(&output), "out\n");
    let events: Vec<serde_json::Value> =
        stderr(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["event"], "acquired");
    assert_eq!(events[0]["targets"][0], "u1");
    assert_eq!(events[1], serde_json::json!({"event": "exited", "code": 3}));

    let _holder = place.hold(&["u1"]);
    let output = place.run(&["--json", "--try", "u1", "--", "true"]).output().unwrap();
    let event: serde_json::Value = serde_json::from_str(&stderr(&output)).unwrap();
    assert_eq!((&event["event"], &event["exit"]), (&"not-acquired".into(), &75.into()));
}

#[test]
fn readers_share_and_writers_do_not() {
    let place = TestDirectory::new();
    let _one = place.hold(&["--mode", "shared", "u1/a1/r1"]);
    let _two = place.hold(&["--mode", "shared", "u1/a1/r1"]);
    assert!(!place.is_free("u1/a1/r1"));
    assert!(place.is_free("u1/a1/r2"));
}

/// Two resources of one account run in parallel: each waits for a message from the other.
#[test]
fn two_resources_of_one_account_run_side_by_side() {
    let place = TestDirectory::new();
    let mut one = place.hold(&["u1/a1/r1"]);
    let mut two = place.hold(&["u1/a1/r2"]);
    one.write_input("from one\n");
    two.write_input("from two\n");
    assert_eq!((one.line(), two.line()), ("from one".into(), "from two".into()));
}

/// Eight shells increment a counter that is read and written in two steps.
#[test]
fn one_target_runs_one_command_at_a_time() {
    const SHELLS: usize = 8;
    const EACH: usize = 12;
    let place = TestDirectory::new();
    let counter = place.directory.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let script = "n=$(cat \"$1\"); echo $((n + 1)) > \"$1\"";
    let counter_path = counter.to_str().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..SHELLS {
            scope.spawn(|| {
                for _ in 0..EACH {
                    let add = ["u1/a1", "--", "sh", "-c", script, "add", counter_path];
                    assert!(place.run(&add).status().unwrap().success());
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), (SHELLS * EACH).to_string());
}

#[test]
fn signals_are_forwarded_to_the_group_of_the_command() {
    let place = TestDirectory::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let script =
            format!("trap 'exit 42' {}; echo $$; while :; do sleep 0.01; done", signal as i32);
        let mut holder = Holder::start(place.run(&["u1", "--", "sh", "-c", &script]));
        let group = getpgid(Some(pid(holder.command))).unwrap();
        assert_eq!(group, pid(holder.command), "the command has its own process group");
        kill(pid(holder.pid()), signal).unwrap();
        assert_eq!(holder.wait().0, Some(42));
    }
    assert!(place.is_free("u1"));
}

#[test]
fn a_signal_while_waiting_gives_up() {
    let place = TestDirectory::new();
    let holder = place.hold(&["u1"]);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut waiter =
            place.run(&["u2", "u1", "--", "true"]).stderr(Stdio::null()).spawn().unwrap();
        // Either it holds u2 and waits for u1, which is later in the lock order, or it waits for u1 first.
        let threads = format!("/proc/{}/task", waiter.id());
        until("the waiter waits", || fs::read_dir(&threads).is_ok_and(|t| t.count() > 1));
        kill(pid(waiter.id() as i32), signal).unwrap();
        assert_eq!(waiter.wait().unwrap().code(), Some(128 + signal as i32));
        assert!(place.is_free("u2"));
    }
    assert_eq!(holder.finish().0, Some(0));
    assert!(place.is_free("u1"));
}

#[test]
fn an_ignored_signal_stays_ignored() {
    let place = TestDirectory::new();
    // Ignores SIGHUP, as `nohup` does.
    let url = format!("file:{}", place.lock_file().display());
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_hierlock")]);
    command.args(["run", "--url", &url, "u1", "--", "sh", "-c", "echo $$; exec cat"]);
    let mut holder = Holder::start(command);
    kill(pid(holder.pid()), Signal::SIGHUP).unwrap();
    holder.write_input("still here\n");
    assert_eq!(holder.line(), "still here");
    assert_eq!(holder.finish().0, Some(0));
}

#[test]
fn killing_run_frees_the_lock_and_ends_the_command() {
    let place = TestDirectory::new();
    let mut holder = place.hold(&["u1"]);
    assert!(!place.is_free("u1"));
    kill(pid(holder.pid()), Signal::SIGKILL).unwrap();
    holder.process.wait().unwrap();
    // The process is gone, so the kernel has already freed the lock.
    assert!(place.is_free("u1"));
    let command = holder.command;
    until("the command is ended", || is_gone(command));
}

#[test]
fn a_lost_lock_ends_the_whole_group() {
    let place = TestDirectory::new();
    let script = "sleep 1000 & echo $$; echo $!; wait";
    let mut holder = Holder::start(place.run(&["u1", "--", "sh", "-c", script]));
    let grandchild: i32 = holder.line().parse().unwrap();
    fs::remove_file(place.lock_file()).unwrap();
    let (code, printed) = holder.wait();
    assert_eq!(code, Some(76));
    assert!(printed.contains("lock of `u1` is lost"), "{printed}");
    until("the grandchild is ended", || is_gone(grandchild));
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_on_loss() {
    let place = TestDirectory::new();
    let script = "trap '' TERM; echo $$; while :; do sleep 0.05; done";
    let mut holder = Holder::start(place.run(&["--json", "u1", "--", "sh", "-c", script]));
    fs::remove_file(place.lock_file()).unwrap();
    let (code, printed) = holder.wait();
    assert_eq!(code, Some(76));
    assert!(printed.contains("\"event\":\"lost\""), "{printed}");
    assert!(is_gone(holder.command));
}

#[test]
fn a_long_wait_is_reported_with_a_hint_at_an_outer_run() {
    let place = TestDirectory::new();
    let holder = place.hold(&["u1"]);
    let url = format!("file:{}", place.lock_file().display());
    let mut inner = place.run(&["--within", "1500ms", "u1/a1", "--", "true"]);
    let output = inner.env("HIERLOCK_TARGETS", "u1").env("HIERLOCK_URL", url).output().unwrap();
    assert_eq!(code(&output), Some(75));
    let printed = stderr(&output);
    assert!(printed.contains("waiting for u1/a1") && printed.contains("holds `u1`"), "{printed}");
    drop(holder);
}

/// Without a terminal, `run` neither hands over the terminal nor stops.
#[test]
fn run_works_without_a_terminal() {
    let place = TestDirectory::new();
    let mut command = place.run(&["u1", "--", "true"]);
    // SAFETY: setsid is async-signal-safe.
    #[expect(unsafe_code, reason = "setsid between fork and exec")]
    unsafe {
        command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(Into::into));
    }
    assert_eq!(command.status().unwrap().code(), Some(0));
}

/// The failure this prevents: between fork and exec, the child found that its parent was gone and wrote that to a
/// pipe without a reader: "fatal runtime error: assertion failed: output.write(&bytes).is_ok(), aborting", in 14 of
/// a hundred runs that were killed at that moment.
#[test]
fn a_kill_during_the_start_prints_nothing() {
    let place = TestDirectory::new();
    for number in 0..60 {
        let target = format!("u{number}");
        let mut command = place.run(&[&target, "--", "true"]);
        let mut process = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", process.id());
        // Waits until there is a child, or until the process has ended.
        while fs::read_to_string(&children).is_ok_and(|children| children.is_empty())
            && process.try_wait().unwrap().is_none()
        {}
        process.kill().unwrap();
        // The output ends when the last writer has ended, including the command.
        let output = process.wait_with_output().unwrap();
        assert_eq!(stderr(&output), "", "run {number}");
    }
}
