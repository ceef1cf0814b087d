//! The history of a setup: a line for each event, appended to one file by all processes.
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

/// Identifies a visit: the number of the process, of the task in it, and of the visit of that task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisitId {
    /// The number of the process.
    pub worker: u32,
    /// The number of the task in the process.
    pub task: u32,
    /// The number of the visit in the task.
    pub number: u32,
}

impl fmt::Display for VisitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.worker, self.task, self.number)
    }
}

/// An event of a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The visit requests these locks.
    Ask(Vec<Claim>),
    /// The request failed.
    NotGranted(Reason),
    /// The visit holds these locks. Recorded after the acquire has returned.
    Begin(Vec<Claim>),
    /// The visit holds these locks as well. Recorded after the extension has returned.
    Extend(Vec<Claim>),
    /// The server returned a token on the session of the visit. The request was sent at `asked`, so the lock was held then.
    Token {
        /// When the request was sent.
        asked: u64,
        /// The token.
        token: u64,
    },
    /// A lease is valid until this time on the clock of the histories.
    Valid {
        /// The end of the lease.
        until: u64,
    },
    /// A write under a lease was checked in a transaction.
    Check,
    /// The transaction of the check is about to be committed.
    Commit,
    /// The transaction of the check was committed.
    Committed,
    /// The work of the visit is over. Recorded before the release is requested.
    End,
    /// The release was confirmed.
    Released,
    /// The guard reported that the lock is lost, or the release failed.
    Lost,
    /// A run of a job begins. The number of the visit is that of the job.
    Run,
    /// A run of a job failed, or lost its claim.
    Fail,
}

/// The reason why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The lock was held, and the request did not wait.
    Busy,
    /// The deadline passed.
    Timeout,
    /// The request was the victim of a deadlock.
    Deadlock,
    /// The caller dropped the future.
    Dropped,
    /// The server could not be reached.
    Failed,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 5] =
        [Reason::Busy, Reason::Timeout, Reason::Deadlock, Reason::Dropped, Reason::Failed];

    /// Returns the name of the reason in a history.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Busy => "busy",
            Reason::Timeout => "timeout",
            Reason::Deadlock => "deadlock",
            Reason::Dropped => "dropped",
            Reason::Failed => "failed",
        }
    }

    /// Returns the reason of an error of hierlock.
    pub fn from_error(error: &hierlock::Error) -> Self {
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

/// A line of a history: an event, its time and its visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryLine {
    /// The time on the [clock](clock::now) of the histories.
    pub at: u64,
    /// The visit.
    pub visit: VisitId,
    /// The event.
    pub event: Event,
}

impl fmt::Display for HistoryLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VisitId { worker, task, number } = self.visit;
        write!(f, "{} {worker} {task} {number} ", self.at)?;
        match &self.event {
            Event::Ask(claims) => write!(f, "ask {}", format_claims(claims)),
            Event::NotGranted(reason) => write!(f, "not-granted {}", reason.name()),
            Event::Begin(claims) => write!(f, "begin {}", format_claims(claims)),
            Event::Extend(claims) => write!(f, "extend {}", format_claims(claims)),
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

/// Formats claims as `MODE:PATH,MODE:PATH`.
pub fn format_claims(claims: &[Claim]) -> String {
    let claims: Vec<String> = claims.iter().map(|c| format!("{}:{}", c.mode, c.target)).collect();
    claims.join(",")
}

/// Parses what [`format_claims`] writes.
pub fn parse_claims(text: &str) -> Option<Vec<Claim>> {
    let claim = |text: &str| {
        let (mode, path) = text.split_once(':')?;
        Some(Claim { target: path.parse().ok()?, mode: mode.parse::<Mode>().ok()? })
    };
    text.split(',').map(claim).collect()
}

impl HistoryLine {
    /// Parses a line of a history.
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let at = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok();
        let visit = VisitId { worker: number()?, task: number()?, number: number()? };
        let kind = words.next()?;
        let mut claims = || parse_claims(words.next()?);
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

/// Appends events to the file that all processes of a setup share. A line is one small write, so it is complete or
/// missing, even if the process is killed.
#[derive(Debug)]
pub struct Recorder(File);

impl Recorder {
    /// Opens the file, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).open(path).map(Self)
    }

    /// Records an event with the current time.
    ///
    /// # Panics
    /// Panics if the line cannot be written, because an incomplete history cannot be checked.
    pub fn record(&self, visit: VisitId, event: Event) {
        let line = format!("{}\n", HistoryLine { at: clock::now(), visit, event });
        (&self.0).write_all(line.as_bytes()).expect("the history file is writable");
    }
}

/// Reads a whole history.
///
/// # Errors
/// Fails if the file cannot be read, or contains a line that is no event.
pub fn read(path: &Path) -> Result<Vec<HistoryLine>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let line =
        |line: &str| HistoryLine::parse(line).ok_or_else(|| format!("not an event: `{line}`"));
    text.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_parses_back_to_its_event() {
        let claims = parse_claims("exclusive:u1/a1,shared:u2,update:u3/a1/r1").unwrap();
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
            assert_eq!(HistoryLine::parse(&line.to_string()), Some(line));
        }
        assert_eq!(HistoryLine::parse("3 17 2 5 begin exclusive"), None);
        assert_eq!(HistoryLine::parse("3 17 2"), None);
    }
}
