//! Reports: what was run, told to people and to programs. Pure functions from a [`Report`] to text; nothing
//! here runs anything, asks a server, or knows where its text goes.
//!
//! ```text
//!   Report ─┬─► text        for a terminal; the story of every disagreement
//!           ├─► json        everything, for programs
//!           ├─► junit       for CI
//!           ├─► mermaid     one run as a sequence diagram
//!           ├─► html        one page with all of it
//!           ├─► Anomalies   which anomaly shows at which isolation level
//!           └─► Stability   what varied between the rounds of a case
//!
//!   words ◄── transcript, explain, grouping ◄── all of the above
//! ```

mod anomalies;
mod explain;
mod grouping;
mod html;
mod json;
mod junit;
mod locks;
mod mermaid;
mod paint;
mod stability;
mod text;
mod transcript;
mod words;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod hostile;

pub use anomalies::Anomalies;
pub use stability::Stability;
pub use text::Look;

use crate::place::Engine;
use crate::record::{Record, Report};
use crate::scenario::Scenario;

/// What a scenario says of itself: what reports need of its file besides the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Story {
    /// Its path below `scenarios/`, without the extension.
    pub name: String,
    /// The first line of the opening comment.
    pub title: String,
    /// Why this is worth knowing.
    pub why: String,
    /// What to do about it.
    pub advice: String,
    /// Which parts of the seed documents it proves.
    pub seeds: Vec<String>,
    /// The anomaly it looks for.
    pub anomaly: Option<String>,
    /// Where it was to be run, so that an engine that is missing can be told from one it has no use for.
    pub engines: Vec<Engine>,
    /// The file as it was written.
    pub source_text: String,
}

impl Story {
    /// The story of a scenario that was to be run on these engines.
    pub fn new(scenario: &Scenario, engines: impl IntoIterator<Item = Engine>) -> Self {
        Story {
            name: scenario.name.clone(),
            title: scenario.title.clone(),
            why: scenario.why.clone(),
            advice: scenario.advice.clone(),
            seeds: scenario.seeds.clone(),
            anomaly: scenario.anomaly.clone(),
            engines: engines.into_iter().collect(),
            source_text: scenario.text.clone(),
        }
    }

    /// The first part of its name.
    pub fn topic(&self) -> &str {
        topic(&self.name)
    }
}

/// `deadlock` of `deadlock/cycle`.
fn topic(name: &str) -> &str {
    name.split_once('/').map_or(name, |(topic, _)| topic)
}

impl Report {
    /// The whole report for a terminal.
    ///
    /// ```
    /// use hierlock_lab::{Look, Report};
    ///
    /// assert_eq!(Report::default().text(&[], Look::default()), "Nothing was run.\n");
    /// ```
    pub fn text(&self, stories: &[Story], look: Look) -> String {
        text::text(self, stories, look)
    }

    /// The whole report as one JSON document, indented, with a line feed at its end.
    ///
    /// ```text
    /// { "agrees": bool, "took_ms": number,
    ///   "interruption": null, or { "finished", "planned": number } if not everything was run,
    ///   "tally": { "cases", "agreed", "disagreed", "failed": number },
    ///   "missing": [ { "engine", "why" } ],
    ///   "scenarios": [ { "name", "topic", "title", "why", "advice", "anomaly" or null, "seeds": [], "engines": [] } ],
    ///   "records": [ {
    ///     "case": "deadlock/cycle [read committed]", "agrees": bool,
    ///     "engine": "mysql", "strategy": "striped" or null,
    ///     "scenario", "file", "title", "place", "server", "variant": { axis: value }, "round": number,
    ///     "took_ms", "verdict": { "is": "agrees" | "disagrees" | "failed", "step", "why" },
    ///     "anomaly": bool or null, "notes": [ "what else there is to say" ],
    ///     "steps": [ { "line", "session", "text", "began_ms", "seen", "seen_ms",
    ///                  "ended": { "observation", "at_ms", "during" } or null,
    ///                  "expected", "difference" or null, "waits": [], "locks": [] or null } ],
    ///     "deadlocks": [ { "step", "victim",
    ///                      "circle": [ { "waiter", "holder", "wants" or null, "unknown": [],
    ///                                    "blocking": [ { "thing", "granted", "statement" or null,
    ///                                                    "granted_in" or null, "unknown" or null } ] } ] } ],
    ///     "circles": [ { "step", "links": [ as in a deadlock ] } ] } ] }
    /// ```
    ///
    /// An observation has `is`: `done` (with `rows`, an array of arrays of texts and nulls, or null, and
    /// `changed`), `blocked` (with `waiter`, `blockers`, `strangers`, `thing`), `failed` (with `kind`, `code`,
    /// `message`, `detail`) or `stuck`. Times are milliseconds since the first step of the record; steps are
    /// named by their index, from 0.
    pub fn json(&self, stories: &[Story]) -> String {
        json::json(self, stories)
    }

    /// The whole report as one XML document.
    ///
    /// What disagrees is a failure, what could not be run to its end an error, and an engine that is missing
    /// a skipped test of every scenario that wanted it. A report that is partial has an error that says so.
    pub fn junit(&self, stories: &[Story]) -> String {
        junit::junit(self, stories)
    }

    /// The whole report as one page of HTML, which needs nothing else.
    pub fn html(&self, stories: &[Story]) -> String {
        html::html(self, stories)
    }
}

impl Record {
    /// One run as a sequence diagram of Mermaid.
    pub fn mermaid(&self) -> String {
        mermaid::mermaid(self)
    }
}
