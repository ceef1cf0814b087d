//! Events of `hierlock queue work`.

use crate::time::{duration_text, millis};
use hierlock::queue::{ClaimedJob, FailureOutcome, JobOutcome, WorkerSummary};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum WorkEvent<'a> {
    Warning {
        message: &'a str,
    },
    Started(Attempt),
    Done {
        #[serde(flatten)]
        attempt: Attempt,
        elapsed_ms: u64,
    },
    Failed {
        #[serde(flatten)]
        attempt: Attempt,
        error: &'a str,
        dead: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        again_in_ms: Option<u64>,
    },
    /// The command was ended before the job was done.
    GivenBack(Attempt),
    Lost(Attempt),
    /// The outcome of the job could not be recorded in the database.
    Unrecorded(Attempt),
    Stopping {
        at_once: bool,
    },
    Ended {
        done: u64,
        failed: u64,
        lost: u64,
        given_back: u64,
        unrecorded: u64,
    },
}

#[derive(Clone, Copy, Serialize)]
pub(super) struct Attempt {
    job: i64,
    attempt: u32,
    max_attempts: u32,
}

impl From<&ClaimedJob> for Attempt {
    fn from(job: &ClaimedJob) -> Self {
        Self { job: job.id(), attempt: job.attempt(), max_attempts: job.max_attempts() }
    }
}

impl<'a> WorkEvent<'a> {
    /// Returns the event of a job's end; `None` for outcomes that a later version of the library may add.
    pub(super) fn from_outcome(
        job: &ClaimedJob,
        outcome: &'a JobOutcome,
        elapsed: Duration,
    ) -> Option<Self> {
        let attempt = Attempt::from(job);
        Some(match outcome {
            JobOutcome::Done => Self::Done { attempt, elapsed_ms: millis(elapsed) },
            JobOutcome::Failed { error, next, .. } => Self::failed(attempt, error, *next),
            JobOutcome::GivenBack => Self::GivenBack(attempt),
            JobOutcome::Lost => Self::Lost(attempt),
            JobOutcome::Unrecorded => Self::Unrecorded(attempt),
            _ => return None,
        })
    }

    fn failed(attempt: Attempt, error: &'a str, next: FailureOutcome) -> Self {
        let again_in_ms = match next {
            FailureOutcome::RetryAfter(pause) => Some(millis(pause)),
            FailureOutcome::Dead => None,
        };
        Self::Failed { attempt, error, dead: again_in_ms.is_none(), again_in_ms }
    }
}

impl From<WorkerSummary> for WorkEvent<'_> {
    fn from(summary: WorkerSummary) -> Self {
        let WorkerSummary { done, failed, lost, given_back, unrecorded, .. } = summary;
        Self::Ended { done, failed, lost, given_back, unrecorded }
    }
}

impl crate::event::Event for WorkEvent<'_> {
    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Warning { message } => format!("warning: {message}"),
            Self::Started(_) | Self::Done { .. } => return None,
            Self::Failed { attempt: of, error, again_in_ms, .. } => {
                let Attempt { job, attempt, max_attempts } = of;
                // The other lines are the command's standard error, which was forwarded already.
                let error = error.lines().next().unwrap_or_default();
                let next = match again_in_ms {
                    Some(millis) => {
                        format!("again in {}", duration_text(Duration::from_millis(*millis)))
                    }
                    None => "dead".to_owned(),
                };
                format!("job {job} failed, attempt {attempt} of {max_attempts}: {error}; {next}")
            }
            Self::GivenBack(Attempt { job, .. }) => format!("job {job} was ended and given back"),
            Self::Lost(Attempt { job, .. }) => {
                format!("job {job} is no longer this worker's; its command has ended")
            }
            Self::Unrecorded(Attempt { job, .. }) => format!(
                "job {job} has ended, and that could not be recorded: it will come back when its \
                 lease ends"
            ),
            Self::Stopping { at_once: false } => {
                "stopping after the running jobs; a second signal ends them".to_owned()
            }
            Self::Stopping { at_once: true } => "ending the running jobs".to_owned(),
            Self::Ended { done, failed, lost, given_back, unrecorded } => {
                let mut text = format!("{done} done, {failed} failed");
                let others =
                    [(lost, "lost"), (given_back, "given back"), (unrecorded, "not recorded")];
                for (count, what) in others.into_iter().filter(|(count, _)| **count > 0) {
                    text += &format!(", {count} {what}");
                }
                text
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_as_json_and_as_text() {
        let attempt = Attempt { job: 17, attempt: 2, max_attempts: 3 };
        let again = FailureOutcome::RetryAfter(Duration::from_secs(90));
        let events = [
            WorkEvent::Warning { message: "a worker tries again: cannot claim jobs" },
            WorkEvent::Started(attempt),
            WorkEvent::Done { attempt, elapsed_ms: 120 },
            WorkEvent::failed(attempt, "exit code 1\nno such user", again),
            WorkEvent::failed(attempt, "signal 9", FailureOutcome::Dead),
            WorkEvent::GivenBack(attempt),
            WorkEvent::Lost(attempt),
            WorkEvent::Unrecorded(attempt),
            WorkEvent::Stopping { at_once: false },
            WorkEvent::Stopping { at_once: true },
            WorkEvent::Ended { done: 3, failed: 1, lost: 0, given_back: 2, unrecorded: 0 },
            WorkEvent::Ended { done: 3, failed: 1, lost: 0, given_back: 0, unrecorded: 1 },
        ];
        insta::assert_snapshot!(crate::event::snapshot(&events));
    }
}
