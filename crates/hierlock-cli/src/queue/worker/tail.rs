//! Forwards the standard error of a command, and keeps its last lines for the error of the job.

use std::process::ChildStderr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const MAX_BYTES: usize = 2000;
/// The time limit for the end of standard error after the command's end. A process that the command left behind may keep it
/// open.
const END_LIMIT: Duration = Duration::from_secs(1);

pub(super) struct StderrTail {
    tail: Arc<Mutex<Tail>>,
    task: Option<JoinHandle<()>>,
}

impl StderrTail {
    pub(super) fn follow(stderr: Option<ChildStderr>) -> Self {
        let tail = Arc::<Mutex<Tail>>::default();
        let stderr = stderr.and_then(|stderr| tokio::process::ChildStderr::from_std(stderr).ok());
        let task = stderr.map(|stderr| tokio::spawn(forward(stderr, tail.clone())));
        Self { tail, task }
    }

    /// Waits for the end of standard error, at most [`END_LIMIT`]; returns its last lines.
    pub(super) async fn lines(&mut self) -> String {
        if let Some(task) = &mut self.task {
            // The task continues for processes that the command left behind.
            let _ = timeout(END_LIMIT, task).await;
        }
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).lines()
    }
}

async fn forward(mut stderr: tokio::process::ChildStderr, tail: Arc<Mutex<Tail>>) {
    let mut output = tokio::io::stderr();
    let mut bytes = vec![0; 8192];
    while let Ok(count @ 1..) = stderr.read(&mut bytes).await {
        tail.lock().unwrap_or_else(PoisonError::into_inner).push(&bytes[..count]);
        // If it cannot be forwarded, its end is still kept.
        let _ = output.write_all(&bytes[..count]).await;
        let _ = output.flush().await;
    }
}

#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_truncated: bool,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if let Some(excess @ 1..) = self.bytes.len().checked_sub(MAX_BYTES) {
            self.bytes.drain(..excess);
            self.is_truncated = true;
        }
    }

    /// Returns the last whole lines, or the end of the last line if it is too long.
    fn lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim_end();
        match text.split_once('\n') {
            Some((_, whole)) if self.is_truncated => whole.to_owned(),
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_lines_are_kept() {
        let mut tail = Tail::default();
        tail.push(b"one\ntwo\n\n");
        assert_eq!(tail.lines(), "one\ntwo");
        for number in 0..1000 {
            tail.push(format!("line {number}\n").as_bytes());
        }
        let lines = tail.lines();
        assert!(lines.len() <= MAX_BYTES && lines.len() > MAX_BYTES - 20, "{}", lines.len());
        assert!(lines.starts_with("line ") && lines.ends_with("\nline 999"), "{lines}");
    }

    #[test]
    fn the_end_of_a_long_line_is_kept() {
        let mut tail = Tail::default();
        tail.push(&b"x".repeat(MAX_BYTES * 3));
        tail.push(b"end\n");
        assert!(tail.lines().len() < MAX_BYTES && tail.lines().ends_with("xend"));
        tail.push(b"\xff\n");
        assert!(tail.lines().ends_with('\u{fffd}'));
    }
}
