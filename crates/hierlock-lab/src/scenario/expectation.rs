//! What must be seen, read from what stands behind `=`, `!` and `|`. Knows the words of observations,
//! not who has them: whether a session exists is checked elsewhere.

use super::file::{Actor, Expectation, Expected, ExpectedCell, ExpectedRows};
use super::mistake::{Slip, counted, hint};
use super::reader::Reader;
use super::scan::split;
use crate::observation::{LockKind, Name};

/// The words with which something that may be seen begins.
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

/// Reads `done`, `blocked by A on gap`, `rows 30 or deadlock`.
pub(crate) fn read(text: &str) -> Result<Expectation, Slip> {
    let mut reader = Reader::new(text);
    let mut either = vec![one(&mut reader)?];
    while reader.take("or") {
        either.push(one(&mut reader)?);
    }
    if reader.is_over() {
        return Ok(Expectation { either });
    }
    reader.slip(format!(
        "{} cannot stand here; {}",
        reader.found(),
        after(&either[either.len() - 1])
    ))
}

/// What may follow, for a message.
fn after(expected: &Expected) -> &'static str {
    match expected {
        Expected::Done { rows: None, changed: None } => {
            "after `done` comes nothing, `, in any order` or `or …`; rows go on lines below, \
                 each behind a `|`"
        }
        Expected::Done { rows: Some(_), .. } => {
            "a row of several cells is written `(1, 30)`, and alternatives are separated by `or`"
        }
        Expected::Done { .. } => "alternatives are separated by `or`",
        Expected::Blocked { .. } => {
            "it is `blocked`, `blocked by A`, `blocked by A and B`, each also with `on gap` \
                 or `on gap of TABLE`"
        }
        Expected::Deadlock { .. } => {
            "it is `deadlock` (of this session), or `deadlock, A or B` where the engine chooses"
        }
        Expected::Error { .. } => {
            "it is `error`, `error 1062`, `error 'part of the message'` or both"
        }
        Expected::TimedOut | Expected::Refused | Expected::Conflict => {
            "alternatives are separated by `or`"
        }
    }
}

fn one(reader: &mut Reader<'_>) -> Result<Expected, Slip> {
    if reader.take("blocked") {
        return blocked(reader);
    }
    if reader.take("deadlock") {
        return deadlock(reader);
    }
    if reader.take("timed out") {
        return Ok(Expected::TimedOut);
    }
    if reader.take("refused") {
        return Ok(Expected::Refused);
    }
    if reader.take("conflict") {
        return Ok(Expected::Conflict);
    }
    if reader.take("error") {
        return error(reader);
    }
    done(reader)
}

/// `done`, `rows 30`, `no rows`, `changed 1`, and `in any order`, in one list.
fn done(reader: &mut Reader<'_>) -> Result<Expected, Slip> {
    let mut rows: Option<Vec<Vec<ExpectedCell>>> = None;
    let mut changed = None;
    let mut any_order = None;
    let mut first = true;
    loop {
        let here = *reader;
        if first && reader.take("done") {
        } else if reader.take("rows") {
            let read = inline_rows(reader)?;
            if rows.replace(read).is_some() {
                return here.slip("the rows are already given");
            }
        } else if reader.take("no rows") {
            if rows.replace(Vec::new()).is_some() {
                return here.slip("the rows are already given");
            }
        } else if reader.take("changed") || reader.take("matched") {
            let number = *reader;
            let count = reader.word().parse().ok();
            let Some(count) = count else {
                return number
                    .slip(format!("{} is not a number; it is `changed 1`", number.found()));
            };
            if changed.replace(count).is_some() {
                return here.slip("how many are changed is already given");
            }
        } else if !first && reader.take("in any order") {
            any_order = Some(here);
        } else {
            return here.slip(wrong_word(here, first));
        }
        first = false;
        if !reader.take_char(',') {
            break;
        }
    }
    let rows = match (rows, any_order) {
        (Some(rows), Some(here)) if rows.is_empty() => {
            return here.slip("where there are no rows there is no order");
        }
        (Some(rows), order) => Some(ExpectedRows { rows, any_order: order.is_some() }),
        // Completed by the `|` lines below; see `with_rows`.
        (None, Some(_)) => Some(ExpectedRows { rows: Vec::new(), any_order: true }),
        (None, None) => None,
    };
    Ok(Expected::Done { rows, changed })
}

