//! The table of anomalies by engine and isolation level, from the records of scenarios that look for an anomaly.

use super::display::one_line;
use super::grouping::{Rounds, by_case};
use super::{ScenarioSummary, json};
use crate::engine::Engine;
use crate::group::{distinct, group_by};
use crate::observation::{FailureKind, Observation};
use crate::record::{Interruption, Record, Report, StepRecord, Verdict};
use crate::scenario::ISOLATION_LEVELS;
use crate::text::join;
use comfy_table::{Table, presets};
use serde::Serialize;

const ISOLATION: &str = "isolation";

/// The level of a scenario without the axis `isolation`.
const DEFAULT_LEVEL: &str = "default";

/// The failures that prevent an anomaly, the strongest first, with their names in the JSON.
const PREVENTING_FAILURES: [(FailureKind, &str); 4] = [
    (FailureKind::Deadlock, "deadlock"),
    (FailureKind::Conflict, "conflict"),
    (FailureKind::TimedOut, "timed-out"),
    (FailureKind::Refused, "refused"),
];

/// Anomalies by isolation level, as observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnomalyTable {
    /// By engine, from the weakest level to the strongest.
    pub(crate) columns: Vec<AnomalyColumn>,
    pub(crate) rows: Vec<AnomalyRow>,
    pub(crate) interruption: Option<Interruption>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AnomalyColumn {
    pub(crate) engine: Engine,
    /// The isolation level, or `default`.
    pub(crate) isolation: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AnomalyRow {
    /// The name, such as `G1a dirty read`.
    pub(crate) anomaly: String,
    pub(crate) scenario: String,
    /// The cell of each column; `None` if no case was run.
    pub(crate) cells: Vec<Option<AnomalyCell>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct AnomalyCell {
    /// The number of rounds in which the anomaly occurred.
    pub(crate) shown: usize,
    /// The number of rounds that were run to their end.
    pub(crate) rounds: usize,
    /// What prevented the anomaly, if it never occurred: see [`prevention`].
    pub(crate) how: Option<&'static str>,
    pub(crate) agrees: bool,
    /// The index of a record that shows this.
    pub(crate) record: usize,
}

impl AnomalyCell {
    fn new(case: &Rounds<'_>) -> Self {
        let mut ended = case.clone();
        ended.retain(|(_, record)| !matches!(record.verdict, Verdict::Failed { .. }));
        let shows = |(_, record): &&(usize, &Record)| record.anomaly == Some(true);
        let shown = ended.iter().filter(shows).count();
        let differing = case.iter().find(|(_, record)| !record.agrees());
        AnomalyCell {
            shown,
            rounds: ended.len(),
            how: ended.first().filter(|_| shown == 0).map(|(_, record)| prevention(record)),
            agrees: differing.is_none(),
            record: differing.or(ended.iter().find(shows)).unwrap_or(&case[0]).0,
        }
    }

    /// Returns `shows`, `prevented: waits`, `shows in 3 of 10` or `failed`; with a ✗ if the scenario expects otherwise.
    pub(crate) fn text(&self) -> String {
        let text = match (self.shown, self.rounds, self.how) {
            (_, 0, _) => "failed".to_owned(),
            (_, _, Some(how)) => format!("prevented: {}", how.replace('-', " ")),
            (shown, rounds, None) if shown == rounds => "shows".to_owned(),
            (shown, rounds, None) => format!("shows in {shown} of {rounds}"),
        };
        if self.agrees { text } else { text + " ✗" }
    }
}

impl AnomalyTable {
    /// Makes the table of all records that look for an anomaly.
    pub fn new(report: &Report, scenarios: &[ScenarioSummary]) -> Self {
        let cases = by_case(report.records.iter().enumerate().filter(|(_, r)| r.anomaly.is_some()));
        let mut columns = distinct(cases.iter().map(column));
        columns.sort_by_key(|column| {
            let level = ISOLATION_LEVELS.iter().position(|level| *level == column.isolation);
            (column.engine, level.unwrap_or(ISOLATION_LEVELS.len()))
        });
        let rows = group_by(&cases, |case| (anomaly(case[0].1, scenarios), &case[0].1.scenario));
        let rows = rows.into_iter().map(|((anomaly, scenario), cases)| {
            let cell = |wanted: &AnomalyColumn| {
                // Several backends of one engine (strategies) share a column; the first that disagrees counts.
                let cells = cases.iter().filter(|case| column(case) == *wanted);
                cells.map(|case| AnomalyCell::new(case)).min_by_key(|cell| cell.agrees)
            };
            let cells = columns.iter().map(cell).collect();
            AnomalyRow { anomaly, scenario: scenario.clone(), cells }
        });
        Self { rows: rows.collect(), columns, interruption: report.interruption }
    }

    /// Returns whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the engines, each with its columns and their indices.
    pub(crate) fn engines(&self) -> Vec<(Engine, Vec<(usize, &AnomalyColumn)>)> {
        group_by(self.columns.iter().enumerate(), |(_, column)| column.engine)
    }

    /// Returns text for a terminal: a table for each engine, since a table of all engines is wider than most terminals.
    pub fn text(&self) -> String {
        let mut tables = Vec::new();
        for (engine, columns) in self.engines() {
            let mut table = Table::new();
            table.load_style(presets::UTF8_FULL_CONDENSED);
            let levels = columns.iter().map(|(_, column)| column.isolation.as_str());
            table.set_header([engine.name()].into_iter().chain(levels));
            for row in &self.rows {
                let cells = || columns.iter().map(|(index, _)| &row.cells[*index]);
                if cells().any(Option::is_some) {
                    table.add_row([row.anomaly.clone()].into_iter().chain(cells().map(cell_text)));
                }
            }
            tables.push(format!("{table}\n"));
        }
        let mut text = tables.join("\n");
        if let Some(interruption) = self.interruption {
            text += &format!("\n{interruption}\n");
        }
        text
    }

    /// Returns Markdown: one table, with a column for every level of every engine.
    pub fn markdown(&self) -> String {
        let escape =
            |text: &str| text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;");
        let mut text = "| anomaly |".to_owned();
        for AnomalyColumn { engine, isolation } in &self.columns {
            text += &format!(" {engine}<br>{} |", escape(isolation));
        }
        text += &format!("\n|---|{}\n", "---|".repeat(self.columns.len()));
        for row in &self.rows {
            text += &format!("| {} |", escape(&row.anomaly));
            for cell in &row.cells {
                let bold = if cell.as_ref().is_some_and(|cell| cell.shown > 0) { "**" } else { "" };
                text += &format!(" {bold}{}{bold} |", cell_text(cell));
            }
            text.push('\n');
        }
        if let Some(interruption) = self.interruption {
            text += &format!("\n**{interruption}**\n");
        }
        text
    }

    /// Returns the table as JSON.
    pub fn json(&self) -> String {
        json::pretty(self)
    }
}

/// Returns what prevented an anomaly: the strongest failure; or else `waits`, if a session waited until another had
/// ended, and `not-seen`, if none did.
fn prevention(record: &Record) -> &'static str {
    let has_failed = |kind: FailureKind| {
        let mut ends = record.steps.iter().map(StepRecord::last_observation);
        ends.any(|end| matches!(end, Observation::Failed(failure) if failure.kind == kind))
    };
    let has_waited =
        || record.steps.iter().any(|step| matches!(step.seen, Observation::Blocked(_)));
    match PREVENTING_FAILURES.iter().find(|(kind, _)| has_failed(*kind)) {
        Some((_, name)) => name,
        None if has_waited() => "waits",
        None => "not-seen",
    }
}

fn column(case: &Rounds<'_>) -> AnomalyColumn {
    let record = case[0].1;
    let isolation = record.variant.iter().find(|(axis, _)| axis == ISOLATION);
    AnomalyColumn {
        engine: record.backend.engine,
        isolation: isolation.map_or(DEFAULT_LEVEL, |(_, level)| level).to_owned(),
    }
}

/// Returns the anomaly, with the values of axes other than the isolation level: `G1a dirty read [u1]`.
fn anomaly(record: &Record, scenarios: &[ScenarioSummary]) -> String {
    let summary = scenarios.iter().find(|summary| summary.name == record.scenario);
    let anomaly = summary.and_then(|summary| summary.anomaly.as_ref()).unwrap_or(&record.title);
    let others = record.variant.iter().filter(|(axis, _)| axis != ISOLATION);
    match join(others.map(|(_, value)| value), ", ").as_str() {
        "" => one_line(anomaly),
        values => one_line(&format!("{anomaly} [{values}]")),
    }
}

fn cell_text(cell: &Option<AnomalyCell>) -> String {
    cell.as_ref().map_or("–".to_owned(), AnomalyCell::text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{self, dirty_read, write_skew};

    fn table() -> AnomalyTable {
        let mut records = Vec::new();
        // Stronger levels first: the table sorts them.
        for level in ["serializable", "read committed", "read uncommitted"] {
            for engine in [Engine::Postgres, Engine::Mysql] {
                records.push(dirty_read(engine, level));
                if level != "read uncommitted" {
                    records.push(write_skew(engine, level));
                }
            }
        }
        let report = Report { records, ..Report::default() };
        AnomalyTable::new(&report, &fixtures::scenarios())
    }

    #[test]
    fn as_text() {
        insta::assert_snapshot!(table().text());
    }

    #[test]
    fn as_markdown() {
        insta::assert_snapshot!(table().markdown());
    }

    #[test]
    fn as_json() {
        let value: serde_json::Value = serde_json::from_str(&table().json()).unwrap();
        assert_eq!(value["columns"][0]["engine"], "mysql");
        assert_eq!(value["rows"][0]["cells"][0]["shown"], 1);
        assert_eq!(value["rows"][0]["cells"][2]["how"], "waits");
    }

    #[test]
    fn an_anomaly_of_some_rounds_shows_their_number() {
        let shown = dirty_read(Engine::Mysql, "read uncommitted");
        let never = Record { anomaly: Some(false), round: 2, ..shown.clone() };
        let report = Report { records: vec![shown, never], ..Report::default() };
        let table = AnomalyTable::new(&report, &[]);
        assert_eq!(table.rows[0].cells[0].as_ref().unwrap().text(), "shows in 1 of 2");
    }
}
