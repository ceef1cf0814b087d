//! What happened, as it was recorded beside the locks: a line for each event, appended to one file by all
//! processes of a setup.
//!
//! ```text
//!   TIME WORKER TASK VISIT KIND …
//!   81234567 17 2 5 begin exclusive:u1/a1,shared:u2/a1/r1
//! ```

use super::clock;
use hierlock::{Claim, Mode};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Names a visit: a process by the number that the driver gave it, a task in it, and a visit of that task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisitId {
    /// The process.
    pub worker: u32,
    /// Which of its tasks.
    pub task: u32,
    /// Which visit of the task.
    pub number: u32,
}

impl fmt::Display for VisitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.worker, self.task, self.number)
    }
}

/// What happened in a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It asked for these.
    Ask(Vec<Claim>),
    /// It did not get them.
    NotGranted(Reason),
    /// It holds these; recorded after the acquire returned.
    Begin(Vec<Claim>),
    /// It holds these as well; recorded after the extension returned.
    Extend(Vec<Claim>),
    /// The server answered on its session with a token. The question was sent at `asked`, so it was held then.
    Token {
        /// When the question was sent.
        asked: u64,
        /// The answer.
        token: u64,
    },
    /// A lease is valid until then, on the clock of the histories.
    Valid {
        /// Until when.
        until: u64,
    },
    /// A write under a lease was checked in a transaction.
    Check,
    /// The transaction of the check is about to be committed.
    Commit,
    /// The transaction of the check was committed.
    Committed,
    /// Its work is over; recorded before the release is asked for.
    End,
    /// The release was confirmed.
    Released,
    /// Its guard said that the lock is lost, or the release failed.
    Lost,
    /// A job, whose number is that of the visit, is begun.
    Run,
    /// A run of a job failed, or was no longer this run's.
    Fail,
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It was not free, and was not to be waited for.
    Busy,
    /// Its deadline came.
    Timeout,
    /// It would have been a deadlock.
    Deadlock,
    /// The caller dropped the future.
    Dropped,
    /// The server could not be used.
    Failed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 5] =
        [Reason::Busy, Reason::Timeout, Reason::Deadlock, Reason::Dropped, Reason::Failed];

    /// Its name in a history.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Busy => "busy",
            Reason::Timeout => "timeout",
            Reason::Deadlock => "deadlock",
            Reason::Dropped => "dropped",
            Reason::Failed => "failed",
        }
    }

    /// Reads an error of hierlock.
    pub fn of(error: &hierlock::Error) -> Self {
        if error.is_would_block() || error.is_held() {
            Reason::Busy
        } else if error.is_timeout() {
            Reason::Timeout
        } else if error.is_deadlock() {
            Reason::Deadlock
        } else {
            Reason::Failed
        }
    }
}

/// An event of a visit, and when it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryLine {
    /// On the [clock](clock::now) of the histories.
    pub at: u64,
    /// Of which visit.
    pub visit: VisitId,
    /// What happened.
    pub event: Event,
}

impl fmt::Display for HistoryLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VisitId { worker, task, number } = self.visit;
        write!(f, "{} {worker} {task} {number} ", self.at)?;
        match &self.event {
            Event::Ask(claims) => write!(f, "ask {}", written(claims)),
            Event::NotGranted(reason) => write!(f, "not-granted {}", reason.name()),
            Event::Begin(claims) => write!(f, "begin {}", written(claims)),
            Event::Extend(claims) => write!(f, "extend {}", written(claims)),
            Event::Token { asked, token } => write!(f, "token {asked} {token}"),
            Event::Valid { until } => write!(f, "valid {until}"),
            Event::Check => f.write_str("check"),
            Event::Commit => f.write_str("commit"),
            Event::Committed => f.write_str("committed"),
            Event::End => f.write_str("end"),
            Event::Released => f.write_str("released"),
            Event::Lost => f.write_str("lost"),
            Event::Run => f.write_str("run"),
            Event::Fail => f.write_str("fail"),
        }
    }
}

/// Writes claims as `MODE:PATH,MODE:PATH`.
pub fn written(claims: &[Claim]) -> String {
    let claims: Vec<String> = claims.iter().map(|c| format!("{}:{}", c.mode, c.target)).collect();
    claims.join(",")
}

/// Reads what [`written`] writes.
pub fn read_claims(text: &str) -> Option<Vec<Claim>> {
    let claim = |text: &str| {
        let (mode, path) = text.split_once(':')?;
        Some(Claim { target: path.parse().ok()?, mode: mode.parse::<Mode>().ok()? })
    };
    text.split(',').map(claim).collect()
}

impl HistoryLine {
    /// Reads a line of a history.
    pub fn read(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let at = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok();
        let visit = VisitId { worker: number()?, task: number()?, number: number()? };
        let kind = words.next()?;
        let mut claims = || read_claims(words.next()?);
        let event = match kind {
            "ask" => Event::Ask(claims()?),
            "begin" => Event::Begin(claims()?),
            "extend" => Event::Extend(claims()?),
            "not-granted" => {
                let name = words.next()?;
                Event::NotGranted(Reason::ALL.into_iter().find(|r| r.name() == name)?)
            }
            "token" => Event::Token {
                asked: words.next()?.parse().ok()?,
                token: words.next()?.parse().ok()?,
            },
            "valid" => Event::Valid { until: words.next()?.parse().ok()? },
            "check" => Event::Check,
            "commit" => Event::Commit,
            "committed" => Event::Committed,
            "end" => Event::End,
            "released" => Event::Released,
            "lost" => Event::Lost,
            "run" => Event::Run,
            "fail" => Event::Fail,
            _ => return None,
        };
        Some(Self { at, visit, event })
    }
}

/// Appends events to the file that all processes of a setup share. A line is one small write, so it is there as
/// a whole or not at all, also if its process is killed.
#[derive(Debug)]
pub struct Recorder(File);

impl Recorder {
    /// Opens the file, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).open(path).map(Self)
    }

    /// Records that something happens now.
    ///
    /// # Panics
    /// If it cannot be written: a history with a gap proves nothing.
    pub fn record(&self, visit: VisitId, event: Event) {
        let line = format!("{}\n", HistoryLine { at: clock::now(), visit, event });
        (&self.0).write_all(line.as_bytes()).expect("the history can be written");
    }
}

/// Reads a whole history.
///
/// # Errors
/// If the file cannot be read, or has a line that is none.
pub fn read(path: &Path) -> Result<Vec<HistoryLine>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let line =
        |line: &str| HistoryLine::read(line).ok_or_else(|| format!("not an event: `{line}`"));
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back() {
        let claims = read_claims("exclusive:u1/a1,shared:u2,update:u3/a1/r1").unwrap();
        let visit = VisitId { worker: 17, task: 2, number: 5 };
        let events = [
            Event::Ask(claims.clone()),
            Event::Begin(claims.clone()),
            Event::Extend(claims),
            Event::Token { asked: 4, token: u64::MAX },
            Event::Valid { until: 9 },
            Event::Check,
            Event::Commit,
            Event::Committed,
            Event::End,
            Event::Released,
            Event::Lost,
            Event::Run,
            Event::Fail,
        ];
        let reasons = Reason::ALL.map(Event::NotGranted);
        for event in events.into_iter().chain(reasons) {
            let line = HistoryLine { at: 3, visit, event };
            assert_eq!(HistoryLine::read(&line.to_string()), Some(line));
        }
        assert_eq!(HistoryLine::read("3 17 2 5 begin exclusive"), None);
        assert_eq!(HistoryLine::read("3 17 2"), None);
    }
}
