//! Guards, which restrict something to some cases: `[mysql mariadb, serializable]`, and the heads of tables.

use super::case::Case;
use super::diagnostic::{ParseError, Position, unknown};
use super::expectation::quoted;
use super::file::Axis;
use super::reader::Reader;
use super::source_line::SourceSpan;
use crate::engine::Engine;
use crate::group::{distinct, group_by};
use crate::text::{join, listed};
use hierlock::sql::Strategy;
use std::fmt;

/// A dimension in which cases differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Dimension {
    Engine,
    Strategy,
    Axis(String),
}

impl Dimension {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Engine => "engine",
            Self::Strategy => "strategy",
            Self::Axis(name) => name,
        }
    }

    /// Returns the value of a case; `None` if the case has no strategy.
    pub(crate) fn value<'c>(&self, case: &'c Case) -> Option<&'c str> {
        match self {
            Self::Engine => Some(case.backend.engine.name()),
            Self::Strategy => case.backend.strategy.map(Strategy::name),
            Self::Axis(axis) => {
                case.variant.iter().find(|(name, _)| name == axis).map(|(_, value)| value.as_str())
            }
        }
    }
}

/// A word of a guard, or of the head of a row or column of a table: a value of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardWord {
    pub(crate) dimension: Dimension,
    pub(crate) value: String,
    pub(crate) position: Position,
}

impl GuardWord {
    pub(crate) fn fits(&self, case: &Case) -> bool {
        self.dimension.value(case) == Some(self.value.as_str())
    }
}

/// A guard in brackets, or the head of a row or column of a table. Words of one dimension are alternatives, different
/// dimensions must all fit. Without words it fits every case; a head without words is `*`, for all other cases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CaseGuard(pub(crate) Vec<GuardWord>);

impl CaseGuard {
    pub(crate) fn fits(&self, case: &Case) -> bool {
        self.0.iter().all(|word| {
            let mut words = self.0.iter().filter(|other| other.dimension == word.dimension);
            words.any(|other| other.fits(case))
        })
    }

    pub(crate) fn allows(&self, engine: Engine) -> bool {
        let engines = self.0.iter().filter(|word| word.dimension == Dimension::Engine);
        let engines: Vec<&str> = engines.map(|word| word.value.as_str()).collect();
        engines.is_empty() || engines.contains(&engine.name())
    }

    pub(crate) fn is_always(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the row (or column) of a case in a table: its own, or `*`.
    pub(crate) fn find(heads: &[Self], case: &Case) -> Option<usize> {
        let own = heads.iter().position(|head| !head.is_always() && head.fits(case));
        own.or_else(|| heads.iter().position(Self::is_always))
    }
}

/// Writes the guard with its brackets; nothing if it fits every case.
impl fmt::Display for CaseGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.0.iter().map(|word| (word.dimension.clone(), word.value.clone()));
        f.write_str(&brackets(&words.collect::<Vec<_>>()))
    }
}

/// Returns a guard with these values, by dimension and without duplicates; an empty text without values.
pub(crate) fn brackets(words: &[(Dimension, String)]) -> String {
    if words.is_empty() {
        return String::new();
    }
    let groups = group_by(distinct(words), |(dimension, _)| dimension).into_iter();
    let groups = groups.map(|(_, words)| {
        let words: Vec<String> = words.into_iter().map(|(_, value)| word(value)).collect();
        let is_single = words.iter().all(|word| !word.contains(char::is_whitespace));
        words.join(if is_single { " " } else { ", " })
    });
    format!("[{}]", join(groups, ", "))
}

/// Returns a value as it is written in a guard, with quotes if it would be parsed as something else.
pub(crate) fn word(value: &str) -> String {
    let plain = !value.is_empty()
        && value != "*"
        && !value.contains([',', '[', ']', '|', '\'', '=', '#', '"', '`']);
    if plain { value.to_owned() } else { quoted(value) }
}

/// All words that guards may contain.
pub(crate) struct Vocabulary {
    pub(crate) dimensions: Vec<Dimension>,
    /// All values, with their dimensions.
    words: Vec<(Dimension, String)>,
}

impl Vocabulary {
    pub(crate) fn new(axes: &[Axis]) -> Self {
        let engines = Engine::ALL.map(|engine| (Dimension::Engine, engine.name().to_owned()));
        let strategies = Strategy::ALL.map(|s| (Dimension::Strategy, s.name().to_owned()));
        let mut words = [engines.as_slice(), strategies.as_slice()].concat();
        let mut dimensions = vec![Dimension::Engine, Dimension::Strategy];
        for axis in axes {
            for (index, name) in axis.names.iter().enumerate() {
                let dimension = Dimension::Axis(name.clone());
                let values = axis.value_sets.iter().filter_map(|values| values.get(index));
                words.extend(values.map(|value| (dimension.clone(), value.clone())));
                dimensions.push(dimension);
            }
        }
        Vocabulary { dimensions, words: distinct(words) }
    }

