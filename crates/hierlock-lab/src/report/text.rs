//! The report for a terminal: a line for every scenario and place, the story of every disagreement, and a
//! summary. It knows how wide the terminal is and whether it has colours only because it is told.

use super::grouping::{Group, Rounds, Tally, by_scenario, run_name, sessions, variant};
use super::paint::{BAD, FAINT, GOOD, Paint, STRONG, WAITING};
use super::transcript::{Entry, Seen, Sort, transcript};
use super::{Story, explain, words};
use crate::columns::columns;
use crate::observation::Name;
use crate::record::{Record, Report, Verdict};

/// How the text is to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// With colours of a terminal.
    pub colour: bool,
    /// In how many columns.
    pub width: usize,
    /// With the transcripts of all runs, not only of those that disagree.
    pub verbose: bool,
}

impl Default for Look {
    fn default() -> Self {
        Look { colour: false, width: 100, verbose: false }
    }
}

/// See [`Report::text`].
pub(crate) fn text(report: &Report, stories: &[Story], look: Look) -> String {
    let mut page = Page { look, paint: Paint { colour: look.colour }, text: String::new() };
    let groups = by_scenario(report, stories);
    let places = groups.iter().flat_map(|group| group.places()).map(|p| p.to_string().len());
    let column = places.max().unwrap_or(0).max(8);
    let names = groups.iter().map(|group| columns(group.name)).max().unwrap_or(0);
    let is_short = |group: &&Group<'_>| {
        let agrees = group.records.iter().all(|(_, record)| record.agrees());
        !look.verbose && agrees && groups.len() > TOLD_IN_FULL
    };
    for group in &groups {
        match is_short(&group) {
            true => page.scenario_in_short(group, names),
            false => page.scenario(group, column),
        }
    }
    for group in &groups {
        for (_, record) in &group.records {
            if look.verbose || !record.agrees() {
                page.run(record);
            }
        }
    }
    if !look.verbose {
        // Those that disagree have been told in full.
        page.notes(report.records.iter().filter(|record| record.agrees()));
    }
    page.summary(report, &groups);
    page.text
}

/// One run as a story of its own: what [`text`] tells of a disagreement.
pub(super) fn story(record: &Record, look: Look) -> String {
    let mut page = Page { look, paint: Paint { colour: look.colour }, text: String::new() };
    page.run(record);
    page.text.trim_start_matches('\n').to_owned()
}

/// Of more scenarios than this, one that agrees is a line.
const TOLD_IN_FULL: usize = 5;

struct Page {
    look: Look,
    paint: Paint,
    text: String,
}

