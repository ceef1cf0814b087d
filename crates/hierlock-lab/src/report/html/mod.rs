//! The report as one page: a matrix of scenarios and engines, and below it every run with its timeline, its
//! transcript and, where there was one, its deadlock. The page needs no network and, to be read, no script.
//!
//! Views are plain data made here and in `run`, `timeline` and `graph`; the templates beside this file draw
//! them. Everything from files and servers goes through the escaping of the templates; the only things that
//! do not are the style and the script, which are ours.

mod alike;
mod graph;
mod run;
mod timeline;

#[cfg(test)]
mod browser;

use super::anomalies::{Anomalies, Column};
use super::grouping::{Group, Rounds, Tally, by_scenario, engines, variant};
use super::stability::Stability;
use super::{Story, topic, words};
use crate::place::Engine;
use crate::record::{Interruption, Record, Report, Verdict};
use askama::Template;
use run::Run;
use std::collections::{HashMap, HashSet};

/// See [`Report::html`].
pub(crate) fn html(report: &Report, stories: &[Story]) -> String {
    let groups = by_scenario(report, stories);
    let mut ids = Ids::default();
    let names: Vec<String> = groups.iter().map(|group| ids.fresh(&slug(group.name))).collect();
    // Runs that went the same way are shown once; all of them lead there.
    let mut anchors: HashMap<usize, String> = HashMap::new();
    let mut runs: Vec<Vec<Run>> = Vec::new();
    for (group, name) in groups.iter().zip(&names) {
        let mut shown = Vec::new();
        for same in alike::alike(&group.records) {
            let id = ids.fresh(&run_slug(name, same[0].1));
            for (index, _) in &same {
                anchors.insert(*index, id.clone());
            }
            shown.push(Run::of(id, &same, &group.records));
        }
        runs.push(shown);
    }
    let columns = engines(report);
    let mut topics: Vec<Topic> = Vec::new();
    for ((group, id), runs) in groups.iter().zip(names).zip(runs) {
        let scenario = Scenario::of(group, id, runs, &columns, &anchors);
        let name = topic(group.name);
        match topics.iter_mut().find(|known| known.name == name) {
            Some(known) => known.scenarios.push(scenario),
            None => topics.push(Topic { name: name.to_owned(), scenarios: vec![scenario] }),
        }
    }
    let page = Page {
        headline: headline(report),
        tally: Tally::of(&report.records),
        scenarios: groups.len(),
        took: words::duration(report.took),
        interruption: report.interruption,
        missing: report
            .missing
            .iter()
            .map(|missing| (missing.engine.name(), missing.why.clone()))
            .collect(),
        columns: columns.iter().map(|engine| (engine.name(), servers(report, *engine))).collect(),
        topics,
        anomalies: Grid::of(&Anomalies::of(report, stories), &anchors),
        stability: Stability::of(report),
        style: include_str!("style.css"),
        script: include_str!("script.js"),
    };
    // Rendering into a String cannot fail: no filter that could is used.
    page.render().unwrap_or_default()
}

