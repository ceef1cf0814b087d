//! What happens to the jobs of a worker.

use crate::time::span;
use hierlock::queue::{Claimed, Ended, Failed, Worked};
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event<'a> {
    /// It goes on.
    Warning {
        message: &'a str,
    },
    Started(Run),
    Done {
        #[serde(flatten)]
        run: Run,
        elapsed_ms: u128,
    },
    Failed {
        #[serde(flatten)]
        run: Run,
        error: &'a str,
        dead: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        again_in_ms: Option<u128>,
    },
    /// It was ended before it was done.
    GivenBack(Run),
    Lost(Run),
    /// The database could not be told what came of it.
    Unrecorded(Run),
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

/// One run of a job.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Run {
    job: i64,
    attempt: u32,
    max_attempts: u32,
}

impl From<&Claimed> for Run {
    fn from(job: &Claimed) -> Self {
        Self { job: job.id(), attempt: job.attempt(), max_attempts: job.max_attempts() }
    }
}

impl<'a> Event<'a> {
    /// What became of a job; None if that is to be told by nobody.
    pub(super) fn ended(job: &Claimed, ended: &'a Ended, elapsed: Duration) -> Option<Self> {
        let run = Run::from(job);
        Some(match ended {
            Ended::Done => Event::Done { run, elapsed_ms: elapsed.as_millis() },
            Ended::Failed { error, next, .. } => Event::failed(run, error, *next),
            Ended::GivenBack => Event::GivenBack(run),
            Ended::Lost => Event::Lost(run),
            Ended::Unrecorded => Event::Unrecorded(run),
            // What the library may learn to say.
            _ => return None,
        })
    }

    pub(super) fn failed(run: Run, error: &'a str, failed: Failed) -> Self {
        let again_in_ms = match failed {
            Failed::Again(pause) => Some(pause.as_millis()),
            Failed::Dead => None,
        };
        Event::Failed { run, error, dead: failed == Failed::Dead, again_in_ms }
    }
}

impl From<Worked> for Event<'_> {
    fn from(worked: Worked) -> Self {
        let Worked { done, failed, lost, given_back, unrecorded, .. } = worked;
        Event::Ended { done, failed, lost, given_back, unrecorded }
    }
}

impl crate::report::Event for Event<'_> {
    fn text(&self) -> Option<String> {
        Some(match self {
            Event::Warning { message } => format!("warning: {message}"),
            Event::Started(_) | Event::Done { .. } => return None,
            Event::Failed {
                run: Run { job, attempt, max_attempts }, error, again_in_ms, ..
            } => {
                // The rest of it was passed on already.
                let error = error.lines().next().unwrap_or_default();
                let next = match again_in_ms {
                    Some(millis) => {
                        let pause =
                            Duration::from_millis(u64::try_from(*millis).unwrap_or(u64::MAX));
                        format!("again in {}", span(pause))
                    }
                    None => "dead".to_owned(),
                };
                format!("job {job} failed, attempt {attempt} of {max_attempts}: {error}; {next}")
            }
            Event::GivenBack(Run { job, .. }) => format!("job {job} was ended and given back"),
            Event::Lost(Run { job, .. }) => {
                format!("job {job} is no longer this worker's; its command has ended")
            }
            Event::Unrecorded(Run { job, .. }) => {
                format!(
                    "job {job} has ended, and that could not be recorded: it will come back when its \
                     lease ends"
                )
            }
            Event::Stopping { at_once: false } => {
                "stopping when what runs has ended; once more ends it".to_owned()
            }
            Event::Stopping { at_once: true } => "ending what runs".to_owned(),
            Event::Ended { done, failed, lost, given_back, unrecorded } => {
                let mut text = format!("{done} done, {failed} failed");
                let others =
                    [(lost, "lost"), (given_back, "given back"), (unrecorded, "not recorded")];
                for (count, what) in others {
                    if *count > 0 {
                        text += &format!(", {count} {what}");
                    }
                }
                text
            }
        })
    }

    fn is_grave(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Event as _;

    #[test]
    fn every_event_as_json_and_as_text() {
        let run = Run { job: 17, attempt: 2, max_attempts: 3 };
        let events = [
            Event::Warning { message: "a worker tries again: cannot claim jobs" },
            Event::Started(run),
            Event::Done { run, elapsed_ms: 120 },
            Event::failed(run, "exit code 1\nno such user", Failed::Again(Duration::from_secs(90))),
            Event::failed(run, "signal 9", Failed::Dead),
            Event::GivenBack(run),
            Event::Lost(run),
            Event::Unrecorded(run),
            Event::Stopping { at_once: false },
            Event::Stopping { at_once: true },
            Event::Ended { done: 3, failed: 1, lost: 0, given_back: 2, unrecorded: 0 },
            Event::Ended { done: 3, failed: 1, lost: 0, given_back: 0, unrecorded: 1 },
        ];
        let shown: Vec<String> = events
            .iter()
            .map(|event| {
                let text = event.text().unwrap_or_else(|| "(nothing)".into());
                format!("{}\n  {text}", serde_json::to_string(event).unwrap())
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"));
    }
}
