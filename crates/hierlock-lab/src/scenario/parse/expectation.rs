//! Parses expectations: the text after `=`, `!` and `|`. The names of sessions are checked elsewhere.

use crate::observation::{LockKind, SessionName};
use crate::scenario::diagnostic::{ParseError, hint};
use crate::scenario::expectation::{
    Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, SessionSelector,
};
use crate::scenario::reader::Reader;
use crate::scenario::scan::split;
use crate::text::count;

const WORDS: [&str; 10] = [
    "done",
    "rows",
    "no rows",
    "changed",
    "blocked",
    "deadlock",
    "timed out",
    "refused",
    "conflict",
    "error",
];

/// Reads words such as `blocked by A on gap`, and the rows on the lines below. Without words the expectation is `done`.
pub(crate) fn read(text: &str) -> Result<Expectation, Vec<ParseError>> {
    let mut lines = text.split('\n');
    let words = lines.next().unwrap_or_default();
    let mut expectation = match words {
        "" => Expectation::default(),
        words => alternatives(words)?,
    };
    let mut errors = Vec::new();
    let mut block: Vec<Vec<ExpectedCell>> = Vec::new();
    let mut begin = words.len() + 1;
    for line in lines {
        match row(line) {
            Ok(cells) => {
                let first = block.first().map_or(cells.len(), Vec::len);
                if cells.len() != first {
                    errors.push(ParseError::new(begin, unequal_cells(first, cells.len())));
                }
                block.push(cells);
            }
            Err(error) => errors.push(error.within(begin)),
        }
        begin += line.len() + 1;
    }
    if errors.is_empty() {
        add_rows(&mut expectation, block).map_err(|message| ParseError::new(0, message))?;
        return Ok(expectation);
    }
    Err(errors)
}

fn alternatives(text: &str) -> Result<Expectation, ParseError> {
    let mut reader = Reader::new(text);
    let mut alternatives = Vec::new();
    loop {
        let last = outcome(&mut reader)?;
        let hint = continuation_hint(&last);
        alternatives.push(last);
        if reader.is_over() {
            return Ok(Expectation { alternatives });
        }
        if !reader.take("or") {
            return reader.unexpected(hint);
        }
    }
}

fn continuation_hint(expected: &ExpectedOutcome) -> &'static str {
    match expected {
        ExpectedOutcome::Done { rows: None, changed: None } => {
            "after `done` comes nothing, `, in any order` or `or …`; rows go on lines below, each \
             after a `|`"
        }
        ExpectedOutcome::Done { rows: Some(_), .. } => {
            "a row of several cells is written `(1, 30)`, and alternatives are separated by `or`"
        }
        ExpectedOutcome::Blocked { .. } => {
            "it is `blocked`, `blocked by A`, `blocked by A and B`, each also with `on gap` or \
             `on gap of TABLE`"
        }
        ExpectedOutcome::Deadlock { .. } => {
            "it is `deadlock` (of this session), or `deadlock, A or B` where the engine chooses"
        }
        ExpectedOutcome::Error { .. } => {
            "it is `error`, `error 1062`, `error 'part of the message'` or both"
        }
        _ => "alternatives are separated by `or`",
    }
}

fn outcome(reader: &mut Reader<'_>) -> Result<ExpectedOutcome, ParseError> {
    if reader.take("blocked") {
        blocked(reader)
    } else if reader.take("deadlock") {
        deadlock(reader)
    } else if reader.take("timed out") {
        Ok(ExpectedOutcome::TimedOut)
    } else if reader.take("refused") {
        Ok(ExpectedOutcome::Refused)
    } else if reader.take("conflict") {
        Ok(ExpectedOutcome::Conflict)
    } else if reader.take("error") {
        error(reader)
    } else {
        done(reader)
    }
}

