//! Parses a step and its expectations.

use super::{Parser, expectation, sql};
use crate::scenario::case::Action;
use crate::scenario::diagnostic::{ParseError, nearest};
use crate::scenario::expectation::{Expectation, SessionSelector};
use crate::scenario::file::{ExpectationTable, GuardedValue, StepTemplate};
use crate::scenario::lock_action::{self, is_lock_step};
use crate::scenario::source_line::{Block, LineHead, LineKind, SourceLine, SourceSpan};
use crate::scenario::template::{Template, TemplateValue};

impl Parser<'_, '_> {
    /// Reads a step with all lines below it.
    pub(super) fn step(&mut self, head: &LineHead<'_>, below: &[SourceLine<'_>]) {
        let session = self.session(head.name);
        let guard = self.guard(head.guard);
        // `B< = done` contains its expectation.
        let first = if head.is_look() { LineHead::expectation(head.rest) } else { None };
        if let Some(table) = first.filter(LineHead::is_table) {
            self.report(table.name.position, "a table begins on the line below");
        }
        let mut continuation = Vec::new();
        let mut expects = Vec::from_iter(first);
        for line in below {
            match &line.kind {
                LineKind::Indented(Block::Statement, span) if expects.is_empty() => {
                    continuation.push(*span)
                }
                LineKind::Indented(Block::Statement, span) => {
                    let message = "a statement continues before its expectation; an expectation \
                                   begins with one of `=`, `|`, `!`, `:`";
                    self.report(span.position, message);
                }
                LineKind::Expect(expect) => expects.push(*expect),
                _ => {}
            }
        }
        let line = head.name.position.line;
        let end = continuation.last().map_or(line, |span| span.position.line);
        let expects_end = expects.last().map_or(end, |expect| expect.name.position.line);
        let action = if head.is_look() {
            self.look(head, first.is_some(), &continuation)
        } else {
            self.action(head, &continuation)
        };
        let (expectations, table, anomaly_outcomes) = self.expectations(&expects);
        if let (Some(session), Some(action)) = (session, action) {
            self.scenario.steps.push(StepTemplate {
                line,
                end,
                expects_end,
                guard,
                session,
                action,
                expectations,
                table,
                anomaly_outcomes,
            });
        }
    }

    fn session(&mut self, span: SourceSpan<'_>) -> Option<SessionSelector> {
        let name = span.text;
        let session = SessionSelector::named(name);
        if session.is_none() {
            let capital = name.to_uppercase();
            let message = match nearest(name, &["victim", "survivor"]) {
                Some(near) => format!("`{name}` is not a session; did you mean `{near}`?"),
                None if name.chars().count() == 1 && SessionSelector::named(&capital).is_some() => {
                    format!("the name of a session begins with a capital: `{capital}>`")
                }
                None => format!(
                    "`{name}` is not a session; its name begins with a capital and has letters and \
                     digits, or it is `victim` or `survivor`"
                ),
            };
            self.report(span.position, message);
        }
        session
    }

    fn look(
        &mut self,
        head: &LineHead<'_>,
        expects: bool,
        continuation: &[SourceSpan<'_>],
    ) -> Option<TemplateValue<Action>> {
        let rest = Some(&head.rest).filter(|rest| !expects && !rest.text.is_empty());
        if let Some(wrong) = continuation.first().or(rest) {
            let session = head.name.text;
            let message = format!(
                "`{session}<` only looks; it is `{session}< = done`, and a statement is \
                 `{session}> …`"
            );
            self.report(wrong.position, message);
            return None;
        }
        Some(TemplateValue { template: Template::default(), values: vec![Action::Look] })
    }

    fn action(
        &mut self,
        head: &LineHead<'_>,
        continuation: &[SourceSpan<'_>],
    ) -> Option<TemplateValue<Action>> {
        let mut template = Template::statement(Some(head.rest), continuation);
        if let Some(shorter) = template.text.strip_suffix(';').map(str::trim_end) {
            template = template.piece(0, shorter.len());
        }
        let session = head.name.text;
        let message = if template.text.is_empty() {
            format!("the statement is missing; it is `{session}> select 1`")
        } else if template.text.starts_with('[') {
            "this bracket is not closed; it is `A> [mysql mariadb] statement`".to_owned()
        } else if head.rest.text.starts_with('=') {
            format!("a second look at a step is written `{session}< = …`")
        } else if is_lock_step(&template.text) {
            return Some(self.read(template, |text| {
                lock_action::read(text).map(|action| Action::Lock(action, text.to_owned()))
            }));
        } else {
            sql::check_quotes(&template, self.diagnostics);
            let sql = |text: &str| Ok::<_, ParseError>(Action::Sql(text.to_owned()));
            return Some(self.read(template, sql));
        };
        self.report(head.rest.position, message);
        None
    }

    /// Reads the expectations, their table, and the outcomes that show the anomaly.
    fn expectations(
        &mut self,
        expects: &[LineHead<'_>],
    ) -> (Vec<GuardedValue<Expectation>>, Option<ExpectationTable>, Vec<GuardedValue<Expectation>>)
    {
        let (mut expectations, mut found_table, mut anomalies) = (Vec::new(), None, Vec::new());
        let mut is_below_table = false;
        let mut rest = expects;
        while let Some((head, after)) = rest.split_first() {
            let row_mark = if head.is_table() { ':' } else { '|' };
            let rows = after.iter().position(|line| line.mark != row_mark).unwrap_or(after.len());
            let (rows, others) = after.split_at(rows);
            rest = others;
            match head.mark {
                '=' if head.is_table() => {
                    is_below_table = true;
                    self.check_alone(found_table.as_ref(), &expectations, head);
                    let table = self.table(head, rows);
                    if let Some((table, cells)) = table.filter(|_| found_table.is_none()) {
                        (found_table, expectations) = (Some(table), cells);
                    }
                }
                '|' if is_below_table => {
                    let hint = "write them in its cells, as in `rows 30 10`";
                    let message = format!("a table cannot have rows below it; {hint}");
                    self.report(head.name.position, message);
                }
                ':' => {
                    let hint = "its head goes above it: ` = by isolation | mysql | postgres`";
                    let message = format!("a `:` line is a row of a table; {hint}");
                    self.report(head.name.position, message);
                }
                mark => {
                    is_below_table = false;
                    // Rows alone mean `= done` with these rows.
                    let has_words = mark != '|' && self.check_text(head, rows);
                    if has_words {
                        self.check_alone(found_table.as_ref(), &expectations, head);
                    }
                    let words = if has_words { head.rest.text } else { "" };
                    let mut template = Template::from(SourceSpan { text: words, ..head.rest });
                    for row in (mark == '|').then_some(head).into_iter().chain(rows) {
                        template.push(row.rest, 0);
                    }
                    let guard = self.guard(head.guard);
                    let value = self.read(template, expectation::read);
                    let into = if mark == '!' { &mut anomalies } else { &mut expectations };
                    into.push(GuardedValue { position: head.name.position, guard, value });
                }
            }
        }
        (expectations, found_table, anomalies)
    }

    /// Returns whether there is text after the mark; reports it if not.
    fn check_text(&mut self, expect: &LineHead<'_>, rows: &[LineHead<'_>]) -> bool {
        let message = match expect.rest.text {
            "" if !rows.is_empty() => {
                "the expectation is missing; with rows below it is `= done`, or leave the line out"
            }
            "" => "the expectation is missing; it is `= done`, `= blocked by A`, `= rows 30` …",
            text if text.starts_with('[') => {
                "this bracket is not closed; it is ` = [mysql mariadb] done`"
            }
            _ => return true,
        };
        self.report(expect.rest.position, message);
        false
    }

    /// Checks that a step has either a table or lines.
    fn check_alone(
        &mut self,
        table: Option<&ExpectationTable>,
        lines: &[GuardedValue<Expectation>],
        expect: &LineHead<'_>,
    ) {
        let message = match (table, lines.first()) {
            _ if expect.mark == '!' => return,
            (Some(table), _) if expect.is_table() => {
                format!("the step already has a table, on line {}", table.position.line)
            }
            (Some(_), _) => "the step already has a table; put this into its cells".to_owned(),
            (None, Some(first)) if expect.is_table() => format!(
                "a step has a table or lines, and line {} is one; put it into the cells",
                first.position.line
            ),
            _ => return,
        };
        self.report(expect.name.position, message);
    }
}
