//! The report for programs. The members are a contract: they may become more, but none changes its meaning.

use super::grouping::Tally;
use super::{Story, topic};
use crate::place::Engine;
use crate::record::{Interruption, Missing, Record, Report};
use serde::Serialize;
use std::collections::HashSet;

#[derive(Serialize)]
struct Whole<'a> {
    agrees: bool,
    interruption: Option<Interruption>,
    took_ms: f64,
    tally: Counts,
    missing: &'a [Missing],
    scenarios: Vec<Told<'a>>,
    records: Vec<Run<'a>>,
}

#[derive(Serialize)]
struct Counts {
    cases: usize,
    agreed: usize,
    disagreed: usize,
    failed: usize,
}

#[derive(Serialize)]
struct Told<'a> {
    name: &'a str,
    topic: &'a str,
    title: &'a str,
    why: &'a str,
    advice: &'a str,
    anomaly: Option<&'a str>,
    seeds: &'a [String],
    engines: &'a [Engine],
}

#[derive(Serialize)]
struct Run<'a> {
    case: String,
    agrees: bool,
    engine: Engine,
    strategy: Option<String>,
    #[serde(flatten)]
    record: &'a Record,
}

/// See [`Report::json`].
pub(crate) fn json(report: &Report, stories: &[Story]) -> String {
    let tally = Tally::of(&report.records);
    let ran: HashSet<&str> = report.records.iter().map(|record| &*record.scenario).collect();
    let whole = Whole {
        agrees: report.agrees(),
        interruption: report.interruption,
        took_ms: report.took.as_micros() as f64 / 1000.0,
        tally: Counts {
            cases: tally.total(),
            agreed: tally.agreed,
            disagreed: tally.disagreed,
            failed: tally.failed,
        },
        missing: &report.missing,
        scenarios: stories
            .iter()
            .filter(|story| ran.contains(&*story.name))
            .map(|story| Told {
                name: &story.name,
                topic: topic(&story.name),
                title: &story.title,
                why: &story.why,
                advice: &story.advice,
                anomaly: story.anomaly.as_deref(),
                seeds: &story.seeds,
                engines: &story.engines,
            })
            .collect(),
        records: report
            .records
            .iter()
            .map(|record| Run {
                case: record.case_name(),
                agrees: record.agrees(),
                engine: record.place.engine,
                strategy: record.place.strategy.map(|strategy| strategy.to_string()),
                record,
            })
            .collect(),
    };
    // Texts, numbers and arrays always become JSON.
    let mut text = serde_json::to_string_pretty(&whole).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{self, dirty_read};

    #[test]
    fn everything_of_a_record_is_there() {
        let report = Report {
            records: vec![dirty_read(Engine::Mysql, "serializable")],
            missing: fixtures::report().missing,
            interruption: None,
            took: std::time::Duration::from_micros(12_345),
        };
        insta::assert_snapshot!(json(&report, &fixtures::stories()));
    }

    #[test]
    fn a_deadlock_names_its_steps_by_index() {
        let report = fixtures::report();
        let whole: serde_json::Value = serde_json::from_str(&json(&report, &[])).unwrap();
        let circle = &whole["records"][0]["deadlocks"][0];
        assert_eq!(circle["step"], 5);
        assert_eq!(circle["circle"][0]["blocking"][0]["statement"], 3);
        assert_eq!(whole["agrees"], false);
        assert_eq!(whole["records"][3]["engine"], "mysql");
        assert_eq!(whole["records"][3]["strategy"], "striped");
    }
}
