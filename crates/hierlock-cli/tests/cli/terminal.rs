//! `hierlock run` on a terminal: the command owns the terminal, Ctrl-Z stops both, and `fg` continues both.

use crate::support::{TestDirectory, until};
use crate::virtual_screen::text_on_screen;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than a restart of a server takes on a busy machine.
const SCREEN_LIMIT: Duration = Duration::from_secs(60);

/// An interactive shell on a terminal, which script(1) provides.
pub(crate) struct Shell {
    process: std::process::Child,
    screen: Arc<Mutex<String>>,
}

impl Shell {
    pub(crate) fn start() -> Self {
        let mut process = Command::new("/usr/bin/env")
            .args(["--default-signal", "script"])
            .args(["-qfec", "bash --norc --noprofile -i", "/dev/null"])
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let (shown, mut output) = (screen.clone(), process.stdout.take().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut shell = Self { process, screen };
        // The quotes prevent that the echo of this line looks like the prompt.
        shell.type_in("PS1='re''ady> '\n");
        shell.wait_for_text("ready> ");
        shell
    }

    pub(crate) fn wait_for_text(&self, text: &str) {
        until(text, || self.screen.lock().unwrap().contains(text));
    }

    /// Waits for a text on the screen, also if cursor movements have put it together.
    pub(crate) fn wait_for_screen(&self, text: &str) {
        self.wait_for_condition(text, |screen| screen.contains(text));
    }

    pub(crate) fn wait_for_no_text_on_screen(&self, text: &str) {
        self.wait_for_condition(text, |screen| !screen.contains(text));
    }

    /// Waits until what is on the screen is as it should be.
    pub(crate) fn wait_for_condition(&self, what: &str, condition: impl Fn(&str) -> bool) {
        let screen = || text_on_screen(&self.screen.lock().unwrap());
        let started = Instant::now();
        while !condition(&screen()) {
            assert!(
                started.elapsed() < SCREEN_LIMIT,
                "timed out waiting for the screen: {what}\n{}",
                screen()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Forgets the output so far, and types a text.
    pub(crate) fn type_in(&mut self, text: &str) {
        self.screen.lock().unwrap().clear();
        self.press(text);
    }

    /// Types a text.
    pub(crate) fn press(&mut self, text: &str) {
        self.process.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_command_owns_the_terminal_and_stops_with_run() {
    let place = TestDirectory::new();
    let hold = format!(
        "{} run --url file:{} u1 -- sh -c 'echo be''gun; exec cat'\n",
        env!("CARGO_BIN_EXE_hierlock"),
        place.lock_file().display()
    );
    let mut shell = Shell::start();
    shell.type_in(&hold);
    shell.wait_for_text("begun");
    // The terminal echoes the line and `cat` prints it, so `cat` reads from the terminal.
    shell.type_in("one\n");
    shell.wait_for_text("one\r\none");
    shell.type_in("\x1a");
    shell.wait_for_text("Stopped");
    assert!(!place.is_free("u1"), "a stopped command keeps its lock");
    shell.type_in("fg\n");
    shell.wait_for_text("cat");
    shell.type_in("two\n");
    shell.wait_for_text("two\r\ntwo");
    shell.type_in("\x03");
    shell.wait_for_text("ready> ");
    shell.type_in("echo code=$?\n");
    shell.wait_for_text("code=130");
    assert!(place.is_free("u1"));
}
