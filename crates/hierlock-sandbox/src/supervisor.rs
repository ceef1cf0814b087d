//! Runs a server so that it ends with this process, however the process ends.
//!
//! A shell in a process group of its own starts the server and then reads a pipe that only we can write to. A byte on it
//! starts the server again, which has ended by then. When the pipe comes to its end (we closed it, exited, or were
//! killed) it ends the server and removes the directory. Not the kernel's parent-death signal: that fires when the
//! *thread* that started a child ends, and tests end threads all the time.

use crate::error::{Error, Result};
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use tempfile::TempDir;

/// `$1` is the directory, the rest the server. The log goes to a file in the directory.
///
/// The byte is read by a program: meanwhile the shell notices that the server has ended, and the watcher sees it.
const SCRIPT: &str = r#"
directory=$1; shift
start() {
    "$@" >>"$directory/log" 2>&1 </dev/null &
    server=$!
    echo $server >"$directory/server.pid"
    ( while kill -0 $server 2>/dev/null; do sleep 0.2; done; : >"$directory/ended" ) </dev/null &
    watcher=$!
}
start "$@"
while head -c 1 | grep -q .; do start "$@"; done
kill -QUIT $server 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 $server 2>/dev/null || break; sleep 0.05; done
kill -KILL $server $watcher 2>/dev/null
wait 2>/dev/null
rm -rf "$directory"
"#;

#[derive(Debug)]
pub(crate) struct Supervisor {
    shell: Child,
    /// Closing it ends the server.
    pipe: Option<ChildStdin>,
    pub(crate) directory: PathBuf,
}

impl Supervisor {
    pub(crate) fn start(server: Command, user: User, directory: TempDir) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "hierlock-sandbox"]).arg(directory.path());
        shell.arg(server.get_program()).args(server.get_args()).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        run_as(user, &mut shell);
        // A group of its own, so that Ctrl-C ends us, and we end it.
        shell.process_group(0);
        let mut shell = shell.spawn().map_err(Error::io("start the server"))?;
        let pipe = shell.stdin.take();
        // From here on the shell removes it.
        Ok(Self { shell, pipe, directory: directory.keep() })
    }

    /// Starts the server again, which has ended, on what it has left.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        let failed = Error::io("start the server again");
        // The files of the last run must not be taken for those of the new one.
        for name in ["ended", "server.pid"] {
            std::fs::remove_file(self.directory.join(name)).map_err(failed)?;
        }
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(b"r").map_err(failed))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.directory.join("ended").exists()
    }

    /// Returns the end of its log.
    pub(crate) fn log(&self) -> String {
        const LINES: usize = 15;
        let log = std::fs::read(self.directory.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Keeps the pipe open after the end of this process; returns how to end the server by hand.
    pub(crate) fn keep(mut self) -> String {
        // The end of this process would close it: so it is handed to a process that only sleeps.
        if let Some(pipe) = self.pipe.take() {
            let mut sleeper = Command::new("sleep");
            sleeper.arg("infinity").process_group(0);
            sleeper.stdin(Stdio::null()).stdout(pipe).stderr(Stdio::null());
            if let Ok(sleeper) = sleeper.spawn() {
                return format!("kill {}", sleeper.id());
            }
        }
        "it has ended".to_owned()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // `keep` has taken the pipe: then there is nothing to wait for.
        if self.pipe.take().is_some() {
            let _ = self.shell.wait();
        }
    }
}

/// Runs a step to its end.
pub(crate) fn run(command: &mut Command, user: User, directory: &Path) -> Result<()> {
    run_as(user, command);
    let output = command.current_dir(directory).stdin(Stdio::null()).output();
    let output = output.map_err(Error::io("prepare the server"))?;
    if output.status.success() {
        return Ok(());
    }
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let command = command.get_program().to_string_lossy().into_owned();
    Err(Error::Step { command, said: said.concat().trim().to_owned() })
}

/// The user id that a server runs as; None for our own.
pub(crate) type User = Option<u32>;

/// Returns a user with no rights if we are root, for a server that refuses to run as root.
pub(crate) fn never_root() -> User {
    const NOBODY: u32 = 65534;
    nix::unistd::getuid().is_root().then_some(NOBODY)
}

fn run_as(user: User, command: &mut Command) {
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
}

/// Lets the server write into its directory.
pub(crate) fn give_directory(user: User, directory: &Path) -> Result<()> {
    let given = user.map_or(Ok(()), |user| chown(directory, Some(user), Some(user)));
    given.map_err(Error::io("hand the directory to the server"))
}