fn wrong_word(reader: Reader<'_>, first: bool) -> String {
    let found = reader.found();
    if !first {
        return format!(
            "{found} cannot stand here; after a comma comes `rows …`, `changed 1` or `in any order` \
             (and a row of several cells is written `(1, 30)`)"
        );
    }
    let word = reader.peek();
    if matches!(word, "row" | "no" | "any") {
        return format!(
            "{found} is not something to be seen; rows are `rows 30`, `rows (1, 30)` or `no rows`"
        );
    }
    if matches!(word, "timeout" | "timed") {
        return "a wait that ends by itself is `timed out`".to_owned();
    }
    let start = if reader.is_over() {
        "what must be seen is missing".to_owned()
    } else {
        format!("{found} is not something to be seen")
    };
    format!("{start}; {}", hint(word, &WORDS))
}

/// `30 10`, `(1, 30) (2, 10)`
fn inline_rows(reader: &mut Reader<'_>) -> Result<Vec<Vec<ExpectedCell>>, Slip> {
    let mut rows: Vec<Vec<ExpectedCell>> = Vec::new();
    loop {
        let here = *reader;
        let row = if reader.take_char('(') {
            let mut row = Vec::new();
            loop {
                row.push(inline_cell(reader)?);
                if reader.take_char(')') {
                    break row;
                }
                if reader.is_over() {
                    return reader.slip("the row is not closed; it is `(1, 30)`");
                }
                if !reader.take_char(',') {
                    return reader.slip(format!(
                        "{} cannot stand here; the cells of a row are separated by commas and \
                             end with `)`",
                        reader.found()
                    ));
                }
            }
        } else if reader.is_over() || reader.peek() == "or" || reader.rest().starts_with(',') {
            break;
        } else {
            vec![inline_cell(reader)?]
        };
        if rows.first().is_some_and(|first| first.len() != row.len()) {
            return here.slip(unequal(rows[0].len(), row.len()));
        }
        rows.push(row);
    }
    if rows.is_empty() {
        return reader
            .slip("the rows are missing; it is `rows 30`, `rows (1, 30) (2, 10)` or `no rows`");
    }
    Ok(rows)
}

pub(crate) fn unequal(first: usize, this: usize) -> String {
    format!("this row has {}, the first has {first}; all rows have the same", counted(this, "cell"))
}