/// Reads a list of `done`, `rows 30`, `no rows`, `changed 1` and `in any order`.
fn done(reader: &mut Reader<'_>) -> Result<ExpectedOutcome, ParseError> {
    let mut rows = None;
    let mut changed = None;
    let mut any_order = None;
    let mut is_first = true;
    loop {
        let start = *reader;
        let mut is_twice = false;
        if is_first && reader.take("done") {
        } else if reader.take("rows") {
            is_twice = rows.replace(inline_rows(reader)?).is_some();
        } else if reader.take("no rows") {
            is_twice = rows.replace(Vec::new()).is_some();
        } else if reader.take("changed") || reader.take("matched") {
            let number = *reader;
            let Ok(count) = reader.word().parse() else {
                return number.is_not("a number; it is `changed 1`");
            };
            if changed.replace(count).is_some() {
                return start.fail("how many are changed is already given");
            }
        } else if !is_first && reader.take("in any order") {
            any_order = Some(start);
        } else {
            return wrong_word(start, is_first);
        }
        if is_twice {
            return start.fail("the rows are already given");
        }
        is_first = false;
        if !reader.take_char(',') {
            break;
        }
    }
    if let (Some([]), Some(start)) = (rows.as_deref(), any_order) {
        return start.fail("where there are no rows there is no order");
    }
    // `in any order` without rows needs rows on the lines below; see `add_rows`.
    let rows = (rows.is_some() || any_order.is_some())
        .then(|| ExpectedRows { rows: rows.unwrap_or_default(), any_order: any_order.is_some() });
    Ok(ExpectedOutcome::Done { rows, changed })
}

fn wrong_word<T>(reader: Reader<'_>, is_first: bool) -> Result<T, ParseError> {
    match reader.peek() {
        _ if !is_first => reader.unexpected(
            "after a comma comes `rows …`, `changed 1` or `in any order` (and a row of several \
             cells is written `(1, 30)`)",
        ),
        "row" | "no" | "any" => {
            reader.is_not("an expectation; rows are `rows 30`, `rows (1, 30)` or `no rows`")
        }
        "timeout" | "timed" => reader.fail("a wait that ends by itself is `timed out`"),
        _ if reader.is_over() => {
            reader.fail(format!("the expectation is missing; {}", hint("", &WORDS)))
        }
        word => reader.is_not(&format!("an expectation; {}", hint(word, &WORDS))),
    }
}

/// Reads `30 10` or `(1, 30) (2, 10)`.
fn inline_rows(reader: &mut Reader<'_>) -> Result<Vec<Vec<ExpectedCell>>, ParseError> {
    let mut rows: Vec<Vec<ExpectedCell>> = Vec::new();
    while !reader.is_over() && reader.peek() != "or" && !reader.rest().starts_with(',') {
        let start = *reader;
        let row =
            if reader.take_char('(') { inline_row(reader)? } else { vec![inline_cell(reader)?] };
        if rows.first().is_some_and(|first| first.len() != row.len()) {
            return start.fail(unequal_cells(rows[0].len(), row.len()));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return reader
            .fail("the rows are missing; it is `rows 30`, `rows (1, 30) (2, 10)` or `no rows`");
    }
    Ok(rows)
}

/// Reads `1, 30)`.
fn inline_row(reader: &mut Reader<'_>) -> Result<Vec<ExpectedCell>, ParseError> {
    let mut row = Vec::new();
    loop {
        row.push(inline_cell(reader)?);
        if reader.take_char(')') {
            return Ok(row);
        }
        if reader.is_over() {
            return reader.fail("the row is not closed; it is `(1, 30)`");
        }
        if !reader.take_char(',') {
            let hint = "the cells of a row are separated by commas and end with `)`";
            return reader.unexpected(hint);
        }
    }
}

fn unequal_cells(first: usize, this: usize) -> String {
    format!("this row has {}, the first has {first}; all rows have the same", count(this, "cell"))
}

fn inline_cell(reader: &mut Reader<'_>) -> Result<ExpectedCell, ParseError> {
    if let Some(text) = reader.quoted()? {
        return Ok(ExpectedCell::Value(text));
    }
    if reader.peek().is_empty() {
        return reader.unexpected("a cell is a value, 'a text', null or *");
    }
    Ok(bare_cell(reader.word()))
}

fn bare_cell(text: &str) -> ExpectedCell {
    match text {
        "null" => ExpectedCell::Null,
        "*" => ExpectedCell::Anything,
        text => ExpectedCell::Value(text.to_owned()),
    }
}

/// Reads a `|` line, without its first `|`.
fn row(text: &str) -> Result<Vec<ExpectedCell>, ParseError> {
    let cells = split(text, '|').into_iter();
    cells.map(|(at, cell)| block_cell(cell).map_err(|error| error.within(at))).collect()
}

fn block_cell(text: &str) -> Result<ExpectedCell, ParseError> {
    let mut reader = Reader::new(text);
    if reader.is_over() {
        let message = "a cell is empty; write '' for an empty text, null, or * for anything";
        return Err(ParseError::new(0, message));
    }
    match reader.quoted()? {
        None => Ok(bare_cell(text.trim())),
        Some(text) if reader.is_over() => Ok(ExpectedCell::Value(text)),
        Some(_) => reader.fail(
            "a cell in quotes ends with its quote; a quote inside of quotes is written twice",
        ),
    }
}

/// Adds the rows of `|` lines to the `done` above them.
fn add_rows(expected: &mut Expectation, block: Vec<Vec<ExpectedCell>>) -> Result<(), &'static str> {
    let mut open: Vec<&mut Option<ExpectedRows>> = Vec::new();
    for outcome in &mut expected.alternatives {
        if let ExpectedOutcome::Done { rows, .. } = outcome
            && rows.as_ref().is_none_or(|rows| rows.rows.is_empty() && rows.any_order)
        {
            open.push(rows);
        }
    }
    match open.as_mut_slice() {
        [Some(_), ..] if block.is_empty() => {
            Err("`in any order` is about rows; write them below, each after a `|`")
        }
        _ if block.is_empty() => Ok(()),
        [rows] => {
            let any_order = rows.as_ref().is_some_and(|rows| rows.any_order);
            **rows = Some(ExpectedRows { rows: block, any_order });
            Ok(())
        }
        _ => Err("there are rows below this, so one of its alternatives must be `done` (and have \
                  no other rows)"),
    }
}

