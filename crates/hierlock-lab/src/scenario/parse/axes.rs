//! The axes of a file: `for each isolation: read committed | serializable`. They are read before
//! everything else, because brackets and tables anywhere in the file may name their values.

use crate::scenario::file::Axis;
use crate::scenario::layout::squeezed;
use crate::scenario::mistake::{Mistakes, counted};
use crate::scenario::outline::{LineKind, Part, SourceLine};
use crate::scenario::reader::Reader;
use crate::scenario::scan::split;
use crate::scenario::settings::isolation;
use crate::scenario::text::is_axis_name;

/// How the header of an axis begins.
pub(super) const FOR_EACH: &str = "for each";

pub(super) fn read(lines: &[SourceLine<'_>], mistakes: &mut Mistakes<'_>) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for line in lines {
        let LineKind::Header { key, guard, rest } = &line.kind else { continue };
        let Some(names) = names(*key) else { continue };
        if let Some(guard) = guard {
            mistakes.at(
                guard.spot,
                "an axis goes for all cases; leave the brackets out, and guard the steps instead",
            );
        }
        let axis = Axis {
            line: line.number,
            names: names.iter().map(|name| name.text.to_owned()).collect(),
            turns: turns(&names, *rest, mistakes),
        };
        for (index, name) in names.iter().enumerate() {
            let before = axis.names[..index].iter().chain(axes.iter().flat_map(|axis| &axis.names));
            if !is_axis_name(name.text) {
                mistakes.at(
                    name.spot,
                    "the name of an axis begins with a letter and has letters, digits, `_` and \
                     `-`, as in `for each isolation: …` or `for each held, wanted: …`",
                );
            } else if matches!(name.text, "engine" | "strategy") {
                mistakes.at(
                    name.spot,
                    format!(
                        "every case has its {} anyway; choose another name, or say which there \
                         are with `engines:` and `strategies:`",
                        name.text
                    ),
                );
            } else if before.into_iter().any(|known| known == name.text) {
                mistakes.at(name.spot, format!("there is already an axis `{}`", name.text));
            }
        }
        axes.push(axis);
    }
    axes
}

/// The names behind `for each`, if the key is that of an axis.
pub(super) fn names<'t>(key: Part<'t>) -> Option<Vec<Part<'t>>> {
    let list = key.text.strip_prefix(FOR_EACH)?;
    if !list.is_empty() && !list.starts_with(char::is_whitespace) {
        return None;
    }
    let begin = FOR_EACH.len();
    Some(split(list, ',').into_iter().map(|(at, name)| key.part(begin + at, name)).collect())
}

fn turns(names: &[Part<'_>], rest: Part<'_>, mistakes: &mut Mistakes<'_>) -> Vec<Vec<String>> {
    let mut turns: Vec<Vec<String>> = Vec::new();
    if rest.text.is_empty() {
        mistakes.at(rest.spot, "the values are missing; they are separated by `|`");
        return turns;
    }
    let parts = split(rest.text, '|');
    for (at, text) in &parts {
        let turn = rest.part(*at, text);
        if turn.text.is_empty() {
            mistakes.at(turn.spot, "a value is missing here; write '' for an empty one");
            continue;
        }
        // A single name takes all of it, commas and all.
        let values: Vec<Part<'_>> = match names {
            [_] => vec![turn],
            _ => split(turn.text, ',').into_iter().map(|(at, v)| turn.part(at, v)).collect(),
        };
        if values.len() != names.len() {
            let message = format!(
                "here are {} for {}; it is one for each, separated by commas",
                counted(values.len(), "value"),
                counted(names.len(), "name"),
            );
            mistakes.at(turn.spot, message);
            continue;
        }
        if let ([name], [_]) = (names, parts.as_slice())
            && turn.text.contains(',')
            && name.text == "isolation"
        {
            mistakes.at(turn.spot, "the values of an axis are separated by `|`, not by commas");
            continue;
        }
        let read: Vec<String> = names
            .iter()
            .zip(values)
            .map(|(name, value)| read_value(*name, value, mistakes))
            .collect();
        if turns.contains(&read) {
            mistakes.at(turn.spot, format!("`{}` is there twice", turn.text));
        }
        turns.push(read);
    }
    turns
}

fn read_value(name: Part<'_>, value: Part<'_>, mistakes: &mut Mistakes<'_>) -> String {
    if name.text == "isolation" {
        return isolation(value.text).unwrap_or_else(|why| {
            mistakes.at(value.spot, why);
            value.text.to_owned()
        });
    }
    let mut reader = Reader::new(value.text);
    match reader.quoted() {
        Ok(Some(text)) if reader.is_over() => text,
        _ => squeezed(value.text),
    }
}