fn inline_cell(reader: &mut Reader<'_>) -> Result<ExpectedCell, Slip> {
    if let Some(text) = reader.quoted()? {
        return Ok(ExpectedCell::Value(text));
    }
    if reader.peek().is_empty() {
        return reader.slip(format!(
            "{} cannot stand here; a cell is a value, 'a text', null or *",
            reader.found()
        ));
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
pub(crate) fn row(text: &str) -> Result<Vec<ExpectedCell>, Slip> {
    split(text, '|').into_iter().map(|(at, cell)| block_cell(cell, at)).collect()
}

fn block_cell(text: &str, at: usize) -> Result<ExpectedCell, Slip> {
    let cell = text.trim();
    let begin = at + (text.len() - text.trim_start().len());
    if cell.is_empty() {
        return Err(Slip::new(
            at,
            "a cell is empty; write '' for an empty text, null, or * for anything",
        ));
    }
    if cell.starts_with('\'') {
        let mut reader = Reader::new(cell);
        let read = reader.quoted().map_err(|slip| Slip::new(begin + slip.at, slip.message))?;
        return match read.filter(|_| reader.is_over()) {
            Some(text) => Ok(ExpectedCell::Value(text)),
            None => Err(Slip::new(
                begin + reader.at(),
                "a cell in quotes ends with its quote; a quote inside of quotes is written twice",
            )),
        };
    }
    Ok(bare_cell(cell))
}

/// Gives the rows of `|` lines to the `done` above them; the slip is one of the line with the `=`.
pub(crate) fn with_rows(
    expectation: &mut Expectation,
    block: Vec<Vec<ExpectedCell>>,
) -> Result<(), Slip> {
    let open = |expected: &&mut Expected| match expected {
        Expected::Done { rows: None, .. } => true,
        Expected::Done { rows: Some(rows), .. } => rows.rows.is_empty() && rows.any_order,
        _ => false,
    };
    let mut open: Vec<&mut Expected> = expectation.either.iter_mut().filter(open).collect();
    if block.is_empty() {
        return match open.as_slice() {
            [Expected::Done { rows: Some(_), .. }, ..] => Err(Slip::new(
                0,
                "`in any order` is said of rows; write them below, each behind a `|`",
            )),
            _ => Ok(()),
        };
    }
    match open.as_mut_slice() {
        [Expected::Done { rows, .. }] => {
            let any_order = rows.as_ref().is_some_and(|rows| rows.any_order);
            *rows = Some(ExpectedRows { rows: block, any_order });
            Ok(())
        }
        _ => Err(Slip::new(
            0,
            "there are rows below this, so one of its alternatives must be `done` (and have \
                 no other rows)",
        )),
    }
}

/// `by A and B`, `on gap of demo`
fn blocked(reader: &mut Reader<'_>) -> Result<Expected, Slip> {
    let mut by = Vec::new();
    if reader.take("by") {
        loop {
            by.push(who(reader)?);
            if !reader.take("and") && !reader.take_char(',') {
                break;
            }
        }
    }
    let mut kind = None;
    let mut object = None;
    if reader.take("on") {
        let here = *reader;
        let word = reader.word();
        let found = LockKind::ALL.into_iter().find(|kind| kind.name() == word);
        let names: Vec<&str> = LockKind::ALL.iter().map(|kind| kind.name()).collect();
        if found.is_none() {
            let found = here.found();
            return here.slip(format!("{found} is not a kind of lock; {}", hint(word, &names)));
        }
        kind = found;
        let of = reader.take("of");
        let named = *reader;
        if reader.peek() != "or" || of {
            object = reader.word_or_quoted()?;
        }
        if of && object.is_none() {
            return reader.slip("a table is missing after `of`");
        }
        if let Some(object) = object.as_ref().filter(|object| object.starts_with('{')) {
            return named.slip(format!("`{object}` is not the name of an axis"));
        }
    }
    Ok(Expected::Blocked { by, kind, object })
}

fn who(reader: &mut Reader<'_>) -> Result<Actor, Slip> {
    let here = *reader;
    let word = reader.word();
    Actor::named(word).ok_or_else(|| {
        let message = format!(
            "{} is not a session; it is a name that begins with a capital, `victim` or `survivor`",
            here.found()
        );
        Slip::new(here.at(), message)
    })
}

/// `, A or B`
fn deadlock(reader: &mut Reader<'_>) -> Result<Expected, Slip> {
    let mut victims = Vec::new();
    if reader.take_char(',') {
        loop {
            let here = *reader;
            match Name::new(reader.word()) {
                Some(name) if victims.contains(&name) => {
                    return here.slip(format!("{name} is named twice"));
                }
                Some(name) => victims.push(name),
                None => {
                    return here.slip(format!(
                        "{} is not a session; it is `deadlock, A or B`",
                        here.found()
                    ));
                }
            }
            let mut ahead = *reader;
            // `or done` is the next alternative.
            if !ahead.take("or") || Name::new(ahead.peek()).is_none() {
                break;
            }
            *reader = ahead;
        }
    }
    Ok(Expected::Deadlock { victims })
}

/// `1062 'text'`
fn error(reader: &mut Reader<'_>) -> Result<Expected, Slip> {
    let mut code = None;
    let word = reader.peek();
    if !word.is_empty() && word != "or" {
        let looks_like_one = word.chars().all(|c| c.is_ascii_alphanumeric())
            && word.contains(|c: char| c.is_ascii_digit());
        if !looks_like_one {
            return reader.slip(format!(
                "`{word}` is not a code such as 1062 or 23505; part of a message goes in \
                     quotes: `error 'duplicate'`"
            ));
        }
        code = Some(reader.word().to_owned());
    }
    Ok(Expected::Error { code, says: reader.quoted()? })
}

impl Actor {
    /// Who is called that.
    pub(crate) fn named(text: &str) -> Option<Self> {
        match text {
            "victim" => Some(Actor::Victim),
            "survivor" => Some(Actor::Survivor),
            name => Name::new(name).map(Actor::Session),
        }
    }
}
