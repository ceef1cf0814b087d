//! In which cases something is there: `[mysql mariadb, serializable]`, and the heads of tables. Pure;
//! knows what a case can differ in, and nothing of steps.

use super::file::{Axis, Label, Table};
use super::mistake::{Slip, listed, unknown};
use super::reader::Reader;
use super::scan::split;
use crate::place::{Engine, Place};
use hierlock::sql::Strategy;
use std::fmt;

/// Something in which cases differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dimension {
    /// The engine.
    Engine,
    /// How a node becomes a slot.
    Strategy,
    /// An axis, by its name.
    Axis(String),
}

impl Dimension {
    /// Its name in the head of a table.
    pub(crate) fn name(&self) -> &str {
        match self {
            Dimension::Engine => "engine",
            Dimension::Strategy => "strategy",
            Dimension::Axis(name) => name,
        }
    }

    /// What a case has there; nothing, where there is no strategy.
    pub(crate) fn value<'v>(
        &self,
        place: &Place,
        variant: &'v [(String, String)],
    ) -> Option<&'v str> {
        match self {
            Dimension::Engine => Some(place.engine.name()),
            Dimension::Strategy => place.strategy.map(Strategy::name),
            Dimension::Axis(axis) => {
                variant.iter().find(|(name, _)| name == axis).map(|(_, value)| value.as_str())
            }
        }
    }
}

/// In which cases something is there.
///
/// A word is an engine, a strategy, or a value of an axis. Those of one sort are alternatives,
/// different sorts must all fit. Without words it is always there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Only {
    /// The words, by what they are.
    pub groups: Vec<(Dimension, Vec<String>)>,
}

impl Only {
    /// Is it there in this case?
    pub(crate) fn fits(&self, place: &Place, variant: &[(String, String)]) -> bool {
        self.groups.iter().all(|(dimension, values)| {
            dimension.value(place, variant).is_some_and(|value| values.iter().any(|v| v == value))
        })
    }

    /// Can it be there on this engine?
    pub(crate) fn allows(&self, engine: Engine) -> bool {
        self.groups.iter().all(|(dimension, values)| {
            *dimension != Dimension::Engine || values.iter().any(|value| value == engine.name())
        })
    }

    /// Is it there in every case?
    pub(crate) fn is_always(&self) -> bool {
        self.groups.is_empty()
    }

    pub(crate) fn add(&mut self, dimension: Dimension, value: String) {
        match self.groups.iter_mut().find(|(known, _)| *known == dimension) {
            Some((_, values)) if values.contains(&value) => {}
            Some((_, values)) => values.push(value),
            None => self.groups.push((dimension, vec![value])),
        }
    }
}

/// As it is written, with its brackets; nothing if it is always there.
impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_always() {
            return Ok(());
        }
        let groups: Vec<String> = self
            .groups
            .iter()
            .map(|(_, values)| {
                let values: Vec<String> = values.iter().map(|value| word(value)).collect();
                let single = values.iter().all(|value| !value.contains(char::is_whitespace));
                values.join(if single { " " } else { ", " })
            })
            .collect();
        write!(f, "[{}]", groups.join(", "))
    }
}

/// A value as it is written in brackets and heads: in quotes if it would be read as something else.
pub(crate) fn word(value: &str) -> String {
    let plain = !value.is_empty()
        && value != "*"
        && !value.contains([',', '[', ']', '|', '\'', '=', '#', '"', '`']);
    if plain { value.to_owned() } else { format!("'{}'", value.replace('\'', "''")) }
}

/// All words that may stand in brackets.
pub(crate) struct Words<'s> {
    axes: &'s [Axis],
}

impl<'s> Words<'s> {
    pub(crate) fn new(axes: &'s [Axis]) -> Self {
        Words { axes }
    }

    /// Every value there is, by what it is.
    fn all(&self) -> impl Iterator<Item = (Dimension, &'s str)> {
        let engines = Engine::ALL.into_iter().map(|engine| (Dimension::Engine, engine.name()));
        let strategies = Strategy::ALL.into_iter().map(|s| (Dimension::Strategy, s.name()));
        let values = self.axes.iter().flat_map(|axis| {
            axis.names.iter().enumerate().flat_map(move |(index, name)| {
                let mut seen: Vec<&str> = Vec::new();
                axis.turns.iter().filter_map(move |turn| {
                    let value = turn.get(index)?.as_str();
                    let new = !seen.contains(&value);
                    seen.push(value);
                    new.then(|| (Dimension::Axis(name.clone()), value))
                })
            })
        });
        engines.chain(strategies).chain(values)
    }

    /// The dimension of that name.
    pub(crate) fn dimension(&self, name: &str) -> Option<Dimension> {
        match name {
            "engine" => Some(Dimension::Engine),
            "strategy" => Some(Dimension::Strategy),
            name => {
                let known = self.axes.iter().any(|axis| axis.names.iter().any(|n| n == name));
                known.then(|| Dimension::Axis(name.to_owned()))
            }
        }
    }

    /// Reads what stands in brackets.
    pub(crate) fn only(&self, text: &str) -> Result<Only, Slip> {
        let mut only = Only::default();
        if text.trim().is_empty() {
            return Err(Slip::new(
                0,
                "nothing stands in the brackets; name engines, strategies or values of an \
                     axis, or leave the brackets out",
            ));
        }
        for (at, part) in split(text, ',') {
            // `held = u1`, where another axis has the same value.
            if let Some((name, value)) = part.split_once('=')
                && let Some(dimension) = self.dimension(name.trim())
            {
                let begin = at + name.len() + 1;
                for value in self.phrases(value, begin, Some(&dimension))? {
                    only.add(dimension.clone(), value.1);
                }
                continue;
            }
            for (dimension, value) in self.phrases(part, at, None)? {
                only.add(dimension, value);
            }
        }
        Ok(only)
    }

