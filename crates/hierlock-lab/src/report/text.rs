//! The report for a terminal: a line for every scenario and backend, transcripts of disagreements, and a summary.

use super::display::{self, duration, one_line, wrap};
use super::grouping::{Rounds, ScenarioGroup, Tally, by_scenario, sessions};
use super::terminal::{BOLD, DIM, FAILURE, SESSIONS, SUCCESS, TerminalText, WAITING};
use super::transcript::{outcomes, prompt};
use super::{ScenarioSummary, explain, topic};
use crate::group::{distinct, group_by};
use crate::observation::{Observation, SessionName};
use crate::record::{Record, Report, Verdict};
use crate::text::count;
use anstyle::Style;
use unicode_width::UnicodeWidthStr;

/// With more scenarios than this, each that agrees gets a single line.
const MAX_DETAILED: usize = 5;

/// The least width of a line, however narrow the terminal is.
const MIN_WIDTH: usize = 24;

/// The column at which the outcome of a step begins.
const OUTCOME_INDENT: usize = 9;

/// The style of a report for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextStyle {
    /// Whether terminal colours are used.
    pub colour: bool,
    /// The number of columns.
    pub width: usize,
    /// Whether the transcripts of all runs are shown, not only of those that disagree.
    pub verbose: bool,
    /// Whether there is a line for each topic instead of each scenario, if there are several topics and they agree.
    pub by_topic: bool,
}

impl Default for TextStyle {
    fn default() -> Self {
        TextStyle { colour: false, width: 100, verbose: false, by_topic: false }
    }
}

impl Report {
    /// Returns the report for a terminal.
    ///
    /// ```
    /// use hierlock_lab::{Report, TextStyle};
    ///
    /// assert_eq!(Report::default().text(&[], TextStyle::default()), "Nothing was run.\n");
    /// ```
    pub fn text(&self, scenarios: &[ScenarioSummary], style: TextStyle) -> String {
        let mut writer = TextReporter::new(style);
        let groups = by_scenario(self, scenarios);
        let backends =
            groups.iter().flat_map(|group| group.backends()).map(|p| p.to_string().len());
        let backend_width = backends.max().unwrap_or(0).max(8);
        let is_short = !style.verbose && groups.len() > MAX_DETAILED;
        let topics = group_by(&groups, |group| topic(group.name));
        let by_topic = is_short && style.by_topic && topics.len() > 1;
        let by_name = || groups.iter().map(|group| (group.name, vec![group])).collect();
        let sections = if by_topic { topics } else { by_name() };
        let name_width = sections.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
        for (name, groups) in &sections {
            if is_short && (by_topic || groups[0].agrees()) {
                writer.short_line(name, name_width, groups, by_topic);
            }
            for group in groups.iter().filter(|group| !is_short || !group.agrees()) {
                writer.scenario(group, backend_width);
            }
        }
        for (_, record) in groups.iter().flat_map(|group| &group.records) {
            if style.verbose || !record.agrees() {
                writer.out.line("");
                writer.run(record);
            }
        }
        if !style.verbose {
            // Records that disagree show their notes in their transcripts.
            writer.notes(self.records.iter().filter(|record| record.agrees()));
        }
        writer.summary(self, &groups);
        writer.out.text
    }
}

/// Returns one run with its transcript, as [`Report::text`] shows a disagreement.
pub(super) fn run_text(record: &Record, style: TextStyle) -> String {
    let mut writer = TextReporter::new(style);
    writer.run(record);
    writer.out.text
}

struct TextReporter {
    width: usize,
    out: TerminalText,
}

impl TextReporter {
    fn new(style: TextStyle) -> Self {
        let out = TerminalText { colour: style.colour, ..TerminalText::default() };
        Self { width: style.width, out }
    }

    /// Writes a paragraph, its first line after `lead`, the others after `indent` blanks.
    fn paragraph(&mut self, lead: &str, indent: usize, text: &str) {
        self.styled_paragraph(Style::new(), lead, indent, text);
    }

