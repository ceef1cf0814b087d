//! A server whose lock table has few buckets, so that paths collide.

use crate::support::{Holder, code, hierlock, stderr, stdout};
use hierlock::{Buckets, Target};
use hierlock_sandbox::{Engine, Sandbox};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Child, Output, Stdio};

const BUCKETS: &str = "16";

pub(crate) struct StripedServer {
    pub(crate) sandbox: Sandbox,
    pub(crate) url: String,
}

/// A `hierlock run` that waits. It is ended on drop.
pub(crate) struct Waiter(pub(crate) Child);

impl StripedServer {
    /// Starts a server. Returns `None` if it is not installed, except in CI.
    pub(crate) fn start(engine: Engine, options: &[&str]) -> Option<Self> {
        let sandbox = Sandbox::for_tests_with(engine, options)?;
        let url = format!("{}?strategy=striped", sandbox.url());
        let server = Self { sandbox, url };
        server.output(&["provision", "--buckets", BUCKETS]);
        Some(server)
    }

    /// Runs a command, which must succeed.
    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        let output = hierlock(arguments).env("HIERLOCK_URL", &self.url).output().unwrap();
        assert_eq!(code(&output), Some(0), "{arguments:?}: {}", stderr(&output));
        output
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&stdout(&self.output(arguments))).unwrap()
    }

    /// Locks a path until the holder is dropped.
    pub(crate) fn hold(&self, path: &str) -> Holder {
        let hold = ["--", "sh", "-c", "echo $$; exec cat"];
        let mut command = hierlock(&["run", "--url", &self.url, path]);
        command.args(hold);
        Holder::start(command)
    }

    /// Starts a `hierlock run` that waits for a path.
    pub(crate) fn wait_for(&self, path: &str) -> Waiter {
        let mut command = hierlock(&["run", "--quiet", "--url", &self.url, path, "--", "true"]);
        Waiter(command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Returns two paths in one bucket.
    pub(crate) fn colliding_paths(&self) -> [String; 2] {
        let buckets = Buckets::new(BUCKETS.parse().unwrap()).unwrap();
        let mut by_bucket: BTreeMap<u32, String> = BTreeMap::new();
        for number in 1.. {
            let path = format!("u1/a1/r{number}");
            let bucket = path.parse::<Target>().unwrap().bucket(buckets);
            if let Some(other) = by_bucket.insert(bucket, path.clone()) {
                return [other, path];
            }
        }
        unreachable!("there are fewer buckets than paths")
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // SIGTERM, because after a SIGKILL its wait would stay on the server.
        let _ = kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM);
        let _ = self.0.wait();
    }
}
