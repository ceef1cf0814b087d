//! Lines of a file, some of them replaced.

use super::form::{Form, label};
use crate::columns::columns;
use crate::scenario::file::{Expectation, Expected, Line};
use crate::scenario::layout::{aligned, commented};
use crate::scenario::only::{Dimension, Only, word};
use crate::scenario::outline::{LineKind, SourceLine};
use std::collections::BTreeMap;

/// What becomes of the lines of a file.
pub(super) struct Edits<'t> {
    text: &'t str,
    /// Lines, by their number, and what stands in their place.
    replaced: BTreeMap<usize, Vec<String>>,
}

/// The lines of a file that say one thing: the `=` line, and its rows.
type Group = Vec<usize>;

impl<'t> Edits<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Edits { text, replaced: BTreeMap::new() }
    }

    /// Writes what must be seen of a step.
    pub(super) fn step(&mut self, line: &Line, source: &[SourceLine<'_>], form: Form) {
        let groups = groups(line, source);
        match form {
            Form::Same { changed, rest } => {
                for (index, now) in changed {
                    let expect = &line.expects[index];
                    // What is written inline stays so.
                    let inline =
                        expect.what.rows.is_empty() && expect.what.text.text.contains("rows");
                    let alone = expect.what.text.text.is_empty();
                    let new = lines(&expect.only, &now, inline, alone);
                    if let Some(group) = groups.get(index) {
                        self.replace(group, source, line, new);
                    }
                }
                if let (Some(rest), Some(last)) = (rest, groups.last().and_then(|g| g.last())) {
                    self.add_after(*last, source, lines(&Only::default(), &rest, false, false));
                }
            }
            Form::Cells(cells) => self.cells(line, source, &cells),
            Form::Lines(all) => {
                let alone = all.len() == 1;
                let new = all
                    .iter()
                    .flat_map(|(only, now)| lines(only, now, false, alone && only.is_always()))
                    .collect();
                self.replace(&groups.concat(), source, line, new);
            }
            Form::Table { by, columns, rows } => {
                let new = table(&by, &columns, rows);
                self.replace(&groups.concat(), source, line, new);
            }
        }
    }

    /// Writes the cells of the table that is there.
    fn cells(
        &mut self,
        line: &Line,
        source: &[SourceLine<'_>],
        cells: &[(usize, usize, Expectation)],
    ) {
        let Some(table) = &line.table else { return };
        let mut rows = vec![vec![format!("by {}", table.by.name())]];
        // A table without columns has no heads for them.
        if table.across.is_some() || source_has_columns(source, table.line) {
            rows[0].extend(table.columns.iter().map(label));
        }
        let mut numbers = vec![table.line];
        for (r, row) in table.rows.iter().enumerate() {
            let mut written = vec![label(&row.label)];
            for (c, cell) in row.cells.iter().enumerate() {
                let now = cells.iter().find(|(row, column, _)| (*row, *column) == (r, c));
                let kept = cell.text.text.clone();
                written.push(match now {
                    // A cell that says the same in other words, or by an axis, keeps its words.
                    Some((_, _, now)) if !says(&kept, now) => now.to_string(),
                    _ => kept,
                });
            }
            rows.push(written);
            numbers.push(row.line);
        }
        for (number, body) in numbers.into_iter().zip(marked(&rows)) {
            if let Some(line) = source.get(number - 1) {
                self.replaced.insert(number, vec![with_comment(line, body)]);
            }
        }
    }

    /// Puts lines in the place of others, or below the statement if there are none.
    fn replace(
        &mut self,
        group: &[usize],
        source: &[SourceLine<'_>],
        step: &Line,
        new: Vec<String>,
    ) {
        let mut comments: Vec<&SourceLine<'_>> = group
            .iter()
            .filter_map(|number| source.get(number - 1))
            .filter(|l| l.comment.is_some())
            .collect();
        let head = source.get(step.line - 1);
        let looks =
            head.is_some_and(|head| matches!(head.kind, LineKind::Step { looks: true, .. }));
        let inline = group.first() == Some(&step.line);
        let mut new = new;
        let mut at = match group.first() {
            Some(first) => *first,
            None => step.end,
        };
        let mut out = Vec::new();
        if looks
            && (inline || group.is_empty())
            && let Some(head) = head
        {
            // `B< = done` stays on its line, unless rows or a table must go below it.
            let begin = head_of(head);
            let first = new
                .first()
                .filter(|first| first.starts_with(" = ") && !first.starts_with(" = by "));
            let body = match first.cloned() {
                Some(first) => {
                    new.remove(0);
                    format!("{begin}{first}")
                }
                None => begin,
            };
            comments.retain(|line| line.number != step.line);
            out.push(with_comment(head, body));
            at = step.line;
        } else if group.is_empty()
            && let Some(line) = source.get(at - 1)
        {
            out.push(line.raw.to_owned());
        }
        for line in new {
            let comment = if comments.is_empty() { None } else { Some(comments.remove(0)) };
            out.push(match comment {
                Some(old) => with_comment(old, line),
                None => line,
            });
        }
        // Nobody's words are lost.
        out.extend(comments.iter().filter_map(|line| line.comment).map(|c| format!(" {}", c.text)));
        for number in group {
            self.replaced.insert(*number, Vec::new());
        }
        self.replaced.insert(at, out);
    }

    /// Adds a look at a session behind a step.
    pub(super) fn look(&mut self, after: &Line, source: &[SourceLine<'_>], head: &str, form: Form) {
        let mut new = match form {
            Form::Lines(all) => {
                all.iter().flat_map(|(only, now)| lines(only, now, true, false)).collect()
            }
            Form::Table { by, columns, rows } => table(&by, &columns, rows),
            Form::Same { .. } | Form::Cells(_) => return,
        };
        match new.as_slice() {
            [only] => new = vec![format!("{head}{only}")],
            _ => new.insert(0, head.to_owned()),
        }
        self.add_after(after.expects_end.max(after.end), source, new);
    }

    fn add_after(&mut self, number: usize, source: &[SourceLine<'_>], new: Vec<String>) {
        let raw = source.get(number - 1).map(|line| line.raw.to_owned());
        let lines = self.replaced.entry(number).or_insert_with(|| raw.into_iter().collect());
        lines.extend(new);
    }

    /// The text, with all of it done.
    pub(super) fn apply(self) -> String {
        let end = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut text = String::with_capacity(self.text.len());
        for (index, line) in self.text.split_inclusive('\n').enumerate() {
            match self.replaced.get(&(index + 1)) {
                None => text.push_str(line),
                Some(lines) => {
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push_str(end);
                    }
                    for line in lines {
                        text.push_str(line);
                        text.push_str(end);
                    }
                }
            }
        }
        text
    }
}

/// The lines of everything that must be seen of a step, in the order of [`Line::expects`]; those of
/// its table as one. Lines with `!`, and their rows, are left out.
fn groups(step: &Line, source: &[SourceLine<'_>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut sign = false;
    for line in source.iter().filter(|l| (step.line..=step.expects_end).contains(&l.number)) {
        let mark = match &line.kind {
            LineKind::Expect(expect) => expect.mark,
            LineKind::Step { looks: true, rest, .. } => match rest.text.chars().next() {
                Some(mark) => mark,
                None => continue,
            },
            _ => continue,
        };
        match mark {
            '!' => sign = true,
            '=' => {
                sign = false;
                groups.push(vec![line.number]);
            }
            _ if sign => {}
            _ => match groups.last_mut() {
                Some(group) => group.push(line.number),
                None => groups.push(vec![line.number]),
            },
        }
    }
    groups
}

/// An expectation as lines. `inline` writes rows behind the `=`, `alone` leaves out a bare `= done`.
fn lines(only: &Only, now: &Expectation, inline: bool, alone: bool) -> Vec<String> {
    let guard = if only.is_always() { String::new() } else { format!("{only} ") };
    let rows = now.either.iter().enumerate().find_map(|(index, expected)| match expected {
        Expected::Done { rows: Some(rows), .. } if !rows.rows.is_empty() => Some((index, rows)),
        _ => None,
    });
    let several = now.either.iter().filter(|e| matches!(e, Expected::Done { .. })).count() > 1;
    let Some((index, rows)) = rows.filter(|_| !inline && !several) else {
        return vec![format!(" = {guard}{now}")];
    };
    let words: Vec<String> = now
        .either
        .iter()
        .enumerate()
        .map(|(i, expected)| match expected {
            Expected::Done { changed, .. } if i == index => {
                let words = changed.map_or("done".to_owned(), |count| format!("changed {count}"));
                format!("{words}{}", if rows.any_order { ", in any order" } else { "" })
            }
            other => other.to_string(),
        })
        .collect();
    let words = words.join(" or ");
    let mut lines = Vec::new();
    if !alone || words != "done" || !guard.is_empty() {
        lines.push(format!(" = {guard}{words}"));
    }
    lines.extend(rows.lines().into_iter().map(|row| format!(" | {row}")));
    lines
}

/// A new table.
fn table(by: &Dimension, columns: &[String], rows: Vec<(String, Vec<String>)>) -> Vec<String> {
    let mut table = vec![vec![format!("by {}", by.name())]];
    table[0].extend(columns.iter().map(|column| match column.as_str() {
        "*" => "*".to_owned(),
        column => word(column),
    }));
    for (row, cells) in rows {
        let mut line = vec![word(&row)];
        line.extend(cells);
        table.push(line);
    }
    marked(&table)
}

/// The lines of a table: its head behind `=`, its rows behind `:`.
fn marked(rows: &[Vec<String>]) -> Vec<String> {
    let lines = aligned(rows).into_iter().enumerate();
    lines.map(|(index, line)| format!(" {} {line}", if index == 0 { '=' } else { ':' })).collect()
}

/// A line with the comment that another has.
fn with_comment(of: &SourceLine<'_>, body: String) -> String {
    let comment = of.comment.map(|comment| {
        let before: String = of.raw.chars().take(comment.spot.column - 1).collect();
        (comment.text, columns(&before) + 1)
    });
    commented(body, comment)
}

/// `B<`, with its brackets.
fn head_of(line: &SourceLine<'_>) -> String {
    match &line.kind {
        LineKind::Step { who, guard: Some(guard), .. } => format!("{}< [{}]", who.text, guard.text),
        LineKind::Step { who, .. } => format!("{}<", who.text),
        _ => line.raw.to_owned(),
    }
}

fn source_has_columns(source: &[SourceLine<'_>], number: usize) -> bool {
    source.get(number - 1).is_some_and(|line| match &line.kind {
        LineKind::Expect(expect) => expect.rest.text.contains('|'),
        _ => false,
    })
}

/// Does the text say this already?
fn says(text: &str, now: &Expectation) -> bool {
    crate::scenario::expectation::read(text).as_ref() == Ok(now)
}