impl Page {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text += line.as_ref().trim_end();
        self.text.push('\n');
    }

    /// A paragraph, its first line after `lead`, the others as far to the right.
    fn paragraph(&mut self, lead: &str, lead_columns: usize, text: &str) {
        let width = self.look.width.saturating_sub(lead_columns).max(24);
        for (i, line) in words::wrap(&words::tame(text), width).iter().enumerate() {
            match i {
                0 => self.line(format!("{lead}{line}")),
                _ => self.line(format!("{:lead_columns$}{line}", "")),
            }
        }
    }

    fn scenario(&mut self, group: &Group<'_>, column: usize) {
        let name = words::one_line(group.name);
        let lead = format!("{}  ", self.paint.with(STRONG, &name));
        self.paragraph(&lead, columns(&name) + 2, group.title);
        for place in group.places() {
            let cases = group.cases_at(place);
            let runs: Vec<&Record> = cases.iter().flatten().map(|(_, record)| *record).collect();
            let tally = Tally::of(runs.iter().copied());
            let mark = match tally.agreed == tally.total() {
                true => self.paint.with(GOOD, "✓"),
                false => self.paint.with(BAD, "✗"),
            };
            let lead = format!("  {mark} {:column$}  ", place.to_string());
            self.paragraph(&lead, column + 6, &at_place(&cases, tally));
        }
        for missing in &group.missing {
            let mark = self.paint.with(FAINT, "–");
            self.line(format!("  {mark} {:column$}  is missing", missing.engine.name()));
        }
    }

    /// That it agrees, and where; nothing, if it was run nowhere.
    fn scenario_in_short(&mut self, group: &Group<'_>, column: usize) {
        let mut engines: Vec<&str> =
            group.places().iter().map(|place| place.engine.name()).collect();
        engines.dedup();
        if engines.is_empty() {
            return;
        }
        let name = words::one_line(group.name);
        let blanks = column.saturating_sub(columns(&name));
        let mark = self.paint.with(GOOD, "✓");
        let cases = words::count(group.records.len(), "case");
        let lead = format!("{mark} {}{:blanks$}  ", self.paint.with(STRONG, &name), "");
        let seen = format!("{cases} on {}", engines.join(", "));
        self.line(format!("{lead}{}", self.paint.with(FAINT, seen)));
    }

    /// What there is to say of runs besides, once for each that says the same.
    fn notes<'a>(&mut self, records: impl Iterator<Item = &'a Record>) {
        let mut told = Vec::new();
        for record in records {
            let at = format!("{} ({})", record.scenario, record.place);
            for note in record.notes.iter().map(|note| format!("{at}: {note}")) {
                if !told.contains(&note) {
                    told.push(note);
                }
            }
        }
        if !told.is_empty() {
            self.line("");
        }
        for note in told {
            let lead = format!("{} ", self.paint.with(STRONG, "note:"));
            self.paragraph(&lead, 6, &note);
        }
    }

    fn run(&mut self, record: &Record) {
        let mark = match record.verdict {
            Verdict::Agrees => self.paint.with(GOOD, "✓"),
            _ => self.paint.with(BAD, "✗"),
        };
        self.line("");
        self.line(format!("{mark} {}", self.paint.with(STRONG, run_name(record))));
        self.paragraph("  ", 2, &record.title);
        let server = words::one_line(&record.server);
        let at = match &record.verdict {
            Verdict::Disagrees { step, .. } => record.steps.get(*step),
            Verdict::Failed { .. } => record.steps.last(),
            Verdict::Agrees => None,
        };
        let place = match at {
            Some(step) => format!("{}:{}", words::one_line(&record.file), step.line),
            None => words::one_line(&record.file),
        };
        self.line(format!("  {}", self.paint.with(FAINT, format!("{place}, {server}"))));
        self.line("");
        self.transcript(record);
        self.verdict(record);
        let told = last_told(record);
        for deadlock in record.deadlocks.iter().filter(|deadlock| deadlock.step <= told) {
            self.line("");
            self.line(format!("  {}", self.paint.with(STRONG, "The deadlock")));
            for sentence in explain::deadlock(record, deadlock) {
                self.paragraph("    ", 4, &sentence);
            }
        }
        for circle in record.circles.iter().filter(|circle| circle.step <= told) {
            self.line("");
            self.line(format!("  {}", self.paint.with(STRONG, explain::CIRCLE)));
            for sentence in explain::circle(record, circle) {
                self.paragraph("    ", 4, &sentence);
            }
        }
        for note in &record.notes {
            self.line("");
            let lead = format!("  {} ", self.paint.with(STRONG, "note:"));
            self.paragraph(&lead, 8, note);
        }
    }

    /// Up to the first difference, if there is one.
    fn transcript(&mut self, record: &Record) {
        let names = sessions(record);
        let last = last_told(record);
        for entry in transcript(record).into_iter().take_while(|entry| entry.index <= last) {
            let differs =
                matches!(record.verdict, Verdict::Disagrees { .. }) && entry.index == last;
            self.entry(&entry, &names, differs);
        }
    }

    fn entry(&mut self, entry: &Entry<'_>, names: &[Name], differs: bool) {
        let Entry { step, seen, let_go, .. } = entry;
        let name = step.session.as_str();
        let style = self.paint.session(names.iter().position(|n| *n == step.session).unwrap_or(0));
        let mark = if differs { self.paint.with(BAD, "✗") } else { " ".to_owned() };
        let number = self.paint.with(FAINT, format!("{:>4}", step.line));
        let prompt = if step.text.is_empty() { '<' } else { '>' };
        let prompt = self.paint.with(style, format!("{name}{prompt}"));
        let lead = format!("{mark} {number}  {prompt} ");
        self.paragraph(&lead, 8 + name.len() + 2, &step.text);
        self.seen("", seen);
        for end in let_go {
            let after = words::duration(end.waited);
            let goes = match end.seen.sort {
                Sort::Done => "goes on",
                _ => "is ended",
            };
            self.seen(&format!("↳ {} {goes} after {after}", end.session), &end.seen);
        }
    }

    /// What was seen, on lines of their own; `whose` where it is not the step above.
    fn seen(&mut self, whose: &str, seen: &Seen) {
        const LEFT: usize = 9;
        let style = match seen.sort {
            Sort::Done => GOOD,
            Sort::Blocked => WAITING,
            Sort::Deadlock | Sort::Failed | Sort::Stuck => BAD,
        };
        let headline = match (whose, &seen.headline) {
            ("", Some(headline)) => format!("= {headline}"),
            ("", None) => String::new(),
            (whose, Some(headline)) => format!("{whose}: {headline}"),
            (whose, None) => format!("{whose}:"),
        };
        if !headline.is_empty() {
            let width = self.look.width.saturating_sub(LEFT + 2).max(24);
            for (i, line) in words::wrap(&headline, width).iter().enumerate() {
                let indent = if i == 0 { LEFT } else { LEFT + 2 };
                let line = self.paint.with(style, line);
                self.line(format!("{:indent$}{line}", ""));
            }
        }
        for row in &seen.rows {
            let row = self.paint.with(style, row);
            self.line(format!("{:LEFT$}{row}", ""));
        }
        if let Some(said) = &seen.said {
            self.paragraph(&format!("{:1$}", "", LEFT + 2), LEFT + 2, said);
        }
    }

    fn verdict(&mut self, record: &Record) {
        match &record.verdict {
            Verdict::Agrees => {}
            Verdict::Failed { why } => {
                self.line("");
                let lead = format!("  {} ", self.paint.with(BAD, "failed:"));
                self.paragraph(&lead, 10, why);
            }
            Verdict::Disagrees { step, why } => {
                self.line("");
                if let Some(step) = record.steps.get(*step) {
                    let expected = match step.expected.trim() {
                        "" => "done",
                        expected => expected,
                    };
                    let observed = words::observation(&step.seen);
                    for (word, text) in [("expected:", expected), ("observed:", &*observed)] {
                        let lead = format!("  {} ", self.paint.with(STRONG, word));
                        self.paragraph(&lead, 12, text);
                    }
                }
                self.paragraph("  ", 2, why);
            }
        }
    }

    fn summary(&mut self, report: &Report, groups: &[Group<'_>]) {
        if let Some(interruption) = report.interruption {
            self.line("");
            self.line(self.paint.with(BAD, interruption));
        }
        if report.records.is_empty() && report.missing.is_empty() {
            self.line("Nothing was run.");
            return;
        }
        self.line("");
        let tally = Tally::of(&report.records);
        let said = |paint: Paint, style, n: usize, text: String| match n {
            0 => text,
            _ => paint.with(style, text),
        };
        let scenarios = groups.iter().filter(|group| !group.records.is_empty()).count();
        self.line(format!(
            "{} of {}: {}, {}, {}, in {}",
            words::count(tally.total(), "case"),
            words::count(scenarios, "scenario"),
            said(self.paint, GOOD, tally.agreed, format!("{} agreed", tally.agreed)),
            said(self.paint, BAD, tally.disagreed, format!("{} disagreed", tally.disagreed)),
            said(self.paint, BAD, tally.failed, format!("{} failed", tally.failed)),
            words::duration(report.took),
        ));
        let nowhere = groups.iter().filter(|group| group.records.is_empty()).count();
        if nowhere > 0 {
            let those = words::count(nowhere, "scenario");
            self.line(format!("{those} not run: nothing that is there can run them"));
        }
        for missing in &report.missing {
            let lead = format!("missing: {}: ", missing.engine);
            self.paragraph(&lead, lead.len(), &missing.why);
        }
    }
}

