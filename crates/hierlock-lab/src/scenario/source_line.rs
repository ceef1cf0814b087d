//! The lines of a file with their kinds, and the positions of their parts. Parsing, formatting and blessing use them.

use super::diagnostic::Position;
use super::scan::{begins_comment, scan_sql, scan_words, split};
use hierlock_engine::lexer::OpenToken;
use unicode_width::UnicodeWidthStr;

/// A part of a line, without surrounding whitespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceSpan<'t> {
    pub(crate) text: &'t str,
    pub(crate) position: Position,
}

impl<'t> SourceSpan<'t> {
    pub(crate) fn at(&self, byte: usize) -> Position {
        let before = self.text.get(..byte).unwrap_or(self.text);
        Position { column: self.position.column + before.chars().count(), ..self.position }
    }

    /// Returns a part of the span, which begins at byte `from`.
    pub(crate) fn part(&self, from: usize, text: &'t str) -> Self {
        let blanks = text.len() - text.trim_start().len();
        SourceSpan { text: text.trim(), position: self.at(from + blanks) }
    }

    /// Returns the text after the first bytes.
    pub(crate) fn after(&self, bytes: usize) -> Self {
        self.part(bytes, &self.text[bytes..])
    }

    pub(crate) fn split(&self, separator: char) -> Vec<Self> {
        split(self.text, separator).into_iter().map(|(at, text)| self.part(at, text)).collect()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SourceLine<'t> {
    /// The text, without whitespace at its end.
    pub(crate) raw: &'t str,
    /// The comment at the end of the line, and the terminal column at which it begins.
    pub(crate) comment: Option<(&'t str, usize)>,
    pub(crate) kind: LineKind<'t>,
}

impl SourceLine<'_> {
    /// Returns whether the line is blank or a comment.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.kind, LineKind::Blank | LineKind::Comment)
    }

