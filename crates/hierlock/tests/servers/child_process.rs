//! Child processes: this test binary starts itself again, once for each role that a test needs.

use crate::soak;
use crate::support::target;
use hierlock::{Guard, Hierlock};
use hierlock_conformance::until_waiting;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "HIERLOCK_TEST_ROLE";
const URL: &str = "HIERLOCK_TEST_URL";
const ARGUMENT: &str = "HIERLOCK_TEST_ARGUMENT";
/// Marks the lines for the parent process, because the test harness prints too.
const LINE_PREFIX: &str = "child> ";
pub(crate) const INCREMENTS: u64 = 12;

/// A child process. Dropping it kills the process.
pub(crate) struct ChildProcess {
    process: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    /// Starts a process in a role. The argument is the node to lock, or the file to write.
    pub(crate) fn spawn(role: &str, url: &str, argument: impl AsRef<Path>) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process::run_role_of_another_test", "--nocapture"])
            .env(ROLE, role)
            .env(URL, url)
            .env(ARGUMENT, argument.as_ref())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Reads the next line and checks it.
    pub(crate) fn expect_line(&mut self, expected: &str) {
        let line = self.output.find_map(|line| {
            let line = line.unwrap();
            line.split_once(LINE_PREFIX).map(|(_, text)| text.to_owned())
        });
        assert_eq!(line.as_deref(), Some(expected));
    }

    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Waits for the end of the process, which must succeed.
    pub(crate) fn finish(mut self) {
        self.input = None;
        let rest: Vec<String> = self.output.by_ref().map_while(Result::ok).collect();
        assert!(self.process.wait().unwrap().success(), "{}", rest.join("\n"));
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn print_line(line: &str) {
    println!("\n{LINE_PREFIX}{line}");
}

/// Plays the role that another test has started this process for. Does nothing otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_role_of_another_test() {
    let (Ok(role), Ok(url), Ok(argument)) =
        (std::env::var(ROLE), std::env::var(URL), std::env::var(ARGUMENT))
    else {
        return;
    };
    let locks = Hierlock::connect(&url).await.unwrap();
    match role.as_str() {
        "holder" => {
            let _guard = locks.acquire(target(&argument)).await.unwrap();
            print_line("holds");
            std::future::pending::<()>().await;
        }
        "waiter" => {
            let wait = locks.acquire(target(&argument));
            let waits = async {
                until_waiting(&locks, 1).await;
                print_line("waits");
                std::future::pending::<()>().await;
            };
            tokio::select! {
                granted = wait => {
                    drop(granted.unwrap());
                    print_line("granted");
                }
                () = waits => {}
            }
        }
        "adder" => increment(&locks, Path::new(&argument)).await,
        "holder on command" => hold_on_command(&locks),
        "soak" => soak::run_workers(&locks, Path::new(&argument)).await,
        other => panic!("unknown role `{other}`"),
    }
}

/// Increments a number in a file, protected only by the lock.
async fn increment(locks: &Hierlock, counter: &Path) {
    for _ in 0..INCREMENTS {
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        let value: u64 = std::fs::read_to_string(counter).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        std::fs::write(counter, (value + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
}

/// Reads targets from standard input and holds them one at a time. An empty line releases the last one.
fn hold_on_command(locks: &Hierlock) {
    let mut held: Option<Guard> = None;
    for line in std::io::stdin().lines().map(Result::unwrap) {
        tokio::task::block_in_place(|| {
            let handle = tokio::runtime::Handle::current();
            if let Some(guard) = held.take() {
                handle.block_on(guard.release()).unwrap();
            }
            if !line.is_empty() {
                held = Some(handle.block_on(locks.acquire(target(&line))).unwrap());
            }
        });
        print_line(&line);
    }
}