#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    headline: String,
    tally: Tally,
    scenarios: usize,
    took: String,
    interruption: Option<Interruption>,
    missing: Vec<(&'static str, String)>,
    /// Engines, with what their servers call themselves.
    columns: Vec<(&'static str, String)>,
    topics: Vec<Topic>,
    anomalies: Option<Grid>,
    stability: Stability,
    style: &'static str,
    script: &'static str,
}

struct Topic {
    name: String,
    scenarios: Vec<Scenario>,
}

struct Scenario {
    id: String,
    name: String,
    title: String,
    why: Vec<String>,
    advice: Vec<String>,
    seeds: Vec<String>,
    anomaly: Option<String>,
    source: String,
    /// For the matrix: under each engine.
    cells: Vec<Vec<Strip>>,
    runs: Vec<Run>,
}

/// The cases at one place, in a cell of the matrix.
struct Strip {
    /// The strategy, where there are several.
    strategy: Option<String>,
    marks: Vec<Mark>,
}

struct Mark {
    href: Option<String>,
    class: &'static str,
    sign: &'static str,
    says: String,
}

/// The table of anomalies.
struct Grid {
    engines: Vec<(&'static str, usize)>,
    levels: Vec<String>,
    rows: Vec<(String, String, Vec<Option<Square>>)>,
}

struct Square {
    class: &'static str,
    text: String,
    href: String,
}

impl Scenario {
    fn of(
        group: &Group<'_>,
        id: String,
        runs: Vec<Run>,
        columns: &[Engine],
        anchors: &HashMap<usize, String>,
    ) -> Self {
        let story = group.story;
        let cell = |engine: &Engine| {
            let missing = group.missing.iter().find(|missing| missing.engine == *engine);
            let gone = missing.map(|missing| Strip {
                strategy: None,
                marks: vec![Mark {
                    href: None,
                    class: "gone",
                    sign: "–",
                    says: format!("{engine} is missing: {}", missing.why),
                }],
            });
            let places = group.places().into_iter().filter(|place| place.engine == *engine);
            let strips = places.map(|place| Strip {
                strategy: place.strategy.map(|strategy| strategy.to_string()),
                marks: group.cases_at(place).iter().map(|case| Mark::of(case, anchors)).collect(),
            });
            strips.chain(gone).collect()
        };
        Scenario {
            id,
            name: group.name.to_owned(),
            title: group.title.to_owned(),
            why: paragraphs(story.map_or("", |story| &story.why)),
            advice: paragraphs(story.map_or("", |story| &story.advice)),
            seeds: story.map_or_else(Vec::new, |story| story.seeds.clone()),
            anomaly: story.and_then(|story| story.anomaly.clone()),
            source: story.map_or_else(String::new, |story| story.source_text.clone()),
            cells: columns.iter().map(cell).collect(),
            runs,
        }
    }
}

impl Mark {
    /// The first round that does not agree, or the first.
    fn of(case: &Rounds<'_>, anchors: &HashMap<usize, String>) -> Self {
        let bad = case.iter().filter(|(_, record)| !record.agrees()).count();
        let (index, record) = case.iter().find(|(_, r)| !r.agrees()).unwrap_or(&case[0]);
        let (class, sign, word) = verdict(record);
        let mut says = record.place.to_string();
        if !record.variant.is_empty() {
            says += &format!(", {}", variant(record));
        }
        says += &format!(": {word}");
        if case.len() > 1 {
            says += &match bad {
                0 => format!(" in all of {} rounds", case.len()),
                bad => format!(" in {bad} of {} rounds", case.len()),
            };
        }
        Mark { href: anchors.get(index).cloned(), class, sign, says }
    }
}

impl Grid {
    fn of(anomalies: &Anomalies, anchors: &HashMap<usize, String>) -> Option<Self> {
        let square = |cell: &super::anomalies::Cell| Square {
            class: match (cell.agrees, cell.shown) {
                (false, _) => "odd",
                (true, 0) => "kept",
                (true, _) => "shows",
            },
            text: cell.words(),
            href: anchors.get(&cell.record).cloned().unwrap_or_default(),
        };
        (!anomalies.is_empty()).then(|| Grid {
            engines: anomalies.engines().iter().map(|(engine, n)| (engine.name(), *n)).collect(),
            levels: anomalies
                .columns
                .iter()
                .map(|Column { isolation, .. }| isolation.clone())
                .collect(),
            rows: anomalies
                .rows
                .iter()
                .map(|row| {
                    let cells = row.cells.iter().map(|cell| cell.as_ref().map(square)).collect();
                    (row.anomaly.clone(), row.scenario.clone(), cells)
                })
                .collect(),
        })
    }
}

/// The class, the sign and the word of a verdict.
fn verdict(record: &Record) -> (&'static str, &'static str, &'static str) {
    match record.verdict {
        Verdict::Agrees => ("agrees", "✓", "agrees"),
        Verdict::Disagrees { .. } => ("disagrees", "✗", "disagrees"),
        Verdict::Failed { .. } => ("failed", "✗", "failed"),
    }
}

fn headline(report: &Report) -> String {
    let tally = Tally::of(&report.records);
    let differ = tally.disagreed + tally.failed;
    match (tally.total(), differ) {
        (total, 0) if report.interruption.is_some() => {
            format!("Interrupted: {} so far", words::count(total, "case"))
        }
        (0, _) => "Nothing was run".to_owned(),
        (1, 0) => "The one case agrees".to_owned(),
        (total, 0) => format!("All {total} cases agree"),
        (total, 1) => format!("1 of {} does not agree", words::count(total, "case")),
        (total, differ) => format!("{differ} of {total} cases do not agree"),
    }
}

/// What the servers of an engine call themselves.
fn servers(report: &Report, engine: Engine) -> String {
    let mut names: Vec<String> = Vec::new();
    for record in report.records.iter().filter(|record| record.place.engine == engine) {
        if !names.contains(&record.server) {
            names.push(record.server.clone());
        }
    }
    names.join(", ")
}

/// Prose, a paragraph each; blank lines divide them.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.lines().map(str::trim) {
        match (line, paragraphs.last_mut()) {
            ("", _) => paragraphs.push(String::new()),
            (line, Some(last)) if !last.is_empty() => *last += &format!(" {line}"),
            (line, Some(last)) => *last = line.to_owned(),
            (_, None) => {}
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// `deadlock-cycle`: what can be part of an address without being written differently.
fn slug(text: &str) -> String {
    let dashed: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let parts: Vec<&str> = dashed.split('-').filter(|part| !part.is_empty()).collect();
    parts.join("-")
}

fn run_slug(scenario: &str, record: &Record) -> String {
    let parts = [scenario.to_owned(), slug(&record.place.to_string()), slug(&variant(record))];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("--")
}

/// Names for elements, each given once.
#[derive(Default)]
struct Ids(HashSet<String>);

impl Ids {
    fn fresh(&mut self, wish: &str) -> String {
        let wish = if wish.is_empty() { "x" } else { wish };
        let mut id = wish.to_owned();
        let mut n = 1;
        while !self.0.insert(id.clone()) {
            n += 1;
            id = format!("{wish}-{n}");
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn nothing_from_files_or_servers_becomes_markup() {
        let page = html(&fixtures::report(), &fixtures::stories());
        assert_eq!(page.matches("<script").count(), 1, "only our own");
        assert!(!page.contains("<img"));
        assert!(page.contains("&#60;script&#62;alert(&#39;title&#39;)"));
    }

    #[test]
    fn without_a_script_everything_is_there() {
        let page = html(&fixtures::report(), &fixtures::stories());
        let hidden: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with('<') && line.contains(" hidden>"))
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        assert_eq!(hidden, ["<form", "<p"], "only the filter, and what it says when nothing fits");
    }

    /// Rounds that went the same way are shown once; those that did not have a run of their own.
    #[test]
    fn rounds_that_are_alike_are_shown_once() {
        let mut report = fixtures::report();
        report.records =
            (1..=5).map(|n| fixtures::readers(fixtures::place(Engine::Memory), n)).collect();
        let page = html(&report, &[]);
        assert_eq!(page.matches("<details class=\"run\"").count(), 2);
        assert!(page.contains("u1, rounds 1, 3, 5 of 5"));
        assert!(page.contains("id=\"tree-readers--memory--u1-2\""));
    }

    #[test]
    fn places_that_are_alike_are_shown_once() {
        let mut report = fixtures::report();
        report.records.retain(|record| record.scenario == "anomaly/dirty-read");
        let page = html(&report, &[]);
        assert_eq!(report.records.len(), 6);
        assert_eq!(page.matches("<details class=\"run\"").count(), 3);
        assert_eq!(page.matches("data-engine=\"mysql mariadb\"").count(), 3);
    }

    #[test]
    fn hundreds_of_runs_stay_small() {
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
        let page = html(&report, &[]);
        assert!(page.len() < 3_000_000, "{} bytes", page.len());
    }
}