    fn styled_paragraph(&mut self, style: Style, lead: &str, indent: usize, text: &str) {
        let width = self.width.saturating_sub(indent).max(MIN_WIDTH);
        for (i, line) in wrap(&display::printable(text), width).iter().enumerate() {
            self.out.push(if i == 0 { lead.to_owned() } else { " ".repeat(indent) });
            self.out.line(self.out.styled(style, line));
        }
    }

    /// Writes a paragraph after a bold label.
    fn labelled(&mut self, indent: usize, label: &str, text: &str) {
        let lead = format!("{:indent$}{} ", "", self.out.styled(BOLD, label));
        self.paragraph(&lead, indent + label.len() + 1, text);
    }

    fn check_mark(&self, agrees: bool) -> String {
        let style = if agrees { SUCCESS } else { FAILURE };
        self.out.styled(style, display::check_mark(agrees))
    }

    fn scenario(&mut self, group: &ScenarioGroup<'_>, backend_width: usize) {
        let name = one_line(group.name);
        let lead = format!("{}  ", self.out.styled(BOLD, &name));
        self.paragraph(&lead, name.width() + 2, group.title);
        for backend in group.backends() {
            let cases = group.cases_on(&backend);
            let agrees = cases.iter().flatten().all(|(_, record)| record.agrees());
            let lead = format!("  {} {backend:backend_width$}  ", self.check_mark(agrees));
            self.paragraph(&lead, backend_width + 6, &backend_summary(&cases));
        }
        for missing in &group.missing {
            let mark = self.out.styled(DIM, "–");
            self.out.line(format!("  {mark} {:backend_width$}  is missing", missing.engine));
        }
    }

    /// Writes one line about a scenario or topic, with its counts and engines; nothing if it was not run.
    fn short_line(
        &mut self,
        name: &str,
        name_width: usize,
        groups: &[&ScenarioGroup<'_>],
        is_topic: bool,
    ) {
        let backends = groups.iter().flat_map(|group| group.backends());
        let engines = distinct(backends.map(|backend| backend.engine.name()));
        if engines.is_empty() {
            return;
        }
        let mut counts = count(groups.iter().map(|group| group.records.len()).sum(), "case");
        if is_topic {
            let run = groups.iter().filter(|group| !group.records.is_empty());
            let agreed = run.clone().filter(|group| group.agrees()).count();
            let all = count(run.clone().count(), "scenario");
            let part = format!("{agreed} of {all} agree");
            counts = format!("{}, {counts}", if agreed < run.count() { part } else { all });
        }
        let name = one_line(name);
        let padding = " ".repeat(name_width.saturating_sub(name.width()));
        let mark = self.check_mark(groups.iter().all(|group| group.agrees()));
        self.out.push(format!("{mark} {}{padding}  ", self.out.styled(BOLD, &name)));
        self.out.line(self.out.styled(DIM, format!("{counts} on {}", engines.join(", "))));
    }

    fn notes<'a>(&mut self, records: impl Iterator<Item = &'a Record>) {
        let notes = distinct(records.flat_map(|record| {
            let Record { scenario, backend, notes, .. } = record;
            notes.iter().map(move |note| format!("{scenario} ({backend}): {note}"))
        }));
        if !notes.is_empty() {
            self.out.line("");
        }
        for note in notes {
            self.labelled(0, "note:", &note);
        }
    }

    fn run(&mut self, record: &Record) {
        let name = self.out.styled(BOLD, display::run_name(record));
        self.out.line(format!("{} {name}", self.check_mark(record.agrees())));
        self.paragraph("  ", 2, &record.title);
        let location = format!("{}, {}", display::location(record), one_line(&record.server));
        self.out.line(format!("  {}", self.out.styled(DIM, location)));
        self.out.line("");
        // A transcript ends with the first difference.
        let last = match record.verdict {
            Verdict::Disagrees { step, .. } => step,
            _ => usize::MAX,
        };
        let names = sessions(record);
        for index in (0..record.steps.len()).take_while(|index| *index <= last) {
            self.step(record, index, &names, index == last);
        }
        self.verdict(record);
        for deadlock in record.deadlocks.iter().filter(|deadlock| deadlock.step <= last) {
            self.sentences("The deadlock", explain::deadlock(record, deadlock));
        }
        for cycle in record.cycles.iter().filter(|cycle| cycle.step <= last) {
            self.sentences(explain::CYCLE, explain::cycle(record, cycle));
        }
        for note in &record.notes {
            self.out.line("");
            self.labelled(2, "note:", note);
        }
    }

