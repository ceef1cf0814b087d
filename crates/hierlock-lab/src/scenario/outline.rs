//! The lines of a file, told apart: what each of them is and where its parts stand, with every
//! blank and comment kept. Reading, formatting and blessing all begin here. Knows the shape of the
//! language, not what any word of it means.

use super::mistake::Spot;
use super::scan::{Style, scan};
use hierlock_engine::lexer::OpenToken;

/// Part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'t> {
    /// Without white space around it.
    pub(crate) text: &'t str,
    /// Where it begins.
    pub(crate) spot: Spot,
}

impl<'t> Part<'t> {
    /// The part of a line between two bytes, without white space around it.
    fn of(line: &'t str, number: usize, from: usize, to: usize) -> Self {
        let text = &line[from..to];
        let trimmed = text.trim_start();
        let begin = from + (text.len() - trimmed.len());
        let column = line[..begin].chars().count() + 1;
        Part { text: trimmed.trim_end(), spot: Spot { line: number, column } }
    }

    /// A place inside of it, by its byte.
    pub(crate) fn at(&self, byte: usize) -> Spot {
        let before = self.text.get(..byte).unwrap_or(self.text);
        Spot { column: self.spot.column + before.chars().count(), ..self.spot }
    }

    /// Part of the part, without white space around it.
    pub(crate) fn part(&self, from: usize, text: &'t str) -> Part<'t> {
        let blanks = text.len() - text.trim_start().len();
        Part { text: text.trim(), spot: self.at(from + blanks) }
    }
}

/// A line of a file.
#[derive(Clone, Debug)]
pub(crate) struct SourceLine<'t> {
    /// From 1.
    pub(crate) number: usize,
    /// As it is, without white space at its end.
    pub(crate) raw: &'t str,
    /// The comment behind what it says.
    pub(crate) comment: Option<Part<'t>>,
    /// What it is.
    pub(crate) kind: LineKind<'t>,
}

