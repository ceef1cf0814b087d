//! The report as one page: a matrix of scenarios and engines, and below it every run with its timeline, its transcript
//! and, if there was one, its deadlock. The page needs no network and, for reading, no script.
//!
//! The templates in this folder draw the records. They escape all text from files and servers; only the style and the
//! script, which are part of the crate, are not escaped.

mod locks;
mod run;
mod timeline;

#[cfg(test)]
mod browser;

use super::anomalies::AnomalyTable;
use super::grouping::{Rounds, ScenarioGroup, Tally, by_scenario, engines};
use super::rounds::RoundComparison;
use super::{ScenarioSummary, display, explain, topic, transcript};
use crate::engine::Engine;
use crate::group::{distinct, group_by};
use crate::observation::Observation;
use crate::record::{Record, Report};
use crate::text::{count, join};
use askama::Template;
use locks::LockState;
use run::Run;
use std::collections::HashSet;
use timeline::Timeline;

impl Report {
    /// Returns the report as one page of HTML, without external files.
    pub fn html(&self, summaries: &[ScenarioSummary]) -> String {
        let mut ids = ElementIds::default();
        let groups = by_scenario(self, summaries);
        let scenario_ids: Vec<String> =
            groups.iter().map(|group| ids.unique(&slug(group.name))).collect();
        let mut run_ids = vec![String::new(); self.records.len()];
        let mut scenarios = Vec::new();
        for (group, id) in groups.into_iter().zip(scenario_ids) {
            let mut runs = Vec::new();
            let records = group.records.iter().copied();
            for (_, equal_runs) in group_by(records, |(_, record)| run::comparable(record)) {
                let (_, first) = equal_runs[0];
                let parts =
                    [&id, &slug(&first.backend.to_string()), &slug(&display::variant(first))];
                let parts = parts.into_iter().filter(|part| !part.is_empty());
                let run_id = ids.unique(&join(parts, "--"));
                for (index, _) in &equal_runs {
                    run_ids[*index].clone_from(&run_id);
                }
                runs.push(Run::new(run_id, equal_runs, &group.records));
            }
            scenarios.push(ScenarioSection { id, group, runs });
        }
        let page = ReportPage {
            report: self,
            tally: Tally::new(&self.records),
            engines: engines(self),
            topics: group_by(scenarios, |scenario| topic(scenario.group.name)),
            anomalies: AnomalyTable::new(self, summaries),
            comparison: RoundComparison::new(self),
            run_ids,
        };
        // Rendering into a String cannot fail: the template uses no filter that can fail.
        page.render().unwrap_or_default()
    }
}

#[derive(Template)]
#[template(path = "page.html")]
struct ReportPage<'a> {
    report: &'a Report,
    tally: Tally,
    engines: Vec<Engine>,
    topics: Vec<(&'a str, Vec<ScenarioSection<'a>>)>,
    anomalies: AnomalyTable,
    comparison: RoundComparison,
    /// The ID of the run that shows each record.
    run_ids: Vec<String>,
}

struct ScenarioSection<'a> {
    id: String,
    group: ScenarioGroup<'a>,
    runs: Vec<Run<'a>>,
}

/// A case in the matrix: its first round that does not agree, or else its first.
struct Mark<'a> {
    record: &'a Record,
    run_id: &'a str,
    label: String,
}

impl<'a> ReportPage<'a> {
    fn headline(&self) -> String {
        let differ = self.tally.disagreed + self.tally.failed;
        match (self.tally.cases, differ) {
            (cases, 0) if self.report.interruption.is_some() => {
                format!("Interrupted: {} so far", count(cases, "case"))
            }
            (0, _) => "Nothing was run".to_owned(),
            (1, 0) => "The one case agrees".to_owned(),
            (cases, 0) => format!("All {cases} cases agree"),
            (cases, 1) => format!("1 of {} does not agree", count(cases, "case")),
            (cases, differ) => format!("{differ} of {cases} cases do not agree"),
        }
    }

    fn scenarios(&self) -> usize {
        self.topics.iter().map(|(_, scenarios)| scenarios.len()).sum()
    }