    fn sentences(&mut self, heading: &str, sentences: Vec<String>) {
        self.out.line("");
        self.out.line(format!("  {}", self.out.styled(BOLD, heading)));
        for sentence in sentences {
            self.paragraph("    ", 4, &sentence);
        }
    }

    fn step(&mut self, record: &Record, index: usize, names: &[&SessionName], differs: bool) {
        let step = &record.steps[index];
        let nth = names.iter().position(|name| **name == step.session).unwrap_or(0);
        let mark = if differs { self.check_mark(false) } else { " ".to_owned() };
        let line = self.out.styled(DIM, format!("{:>4}", step.line));
        let prompt = prompt(step);
        let indent = 9 + prompt.len();
        let prompt = self.out.styled(SESSIONS[nth % SESSIONS.len()], prompt);
        self.paragraph(&format!("{mark} {line}  {prompt} "), indent, &step.text);
        for (seen, outcome) in outcomes(record, index) {
            let style = match seen {
                Observation::Done(_) => SUCCESS,
                Observation::Blocked(_) => WAITING,
                Observation::Failed(_) | Observation::Stuck => FAILURE,
            };
            let (lead, indent) = (" ".repeat(OUTCOME_INDENT), OUTCOME_INDENT + 2);
            if !outcome.headline.is_empty() {
                self.styled_paragraph(style, &lead, indent, &outcome.headline);
            }
            for row in &outcome.rows {
                self.out.line(format!("{lead}{}", self.out.styled(style, row)));
            }
            if !outcome.message.is_empty() {
                self.paragraph(&" ".repeat(indent), indent, &outcome.message);
            }
        }
    }

    fn verdict(&mut self, record: &Record) {
        let Some(why) = display::why(record) else { return };
        self.out.line("");
        if let Some(step) = display::differing_step(record) {
            self.labelled(2, "expected:", display::expected(step));
            self.labelled(2, "observed:", &display::observation(&step.seen));
        }
        if matches!(record.verdict, Verdict::Failed { .. }) {
            let lead = format!("  {} ", self.out.styled(FAILURE, "failed:"));
            self.paragraph(&lead, 10, why);
        } else {
            self.paragraph("  ", 2, why);
        }
    }

