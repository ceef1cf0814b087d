//! A step and what must be seen of it.

use super::{Parser, sql};
use crate::scenario::file::{Actor, Deed, Guarded, Line, Wanted};
use crate::scenario::lock_step::{self, is_lock_step};
use crate::scenario::mistake::nearest;
use crate::scenario::outline::{Expect, LineKind, MARKS, Part, SourceLine};
use crate::scenario::text::Text;

/// The line with which a step begins.
pub(super) struct Head<'t> {
    pub(super) who: Part<'t>,
    pub(super) looks: bool,
    pub(super) guard: Option<Part<'t>>,
    pub(super) rest: Part<'t>,
}

/// Where `|` lines go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    Expected,
    Sign,
    Table,
}

impl Parser<'_, '_> {
    /// Reads a step with all that is below it.
    pub(super) fn step(&mut self, head: Head<'_>, below: &[SourceLine<'_>]) {
        let who = self.who(head.who);
        let only = self.only(head.guard);
        let mut more = Vec::new();
        let mut expects = Vec::new();
        // `B< = done`
        let first = if head.looks { Expect::of(head.rest) } else { None };
        if let Some(table) = first.filter(|first| first.mark == '=' && is_table(first.rest.text)) {
            self.mistakes.at(table.spot, "a table begins on the line below");
        }
        expects.extend(first);
        for line in below {
            match &line.kind {
                LineKind::Continued(part) if expects.is_empty() => more.push(*part),
                LineKind::Continued(part) => {
                    let marks = MARKS.map(|mark| format!("`{mark}`")).join(", ");
                    self.mistakes.at(
                        part.spot,
                        format!(
                            "a statement goes on before what is expected of it; what must be seen \
                         begins with one of {marks}"
                        ),
                    );
                }
                LineKind::Expect(expect) => expects.push(*expect),
                _ => {}
            }
        }
        let line = head.who.spot.line;
        let end = more.last().map_or(line, |part| part.spot.line);
        let expects_end = expects.last().map_or(end, |expect| expect.spot.line);
        let deed = match head.looks {
            true => self.look(&head, first.is_some(), &more),
            false => self.deed(&head, &more),
        };
        let mut step = Line {
            line,
            end,
            expects_end,
            only,
            who: who.clone().unwrap_or(Actor::Victim),
            deed: deed.clone().unwrap_or(Deed::Look),
            expects: Vec::new(),
            table: None,
            signs: Vec::new(),
        };
        self.expectations(&mut step, &expects);
        for wanted in step.expects.iter().chain(&step.signs).map(|expect| &expect.what) {
            self.check_wanted(wanted);
        }
        if who.is_some() && deed.is_some() {
            self.scenario.lines.push(step);
        }
    }

    fn who(&mut self, part: Part<'_>) -> Option<Actor> {
        let who = Actor::named(part.text);
        if who.is_none() {
            let capital = part.text.to_uppercase();
            let message = match nearest(part.text, &["victim", "survivor"]) {
                Some(near) => format!("`{}` is not a session; did you mean `{near}`?", part.text),
                None if part.text.chars().count() == 1 && Actor::named(&capital).is_some() => {
                    format!("the name of a session begins with a capital: `{capital}>`")
                }
                None => format!(
                    "`{}` is not a session; its name begins with a capital and has letters \
                         and digits, or it is `victim` or `survivor`",
                    part.text
                ),
            };
            self.mistakes.at(part.spot, message);
        }
        who
    }

    fn look(&mut self, head: &Head<'_>, expects: bool, more: &[Part<'_>]) -> Option<Deed> {
        let wrong = match more.first() {
            Some(part) => Some(*part),
            None => Some(head.rest).filter(|rest| !expects && !rest.text.is_empty()),
        };
        if let Some(part) = wrong {
            self.mistakes.at(
                part.spot,
                format!(
                    "`{0}<` only looks; it is `{0}< = done`, and a statement is `{0}> …`",
                    head.who.text
                ),
            );
            return None;
        }
        Some(Deed::Look)
    }

    fn deed(&mut self, head: &Head<'_>, more: &[Part<'_>]) -> Option<Deed> {
        let mut text = Text::joined(Some(head.rest), more);
        if let Some(shorter) = text.text.strip_suffix(';').map(str::trim_end) {
            text = text.piece(0, shorter.len());
        }
        if text.text.is_empty() {
            self.mistakes.at(
                head.rest.spot,
                format!("the statement is missing; it is `{}> select 1`", head.who.text),
            );
            return None;
        }
        if text.text.starts_with('[') {
            self.mistakes.at(
                head.rest.spot,
                "this bracket is not closed; it is `A> [mysql mariadb] statement`",
            );
            return None;
        }
        if head.rest.text.starts_with('=') {
            self.mistakes.at(
                head.rest.spot,
                format!("a look at what became of a step is written `{}< = …`", head.who.text),
            );
            return None;
        }
        if is_lock_step(&text.text) {
            if !self.varies(&text)
                && let Err(slip) = lock_step::read(&text.text)
            {
                self.mistakes.at(text.spot(slip.at), slip.message);
            }
            return Some(Deed::Lock(text));
        }
        sql::check_quotes(&text, self.mistakes);
        Some(Deed::Sql(text))
    }

    fn expectations(&mut self, step: &mut Line, expects: &[Expect<'_>]) {
        let mut last = Last::Nothing;
        let mut rest = expects;
        while let Some((expect, after)) = rest.split_first() {
            rest = after;
            let text = expect.rest.text;
            match expect.mark {
                '=' if is_table(text) => {
                    let rows = after.iter().position(|e| e.mark != ':').unwrap_or(after.len());
                    rest = &after[rows..];
                    self.check_alone(step, expect, true);
                    last = Last::Table;
                    let table = self.table(expect, &after[..rows]);
                    step.table = step.table.take().or(table);
                }
                '=' | '!' if !self.says_something(expect, after) => last = Last::Nothing,
                '=' | '!' => {
                    let only = self.only(expect.guard);
                    let what = Wanted { text: Text::of(expect.rest), rows: Vec::new() };
                    let guarded = Guarded { line: expect.spot.line, only, what };
                    if expect.mark == '=' {
                        self.check_alone(step, expect, false);
                        step.expects.push(guarded);
                        last = Last::Expected;
                    } else {
                        step.signs.push(guarded);
                        last = Last::Sign;
                    }
                }
                '|' => self.row(step, expect, &mut last),
                _ => {
                    self.mistakes.at(
                        expect.spot,
                        "a `:` line is a row of a table; its head goes above it: ` = by isolation \
                         | mysql | postgres`",
                    );
                }
            }
        }
    }

    /// Whether something readable stands behind the mark.
    fn says_something(&mut self, expect: &Expect<'_>, after: &[Expect<'_>]) -> bool {
        let rows_follow = after.first().is_some_and(|next| next.mark == '|');
        let message = match expect.rest.text {
            "" if rows_follow => {
                "what must be seen is missing; with rows below it is `= done`, or leave the \
                     line out"
            }
            "" => "what must be seen is missing; it is `= done`, `= blocked by A`, `= rows 30` …",
            text if text.starts_with('[') => {
                "this bracket is not closed; it is ` = [mysql mariadb] done`"
            }
            _ => return true,
        };
        self.mistakes.at(expect.rest.spot, message);
        false
    }

    /// A `|` line.
    fn row(&mut self, step: &mut Line, expect: &Expect<'_>, last: &mut Last) {
        let row = Text::of(expect.rest);
        let above = match *last {
            Last::Expected => step.expects.last_mut(),
            Last::Sign => step.signs.last_mut(),
            Last::Table => {
                self.mistakes.at(
                    expect.spot,
                    "rows cannot stand below a table; write them in its cells, as in `rows 30 10`",
                );
                return;
            }
            Last::Nothing => {
                // Rows alone are `= done` with these rows.
                let text = Text::of(Part { text: "", spot: expect.rest.spot });
                let what = Wanted { text, rows: Vec::new() };
                let only = Default::default();
                step.expects.push(Guarded { line: expect.spot.line, only, what });
                *last = Last::Expected;
                step.expects.last_mut()
            }
        };
        if let Some(above) = above {
            above.what.rows.push(row);
        }
    }

    /// Reads what must be seen for its mistakes, unless it differs from case to case. Cases are looked
    /// at only once all lines are right, and this tells as much as possible before.
    pub(super) fn check_wanted(&mut self, wanted: &Wanted) {
        if !wanted.texts().any(|text| self.varies(text)) {
            wanted.read(&[], self.mistakes);
        }
    }

    /// A step has a table or lines, not both.
    fn check_alone(&mut self, step: &Line, expect: &Expect<'_>, table: bool) {
        let message = match (&step.table, step.expects.first()) {
            (Some(head), _) if table => {
                format!("the step already has a table, on line {}", head.line)
            }
            (Some(_), _) => "the step already has a table; put this into its cells".to_owned(),
            (None, Some(line)) if table => format!(
                "a step has a table or lines, and line {} is one; put it into the cells",
                line.line
            ),
            _ => return,
        };
        self.mistakes.at(expect.spot, message);
    }
}

fn is_table(text: &str) -> bool {
    text == "by" || text.starts_with("by ") || text.starts_with("by\t")
}