    fn servers(&self, engine: &Engine) -> String {
        let records = self.report.records.iter().filter(|record| record.backend.engine == *engine);
        distinct(records.map(|record| record.server.as_str())).join(", ")
    }

    fn mark(&self, case: &Rounds<'a>) -> Mark<'_> {
        let differing = case.iter().filter(|(_, record)| !record.agrees());
        let (index, record) = differing.clone().next().unwrap_or(&case[0]);
        let rounds = match (case.len(), differing.count()) {
            (1, _) => String::new(),
            (all, 0) => format!(" in all of {all} rounds"),
            (all, differing) => format!(" in {differing} of {all} rounds"),
        };
        let name = run::case_name(record);
        let label = format!("{name}: {}{rounds}", display::verdict(record));
        Mark { record, run_id: &self.run_ids[*index], label }
    }
}

/// Returns the CSS class of an observation.
fn outcome_class(seen: &Observation) -> &'static str {
    match seen {
        Observation::Done(_) => "done",
        Observation::Blocked(_) => "blocked",
        Observation::Failed(_) if seen.is_deadlock() => "deadlock",
        Observation::Failed(_) => "failed",
        Observation::Stuck => "stuck",
    }
}

/// Returns a text that can be part of a URL as it is: `deadlock-cycle`.
fn slug(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    join(parts, "-")
}

#[derive(Default)]
struct ElementIds(HashSet<String>);

impl ElementIds {
    /// Returns the ID, with a number if it is already used.
    fn unique(&mut self, id: &str) -> String {
        let id = if id.is_empty() { "x" } else { id };
        let numbered = (2..).map(|n| format!("{id}-{n}"));
        let mut all = std::iter::once(id.to_owned()).chain(numbered);
        all.find(|id| self.0.insert(id.clone())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::Engine;
    use crate::report::fixtures;

    #[test]
    fn texts_from_files_and_servers_are_escaped() {
        let page = fixtures::report().html(&fixtures::scenarios());
        assert_eq!(page.matches("<script").count(), 1, "a script that is not the page's own");
        assert!(!page.contains("<img"));
        assert!(page.contains("&#60;script&#62;alert(&#39;title&#39;)"));
    }

    #[test]
    fn everything_is_visible_without_scripts() {
        let page = fixtures::report().html(&fixtures::scenarios());
        let is_hidden = |line: &&str| line.starts_with('<') && line.contains(" hidden>");
        let hidden = page.lines().filter(is_hidden).map(|line| line.split(' ').next().unwrap());
        let why = "something other than the filter and its message is hidden";
        assert_eq!(hidden.collect::<Vec<_>>(), ["<form", "<p"], "{why}");
    }

    #[test]
    fn equal_rounds_are_shown_once() {
        let mut report = fixtures::report();
        report.records =
            (1..=5).map(|n| fixtures::readers(fixtures::backend(Engine::Memory), n)).collect();
        let page = report.html(&[]);
        assert_eq!(page.matches("<details class=\"run\"").count(), 2);
        assert!(page.contains("u1, rounds 1, 3, 5 of 5"));
        assert!(page.contains("id=\"tree-readers--memory--u1-2\""));
    }

    #[test]
    fn equal_runs_of_several_backends_are_shown_once() {
        let mut report = fixtures::report();
        report.records.retain(|record| record.scenario == "anomaly/dirty-read");
        let page = report.html(&[]);
        assert_eq!(report.records.len(), 6);
        assert_eq!(page.matches("<details class=\"run\"").count(), 3);
        assert_eq!(page.matches("data-engine=\"mysql mariadb\"").count(), 3);
    }

    #[test]
    fn a_page_with_hundreds_of_runs_stays_small() {
        let mut report = fixtures::report();
        report.records = Vec::new();
        for n in 0..100 {
            for engine in Engine::SERVERS {
                let mut record = fixtures::cycle(engine, "A");
                record.scenario = format!("many/cycle-{n}");
                record.steps[0].text = format!("begin /* {engine}, unlike others */");
                report.records.push(record);
            }
        }
        let page = report.html(&[]);
        assert!(page.len() < 3_000_000, "{} bytes", page.len());
    }
}
