//! The signals that a person or a supervisor sends.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// One that we were told to ignore (by `nohup`, or by a shell
/// that runs us in the background) stays ignored.
pub(crate) struct Signals {
    each: Vec<(i32, Signal)>,
    came: bool,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ]
        .into_iter()
        .filter(|kind| ignored >> (kind.as_raw_value() - 1) & 1 == 0)
        .map(|kind| Ok((kind.as_raw_value(), signal(kind)?)))
        .collect::<io::Result<_>>()
        .map(|each| Self { each, came: false })
    }

    /// Has there been any?
    pub(crate) fn came(&self) -> bool {
        self.came
    }

    /// # Cancel safety
    /// No signal is lost.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.each {
                if signal.poll_recv(context).is_ready() {
                    self.came = true;
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The set of ignored signals, bit n-1 for signal n. Where the kernel does not tell: none.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .unwrap_or(0)
}