    /// Returns the values of the dimensions that `by` accepts.
    fn values(&self, by: impl Fn(&Dimension) -> bool) -> Vec<&str> {
        let words = self.words.iter().filter(|(dimension, _)| by(dimension));
        words.map(|(_, value)| value.as_str()).collect()
    }

    pub(crate) fn dimension(&self, name: &str) -> Option<&Dimension> {
        self.dimensions.iter().find(|dimension| dimension.name() == name)
    }

    pub(crate) fn guard(&self, span: SourceSpan<'_>) -> SpanResult<CaseGuard> {
        if span.text.is_empty() {
            let message = "the brackets are empty; name engines, strategies or values of \
                           an axis, or leave the brackets out";
            return Err((span.position, message.to_owned()));
        }
        let mut words = Vec::new();
        for part in span.split(',') {
            // `held = u1` is for values that several axes share.
            let named = part.text.split_once('=').and_then(|(name, _)| {
                Some((self.dimension(name.trim())?, part.after(name.len() + 1)))
            });
            words.extend(match named {
                Some((dimension, value)) => self.words(value, Some(dimension))?,
                None => self.words(part, None)?,
            });
        }
        Ok(CaseGuard(words))
    }

    pub(crate) fn label(&self, span: SourceSpan<'_>, of: &Dimension) -> SpanResult<CaseGuard> {
        let mut words = Vec::new();
        if span.text != "*" {
            for part in span.split(',') {
                words.extend(self.words(part, Some(of))?);
            }
        }
        Ok(CaseGuard(words))
    }

    /// Returns the dimension of the columns of a table: that of the first word.
    pub(crate) fn across(&self, span: SourceSpan<'_>, by: &Dimension) -> SpanResult<&Dimension> {
        let first = span.split(',')[0];
        let fits = |of: &&Dimension| *of != by && self.words(first, Some(of)).is_ok();
        self.dimensions.iter().find(fits).ok_or_else(|| {
            let known = self.values(|dimension| dimension != by);
            let kind = "an engine, a strategy or a value of another axis";
            (span.position, unknown(first.text, kind, &known))
        })
    }

    /// Reads known values one after the other, the longest match first: `mysql read committed`.
    fn words(&self, span: SourceSpan<'_>, of: Option<&Dimension>) -> SpanResult<Vec<GuardWord>> {
        let is_allowed = |dimension: &Dimension| of.is_none_or(|of| of == dimension);
        let known = self.values(is_allowed);
        let mut words = Vec::new();
        let mut reader = Reader::new(span.text);
        while !reader.is_over() {
            let position = span.at(reader.at());
            let value =
                longest(&mut reader, &known).map_err(|error| (span.at(error.at), error.message))?;
            let meanings = self.words.iter().filter(|(d, known)| *known == value && is_allowed(d));
            let dimensions: Vec<&Dimension> = meanings.map(|(dimension, _)| dimension).collect();
            match dimensions.as_slice() {
                [dimension] => {
                    words.push(GuardWord { dimension: (*dimension).clone(), value, position });
                }
                [] => {
                    let kind = match of {
                        Some(Dimension::Engine) => "an engine".to_owned(),
                        Some(Dimension::Strategy) => "a strategy".to_owned(),
                        Some(Dimension::Axis(name)) => format!("a value of `{name}`"),
                        None if self.dimensions.len() == 2 => "an engine or a strategy".to_owned(),
                        None => "an engine, a strategy or a value of an axis".to_owned(),
                    };
                    return Err((position, unknown(&value, &kind, &known)));
                }
                [.., last] => {
                    let names: Vec<&str> = dimensions.iter().map(|d| d.name()).collect();
                    let (names, last) = (listed(&names, "and of"), last.name());
                    let message =
                        format!("`{value}` is a value of {names}; say which: `{last} = {value}`");
                    return Err((position, message));
                }
            }
        }
        if words.is_empty() {
            return Err((span.position, "a word is missing here".to_owned()));
        }
        Ok(words)
    }
}

/// A value, or a position and the message of an error.
type SpanResult<T> = Result<T, (Position, String)>;

/// Takes the longest sequence of words that is a known value, or else all words, for a message.
fn longest(reader: &mut Reader<'_>, known: &[&str]) -> Result<String, ParseError> {
    if let Some(text) = reader.quoted()? {
        return Ok(text);
    }
    let begin = *reader;
    let mut phrase = String::new();
    let mut best = None;
    while !reader.peek().is_empty() {
        if !phrase.is_empty() {
            phrase.push(' ');
        }
        phrase += reader.word();
        if known.contains(&phrase.as_str()) {
            best = Some((phrase.clone(), *reader));
        }
    }
    match best {
        Some((value, after)) => {
            *reader = after;
            Ok(value)
        }
        None if phrase.is_empty() => begin.unexpected("a word is missing"),
        None => Ok(phrase),
    }
}