/// What a line is.
#[derive(Clone, Debug)]
pub(crate) enum LineKind<'t> {
    /// Nothing.
    Blank,
    /// Only a comment.
    Comment,
    /// `engines: mysql`, `setup [postgres]:`
    Header {
        /// What is set.
        key: Part<'t>,
        /// What stands in brackets, without them.
        guard: Option<Part<'t>>,
        /// What it is set to.
        rest: Part<'t>,
    },
    /// `A> statement`, `B< = done`
    Step {
        /// Whose.
        who: Part<'t>,
        /// It is `B<`.
        looks: bool,
        /// What stands in brackets, without them.
        guard: Option<Part<'t>>,
        /// The statement, or what must be seen.
        rest: Part<'t>,
    },
    /// More of a statement.
    Continued(Part<'t>),
    /// ` = done`, ` | 30`, ` ! rows 2`, ` : read committed | done`
    Expect(Expect<'t>),
    /// SQL of `setup:` or `teardown:`
    Sql(Part<'t>),
    /// Prose of `advice:`
    Prose(Part<'t>),
    /// Indented, where there is nothing that it could belong to.
    Stray(Part<'t>),
    /// Something else.
    Unknown(Part<'t>),
}

/// What must be seen, on one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expect<'t> {
    /// `=`, `|`, `!` or `:`
    pub(crate) mark: char,
    /// Where the mark stands.
    pub(crate) spot: Spot,
    /// What stands in brackets, without them.
    pub(crate) guard: Option<Part<'t>>,
    /// The rest.
    pub(crate) rest: Part<'t>,
}

/// The marks that begin what must be seen.
pub(crate) const MARKS: [char; 4] = ['=', '|', '!', ':'];

impl<'t> Expect<'t> {
    /// What must be seen, if the part begins with a mark.
    pub(crate) fn of(part: Part<'t>) -> Option<Self> {
        let mark = part.text.chars().next().filter(|c| MARKS.contains(c))?;
        let rest = part.part(1, &part.text[1..]);
        let (guard, rest) = match mark {
            '=' | '!' => take_guard(rest),
            _ => (None, rest),
        };
        Some(Expect { mark, spot: part.spot, guard, rest })
    }
}

/// The blocks: a header and the indented lines below it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Nothing,
    Step,
    Sql,
    Prose,
}

/// Tells the lines of a file apart.
pub(crate) fn outline(text: &str) -> Vec<SourceLine<'_>> {
    let mut within = Within::Nothing;
    // A quote of SQL may stay open over several lines.
    let mut open = OpenToken::Nothing;
    text.lines()
        .enumerate()
        .map(|(index, line)| {
            let raw = line.trim_end();
            let number = index + 1;
            let indented = raw.starts_with(char::is_whitespace);
            if raw.is_empty() {
                return SourceLine { number, raw, comment: None, kind: LineKind::Blank };
            }
            let first = raw.trim_start();
            let only_comment = match within {
                _ if !indented => first.starts_with('#'),
                Within::Prose => first.starts_with('#'),
                _ => {
                    open == OpenToken::Nothing
                        && first.strip_prefix('#').is_some_and(|rest| {
                            rest.is_empty() || rest.starts_with(char::is_whitespace)
                        })
                }
            };
            if only_comment {
                let kind = LineKind::Comment;
                return SourceLine { number, raw, comment: None, kind };
            }
            if !indented {
                open = OpenToken::Nothing;
            }
            let begins_with_mark = open == OpenToken::Nothing && first.starts_with(MARKS);
            let style = match within {
                Within::Sql if indented => Style::Sql,
                Within::Step if indented && !begins_with_mark => Style::Sql,
                _ if !indented && step_head(raw).is_some_and(|(_, looks)| !looks) => Style::Sql,
                _ => Style::Words,
            };
            let end = match within {
                Within::Prose if indented => raw.len(),
                // What is before the statement is not SQL.
                _ if !indented && style == Style::Sql => {
                    let head = statement_at(raw);
                    head + scan(&raw[head..], style, &mut open, |_, _, _| {})
                }
                _ => scan(raw, style, &mut open, |_, _, _| {}),
            };
            if style == Style::Words {
                open = OpenToken::Nothing;
            }
            let comment = (end < raw.len()).then(|| Part::of(raw, number, end, raw.len()));
            let all = Part::of(raw, number, 0, end);
            let kind = match within {
                _ if !indented => {
                    let kind = unindented(raw, number, end);
                    within = match &kind {
                        LineKind::Step { .. } => Within::Step,
                        LineKind::Header { key, .. } => match key.text {
                            "setup" | "teardown" => Within::Sql,
                            "advice" => Within::Prose,
                            _ => Within::Nothing,
                        },
                        _ => Within::Nothing,
                    };
                    kind
                }
                Within::Nothing => LineKind::Stray(all),
                Within::Sql => LineKind::Sql(all),
                Within::Prose => LineKind::Prose(all),
                Within::Step => match Expect::of(all).filter(|_| begins_with_mark) {
                    Some(expect) => LineKind::Expect(expect),
                    None => LineKind::Continued(all),
                },
            };
            SourceLine { number, raw, comment, kind }
        })
        .collect()
}

/// The name before `>` or `<`, and whether it is `<`.
fn step_head(line: &str) -> Option<(&str, bool)> {
    let name_end = line.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let mark = line[name_end..].trim_start().chars().next()?;
    (name_end > 0 && matches!(mark, '>' | '<')).then(|| (&line[..name_end], mark == '<'))
}

/// Where the statement of a step begins: behind the `>`, and behind brackets.
fn statement_at(line: &str) -> usize {
    let mark = line.find('>').map_or(0, |mark| mark + 1);
    let rest = line[mark..].trim_start();
    let close = if rest.starts_with('[') { closing(rest) } else { None };
    close.map_or(mark, |close| line.len() - rest.len() + close + 1)
}

/// A line at the margin: a step, or a header.
fn unindented(raw: &str, number: usize, end: usize) -> LineKind<'_> {
    let all = Part::of(raw, number, 0, end);
    if let Some((name, looks)) = step_head(all.text) {
        let who = all.part(0, name);
        let mark = all.text.find(['>', '<']).unwrap_or(name.len());
        let (guard, rest) = take_guard(all.part(mark + 1, &all.text[mark + 1..]));
        return LineKind::Step { who, looks, guard, rest };
    }
    let Some(first) = all.text.find(['[', ':']) else { return LineKind::Unknown(all) };
    let key = all.part(0, &all.text[..first]);
    let (guard, rest) = take_guard(all.part(first, &all.text[first..]));
    match rest.text.strip_prefix(':') {
        Some(value) => LineKind::Header { key, guard, rest: rest.part(1, value) },
        None => LineKind::Unknown(all),
    }
}

/// Takes `[…]` off the beginning.
fn take_guard(part: Part<'_>) -> (Option<Part<'_>>, Part<'_>) {
    if !part.text.starts_with('[') {
        return (None, part);
    }
    match closing(part.text) {
        Some(close) => {
            let inside = part.part(1, &part.text[1..close]);
            (Some(inside), part.part(close + 1, &part.text[close + 1..]))
        }
        None => (None, part),
    }
}

/// Where the bracket that opens the text is closed.
fn closing(text: &str) -> Option<usize> {
    let mut close = None;
    scan(text, Style::Words, &mut OpenToken::Nothing, |at, c, quoted| {
        if c == ']' && !quoted && close.is_none() {
            close = Some(at);
        }
    });
    close
}
