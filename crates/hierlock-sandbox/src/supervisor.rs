//! Runs a server that ends when this process ends for any reason.
//!
//! A shell in its own process group starts the server and then reads a pipe that only this process writes to. A byte on
//! it starts the server again, after it has ended. At the end of the pipe (this process closed it, exited or was
//! killed) the shell ends the server and removes the directory. The kernel's parent-death signal is no alternative: it
//! is sent when the *thread* that started a child ends, and tests end threads all the time.

use crate::error::{Error, Result};
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use tempfile::TempDir;

/// `$1` is the directory, the other arguments are the server's command. The log is a file in the directory.
///
/// A program reads the byte, so that the shell reaps the server in the meantime and the watcher notices its end.
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
    /// Closing the pipe ends the server.
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
        // Its own process group, so that Ctrl-C ends only this process, which then ends the server.
        shell.process_group(0);
        let mut shell = shell.spawn().map_err(Error::io("start the server"))?;
        let pipe = shell.stdin.take();
        // From here on the shell removes the directory.
        Ok(Self { shell, pipe, directory: directory.keep() })
    }

    /// Starts the server again on its data, after it has ended.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        let failed = Error::io("start the server again");
        // Otherwise the files of the last run would be taken for those of the new one.
        for name in ["ended", "server.pid"] {
            std::fs::remove_file(self.directory.join(name)).map_err(failed)?;
        }
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(b"r").map_err(failed))
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.directory.join("ended").exists()
    }

    /// Returns the last lines of the log.
    pub(crate) fn log(&self) -> String {
        const LINES: usize = 15;
        let log = std::fs::read(self.directory.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Keeps the pipe open after the end of this process. Returns the command that ends the server.
    pub(crate) fn keep(mut self) -> String {
        // The end of this process would close the pipe, so a sleeping process inherits it.
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
        // `keep` has taken the pipe, so there is nothing to wait for.
        if self.pipe.take().is_some() {
            let _ = self.shell.wait();
        }
    }
}

/// Runs a program with `input` on its standard input, and waits for its end. Returns its standard output; if it was not
/// successful, fails with all output.
pub(crate) fn run(mut command: Command, input: &str) -> Result<String> {
    let failed = Error::io("run a program of the server");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().map_err(failed)?;
    if let Some(mut pipe) = program.stdin.take() {
        // If the program ends early, its output contains the reason.
        let _ = pipe.write_all(input.as_bytes());
    }
    let output = program.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let texts =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let command = command.get_program().to_string_lossy().into_owned();
    Err(Error::CommandFailed { command, output: texts.concat().trim().to_owned() })
}

/// The user id of the server process; None for the current user.
pub(crate) type User = Option<u32>;

/// Returns an unprivileged user if this process runs as root, for a server that refuses to run as root.
pub(crate) fn unprivileged_user() -> User {
    const NOBODY: u32 = 65534;
    nix::unistd::getuid().is_root().then_some(NOBODY)
}

pub(crate) fn run_as(user: User, command: &mut Command) {
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
}

/// Makes the server's user the owner of its directory.
pub(crate) fn change_owner(user: User, directory: &Path) -> Result<()> {
    let result = user.map_or(Ok(()), |user| chown(directory, Some(user), Some(user)));
    result.map_err(Error::io("change the owner of the directory"))
}
