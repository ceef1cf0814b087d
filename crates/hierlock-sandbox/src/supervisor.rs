//! Runs a server so that it ends with us, however we end.
//!
//! A shell in a process group of its own starts the server and then reads a pipe that only we can write
//! to. A byte on it starts the server again, which has ended by then. When the pipe comes to its end (we
//! closed it, exited, or were killed) it ends the server and removes the directory. Not the kernel's parent-death signal: that fires when the *thread* that
//! started a child ends, and tests end threads all the time.

use crate::error::{Error, Result};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use tempfile::TempDir;

/// `$1` is the directory, the rest the server. The log goes to a file in the directory.
///
/// The byte is read by a program, not by the shell itself: while it waits for that, it notices that the
/// server has ended, and the watcher can see it.
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
    directory: PathBuf,
}

impl Supervisor {
    pub(crate) fn start(server: Command, user: User, directory: TempDir) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", SCRIPT, "hierlock-sandbox"])
            .arg(directory.path())
            .arg(server.get_program());
        shell.args(server.get_args()).current_dir("/");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        user.apply(&mut shell);
        // A group of its own, so that Ctrl-C ends us, and we end it.
        shell.process_group(0);
        let mut shell = shell.spawn().map_err(|source| Error::io("start the server", source))?;
        let pipe = shell.stdin.take();
        // From here on the shell removes it.
        Ok(Self { shell, pipe, directory: directory.keep() })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn server_pid(&self) -> Option<u32> {
        std::fs::read_to_string(self.directory.join("server.pid")).ok()?.trim().parse().ok()
    }

    /// Starts the server again, which has ended, on what it has left.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        let failed = |source| Error::io("start the server again", source);
        // So that nobody takes what the last one has left for a sign of the new one.
        for name in ["ended", "server.pid"] {
            std::fs::remove_file(self.directory.join(name)).map_err(failed)?;
        }
        match &mut self.pipe {
            Some(pipe) => pipe.write_all(b"r").map_err(failed),
            None => Ok(()),
        }
    }

    /// What it said, if it is no longer running.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.directory.join("ended").exists().then(|| self.log())
    }

    /// The end of its log.
    pub(crate) fn log(&self) -> String {
        const LINES: usize = 15;
        let log = std::fs::read(self.directory.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Nobody closes the pipe any more; how to end it by hand.
    pub(crate) fn keep(mut self) -> String {
        // The end of this process would close it: so it is handed to a process that only sleeps.
        if let Some(pipe) = self.pipe.take() {
            let sleeper = Command::new("sleep")
                .arg("infinity")
                .stdin(Stdio::null())
                .stdout(Stdio::from(pipe))
                .stderr(Stdio::null())
                .process_group(0)
                .spawn();
            if let Ok(sleeper) = sleeper {
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
    user.apply(command);
    let output = command
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|source| Error::io("prepare the server", source))?;
    if output.status.success() {
        return Ok(());
    }
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let command = command.get_program().to_string_lossy().into_owned();
    Err(Error::Step { command, said: said.concat().trim().to_owned() })
}

/// Who a server runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// Whoever we are.
    Ourselves,
    /// If we are root, somebody with no rights; otherwise whoever we are.
    NeverRoot,
}

impl User {
    /// The number of `nobody`.
    const NOBODY: u32 = 65534;

    fn is_another(self) -> bool {
        self == User::NeverRoot && nix::unistd::getuid().is_root()
    }

    fn apply(self, command: &mut Command) {
        if self.is_another() {
            command.uid(Self::NOBODY).gid(Self::NOBODY);
        }
    }

    /// Lets the server write into its directory.
    pub(crate) fn own(self, directory: &Path) -> Result<()> {
        if !self.is_another() {
            return Ok(());
        }
        std::os::unix::fs::chown(directory, Some(Self::NOBODY), Some(Self::NOBODY))
            .map_err(|source| Error::io("hand the directory to the server", source))
    }
}
