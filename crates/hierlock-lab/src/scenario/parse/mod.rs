//! Parses the lines of a file into a [`Scenario`]: the axes, then line by line, then checks of the whole file.

mod axes;
pub(super) mod expectation;
mod header;
mod sql;
mod steps;
mod table;

use super::case::{MAX_CASES, variant_count, variants};
use super::check::check;
use super::diagnostic::{Diagnostic, Diagnostics, ParseError, Position};
use super::expectation::SessionSelector;
use super::file::Scenario;
use super::guard::{CaseGuard, Vocabulary};
use super::source_line::{LineKind, MARKS, SourceLine, SourceSpan, source_lines};
use super::template::{Template, TemplateValue, Variant};
use crate::text::join;
use std::sync::Arc;

impl Scenario {
    /// Parses a scenario file. `name` is its path below `scenarios/` without the extension, `file` is its name in
    /// messages.
    ///
    /// ```
    /// use hierlock_lab::Scenario;
    ///
    /// let scenario = Scenario::parse("demo/wait", "wait.lab", "\
    /// ## Waiting: an account below a locked user
    /// A> lock u1
    /// B> lock u1/a1
    ///  = blocked by A
    /// A> release
    /// B< = done
    /// ")?;
    /// assert_eq!(scenario.title, "Waiting: an account below a locked user");
    /// assert_eq!(scenario.cases()[0].steps.len(), 4);
    /// # Ok::<(), Vec<hierlock_lab::Diagnostic>>(())
    /// ```
    ///
    /// # Errors
    /// All errors that can be found without a server, in the order of the file; there is at least one.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Arc<Self>, Vec<Diagnostic>> {
        let text = without_byte_order_mark(text);
        let lines = source_lines(text);
        let mut diagnostics = Diagnostics::new(file, text);
        let axes = axes::read(&lines, &mut diagnostics);
        let mut parser = Parser {
            vocabulary: Vocabulary::new(&axes),
            variants: variants(&axes),
            scenario: Scenario {
                name: name.to_owned(),
                file: file.to_owned(),
                text: text.to_owned(),
                title: name.to_owned(),
                axes,
                ..Scenario::default()
            },
            diagnostics: &mut diagnostics,
            part: FilePart::Header,
        };
        parser.opening_comment(&lines);
        parser.lines(&lines);
        let scenario = Arc::new(parser.scenario);

        // Errors of cases are reported only if every line could be parsed.
        if diagnostics.found.is_empty() {
            let count = variant_count(&scenario.axes).saturating_mul(scenario.backends().len());
            if count > MAX_CASES {
                let names = scenario.axes.last().and_then(|axis| axis.positions.first());
                let line = names.map_or(1, |position| position.line);
                let message =
                    format!("that makes {count} cases; write axes that make at most {MAX_CASES}");
                diagnostics.report(Position { line, column: 1 }, message);
            } else {
                check(&scenario, &scenario.cases(), &mut diagnostics);
            }
        }
        diagnostics.found.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
        if diagnostics.found.is_empty() { Ok(scenario) } else { Err(diagnostics.found) }
    }
}

pub(super) fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The parts of a file, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FilePart {
    Header,
    Transcript,
    Teardown,
    Advice,
}

struct Parser<'p, 't> {
    vocabulary: Vocabulary,
    variants: Vec<Variant>,
    scenario: Scenario,
    diagnostics: &'p mut Diagnostics<'t>,
    part: FilePart,
}

impl Parser<'_, '_> {
    fn report(&mut self, position: Position, message: impl Into<String>) {
        self.diagnostics.report(position, message);
    }

