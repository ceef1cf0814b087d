//! From the text of a file to a [`Scenario`]: first what everything else refers to (the axes), then
//! line by line, then everything that can only be seen in the whole. All mistakes are told at once.

mod axes;
mod header;
mod sql;
mod steps;
mod table;

use super::file::Scenario;
use super::mistake::{Mistake, Mistakes, Spot};
use super::only::{Only, Words};
use super::outline::{LineKind, Part, SourceLine, outline};
use super::text::Text;
use super::{check, expand};
use std::sync::Arc;

impl Scenario {
    /// Reads a scenario file. `name` is its path below `scenarios/` without the extension, `file` is
    /// what messages call it.
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
    /// assert_eq!(std::sync::Arc::new(scenario).cases()?[0].steps.len(), 4);
    /// # Ok::<(), Vec<hierlock_lab::Mistake>>(())
    /// ```
    ///
    /// # Errors
    /// Everything in it that cannot be right, as far as it can be known without a server, in the order
    /// of the file. There is at least one then.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut mistakes = Mistakes::new(file, text);
        let lines = outline(text);
        let mut scenario = Scenario::empty(name, file, text);
        opening_comment(&lines, &mut scenario);
        scenario.axes = axes::read(&lines, &mut mistakes);

        let axes = scenario.axes.clone();
        let mut parser = Parser { words: Words::new(&axes), mistakes: &mut mistakes, scenario };
        parser.lines(&lines);
        let scenario = parser.scenario;

        // What is wrong with a case is only worth telling once every line of it could be read.
        if !mistakes.is_empty() {
            return Err(mistakes.into_found());
        }
        let scenario = Arc::new(scenario);
        let cases = expand::cases(&scenario, &mut mistakes);
        check::check(&scenario, &cases, &mut mistakes);
        drop(cases);
        match mistakes.is_empty() {
            true => Ok(Arc::unwrap_or_clone(scenario)),
            false => Err(mistakes.into_found()),
        }
    }

    fn empty(name: &str, file: &str, text: &str) -> Self {
        Scenario {
            name: name.to_owned(),
            file: file.to_owned(),
            text: text.to_owned(),
            title: name.to_owned(),
            ..Scenario::default()
        }
    }
}

/// The title and the reason, from the comment with which the file opens.
fn opening_comment(lines: &[SourceLine<'_>], scenario: &mut Scenario) {
    let mut comment = lines
        .iter()
        .skip_while(|line| matches!(line.kind, LineKind::Blank))
        .take_while(|line| matches!(line.kind, LineKind::Comment))
        .map(|line| line.raw.trim_start().trim_start_matches('#'));
    if let Some(title) = comment.next().map(str::trim).filter(|title| !title.is_empty()) {
        scenario.title = title.to_owned();
    }
    let why: Vec<&str> = comment.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    scenario.why = why.join("\n").trim_matches('\n').to_owned();
}

/// Where in the file the parser is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    Transcript,
    Teardown,
    Advice,
}

/// Reads line by line.
pub(super) struct Parser<'p, 't> {
    words: Words<'p>,
    mistakes: &'p mut Mistakes<'t>,
    scenario: Scenario,
}

