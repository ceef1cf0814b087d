//! The report for programs. The members are a contract: more may come, but none changes its meaning.

use super::grouping::Tally;
use super::{ScenarioSummary, topic};
use crate::place::Engine;
use crate::record::{Interruption, MissingEngine, Record, Report};
use serde::Serialize;
use std::collections::HashSet;

#[derive(Serialize)]
struct ReportDocument<'a> {
    agrees: bool,
    interruption: Option<Interruption>,
    took_ms: f64,
    tally: Tally,
    missing: &'a [MissingEngine],
    scenarios: Vec<ScenarioDocument<'a>>,
    records: Vec<RecordDocument<'a>>,
}

#[derive(Serialize)]
struct ScenarioDocument<'a> {
    name: &'a str,
    topic: &'a str,
    #[serde(flatten)]
    summary: &'a ScenarioSummary,
}

#[derive(Serialize)]
struct RecordDocument<'a> {
    case: String,
    agrees: bool,
    engine: Engine,
    strategy: Option<String>,
    #[serde(flatten)]
    record: &'a Record,
}

impl Report {
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
    pub fn json(&self, scenarios: &[ScenarioSummary]) -> String {
        let ran: HashSet<&str> = self.records.iter().map(|record| &*record.scenario).collect();
        pretty(&ReportDocument {
            agrees: self.agrees(),
            interruption: self.interruption,
            took_ms: self.took.as_micros() as f64 / 1000.0,
            tally: Tally::new(&self.records),
            missing: &self.missing,
            scenarios: scenarios
                .iter()
                .filter(|summary| ran.contains(&*summary.name))
                .map(|summary| ScenarioDocument {
                    name: &summary.name,
                    topic: topic(&summary.name),
                    summary,
                })
                .collect(),
            records: self
                .records
                .iter()
                .map(|record| RecordDocument {
                    case: record.case_name(),
                    agrees: record.agrees(),
                    engine: record.place.engine,
                    strategy: record.place.strategy.map(|strategy| strategy.to_string()),
                    record,
                })
                .collect(),
        })
    }
}

/// Indented, with a line feed at the end.
pub(super) fn pretty(document: &impl Serialize) -> String {
    // Texts, numbers and arrays always become JSON.
    serde_json::to_string_pretty(document).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{self, dirty_read};

    #[test]
    fn everything_of_a_record_is_there() {
        let report = Report {
            records: vec![dirty_read(Engine::Mysql, "serializable")],
            took: std::time::Duration::from_micros(12_345),
            ..fixtures::report()
        };
        insta::assert_snapshot!(report.json(&fixtures::scenarios()));
    }

    #[test]
    fn a_deadlock_names_its_steps_by_index() {
        let json = fixtures::report().json(&[]);
        let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
        let deadlock = &whole["records"][0]["deadlocks"][0];
        assert_eq!(deadlock["step"], 5);
        assert_eq!(deadlock["circle"][0]["blocking"][0]["statement"], 3);
        assert_eq!(whole["agrees"], false);
        assert_eq!(whole["records"][3]["engine"], "mysql");
        assert_eq!(whole["records"][3]["strategy"], "striped");
    }
}