    /// Reads the title and the reason from the opening comment.
    fn opening_comment(&mut self, lines: &[SourceLine<'_>]) {
        let lines = lines.iter().skip_while(|line| matches!(line.kind, LineKind::Blank));
        let mut comment = lines
            .take_while(|line| matches!(line.kind, LineKind::Comment))
            .map(|line| line.raw.trim_start().trim_start_matches('#'));
        if let Some(title) = comment.next().map(str::trim).filter(|title| !title.is_empty()) {
            self.scenario.title = title.to_owned();
        }
        let why = join(comment.map(|line| line.strip_prefix(' ').unwrap_or(line)), "\n");
        self.scenario.why = why.trim_matches('\n').to_owned();
    }

    fn lines(&mut self, lines: &[SourceLine<'_>]) {
        let mut rest = lines;
        // Indented lines below a line that could not be parsed belong to it, and are not reported.
        let mut is_ignored = false;
        while let Some((line, after)) = rest.split_first() {
            let (below, remaining) = after.split_at(block_length(after));
            rest = after;
            match &line.kind {
                LineKind::Blank | LineKind::Comment => {}
                LineKind::Header(head) => {
                    let is_known = self.header(head, below);
                    is_ignored = !is_known;
                    if is_known && matches!(head.name.text, "setup" | "teardown" | "advice") {
                        rest = remaining;
                    }
                }
                LineKind::Step(head) => {
                    self.enter(FilePart::Transcript, head.name.position);
                    is_ignored = true;
                    self.step(head, below);
                    rest = remaining;
                }
                LineKind::Unknown(span) => {
                    is_ignored = true;
                    self.unknown(*span);
                }
                LineKind::Indented(_, span) if !is_ignored => {
                    let message = "an indented line belongs to a step or to a block (setup:, teardown:, \
                                   advice:); there is none above, so write it at the margin";
                    self.report(span.position, message);
                }
                LineKind::Expect(expect) if !is_ignored => {
                    self.report(expect.name.position, "there is no step above this");
                }
                LineKind::Indented(..) | LineKind::Expect(_) => {}
            }
        }
        if self.scenario.steps.is_empty() && self.diagnostics.found.is_empty() {
            let end = Position { line: lines.len().max(1), column: 1 };
            self.report(end, "there is no step; write at least one, such as `A> select 1`");
        }
    }

    /// Enters a part of the file. The parts are header, transcript, teardown and advice, in this order.
    fn enter(&mut self, part: FilePart, position: Position) {
        if self.part <= part {
            self.part = part;
            return;
        }
        let message = match (part, self.part) {
            (_, FilePart::Advice) => "`advice:` is the last thing in a file; put this before it",
            (FilePart::Header, _) => "this belongs to the header; put it before the first step",
            _ => {
                "this step is after `teardown:`, which belongs before the first step or after the last"
            }
        };
        self.report(position, message);
    }

    /// Reads `[…]`. Errors are reported, and the guard then fits every case.
    fn guard(&mut self, span: Option<SourceSpan<'_>>) -> CaseGuard {
        let guard = span.map(|span| self.vocabulary.guard(span));
        guard.and_then(|guard| self.value_of(guard)).unwrap_or_default()
    }

    /// Returns the value; reports an error.
    fn value_of<T>(&mut self, read: Result<T, (Position, String)>) -> Option<T> {
        read.map_err(|(position, message)| self.report(position, message)).ok()
    }

    /// Reads a template, for each variant if it contains an axis. Errors are reported.
    fn read<T, E: Into<Vec<ParseError>>>(
        &mut self,
        template: Template,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> TemplateValue<T> {
        let mut names = self.scenario.axes.iter().flat_map(|axis| &axis.names);
        let varies = names.any(|name| template.mentions(name));
        let no_axes = [Variant::new()];
        let variants: &[Variant] = if varies { &self.variants } else { &no_axes };
        let mut values = Vec::new();
        for variant in variants {
            match read(&template.fill(variant)) {
                Ok(value) => values.push(value),
                Err(errors) => {
                    for error in errors.into() {
                        template.report(variant, error, self.diagnostics);
                    }
                }
            }
        }
        TemplateValue { template, values }
    }

    /// Reports a line at the margin that is neither a header nor a step.
    fn unknown(&mut self, span: SourceSpan<'_>) {
        let first = span.text.split_whitespace().next().unwrap_or_default();
        let message = if span.text.starts_with(MARKS) {
            "an expectation is indented by a blank, below its step".to_owned()
        } else if SessionSelector::named(first).is_some() {
            format!("a step is written `{first}> statement`, a second look `{first}< = done`")
        } else if span.text.contains('[') && !span.text.contains(']') {
            "this bracket is not closed".to_owned()
        } else {
            "this is neither a step (`A> statement`) nor a header (`engines: mysql`)".to_owned()
        };
        self.report(span.position, message);
    }
}

/// Returns the number of lines that belong to the line above: the indented ones, and those between them.
fn block_length(lines: &[SourceLine<'_>]) -> usize {
    let ends = |line: &SourceLine<'_>| !line.is_empty() && !line.is_indented();
    let end = lines.iter().position(ends).unwrap_or(lines.len());
    // Blank lines and comments after the last one belong to the next line.
    lines[..end].iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1)
}