/// Reads `by A and B` and `on gap of demo`.
fn blocked(reader: &mut Reader<'_>) -> Result<ExpectedOutcome, ParseError> {
    let mut by = Vec::new();
    if reader.take("by") {
        loop {
            let start = *reader;
            let Some(session) = SessionSelector::named(reader.word()) else {
                return start.is_not(
                    "a session; it is a name that begins with a capital, `victim` or `survivor`",
                );
            };
            by.push(session);
            if !reader.take("and") && !reader.take_char(',') {
                break;
            }
        }
    }
    if !reader.take("on") {
        return Ok(ExpectedOutcome::Blocked { by, kind: None, object: None });
    }
    let start = *reader;
    let word = reader.word();
    let kind = LockKind::ALL.into_iter().find(|kind| kind.name() == word);
    if kind.is_none() {
        let known = hint(word, &LockKind::ALL.map(LockKind::name));
        return start.is_not(&format!("a kind of lock; {known}"));
    }
    let is_named = reader.take("of");
    let named = *reader;
    let mut object = None;
    if is_named || reader.peek() != "or" {
        object = reader.word_or_quoted()?;
    }
    match &object {
        None if is_named => reader.fail("a table is missing after `of`"),
        Some(object) if object.starts_with('{') => {
            named.fail(format!("`{object}` is not the name of an axis"))
        }
        _ => Ok(ExpectedOutcome::Blocked { by, kind, object }),
    }
}

/// Reads `, A or B`.
fn deadlock(reader: &mut Reader<'_>) -> Result<ExpectedOutcome, ParseError> {
    let mut victims = Vec::new();
    let mut has_more = reader.take_char(',');
    while has_more {
        let start = *reader;
        match SessionName::new(reader.word()) {
            Some(name) if victims.contains(&name) => {
                return start.fail(format!("{name} is named twice"));
            }
            Some(name) => victims.push(name),
            None => return start.is_not("a session; it is `deadlock, A or B`"),
        }
        let mut ahead = *reader;
        // `or done` is the next alternative.
        has_more = ahead.take("or") && SessionName::new(ahead.peek()).is_some();
        if has_more {
            *reader = ahead;
        }
    }
    Ok(ExpectedOutcome::Deadlock { victims })
}

/// Reads `1062 'text'`.
fn error(reader: &mut Reader<'_>) -> Result<ExpectedOutcome, ParseError> {
    let word = reader.peek();
    let mut code = None;
    if !word.is_empty() && word != "or" {
        let is_code = word.chars().all(|c| c.is_ascii_alphanumeric())
            && word.contains(|c: char| c.is_ascii_digit());
        if !is_code {
            return reader.is_not(
                "a code such as 1062 or 23505; part of a message goes in quotes: `error \
                 'duplicate'`",
            );
        }
        code = Some(reader.word().to_owned());
    }
    Ok(ExpectedOutcome::Error { code, message: reader.quoted()? })
}
