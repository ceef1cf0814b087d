//! Which anomaly shows at which isolation level of which engine, as observed: a table made from the records
//! of scenarios that look for one. What an anomaly *is* stands in the scenario; here it is only a name.

use super::grouping::{Rounds, rounds};
use super::{Story, words};
use crate::observation::{FailureKind, Observation};
use crate::place::Engine;
use crate::record::{Interruption, Record, Report, Verdict};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::fmt::Write as _;

/// Where a scenario has no axis `isolation`.
const DEFAULT: &str = "default";

/// From the weakest to the strongest.
const LEVELS: [&str; 4] = ["read uncommitted", "read committed", "repeatable read", "serializable"];

/// The table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Anomalies {
    /// Engine by engine, from the weakest level to the strongest.
    pub(crate) columns: Vec<Column>,
    /// In the order of the records.
    pub(crate) rows: Vec<Row>,
    /// Set if not everything was looked for: the table is partial then.
    pub(crate) interruption: Option<Interruption>,
}

/// An isolation level of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Column {
    /// The engine.
    pub engine: Engine,
    /// The level, or `default`.
    pub isolation: String,
}

/// An anomaly, looked for by one scenario.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// What it is called: `G1a dirty read`.
    pub anomaly: String,
    /// The scenario that looks for it.
    pub scenario: String,
    /// Under each column; `None` where it was not looked for.
    pub cells: Vec<Option<Cell>>,
}

/// What was seen in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cell {
    /// In how many rounds it has shown.
    pub shown: usize,
    /// Of how many that went far enough to tell.
    pub rounds: usize,
    /// What prevented it, where it never showed.
    pub how: Option<How>,
    /// Whether all rounds are as the scenario expects.
    pub agrees: bool,
    /// The index of the record to look at.
    pub record: usize,
}

/// What kept an anomaly from showing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum How {
    /// Somebody was chosen to end a deadlock.
    Deadlock,
    /// Somebody was told that another's change came first.
    Conflict,
    /// Somebody waited until it was allowed to wait no longer.
    TimedOut,
    /// Somebody would have had to wait, and was not to.
    Refused,
    /// Somebody waited until the other was through.
    Waits,
    /// Nobody was stopped; it is just not seen.
    NotSeen,
}

impl How {
    /// In a word or two.
    pub(crate) fn name(self) -> &'static str {
        match self {
            How::Deadlock => "deadlock",
            How::Conflict => "conflict",
            How::TimedOut => "timed out",
            How::Refused => "refused",
            How::Waits => "waits",
            How::NotSeen => "not seen",
        }
    }

    /// The strongest thing that happened in a run.
    fn of(record: &Record) -> Self {
        let ends = record.steps.iter().filter_map(|step| step.ended.as_ref());
        let seen: Vec<&Observation> = record
            .steps
            .iter()
            .map(|step| &step.seen)
            .chain(ends.map(|ended| &ended.observation))
            .collect();
        let failed =
            |kind| seen.iter().any(|seen| matches!(seen, Observation::Failed(f) if f.kind == kind));
        match () {
            () if failed(FailureKind::Deadlock) => How::Deadlock,
            () if failed(FailureKind::Conflict) => How::Conflict,
            () if failed(FailureKind::TimedOut) => How::TimedOut,
            () if failed(FailureKind::Refused) => How::Refused,
            () if seen.iter().any(|seen| matches!(seen, Observation::Blocked(_))) => How::Waits,
            () => How::NotSeen,
        }
    }
}

impl Cell {
    fn of(case: &Rounds<'_>) -> Self {
        let told: Vec<&(usize, &Record)> = case
            .iter()
            .filter(|(_, record)| !matches!(record.verdict, Verdict::Failed { .. }))
            .collect();
        let shown = told.iter().filter(|(_, record)| record.anomaly == Some(true)).count();
        let odd = case.iter().find(|(_, record)| !record.agrees());
        let telling = told.iter().find(|(_, record)| record.anomaly == Some(true)).copied();
        Cell {
            shown,
            rounds: told.len(),
            how: told.first().filter(|_| shown == 0).map(|(_, record)| How::of(record)),
            agrees: odd.is_none(),
            record: odd.or(telling).unwrap_or(&case[0]).0,
        }
    }

    /// `shows`, `prevented: waits`, `shows in 3 of 10`, `failed`; with a ✗ where the scenario expects another
    /// thing.
    pub(crate) fn words(&self) -> String {
        let mut text = match (self.shown, self.rounds, self.how) {
            (_, 0, _) => "failed".to_owned(),
            (0, _, Some(how)) => format!("prevented: {}", how.name()),
            (0, _, None) => "prevented".to_owned(),
            (shown, rounds, _) if shown == rounds => "shows".to_owned(),
            (shown, rounds, _) => format!("shows in {shown} of {rounds}"),
        };
        if !self.agrees {
            text += " ✗";
        }
        text
    }
}

