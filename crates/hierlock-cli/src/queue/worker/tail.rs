//! The end of what a command writes to standard error, all of which is passed on.

use std::process::ChildStderr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// So much of it is kept with a job that failed.
const MOST: usize = 2000;
/// Somebody whom the command has left behind may have its standard error, too, and nobody waits for that one.
const OTHERS: Duration = Duration::from_secs(1);

/// A task that reads it.
pub(super) struct Tail {
    kept: Arc<Mutex<Kept>>,
    reading: Option<JoinHandle<()>>,
}

impl Tail {
    pub(super) fn follow(errors: Option<ChildStderr>) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
        let errors = errors.and_then(|errors| tokio::process::ChildStderr::from_std(errors).ok());
        let reading = errors.map(|errors| tokio::spawn(pass_on(errors, kept.clone())));
        Self { kept, reading }
    }

    /// When the command has ended: its last lines.
    pub(super) async fn lines(&mut self) -> String {
        if let Some(reading) = &mut self.reading {
            // It goes on for those who were left behind.
            let _ = timeout(OTHERS, reading).await;
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).lines()
    }
}

async fn pass_on(mut errors: tokio::process::ChildStderr, kept: Arc<Mutex<Kept>>) {
    let mut ours = tokio::io::stderr();
    let mut bytes = vec![0; 8192];
    while let Ok(count @ 1..) = errors.read(&mut bytes).await {
        kept.lock().unwrap_or_else(PoisonError::into_inner).add(&bytes[..count]);
        // If nobody can read it, it is still kept.
        let _ = ours.write_all(&bytes[..count]).await;
        let _ = ours.flush().await;
    }
}

#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Kept {
    fn add(&mut self, more: &[u8]) {
        self.bytes.extend_from_slice(more);
        if let Some(over @ 1..) = self.bytes.len().checked_sub(MOST) {
            self.bytes.drain(..over);
            self.is_cut = true;
        }
    }

    /// Whole lines, unless the last one alone is too long.
    fn lines(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim_end();
        match text.split_once('\n') {
            Some((_, whole)) if self.is_cut => whole.to_owned(),
            _ => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_lines_are_kept() {
        let mut kept = Kept::default();
        kept.add(b"one\ntwo\n\n");
        assert_eq!(kept.lines(), "one\ntwo");
        for number in 0..1000 {
            kept.add(format!("line {number}\n").as_bytes());
        }
        let lines = kept.lines();
        assert!(lines.len() <= MOST && lines.len() > MOST - 20, "{}", lines.len());
        assert!(lines.starts_with("line ") && lines.ends_with("\nline 999"), "{lines}");
    }

    #[test]
    fn of_one_long_line_the_end_is_kept() {
        let mut kept = Kept::default();
        kept.add(&b"x".repeat(MOST * 3));
        kept.add(b"end\n");
        assert!(kept.lines().len() < MOST && kept.lines().ends_with("xend"));
        kept.add(b"\xff\n");
        assert!(kept.lines().ends_with('\u{fffd}'));
    }
}
