//! The report as JSON. The fields are a contract: fields may be added, but none changes its meaning.

use super::ScenarioSummary;
use super::grouping::Tally;
use crate::engine::Engine;
use crate::record::{Interruption, MissingEngine, Record, Report};
use serde::Serialize;

#[derive(Serialize)]
struct ReportDocument<'a> {
    agrees: bool,
    interruption: Option<Interruption>,
    took_ms: f64,
    tally: Tally,
    missing: &'a [MissingEngine],
    scenarios: Vec<&'a ScenarioSummary>,
    records: Vec<RecordDocument<'a>>,
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
    /// Returns the report as one JSON document, indented, with a line feed at its end.
    ///
    /// ```text
    /// { "agrees": bool, "took_ms": number,
    ///   "interruption": null, or { "finished", "planned": number } if the run was interrupted,
    ///   "tally": { "cases", "agreed", "disagreed", "failed": number },
    ///   "missing": [ { "engine", "why" } ],
    ///   "scenarios": [ { "name", "topic", "title", "why", "advice", "anomaly" or null, "seeds": [], "engines": [] } ],
    ///   "records": [ {
    ///     "case": "deadlock/cycle [read committed]", "agrees": bool,
    ///     "engine": "mysql", "strategy": "striped" or null,
    ///     "scenario", "file", "title", "backend", "server", "variant": { axis: value }, "round": number,
    ///     "took_ms", "verdict": { "is": "agrees" | "disagrees" | "failed", "step", "why" },
    ///     "anomaly": bool or null, "notes": [ "a sentence" ],
    ///     "steps": [ { "line", "session", "text", "began_ms", "seen", "seen_ms",
    ///                  "ended": { "observation", "at_ms", "during" } or null,
    ///                  "expected", "difference" or null, "waits": [], "locks": [] or null } ],
    ///     "deadlocks": [ { "step", "victim",
    ///                      "cycle": [ { "waiter", "holder", "wants" or null, "unknown": [],
    ///                                    "blocking": [ { "thing", "granted", "statement" or null,
    ///                                                    "granted_in" or null, "unknown" or null } ] } ] } ],
    ///     "cycles": [ { "step", "links": [ as in a deadlock ] } ] } ] }
    /// ```
    ///
    /// An observation has `is`: `done` (with `rows`, an array of arrays of texts and nulls, or null, and
    /// `changed`), `blocked` (with `waiter`, `blockers`, `strangers`, `thing`), `failed` (with `kind`, `code`,
    /// `message`, `detail`) or `stuck`. Times are milliseconds since the first step of the record; steps are
    /// named by their index, from 0.
    pub fn json(&self, scenarios: &[ScenarioSummary]) -> String {
        let was_run = |summary: &&ScenarioSummary| {
            self.records.iter().any(|record| record.scenario == summary.name)
        };
        let records = self.records.iter().map(|record| RecordDocument {
            case: record.case_name(),
            agrees: record.agrees(),
            engine: record.backend.engine,
            strategy: record.backend.strategy.map(|strategy| strategy.to_string()),
            record,
        });
        pretty(&ReportDocument {
            agrees: self.agrees(),
            interruption: self.interruption,
            took_ms: self.took.as_micros() as f64 / 1000.0,
            tally: Tally::new(&self.records),
            missing: &self.missing,
            scenarios: scenarios.iter().filter(was_run).collect(),
            records: records.collect(),
        })
    }
}

/// Returns a document as indented JSON, with a line feed at the end.
pub(super) fn pretty(document: &impl Serialize) -> String {
    // Texts, numbers and arrays can always be serialized.
    serde_json::to_string_pretty(document).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{self, dirty_read};

    #[test]
    fn all_fields_of_a_record_are_written() {
        let report = Report {
            records: vec![dirty_read(Engine::Mysql, "serializable")],
            took: std::time::Duration::from_micros(12_345),
            ..fixtures::report()
        };
        insta::assert_snapshot!(report.json(&fixtures::scenarios()));
    }

    #[test]
    fn the_steps_of_a_deadlock_are_indices() {
        let json = fixtures::report().json(&[]);
        let document: serde_json::Value = serde_json::from_str(&json).unwrap();
        let deadlock = &document["records"][0]["deadlocks"][0];
        assert_eq!(deadlock["step"], 5);
        assert_eq!(deadlock["cycle"][0]["blocking"][0]["statement"], 3);
        assert_eq!(document["agrees"], false);
        assert_eq!(document["records"][3]["engine"], "mysql");
        assert_eq!(document["records"][3]["strategy"], "striped");
    }
}
