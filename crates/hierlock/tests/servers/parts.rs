//! Other processes: this test binary starts itself again, once for each part that a test needs played.

use crate::soak;
use crate::support::target;
use hierlock::{Guard, Hierlock};
use hierlock_conformance::until_waiting;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "HIERLOCK_TEST_ROLE";
const URL: &str = "HIERLOCK_TEST_URL";
const PLACE: &str = "HIERLOCK_TEST_PLACE";
/// Before each line that is meant for the other side: the test harness writes too.
const SAYS: &str = "part> ";
pub(crate) const ADDS: u64 = 12;

/// Another process. It ends with its test, however that ends.
pub(crate) struct Part {
    process: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Part {
    /// What it locks, or where it writes, is its place.
    pub(crate) fn play(role: &str, url: &str, place: impl AsRef<Path>) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "parts::a_part_in_another_test", "--nocapture"])
            .env(ROLE, role)
            .env(URL, url)
            .env(PLACE, place.as_ref())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until it says this.
    pub(crate) fn says(&mut self, wanted: &str) {
        let line = self.output.find_map(|line| {
            let line = line.unwrap();
            line.split_once(SAYS).map(|(_, said)| said.to_owned())
        });
        assert_eq!(line.as_deref(), Some(wanted));
    }

    pub(crate) fn kill_9(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// It must have ended well.
    pub(crate) fn finish(mut self) {
        self.input = None;
        let rest: Vec<String> = self.output.by_ref().map_while(Result::ok).collect();
        assert!(self.process.wait().unwrap().success(), "{}", rest.join("\n"));
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn say(line: &str) {
    println!("\n{SAYS}{line}");
}

/// Does nothing unless another test has started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_in_another_test() {
    let (Ok(role), Ok(url), Ok(place)) =
        (std::env::var(ROLE), std::env::var(URL), std::env::var(PLACE))
    else {
        return;
    };
    let locks = Hierlock::connect(&url).await.unwrap();
    match role.as_str() {
        "holder" => {
            let _guard = locks.acquire(target(&place)).await.unwrap();
            say("holds");
            std::future::pending::<()>().await;
        }
        "waiter" => {
            let wait = locks.acquire(target(&place));
            let waits = async {
                until_waiting(&locks, 1).await;
                say("waits");
                std::future::pending::<()>().await;
            };
            tokio::select! {
                granted = wait => {
                    drop(granted.unwrap());
                    say("granted");
                }
                () = waits => {}
            }
        }
        "adder" => add(&locks, Path::new(&place)).await,
        "obeys" => obey(&locks),
        "soak" => soak::play(&locks, Path::new(&place)).await,
        other => panic!("{other}"),
    }
}

/// Adds to a number in a file, with nothing but the lock to keep others away.
async fn add(locks: &Hierlock, counter: &Path) {
    for _ in 0..ADDS {
        let guard = locks.acquire(target("u1/a1")).await.unwrap();
        let value: u64 = std::fs::read_to_string(counter).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        std::fs::write(counter, (value + 1).to_string()).unwrap();
        guard.release().await.unwrap();
    }
}

/// Holds what it is told, one at a time; an empty line frees it.
fn obey(locks: &Hierlock) {
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
        say(&line);
    }
}