    fn summary(&mut self, report: &Report, groups: &[ScenarioGroup<'_>]) {
        if let Some(interruption) = report.interruption {
            self.out.line("");
            self.out.line(self.out.styled(FAILURE, interruption));
        }
        if report.records.is_empty() && report.missing.is_empty() {
            self.out.line("Nothing was run.");
            return;
        }
        self.out.line("");
        let Tally { cases, agreed, disagreed, failed } = Tally::new(&report.records);
        let not_run = groups.iter().filter(|group| group.records.is_empty()).count();
        let scenarios = count(groups.len() - not_run, "scenario");
        self.out.push(format!("{} of {scenarios}: ", count(cases, "case")));
        for (style, n, verb) in [
            (SUCCESS, agreed, "agreed"),
            (FAILURE, disagreed, "disagreed"),
            (FAILURE, failed, "failed"),
        ] {
            let style = if n > 0 { style } else { Style::new() };
            self.out.push_styled(style, format!("{n} {verb}"));
            self.out.push(", ");
        }
        self.out.line(format!("in {}", duration(report.took)));
        if not_run > 0 {
            let scenarios = count(not_run, "scenario");
            self.out.line(format!("{scenarios} not run: no available engine can run them"));
        }
        for missing in &report.missing {
            let lead = format!("missing: {}: ", missing.engine);
            self.paragraph(&lead, lead.len(), &missing.why);
        }
    }
}

fn backend_summary(cases: &[Rounds<'_>]) -> String {
    let took = cases.iter().flatten().map(|(_, record)| record.took).sum();
    let rounds = cases.iter().map(Vec::len).max().unwrap_or(1);
    let text = display::list([
        duration(took),
        if cases.len() > 1 { count(cases.len(), "variant") } else { String::new() },
        if rounds > 1 { format!("{rounds} rounds") } else { String::new() },
    ]);
    let mut parts = vec![text];
    for case in cases {
        let differing: Vec<&Record> =
            case.iter().map(|(_, record)| *record).filter(|record| !record.agrees()).collect();
        if let Some(first) = differing.first() {
            let share = format!("{} of {}", differing.len(), case.len());
            let share = if rounds > 1 { share } else { String::new() };
            // `line 19 disagrees`, or `failed`.
            let line = display::differing_step(first).map(|step| format!("line {} ", step.line));
            let verdict = line.unwrap_or_default() + display::verdict(first);
            parts.push(display::list([display::variant(first), share, verdict]));
        }
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::report::fixtures::{self, cycle, cycle_disagrees};

    const STYLE: TextStyle =
        TextStyle { colour: false, width: 80, verbose: false, by_topic: false };

    #[test]
    fn runs_that_disagree_are_shown_with_their_transcripts() {
        insta::assert_snapshot!(fixtures::report().text(&fixtures::scenarios(), STYLE));
    }

    #[test]
    fn a_run_that_agrees_is_shown_when_asked_for() {
        insta::assert_snapshot!(run_text(&cycle(Engine::Mysql, "A"), STYLE));
        let report = Report {
            records: vec![cycle(Engine::Mysql, "B")],
            took: std::time::Duration::from_millis(16),
            ..Report::default()
        };
        assert!(!report.text(&[], STYLE).contains("begin"));
        let verbose = TextStyle { verbose: true, ..STYLE };
        assert!(report.text(&[], verbose).contains("A> begin"));
    }

    #[test]
    fn several_topics_have_a_line_each() {
        let record = |scenario: &str, engine, agrees: bool| Record {
            scenario: scenario.into(),
            ..if agrees { cycle(engine, "A") } else { cycle_disagrees(engine) }
        };
        let style = TextStyle { by_topic: true, ..STYLE };
        let mut records: Vec<Record> = ["a/1", "a/2", "a/3", "long/1", "long/2", "long/3"]
            .into_iter()
            .flat_map(|name| {
                [Engine::Mysql, Engine::Mariadb].map(|engine| record(name, engine, true))
            })
            .collect();
        let text = |records: &[Record], style| {
            Report { records: records.to_vec(), ..Report::default() }.text(&[], style)
        };
        let lines = "✓ a     3 scenarios, 6 cases on mysql, mariadb\n\
                     ✓ long  3 scenarios, 6 cases on mysql, mariadb\n\n12 cases of 6 scenarios";
        assert!(text(&records, style).starts_with(lines));
        // A line for each scenario, if there is one topic or topics are not requested.
        assert!(text(&records, STYLE).starts_with("✓ a/1     2 cases on mysql, mariadb\n✓ a/2 "));
        let names = ["a/1", "a/2", "a/3", "a/4", "a/5", "a/6"];
        let topic = names.map(|name| record(name, Engine::Mysql, true));
        assert_eq!(text(&topic, style), text(&topic, STYLE));
        // A disagreement is shown with its transcript.
        records[3] = record("a/2", Engine::Mariadb, false);
        let shown = text(&records, style);
        let lines = "✗ a     2 of 3 scenarios agree, 6 cases on mysql, mariadb\na/2  ";
        assert!(shown.starts_with(lines));
        let transcript = run_text(&records[3], style);
        assert!(shown.contains(&transcript) && !shown.contains("a/1"), "{shown}");
    }

    #[test]
    fn colour_is_used_only_on_request() {
        let record = cycle_disagrees(Engine::Mariadb);
        assert!(!run_text(&record, STYLE).contains('\u{1b}'));
        let coloured = run_text(&record, TextStyle { colour: true, ..STYLE });
        assert!(coloured.contains("\u{1b}[1m\u{1b}[31m✗"));
    }

    #[test]
    fn control_characters_of_a_server_are_replaced() {
        assert!(!run_text(&fixtures::injection(), STYLE).contains(['\u{1b}', '\0']));
    }
}
