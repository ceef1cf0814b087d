//! The report as JUnit XML, for CI: a suite for every scenario, a test for every case and backend.

use super::ScenarioSummary;
use super::display::{self, one_line, printable};
use super::grouping::by_scenario;
use super::text::{TextStyle, run_text};
use crate::record::{Record, Report, Verdict};
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};
use std::time::Duration;

/// The name of the report, and of the suite for errors of no scenario.
const NAME: &str = "hierlock lab";

impl Report {
    /// Returns the report as one XML document.
    ///
    /// A disagreement is a failure, a case that could not be run to its end is an error, and a missing engine is a
    /// skipped test of every scenario that should run on it. A partial report contains an error.
    pub fn junit(&self, scenarios: &[ScenarioSummary]) -> String {
        let mut report = quick_junit::Report::new(NAME);
        report.set_time(self.took);
        for group in by_scenario(self, scenarios) {
            let mut suite = TestSuite::new(printable(group.name));
            suite.set_time(group.records.iter().map(|(_, record)| record.took).sum());
            suite.add_test_cases(group.records.iter().map(|(_, record)| run(record)));
            for missing in &group.missing {
                let mut status = TestCaseStatus::skipped();
                status.set_message(one_line(&missing.why));
                suite.add_test_case(test_case(group.name, missing.engine.name(), status));
            }
            report.add_test_suite(suite);
        }
        if let Some(interruption) = self.interruption {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(interruption.to_string());
            let mut suite = TestSuite::new(NAME);
            suite.set_time(Duration::ZERO);
            suite.add_test_case(test_case(NAME, "everything is run", status));
            report.add_test_suite(suite);
        }
        // Writing to a String cannot fail.
        report.to_string().unwrap_or_default()
    }
}

fn run(record: &Record) -> TestCase {
    let status = match &record.verdict {
        Verdict::Agrees => TestCaseStatus::success(),
        Verdict::Disagrees { why, .. } => failure(record, NonSuccessKind::Failure, why),
        Verdict::Failed { why } => failure(record, NonSuccessKind::Error, why),
    };
    let mut name = record.backend.to_string();
    if !record.variant.is_empty() {
        name += &format!(" [{}]", display::variant(record));
    }
    let name = display::list([name, display::round(record)]);
    let mut case = test_case(&record.scenario, &name, status);
    case.set_time(record.took);
    case.extra.insert("file".into(), printable(&record.file).into());
    case
}

fn failure(record: &Record, kind: NonSuccessKind, why: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(one_line(why)).set_description(run_text(record, TextStyle::default()));
    status
}

fn test_case(scenario: &str, name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(printable(name), status);
    case.set_classname(printable(scenario)).set_time(Duration::ZERO);
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn failures_errors_and_missing_engines() {
        let mut report = fixtures::report();
        report.records.retain(|record| {
            !record.scenario.starts_with("tree") && record.scenario != "deadlock/ring"
        });
        insta::assert_snapshot!(report.junit(&fixtures::scenarios()));
    }

    #[test]
    fn characters_that_xml_does_not_allow_are_replaced() {
        let mut record = fixtures::injection();
        record.scenario = "a\u{1b}<&>\"'\u{ffff}日".to_owned();
        let report = Report { records: vec![record], ..Report::default() };
        let name = "<testsuite name=\"a\u{fffd}&lt;&amp;&gt;&quot;&apos;\u{fffd}日\"";
        let xml = report.junit(&[]);
        assert!(xml.contains(name), "{xml}");
    }

    #[test]
    fn the_document_can_be_parsed() {
        let xml = fixtures::report().junit(&fixtures::scenarios());
        let parsed = quick_junit::Report::deserialize_from_str(&xml).unwrap();
        assert_eq!((parsed.tests, parsed.failures, parsed.errors, parsed.skipped), (16, 2, 1, 2));
        // The parser trims texts at their end.
        let trimmed = xml.replace("\n</failure>", "</failure>").replace("\n</error>", "</error>");
        assert_eq!(parsed.to_string().unwrap(), trimmed);
    }
}