impl Parser<'_, '_> {
    fn lines(&mut self, lines: &[SourceLine<'_>]) {
        let mut seen = header::Seen::default();
        let mut stage = Stage::Header;
        let mut rest = lines;
        // Below a line that could not be read, what is indented belongs to it.
        let mut excused = false;
        while let Some((line, after)) = rest.split_first() {
            let below = block(after);
            rest = after;
            match &line.kind {
                LineKind::Blank | LineKind::Comment => {}
                LineKind::Header { key, guard, rest: value } => {
                    let known =
                        self.header(&mut stage, &mut seen, *key, *guard, *value, &after[..below]);
                    excused = !known;
                    if known && matches!(key.text, "setup" | "teardown" | "advice") {
                        rest = &after[below..];
                    }
                }
                LineKind::Step { who, looks, guard, rest: value } => {
                    self.enter(&mut stage, Stage::Transcript, who.spot);
                    excused = true;
                    let head =
                        steps::Head { who: *who, looks: *looks, guard: *guard, rest: *value };
                    self.step(head, &after[..below]);
                    rest = &after[below..];
                }
                LineKind::Unknown(part) => {
                    excused = true;
                    self.unknown(*part);
                }
                LineKind::Continued(part)
                | LineKind::Sql(part)
                | LineKind::Prose(part)
                | LineKind::Stray(part) => {
                    if !excused {
                        self.mistakes.at(
                            part.spot,
                            "an indented line belongs to a step or to a block (setup:, teardown:, \
                             advice:); there is none above, so write it at the margin",
                        );
                    }
                }
                LineKind::Expect(expect) => {
                    if !excused {
                        self.mistakes.at(expect.spot, "there is no step above this");
                    }
                }
            }
        }
        if self.scenario.lines.is_empty() && self.mistakes.is_empty() {
            let line = lines.len().max(1);
            self.mistakes.at(
                Spot { line, column: 1 },
                "there is no step; write at least one, such as `A> select 1`",
            );
        }
    }

    /// The file goes from header to transcript to teardown to advice, and not back.
    fn enter(&mut self, stage: &mut Stage, to: Stage, spot: Spot) {
        if (*stage as u8) > (to as u8) {
            self.mistakes.at(
                spot,
                match (to, *stage) {
                    (_, Stage::Advice) => {
                        "`advice:` is the last thing in a file; put this before it"
                    }
                    (Stage::Header, _) => {
                        "this belongs to the header; put it before the first step"
                    }
                    _ => {
                        "this step stands behind `teardown:`, which comes before the first or \
                         after the last"
                    }
                },
            );
            return;
        }
        *stage = to;
    }

    /// Reads `[…]`; what is wrong in it is noted, and it then fits always.
    fn only(&mut self, guard: Option<Part<'_>>) -> Only {
        let Some(guard) = guard else { return Only::default() };
        self.words.only(guard.text).unwrap_or_else(|slip| {
            self.mistakes.at(guard.at(slip.at), slip.message);
            Only::default()
        })
    }

    /// Does an axis change it from case to case?
    fn varies(&self, text: &Text) -> bool {
        self.scenario.axes.iter().flat_map(|axis| &axis.names).any(|name| text.mentions(name))
    }

    /// A line at the margin that is neither a header nor a step.
    fn unknown(&mut self, part: Part<'_>) {
        let first = part.text.split_whitespace().next().unwrap_or_default();
        let message = if part.text.starts_with(super::outline::MARKS) {
            "what must be seen is indented by a blank, below its step".to_owned()
        } else if super::file::Actor::named(first).is_some() {
            format!("a step is written `{first}> statement`, a second look `{first}< = done`")
        } else if part.text.contains('[') && !part.text.contains(']') {
            "this bracket is not closed".to_owned()
        } else {
            "this is neither a step (`A> statement`) nor a header (`engines: mysql`)".to_owned()
        };
        self.mistakes.at(part.spot, message);
    }
}

/// How many of the lines belong to what stands above them: the indented ones, with what is between.
fn block(lines: &[SourceLine<'_>]) -> usize {
    let indented = |line: &SourceLine<'_>| line.raw.starts_with(char::is_whitespace);
    let end = lines
        .iter()
        .position(|line| {
            !matches!(line.kind, LineKind::Blank | LineKind::Comment) && !indented(line)
        })
        .unwrap_or(lines.len());
    // Blank lines and comments behind the last one belong to whatever follows.
    lines[..end]
        .iter()
        .rposition(|line| !matches!(line.kind, LineKind::Blank | LineKind::Comment))
        .map_or(0, |last| last + 1)
}
