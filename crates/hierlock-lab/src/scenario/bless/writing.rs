//! Writes expectations that differ between cases: in the existing form, as one line, by engine or by axis.

use super::Revision;
use super::edit::Edits;
use crate::group::{distinct, group_by};
use crate::scenario::expectation::{Expectation, ExpectedOutcome};
use crate::scenario::file::{ExpectationTable, StepTemplate};
use crate::scenario::format::aligned;
use crate::scenario::guard::{Dimension, brackets, word};
use crate::text::join;

pub(super) fn write(
    step: &StepTemplate,
    revisions: &[Revision<'_>],
    is_joined: bool,
    edits: &mut Edits<'_>,
) {
    let changes = changes(step, revisions);
    let written: Vec<usize> = match &step.table {
        Some(table) => table.lines.clone(),
        None => step.expectations.iter().flat_map(|e| e.value.template.line_numbers()).collect(),
    };
    if let Some(table) = &step.table {
        if let Some(changes) = &changes {
            return update_cells(step, table, changes, edits);
        }
        if let Some(new) = split_table(step, table, revisions) {
            return edits.replace(step, &written, new);
        }
    }
    let equal = common(&revisions.iter().collect::<Vec<_>>());
    let is_plain = matches!(step.expectations.as_slice(), [line] if line.guard.is_always());
    let may_be_one =
        step.table.is_some() || step.expectations.is_empty() || (is_joined && !is_plain);
    if let Some(equal) = equal.filter(|_| may_be_one) {
        return edits.replace(step, &written, lines("", &equal, false, true));
    }
    match changes {
        Some(changes) if !step.expectations.is_empty() => update_lines(step, &changes, edits),
        _ => edits.replace(step, &written, new_lines(revisions, false)),
    }
}

/// The index of an expectation of a step, and its new value; without an index it is added.
type ExpectationChange = (Option<usize>, Expectation);

/// Returns the new values of expectations; `None` if two cases need different values of one expectation.
fn changes(step: &StepTemplate, revisions: &[Revision<'_>]) -> Option<Vec<ExpectationChange>> {
    let mut groups = group_by(revisions, |revision| step.expectation(revision.case));
    // With an axis, one text may have several values, which is fine as long as all of them agree.
    groups.retain(|(_, group)| group.iter().any(|revision| revision.is_new()));
    groups.into_iter().map(|(which, group)| Some((which, common(&group)?))).collect()
}

/// Returns the expectation that all revisions share, if they do.
fn common(revisions: &[&Revision<'_>]) -> Option<Expectation> {
    let first = &revisions.first()?.now;
    revisions.iter().all(|revision| revision.now == *first).then(|| first.clone())
}

/// Changes existing lines, and adds one for the cases that none of them fits.
fn update_lines(step: &StepTemplate, changes: &[ExpectationChange], edits: &mut Edits<'_>) {
    for (which, now) in changes {
        let Some(index) = *which else {
            let last = step.expectations.last().map(|e| e.value.template.line_numbers());
            let last = last.and_then(|lines| lines.last().copied()).unwrap_or(step.end);
            edits.add_after(last, lines("", now, false, false));
            continue;
        };
        let expect = &step.expectations[index];
        let text = &expect.value.template.text;
        // Inline rows stay inline.
        let is_inline = !text.contains('\n') && text.contains("rows");
        let guard = expect.guard.to_string();
        let new = lines(&guard, now, is_inline, text.starts_with('\n'));
        edits.replace(step, &expect.value.template.line_numbers(), new);
    }
}

fn update_cells(
    step: &StepTemplate,
    table: &ExpectationTable,
    changes: &[ExpectationChange],
    edits: &mut Edits<'_>,
) {
    let mut rows: Vec<Vec<String>> = table.lines.iter().map(|line| edits.cells(*line)).collect();
    for (which, now) in changes {
        if let Some(index) = *which {
            let (row, column) = (index / table.columns.len(), index % table.columns.len());
            rows[row + 1][column + 1] = now.to_string();
        }
    }
    for (line, new) in table.lines.iter().zip(table_lines(&rows)) {
        edits.replace(step, &[*line], vec![new]);
    }
}

/// Returns the table with a row and a column for every value instead of `*`. Cells that agree keep their text.
fn split_table(
    step: &StepTemplate,
    table: &ExpectationTable,
    revisions: &[Revision<'_>],
) -> Option<Vec<String>> {
    let across = table.across.as_ref().unwrap_or(&Dimension::Engine);
    grid(revisions, &table.by, Some(across), |revisions| {
        if revisions.iter().any(|revision| revision.is_new()) {
            return common(revisions).map(|now| now.to_string());
        }
        let which = step.expectation(revisions.first()?.case)?;
        Some(step.expectations[which].value.template.text.clone())
    })
}

/// Returns a table by one dimension and across another; `None` if a cell has no text.
fn grid(
    revisions: &[Revision<'_>],
    by: &Dimension,
    across: Option<&Dimension>,
    cell: impl Fn(&[&Revision<'_>]) -> Option<String>,
) -> Option<Vec<String>> {
    let columns = match across {
        Some(across) => values(revisions, across)?.into_iter().map(Some).collect(),
        None => vec![None],
    };
    let mut head = vec![format!("by {}", by.name())];
    head.extend(columns.iter().map(|column| column.map_or("*".to_owned(), word)));
    let mut rows = vec![head];
    for row in values(revisions, by)? {
        let mut cells = vec![word(row)];
        for column in &columns {
            let is_in_cell = |revision: &&Revision<'_>| {
                by.value(revision.case) == Some(row)
                    && across.is_none_or(|across| across.value(revision.case) == *column)
            };
            cells.push(cell(&revisions.iter().filter(is_in_cell).collect::<Vec<_>>())?);
        }
        rows.push(cells);
    }
    Some(table_lines(&rows))
}

/// Writes new lines, by as few dimensions as explain the differences. With `is_inline`, rows follow the `=`.
pub(super) fn new_lines(revisions: &[Revision<'_>], is_inline: bool) -> Vec<String> {
    let Some(by) = explaining_dimensions(revisions) else {
        // Even all dimensions do not explain the differences: every case expects one of the alternatives.
        let all = revisions.iter().flat_map(|revision| revision.now.alternatives.clone());
        return lines("", &Expectation { alternatives: distinct(all) }, is_inline, true);
    };
    // By one axis, or by an axis and another dimension: a table, if every cell of it has a case.
    if let Some(axis) = by.iter().find(|dimension| matches!(dimension, Dimension::Axis(_)))
        && by.len() <= 2
    {
        let across = by.iter().find(|dimension| *dimension != axis);
        let cell = |revisions: &[&Revision<'_>]| Some(revisions.first()?.now.to_string());
        if let Some(table) = grid(revisions, axis, across, cell) {
            return table;
        }
    }
    guarded_lines(revisions, &by, is_inline)
}

/// Returns the fewest dimensions that determine the expectation; the engine is preferred.
fn explaining_dimensions(revisions: &[Revision<'_>]) -> Option<Vec<Dimension>> {
    let mut all = vec![Dimension::Engine];
    let names = revisions.first()?.case.variant.iter().map(|(name, _)| name.clone());
    all.extend(names.map(Dimension::Axis));
    all.push(Dimension::Strategy);
    all.retain(|dimension| distinct(revisions.iter().map(|r| dimension.value(r.case))).len() > 1);
    // There are few dimensions, so all subsets can be tried.
    let mut subsets: Vec<u32> = (0..1u32 << all.len().min(10)).collect();
    subsets.sort_by_key(|subset| (subset.count_ones(), *subset));
    subsets.into_iter().find_map(|subset| {
        let is_in = |(index, _): &(usize, &Dimension)| subset & (1 << index) != 0;
        let some: Vec<Dimension> =
            all.iter().enumerate().filter(is_in).map(|(_, dimension)| dimension.clone()).collect();
        let explains = revisions.iter().enumerate().all(|(index, a)| {
            revisions[..index].iter().all(|b| {
                some.iter().any(|dimension| dimension.value(a.case) != dimension.value(b.case))
                    || a.now == b.now
            })
        });
        explains.then_some(some)
    })
}

/// Returns the distinct values of the cases, in their order; `None` if a case has no value.
fn values<'c>(revisions: &[Revision<'c>], of: &Dimension) -> Option<Vec<&'c str>> {
    let values: Option<Vec<_>> = revisions.iter().map(|revision| of.value(revision.case)).collect();
    values.map(distinct)
}

/// Writes a line for each expectation, the most common one last and without a guard.
fn guarded_lines(revisions: &[Revision<'_>], by: &[Dimension], is_inline: bool) -> Vec<String> {
    let mut groups = group_by(revisions, |revision| &revision.now);
    let most = groups.iter().enumerate().max_by_key(|(index, group)| (group.1.len(), *index));
    let (common, _) = groups.remove(most.map_or(0, |(index, _)| index));
    let mut written = Vec::new();
    let alone = groups.is_empty();
    for (now, members) in groups {
        // Cases that differ only in the first dimension share a line.
        for (others, equal) in group_by(members, |revision| guard(revision, &by[1..])) {
            let mut words: Vec<_> =
                equal.into_iter().flat_map(|revision| guard(revision, &by[..1])).collect();
            words.extend(others);
            written.extend(lines(&brackets(&words), now, is_inline, false));
        }
    }
    written.extend(lines("", common, is_inline, alone));
    written
}

/// Returns the values of a case; without a strategy, the engine identifies it.
fn guard(revision: &Revision<'_>, by: &[Dimension]) -> Vec<(Dimension, String)> {
    let value = |dimension: &Dimension| match dimension.value(revision.case) {
        Some(value) => (dimension.clone(), value.to_owned()),
        None => (Dimension::Engine, revision.case.backend.engine.name().to_owned()),
    };
    by.iter().map(value).collect()
}

/// Writes an expectation as lines. Rows are inline or below; a bare `= done` above them may be left out.
fn lines(guard: &str, now: &Expectation, is_inline: bool, leaves_out_done: bool) -> Vec<String> {
    let guard = if guard.is_empty() { String::new() } else { format!("{guard} ") };
    let done = now.alternatives.iter().filter_map(|expected| match expected {
        ExpectedOutcome::Done { rows, .. } => Some(rows),
        _ => None,
    });
    let rows = match done.collect::<Vec<_>>()[..] {
        [Some(rows)] if !is_inline && !rows.rows.is_empty() => rows,
        _ => return vec![format!(" = {guard}{now}")],
    };
    let words = now.alternatives.iter().map(|expected| match expected {
        ExpectedOutcome::Done { changed, .. } => {
            let words = changed.map_or("done".to_owned(), |count| format!("changed {count}"));
            words + if rows.any_order { ", in any order" } else { "" }
        }
        other => other.to_string(),
    });
    let words = join(words, " or ");
    let mut lines = Vec::new();
    if !leaves_out_done || words != "done" || !guard.is_empty() {
        lines.push(format!(" = {guard}{words}"));
    }
    lines.extend(rows.lines().into_iter().map(|row| format!(" | {row}")));
    lines
}

/// Writes the lines of a table: its head after `=`, its rows after `:`.
fn table_lines(rows: &[Vec<String>]) -> Vec<String> {
    let lines = aligned(rows).into_iter().enumerate();
    lines.map(|(index, line)| format!(" {} {line}", if index == 0 { '=' } else { ':' })).collect()
}