    /// Reads the head of a row or column of a table.
    pub(crate) fn label(&self, text: &str, of: &Dimension) -> Result<Label, Slip> {
        if text.trim() == "*" {
            return Ok(Label::Others);
        }
        let mut values = Vec::new();
        for (at, part) in split(text, ',') {
            values.extend(self.phrases(part, at, Some(of))?.into_iter().map(|(_, value)| value));
        }
        Ok(Label::Values(values))
    }

    /// What the columns of a table go by: that of the first word that is known.
    pub(crate) fn across(&self, text: &str, by: &Dimension) -> Result<Dimension, Slip> {
        let first = split(text, ',')[0].1;
        let fits = |dimension: &Dimension| self.phrases(first, 0, Some(dimension)).is_ok();
        let all = [Dimension::Engine, Dimension::Strategy].into_iter().chain(
            self.axes.iter().flat_map(|axis| axis.names.iter().cloned().map(Dimension::Axis)),
        );
        let fitting: Vec<Dimension> =
            all.filter(|dimension| dimension != by && fits(dimension)).collect();
        match fitting.as_slice() {
            [] => {
                let known: Vec<&str> =
                    self.all().filter(|(d, _)| d != by).map(|(_, value)| value).collect();
                let what = "an engine, a strategy or a value of another axis";
                Err(Slip::new(0, unknown(first.trim(), what, &known)))
            }
            [dimension, ..] => Ok(dimension.clone()),
        }
    }

    /// Reads known values one after the other, the longest that fits first: `mysql read committed`.
    fn phrases(
        &self,
        text: &str,
        at: usize,
        of: Option<&Dimension>,
    ) -> Result<Vec<(Dimension, String)>, Slip> {
        let wanted = |dimension: &Dimension| of.is_none_or(|of| of == dimension);
        let known: Vec<(Dimension, &str)> = self.all().filter(|(d, _)| wanted(d)).collect();
        let mut found = Vec::new();
        let mut reader = Reader::new(text);
        while !reader.is_over() {
            let here = at + reader.at();
            let (phrase, next) = longest(reader, &known)?;
            let dimensions: Vec<&Dimension> =
                known.iter().filter(|(_, value)| *value == phrase).map(|(d, _)| d).collect();
            match dimensions.as_slice() {
                [] => {
                    let names: Vec<&str> = known.iter().map(|(_, value)| *value).collect();
                    let what = match of {
                        Some(Dimension::Engine) => "an engine".to_owned(),
                        Some(Dimension::Strategy) => "a strategy".to_owned(),
                        Some(Dimension::Axis(name)) => format!("a value of `{name}`"),
                        None if self.axes.is_empty() => "an engine or a strategy".to_owned(),
                        None => "an engine, a strategy or a value of an axis".to_owned(),
                    };
                    return Err(Slip::new(here, unknown(&phrase, &what, &names)));
                }
                [dimension] => found.push(((*dimension).clone(), phrase)),
                several => {
                    let names: Vec<&str> = several.iter().map(|d| d.name()).collect();
                    let message = format!(
                        "`{phrase}` is a value of {}; say which: `{} = {phrase}`",
                        listed(&names, "and of"),
                        names[names.len() - 1],
                    );
                    return Err(Slip::new(here, message));
                }
            }
            reader = next;
        }
        if found.is_empty() {
            return Err(Slip::new(at, "a word is missing here"));
        }
        Ok(found)
    }
}

/// The longest run of words that is a known value; else the first word.
fn longest<'t>(
    reader: Reader<'t>,
    known: &[(Dimension, &str)],
) -> Result<(String, Reader<'t>), Slip> {
    let mut ahead = reader;
    if let Some(text) = ahead.quoted()? {
        return Ok((text, ahead));
    }
    let mut phrase = String::new();
    let mut best = None;
    while !ahead.is_over() {
        let word = ahead.word();
        if word.is_empty() {
            break;
        }
        if !phrase.is_empty() {
            phrase.push(' ');
        }
        phrase.push_str(word);
        if best.is_none() || known.iter().any(|(_, value)| *value == phrase) {
            best = Some((phrase.clone(), ahead));
        }
    }
    match best {
        // An unknown pair such as `read comitted` is better shown whole than by its first word.
        Some((one, _)) if !known.iter().any(|(_, value)| *value == one) => Ok((phrase, ahead)),
        Some(best) => Ok(best),
        None => reader.slip(format!("{} cannot stand here", reader.found())),
    }
}

impl Table {
    /// The row and the column of a case.
    pub(crate) fn cell(
        &self,
        place: &Place,
        variant: &[(String, String)],
    ) -> Option<(usize, usize)> {
        let row = find(self.rows.iter().map(|row| &row.label), self.by.value(place, variant))?;
        let column = match &self.across {
            Some(across) => find(self.columns.iter(), across.value(place, variant))?,
            None => 0,
        };
        Some((row, column))
    }
}

/// The label of a value: its own, or that of all others.
fn find<'l>(labels: impl Iterator<Item = &'l Label> + Clone, value: Option<&str>) -> Option<usize> {
    let own = labels.clone().position(|label| match label {
        Label::Values(values) => value.is_some_and(|value| values.iter().any(|v| v == value)),
        Label::Others => false,
    });
    own.or_else(|| labels.clone().position(|label| *label == Label::Others))
}
