//! On a terminal the command owns it, Ctrl-Z stops both, and `fg` continues both.

use crate::support::{TestDirectory, until};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

/// An interactive shell on a terminal, which script(1) provides.
struct Shell {
    process: std::process::Child,
    screen: Arc<Mutex<String>>,
}

impl Shell {
    fn start() -> Self {
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
        // Written so that its echo does not look like the prompt.
        shell.type_in("PS1='re''ady> '\n");
        shell.wait_for_text("ready> ");
        shell
    }

    fn wait_for_text(&self, text: &str) {
        until(text, || self.screen.lock().unwrap().contains(text));
    }

    /// Clears the screen and types.
    fn type_in(&mut self, text: &str) {
        self.screen.lock().unwrap().clear();
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
    // Printed once by the echo and once by cat, so cat reads from the terminal.
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