impl Anomalies {
    /// The table of all records that look for an anomaly.
    pub fn of(report: &Report, stories: &[Story]) -> Self {
        let looking = report.records.iter().enumerate().filter(|(_, r)| r.anomaly.is_some());
        let cases = rounds(looking);
        let mut columns: Vec<Column> = Vec::new();
        for case in &cases {
            let column = column(case[0].1);
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns.sort_by_key(|column| {
            let level = LEVELS.iter().position(|level| *level == column.isolation);
            (column.engine, level.unwrap_or(LEVELS.len()))
        });
        let mut rows: Vec<Row> = Vec::new();
        for case in &cases {
            let record = case[0].1;
            let story = stories.iter().find(|story| story.name == record.scenario);
            let anomaly = story.and_then(|story| story.anomaly.as_ref()).unwrap_or(&record.title);
            let anomaly = words::one_line(&(anomaly.clone() + &others(record)));
            let row = rows
                .iter()
                .position(|row| row.anomaly == anomaly && row.scenario == record.scenario)
                .unwrap_or_else(|| {
                    let scenario = record.scenario.clone();
                    rows.push(Row { anomaly, scenario, cells: vec![None; columns.len()] });
                    rows.len() - 1
                });
            let here = column(record);
            // Several places of one engine (strategies) share a column; the first that disagrees counts.
            if let Some(at) = columns.iter().position(|column| *column == here) {
                let cell = Cell::of(case);
                let slot = &mut rows[row].cells[at];
                if slot.as_ref().is_none_or(|known| known.agrees && !cell.agrees) {
                    *slot = Some(cell);
                }
            }
        }
        Anomalies { columns, rows, interruption: report.interruption }
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The engines of the columns, each with how many it has.
    pub(crate) fn engines(&self) -> Vec<(Engine, usize)> {
        let mut engines: Vec<(Engine, usize)> = Vec::new();
        for column in &self.columns {
            match engines.last_mut() {
                Some((engine, wide)) if *engine == column.engine => *wide += 1,
                _ => engines.push((column.engine, 1)),
            }
        }
        engines
    }

    /// For a terminal: a table for each engine, since all levels of all engines beside each other are wider
    /// than most terminals.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (engine, _) in self.engines() {
            let here: Vec<usize> = (0..self.columns.len())
                .filter(|column| self.columns[*column].engine == engine)
                .collect();
            let mut table = Table::new();
            table.load_style(presets::UTF8_FULL_CONDENSED);
            let levels = here.iter().map(|column| self.columns[*column].isolation.as_str());
            table.set_header([engine.name()].into_iter().chain(levels));
            for row in &self.rows {
                if here.iter().any(|column| row.cells[*column].is_some()) {
                    let cells = here.iter().map(|column| cell_words(&row.cells[*column]));
                    table.add_row([row.anomaly.clone()].into_iter().chain(cells));
                }
            }
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{table}\n");
        }
        text.pop();
        if let Some(interruption) = self.interruption {
            let _ = writeln!(text, "\n{interruption}");
        }
        text
    }

    /// For documents: one table, with a column for every level of every engine.
    pub fn markdown(&self) -> String {
        let plain =
            |text: &str| text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;");
        let mut text = "| anomaly |".to_owned();
        for Column { engine, isolation } in &self.columns {
            let _ = write!(text, " {engine}<br>{} |", plain(isolation));
        }
        text += "\n|---|";
        text += &"---|".repeat(self.columns.len());
        text.push('\n');
        for row in &self.rows {
            let _ = write!(text, "| {} |", plain(&row.anomaly));
            for cell in &row.cells {
                let _ = match cell {
                    Some(cell) if cell.shown > 0 => write!(text, " **{}** |", cell.words()),
                    cell => write!(text, " {} |", cell_words(cell)),
                };
            }
            text.push('\n');
        }
        if let Some(interruption) = self.interruption {
            let _ = writeln!(text, "\n**{interruption}**");
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> String {
        // Texts, numbers and arrays always become JSON.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn column(record: &Record) -> Column {
    let isolation = record.variant.iter().find(|(axis, _)| axis == "isolation");
    Column {
        engine: record.place.engine,
        isolation: isolation.map_or(DEFAULT, |(_, level)| level).to_owned(),
    }
}

/// The values of axes other than the isolation: ` [u1]`.
fn others(record: &Record) -> String {
    let values: Vec<&str> = record
        .variant
        .iter()
        .filter(|(axis, _)| axis != "isolation")
        .map(|(_, value)| value.as_str())
        .collect();
    match values.is_empty() {
        true => String::new(),
        false => format!(" [{}]", values.join(", ")),
    }
}

fn cell_words(cell: &Option<Cell>) -> String {
    cell.as_ref().map_or("–".to_owned(), Cell::words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures::{self, dirty_read, write_skew};

    fn table() -> Anomalies {
        let mut records = Vec::new();
        // Stronger levels first: the table puts them in order.
        for level in ["serializable", "read committed", "read uncommitted"] {
            for engine in [Engine::Postgres, Engine::Mysql] {
                records.push(dirty_read(engine, level));
                if level != "read uncommitted" {
                    records.push(write_skew(engine, level));
                }
            }
        }
        let report = Report { records, missing: vec![], ..Report::default() };
        Anomalies::of(&report, &fixtures::stories())
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
    fn what_shows_only_sometimes_says_how_often() {
        let mut never = dirty_read(Engine::Mysql, "read uncommitted");
        never.anomaly = Some(false);
        never.round = 2;
        let report = Report {
            records: vec![dirty_read(Engine::Mysql, "read uncommitted"), never],
            ..Report::default()
        };
        let table = Anomalies::of(&report, &[]);
        assert_eq!(table.rows[0].cells[0].as_ref().unwrap().words(), "shows in 1 of 2");
    }
}