/// The index of the last step that is told: that of the first difference.
fn last_told(record: &Record) -> usize {
    match &record.verdict {
        Verdict::Disagrees { step, .. } => *step,
        _ => usize::MAX,
    }
}

/// What is to be said of the cases at one place, on its line.
fn at_place(cases: &[Rounds<'_>], tally: Tally) -> String {
    let took = cases.iter().flatten().map(|(_, record)| record.took).sum();
    let mut text = words::duration(took);
    let rounds = cases.iter().map(Vec::len).max().unwrap_or(1);
    if cases.len() > 1 {
        text += &format!(", {}", words::count(cases.len(), "variant"));
    }
    if rounds > 1 {
        text += &format!(", {rounds} rounds");
    }
    if tally.agreed == tally.total() {
        return text;
    }
    let mut differ = Vec::new();
    for case in cases {
        let bad = case.iter().filter(|(_, record)| !record.agrees()).count();
        if bad > 0 {
            let name = variant(case[0].1);
            let times = if rounds > 1 { format!("{bad} of {}", case.len()) } else { String::new() };
            let line = case.iter().find_map(|(_, record)| first_line(record));
            let parts = [name, times, line.unwrap_or_default()];
            differ.push(parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", "));
        }
    }
    format!("{text}; {}", differ.join("; "))
}

/// `line 19 disagrees`, `failed`.
fn first_line(record: &Record) -> Option<String> {
    match &record.verdict {
        Verdict::Agrees => None,
        Verdict::Disagrees { step, .. } => Some(match record.steps.get(*step) {
            Some(step) => format!("line {} disagrees", step.line),
            None => "disagrees".to_owned(),
        }),
        Verdict::Failed { .. } => Some("failed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{self, cycle, cycle_disagrees};

    fn look() -> Look {
        Look { width: 80, ..Look::default() }
    }

    #[test]
    fn the_whole_report_tells_the_stories_of_those_that_disagree() {
        let text = text(&fixtures::report(), &fixtures::stories(), look());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_run_that_agrees_is_told_when_asked_for() {
        insta::assert_snapshot!(story(&cycle(Engine::Mysql, "A"), look()));
        let report = Report {
            records: vec![cycle(Engine::Mysql, "B")],
            took: std::time::Duration::from_millis(16),
            ..Report::default()
        };
        assert!(!text(&report, &[], look()).contains("begin"));
        assert!(text(&report, &[], Look { verbose: true, ..look() }).contains("A> begin"));
    }

    #[test]
    fn colour_is_used_only_where_it_is_asked_for() {
        let record = cycle_disagrees(Engine::Mariadb);
        assert!(!story(&record, look()).contains('\u{1b}'));
        assert!(story(&record, Look { colour: true, ..look() }).contains("\u{1b}[1m\u{1b}[31m✗"));
    }

    #[test]
    fn what_a_server_says_cannot_command_the_terminal() {
        assert!(!story(&fixtures::hostile(), look()).contains(['\u{1b}', '\0']));
    }
}
