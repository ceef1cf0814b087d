//! Sessions of other programs: `mysql`, `mariadb` and `psql`, which read SQL from their standard input.

use hierlock_sandbox::{Engine, Sandbox};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A client program with one session.
pub(crate) struct ClientProgram {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The server's id of the session.
    pub(crate) id: i64,
}

impl ClientProgram {
    /// Starts the client of the server's own package.
    pub(crate) fn start(server: &Sandbox) -> Self {
        let mut command = server.client().expect("the client program of the server is installed");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut client = Self { process, input, output: BufReader::new(output), id: 0 };
        let id = match server.engine() {
            Engine::Postgres => "SELECT pg_backend_pid();",
            _ => "SELECT CONNECTION_ID();",
        };
        client.id = client.ask(id).parse().unwrap();
        client
    }

    /// Sends statements, and does not wait for their results.
    pub(crate) fn send(&mut self, sql: &str) {
        self.input.write_all(format!("{sql}\n").as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// Runs statements; returns the one value that the last of them returns.
    pub(crate) fn ask(&mut self, sql: &str) -> String {
        self.send(sql);
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Runs statements that return no rows; waits until they are done.
    pub(crate) fn run(&mut self, sql: &str) {
        assert_eq!(self.ask(&format!("{sql}\nSELECT 'done';")), "done", "{sql}");
    }
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