    pub(crate) fn is_indented(&self) -> bool {
        self.raw.starts_with(char::is_whitespace)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum LineKind<'t> {
    Blank,
    Comment,
    /// `engines: mysql`, `setup [postgres]:`
    Header(LineHead<'t>),
    /// `A> statement`, `B< = done`
    Step(LineHead<'t>),
    /// ` = done`, ` | 30`, ` ! rows 2`, ` : read committed | done`
    Expect(LineHead<'t>),
    Indented(Block, SourceSpan<'t>),
    Unknown(SourceSpan<'t>),
}

/// The owner of indented lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// There is no owner.
    Nothing,
    /// A step: a continuation of its statement.
    Statement,
    /// `setup:` or `teardown:`
    Sql,
    /// `advice:`
    Prose,
}

/// The parts of a line, each of which may be empty: `NAME MARK [GUARD] REST`, or `NAME [GUARD] MARK REST` of a header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineHead<'t> {
    /// The key of a header, the session of a step.
    pub(crate) name: SourceSpan<'t>,
    /// `:` of a header, `>` or `<` of a step, one of [`MARKS`] of an expectation.
    pub(crate) mark: char,
    /// The guard, without its brackets.
    pub(crate) guard: Option<SourceSpan<'t>>,
    pub(crate) rest: SourceSpan<'t>,
}

/// The marks that begin an expectation.
pub(crate) const MARKS: [char; 4] = ['=', '|', '!', ':'];

impl<'t> LineHead<'t> {
    /// Returns the parts of an expectation, if the span begins with a mark. The name is empty, at the mark.
    pub(crate) fn expectation(span: SourceSpan<'t>) -> Option<Self> {
        let mark = span.text.chars().next().filter(|c| MARKS.contains(c))?;
        let (guard, rest) = match mark {
            '=' | '!' => take_guard(span.after(1)),
            _ => (None, span.after(1)),
        };
        Some(LineHead { name: span.part(0, ""), mark, guard, rest })
    }

    pub(crate) fn is_look(&self) -> bool {
        self.mark == '<'
    }

    /// Returns whether this is the head of a table, ` = by isolation | mysql`.
    pub(crate) fn is_table(&self) -> bool {
        let after = self.rest.text.strip_prefix("by").filter(|_| self.mark == '=');
        after.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
    }
}

pub(crate) fn source_lines(text: &str) -> Vec<SourceLine<'_>> {
    let mut block = Block::Nothing;
    // A quote of SQL may stay open over several lines.
    let mut open = OpenToken::Nothing;
    let lines = text.lines().enumerate();
    lines
        .map(|(index, line)| source_line(line.trim_end(), index + 1, &mut block, &mut open))
        .collect()
}

fn source_line<'t>(
    raw: &'t str,
    number: usize,
    block: &mut Block,
    open: &mut OpenToken,
) -> SourceLine<'t> {
    let content = raw.trim_start();
    let is_indented = content.len() < raw.len();
    let is_comment = if is_indented && *block != Block::Prose {
        *open == OpenToken::Nothing && begins_comment(content)
    } else {
        content.starts_with('#')
    };
    if content.is_empty() || is_comment {
        let kind = if is_comment { LineKind::Comment } else { LineKind::Blank };
        return SourceLine { raw, comment: None, kind };
    }
    if !is_indented {
        (*block, *open) = (Block::Nothing, OpenToken::Nothing);
    }
    let whole = SourceSpan { text: raw, position: Position { line: number, column: 1 } };
    let begins_with_mark = *open == OpenToken::Nothing && content.starts_with(MARKS);
    let sql_at = match *block {
        Block::Sql => Some(0),
        Block::Statement if !begins_with_mark => Some(0),
        // The text before the statement of a step is not SQL.
        _ if !is_indented => {
            let statement = step_head(whole).filter(|head| !head.is_look());
            statement.map(|head| raw.len() - head.rest.text.len())
        }
        _ => None,
    };
    let end = match sql_at {
        Some(at) => at + scan_sql(&raw[at..], open, |_, _, _| {}),
        None if *block == Block::Prose => raw.len(),
        None => scan_words(raw, |_, _, _| {}),
    };
    if sql_at.is_none() {
        *open = OpenToken::Nothing;
    }
    let all = whole.part(0, &raw[..end]);
    let kind = match LineHead::expectation(all).filter(|_| begins_with_mark) {
        _ if !is_indented => unindented(all),
        Some(expect) if *block == Block::Statement => LineKind::Expect(expect),
        _ => LineKind::Indented(*block, all),
    };
    match &kind {
        LineKind::Step(_) => *block = Block::Statement,
        LineKind::Header(head) => match head.name.text {
            "setup" | "teardown" => *block = Block::Sql,
            "advice" => *block = Block::Prose,
            _ => {}
        },
        _ => {}
    }
    let comment = (end < raw.len()).then(|| (&raw[end..], raw[..end].width() + 1));
    SourceLine { raw, comment, kind }
}

/// Returns the parts of a step, if the line begins with a name and `>` or `<`.
fn step_head(line: SourceSpan<'_>) -> Option<LineHead<'_>> {
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    let after_name = line.text.trim_start_matches(is_in_name);
    let name = line.part(0, &line.text[..line.text.len() - after_name.len()]);
    let mark = after_name.trim_start().chars().next().filter(|mark| matches!(mark, '>' | '<'))?;
    let (guard, rest) = take_guard(line.after(line.text.find(mark)? + 1));
    (!name.text.is_empty()).then_some(LineHead { name, mark, guard, rest })
}

/// Parses a line at the margin: a step, or a header.
fn unindented(all: SourceSpan<'_>) -> LineKind<'_> {
    if let Some(head) = step_head(all) {
        return LineKind::Step(head);
    }
    let Some(first) = all.text.find(['[', ':']) else { return LineKind::Unknown(all) };
    let (guard, rest) = take_guard(all.after(first));
    if !rest.text.starts_with(':') {
        return LineKind::Unknown(all);
    }
    let name = all.part(0, &all.text[..first]);
    LineKind::Header(LineHead { name, mark: ':', guard, rest: rest.after(1) })
}

/// Splits a guard `[…]` off the beginning.
fn take_guard(span: SourceSpan<'_>) -> (Option<SourceSpan<'_>>, SourceSpan<'_>) {
    match closing_bracket(span.text) {
        Some(close) => (Some(span.part(1, &span.text[1..close])), span.after(close + 1)),
        None => (None, span),
    }
}

/// Returns the byte of the bracket that closes the first one.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut close = None;
    scan_words(text, |at, c, quoted| {
        if c == ']' && !quoted && close.is_none() {
            close = Some(at);
        }
    });
    close.filter(|_| text.starts_with('['))
}
