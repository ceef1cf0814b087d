//! How different things in different cases are written: in the form that is there if it can hold
//! them, else as one line, as lines by engine, or as a table by an axis.

use super::{Lines, Wish};
use crate::scenario::expand::Choice;
use crate::scenario::file::{Expectation, Label, Line};
use crate::scenario::only::{Dimension, Only};
use std::collections::BTreeSet;

/// What is to be written for a step.
#[derive(Debug)]
pub(super) enum Form {
    /// The lines that are there, by their index, with these in their place; and one for all cases
    /// that none of them fits.
    Same { changed: Vec<(usize, Expectation)>, rest: Option<Expectation> },
    /// The table that is there, with these cells: row, column.
    Cells(Vec<(usize, usize, Expectation)>),
    /// Lines instead of all that is there.
    Lines(Vec<(Only, Expectation)>),
    /// A table instead of all that is there: its head and its rows.
    Table { by: Dimension, columns: Vec<String>, rows: Vec<(String, Vec<String>)> },
}

impl Form {
    pub(super) fn of(line: &Line, wishes: &[Wish<'_>], several: Lines) -> Form {
        if let Some(form) = within_table(line, wishes).or_else(|| split_table(line, wishes)) {
            return form;
        }
        let first = wishes.first().map(wanted).unwrap_or_else(done);
        let all_same = wishes.iter().all(|wish| wanted(wish) == first);
        // Several lines that say the same are one line.
        if all_same
            && (several == Lines::Joined || line.expects.is_empty())
            && (line.table.is_some()
                || line.expects.len() != 1
                || !line.expects[0].only.is_always())
        {
            return Form::Lines(vec![(Only::default(), first)]);
        }
        within_lines(line, wishes).unwrap_or_else(|| anew(wishes))
    }
}

/// What a case wants; nothing written is `done`.
fn wanted(wish: &Wish<'_>) -> Expectation {
    wish.now.clone().unwrap_or_else(done)
}

fn done() -> Expectation {
    use crate::scenario::file::Expected;
    Expectation { either: vec![Expected::Done { rows: None, changed: None }] }
}

/// The table, if each of its cells still says one thing.
fn within_table(line: &Line, wishes: &[Wish<'_>]) -> Option<Form> {
    line.table.as_ref()?;
    let mut cells = Vec::new();
    for (choice, now) in by_choice(line, wishes)? {
        if let Some(Choice::Cell(row, column)) = choice {
            cells.push((row, column, now));
        }
    }
    Some(Form::Cells(cells))
}

/// The table, with a row and a column for every value: so `*` may come to say several things. Cells
/// that hold keep their words.
fn split_table(line: &Line, wishes: &[Wish<'_>]) -> Option<Form> {
    let table = line.table.as_ref()?;
    let across = table.across.clone().unwrap_or(Dimension::Engine);
    let columns = values(wishes, &across)?;
    let mut rows = Vec::new();
    for row in values(wishes, &table.by)? {
        let mut cells = Vec::new();
        for column in &columns {
            let there: Vec<&Wish<'_>> = wishes
                .iter()
                .filter(|w| value(w, &table.by) == Some(&row) && value(w, &across) == Some(column))
                .collect();
            let first = there.first()?;
            if !there.iter().any(|wish| wish.is_new()) {
                let choice = line.choice(&first.case.place, &first.case.variant)?;
                cells.push(line.wanted(choice)?.text.text.clone());
            } else if there.iter().all(|wish| wanted(wish) == wanted(first)) {
                cells.push(wanted(first).to_string());
            } else {
                return None;
            }
        }
        rows.push((row, cells));
    }
    Some(Form::Table { by: table.by.clone(), columns, rows })
}

/// The lines that are there, if each of them still says one thing.
fn within_lines(line: &Line, wishes: &[Wish<'_>]) -> Option<Form> {
    if line.expects.is_empty() {
        return None;
    }
    let mut changed = Vec::new();
    let mut rest = None;
    for (choice, now) in by_choice(line, wishes)? {
        match choice {
            Some(Choice::Line(index)) => changed.push((index, now)),
            _ => rest = Some(now),
        }
    }
    Some(Form::Same { changed, rest })
}

/// What is new, by where it would stand; nothing, if two cases would have different things at one
/// place.
fn by_choice(line: &Line, wishes: &[Wish<'_>]) -> Option<Vec<(Option<Choice>, Expectation)>> {
    let mut places: Vec<(Option<Choice>, Vec<&Wish<'_>>)> = Vec::new();
    for wish in wishes {
        let choice = line.choice(&wish.case.place, &wish.case.variant);
        match places.iter_mut().find(|(known, _)| *known == choice) {
            Some((_, there)) => there.push(wish),
            None => places.push((choice, vec![wish])),
        }
    }
    places
        .into_iter()
        // An axis may make one text say several things, which is well as long as all of them hold.
        .filter(|(_, there)| there.iter().any(|wish| wish.is_new()))
        .map(|(choice, there)| {
            let now = wanted(there[0]);
            there.iter().all(|wish| wanted(wish) == now).then_some((choice, now))
        })
        .collect()
}

/// From nothing: by as little as explains the differences.
pub(super) fn anew(wishes: &[Wish<'_>]) -> Form {
    let Some(by) = explaining(wishes) else {
        // Not even all together explain them: every case is one of these.
        let mut either = Vec::new();
        for expected in wishes.iter().flat_map(|wish| wanted(wish).either) {
            if !either.contains(&expected) {
                either.push(expected);
            }
        }
        return Form::Lines(vec![(Only::default(), Expectation { either })]);
    };
    table(wishes, &by).unwrap_or_else(|| lines(wishes, &by))
}

fn value<'w>(wish: &Wish<'w>, of: &Dimension) -> Option<&'w str> {
    of.value(&wish.case.place, &wish.case.variant)
}

/// The fewest dimensions of which what is wanted is a function; engines before all others.
fn explaining(wishes: &[Wish<'_>]) -> Option<Vec<Dimension>> {
    let mut all = vec![Dimension::Engine];
    let names = wishes.first()?.case.variant.iter().map(|(name, _)| name.clone());
    all.extend(names.map(Dimension::Axis));
    all.push(Dimension::Strategy);
    all.retain(|dimension| {
        let values: BTreeSet<_> = wishes.iter().map(|wish| value(wish, dimension)).collect();
        values.len() > 1
    });
    // There are few dimensions, so all subsets are few too.
    let mut subsets: Vec<u32> = (0..1u32 << all.len().min(10)).collect();
    subsets.sort_by_key(|subset| (subset.count_ones(), *subset));
    subsets.into_iter().find_map(|subset| {
        let some: Vec<Dimension> = all
            .iter()
            .enumerate()
            .filter(|(index, _)| subset & (1 << index) != 0)
            .map(|(_, dimension)| dimension.clone())
            .collect();
        let same_place =
            |a: &Wish<'_>, b: &Wish<'_>| some.iter().all(|d| value(a, d) == value(b, d));
        let explains = wishes.iter().enumerate().all(|(index, a)| {
            wishes[..index].iter().all(|b| !same_place(a, b) || wanted(a) == wanted(b))
        });
        explains.then_some(some)
    })
}

/// By one axis, or by one and something else: a table, if every cell of it has a case.
fn table(wishes: &[Wish<'_>], by: &[Dimension]) -> Option<Form> {
    let rows_by = by.iter().find(|dimension| matches!(dimension, Dimension::Axis(_)))?.clone();
    let across = by.iter().find(|dimension| **dimension != rows_by);
    if by.len() > 2 {
        return None;
    }
    let columns = match across {
        Some(across) => values(wishes, across)?,
        None => vec!["*".to_owned()],
    };
    let rows = values(wishes, &rows_by)?
        .into_iter()
        .map(|row| {
            let cells: Option<Vec<String>> = columns
                .iter()
                .map(|column| {
                    let fits = |wish: &&Wish<'_>| {
                        value(wish, &rows_by) == Some(row.as_str())
                            && across.is_none_or(|a| value(wish, a) == Some(column.as_str()))
                    };
                    wishes.iter().find(fits).map(|wish| wanted(wish).to_string())
                })
                .collect();
            Some((row, cells?))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Form::Table { by: rows_by, columns, rows })
}

/// The values of the cases, each once, in their order; nothing, if a case has none.
fn values(wishes: &[Wish<'_>], of: &Dimension) -> Option<Vec<String>> {
    let mut values: Vec<String> = Vec::new();
    for wish in wishes {
        let value = value(wish, of)?;
        if !values.iter().any(|known| known == value) {
            values.push(value.to_owned());
        }
    }
    Some(values)
}

/// A line for each thing, the most common one last and without brackets.
fn lines(wishes: &[Wish<'_>], by: &[Dimension]) -> Form {
    let mut groups: Vec<(Expectation, Vec<&Wish<'_>>)> = Vec::new();
    for wish in wishes {
        let now = wanted(wish);
        match groups.iter_mut().find(|(known, _)| *known == now) {
            Some((_, members)) => members.push(wish),
            None => groups.push((now, vec![wish])),
        }
    }
    let last = groups
        .iter()
        .enumerate()
        .max_by_key(|(index, (_, members))| (members.len(), *index))
        .map_or(0, |(index, _)| index);
    let (common, _) = groups.remove(last);
    let mut lines: Vec<(Only, Expectation)> = Vec::new();
    for (now, members) in groups {
        // Those that differ only in the first dimension share a line.
        let mut shared: Vec<(Vec<(Dimension, String)>, Only)> = Vec::new();
        for wish in members {
            let key = guard(wish, &by[1..]);
            let index = shared.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                shared.push((key, Only::default()));
                shared.len() - 1
            });
            for (dimension, value) in guard(wish, &by[..1]) {
                shared[index].1.add(dimension, value);
            }
        }
        for (others, mut only) in shared {
            for (dimension, value) in others {
                only.add(dimension, value);
            }
            lines.push((only, now.clone()));
        }
    }
    lines.push((Only::default(), common));
    Form::Lines(lines)
}

/// The values of a case; where it has no strategy its engine says which it is.
fn guard(wish: &Wish<'_>, by: &[Dimension]) -> Vec<(Dimension, String)> {
    by.iter()
        .map(|dimension| match value(wish, dimension) {
            Some(value) => (dimension.clone(), value.to_owned()),
            None => (Dimension::Engine, wish.case.place.engine.name().to_owned()),
        })
        .collect()
}

/// The head of a row or column, as it is written.
pub(super) fn label(label: &Label) -> String {
    match label {
        Label::Others => "*".to_owned(),
        Label::Values(values) => {
            let words: Vec<String> =
                values.iter().map(|value| crate::scenario::only::word(value)).collect();
            let single = words.iter().all(|word| !word.contains(char::is_whitespace));
            words.join(if single { " " } else { ", " })
        }
    }
}
