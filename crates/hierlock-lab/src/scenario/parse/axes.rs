//! The axes of a file, `for each isolation: …`. They are parsed first, because guards and tables contain their values.

use crate::scenario::diagnostic::Diagnostics;
use crate::scenario::file::Axis;
use crate::scenario::reader::Reader;
use crate::scenario::scan::with_single_blanks;
use crate::scenario::settings::isolation;
use crate::scenario::source_line::{LineKind, SourceLine, SourceSpan};
use crate::scenario::template::is_axis_name;
use crate::text::count;

pub(super) fn read(lines: &[SourceLine<'_>], errors: &mut Diagnostics<'_>) -> Vec<Axis> {
    let mut axes: Vec<Axis> = Vec::new();
    for line in lines {
        let LineKind::Header(head) = &line.kind else { continue };
        let Some(names) = names(head.name) else { continue };
        if let Some(guard) = head.guard {
            let hint = "leave the brackets out, and guard the steps instead";
            errors.report(guard.position, format!("an axis applies to all cases; {hint}"));
        }
        let axis = Axis {
            names: names.iter().map(|name| name.text.to_owned()).collect(),
            positions: names.iter().map(|name| name.position).collect(),
            value_sets: value_sets(&names, head.rest, errors),
        };
        for (index, name) in names.iter().enumerate() {
            let mut before = axis.names[..index].iter().chain(axes.iter().flat_map(|a| &a.names));
            let message = if !is_axis_name(name.text) {
                "the name of an axis begins with a letter and has letters, digits, `_` and `-`, as \
                 in `for each isolation: …` or `for each held, wanted: …`"
                    .to_owned()
            } else if matches!(name.text, "engine" | "strategy") {
                format!(
                    "every case has its {} anyway; choose another name, or say which there are \
                     with `engines:` and `strategies:`",
                    name.text
                )
            } else if before.any(|known| known == name.text) {
                format!("there is already an axis `{}`", name.text)
            } else {
                continue;
            };
            errors.report(name.position, message);
        }
        axes.push(axis);
    }
    axes
}

/// Returns the names after `for each`, if the key is that of an axis.
fn names<'t>(key: SourceSpan<'t>) -> Option<Vec<SourceSpan<'t>>> {
    let list = key.text.strip_prefix("for each")?;
    let is_axis = list.is_empty() || list.starts_with(char::is_whitespace);
    is_axis.then(|| key.after(key.text.len() - list.len()).split(','))
}

fn value_sets(
    names: &[SourceSpan<'_>],
    all: SourceSpan<'_>,
    errors: &mut Diagnostics<'_>,
) -> Vec<Vec<String>> {
    let mut value_sets: Vec<Vec<String>> = Vec::new();
    // The missing value is reported with the header.
    let parts = if all.text.is_empty() { Vec::new() } else { all.split('|') };
    for value_set in &parts {
        // With a single name a value may contain commas.
        let values = if names.len() == 1 { vec![*value_set] } else { value_set.split(',') };
        let is_list = parts.len() == 1 && names.len() == 1 && value_set.text.contains(',');
        let message = if value_set.text.is_empty() {
            "a value is missing here; write '' for an empty one".to_owned()
        } else if values.len() != names.len() {
            format!(
                "here are {} for {}; it is one for each, separated by commas",
                count(values.len(), "value"),
                count(names.len(), "name"),
            )
        } else if is_list && names[0].text == "isolation" {
            "the values of an axis are separated by `|`, not by commas".to_owned()
        } else {
            let values = names.iter().zip(values);
            let read: Vec<String> =
                values.map(|(name, value)| read_value(*name, value, errors)).collect();
            let is_known = value_sets.contains(&read);
            value_sets.push(read);
            if !is_known {
                continue;
            }
            format!("`{}` is there twice", value_set.text)
        };
        errors.report(value_set.position, message);
    }
    value_sets
}

fn read_value(name: SourceSpan<'_>, value: SourceSpan<'_>, errors: &mut Diagnostics<'_>) -> String {
    if name.text == "isolation" {
        return isolation(value.text).unwrap_or_else(|message| {
            errors.report(value.position, message);
            value.text.to_owned()
        });
    }
    let mut reader = Reader::new(value.text);
    match reader.quoted() {
        Ok(Some(text)) if reader.is_over() => text,
        _ => with_single_blanks(value.text),
    }
}
