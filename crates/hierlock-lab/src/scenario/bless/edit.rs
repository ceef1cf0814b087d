//! The lines of a file, with replacements.

use crate::scenario::file::StepTemplate;
use crate::scenario::format::with_comment;
use crate::scenario::scan::with_single_blanks;
use crate::scenario::source_line::{LineKind, SourceLine, source_lines};
use std::collections::BTreeMap;

pub(super) struct Edits<'t> {
    text: &'t str,
    source: Vec<SourceLine<'t>>,
    /// The replacements of lines, by line number.
    replaced: BTreeMap<usize, Vec<String>>,
}

impl<'t> Edits<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Edits { text, source: source_lines(text), replaced: BTreeMap::new() }
    }

    pub(super) fn cells(&self, number: usize) -> Vec<String> {
        match &self.source[number - 1].kind {
            LineKind::Expect(line) => {
                line.rest.split('|').into_iter().map(|cell| with_single_blanks(cell.text)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Replaces lines and keeps their comments; without old lines, adds the new ones below the statement of the step.
    pub(super) fn replace(&mut self, step: &StepTemplate, old: &[usize], mut new: Vec<String>) {
        let mut at = old.first().copied();
        let head = &self.source[step.line - 1];
        if let LineKind::Step(look) = &head.kind
            && look.is_look()
            && at.is_none_or(|at| at == step.line)
        {
            // `B< = done` stays on its line, unless rows or a table must go below it.
            let guard = look.guard.map_or(String::new(), |guard| format!(" [{}]", guard.text));
            let begin = format!("{}<{guard}", look.name.text);
            match new.first_mut() {
                Some(first) if first.starts_with(" = ") && !first.starts_with(" = by ") => {
                    first.insert_str(0, &begin);
                }
                _ => new.insert(0, begin),
            }
            at = Some(step.line);
        }
        let Some(at) = at else { return self.add_after(step.end, new) };
        let only = [at];
        let old = if old.is_empty() { &only } else { old };
        let comment = |number: &usize| self.source[number - 1].comment;
        let comments = old.iter().map(comment).chain(std::iter::repeat(None));
        let lines = new.into_iter().zip(comments);
        let mut lines: Vec<String> = lines.map(|(line, own)| with_comment(line, own)).collect();
        // Comments of lines that are left out stay.
        let others = old.iter().skip(lines.len()).filter_map(comment);
        lines.extend(others.map(|(comment, _)| format!(" {comment}")));
        self.replaced.extend(old.iter().map(|number| (*number, Vec::new())));
        self.replaced.insert(at, lines);
    }

    pub(super) fn add_after(&mut self, number: usize, new: Vec<String>) {
        let raw = self.source[number - 1].raw.to_owned();
        self.replaced.entry(number).or_insert_with(|| vec![raw]).extend(new);
    }

    pub(super) fn apply(self) -> String {
        let end = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let mut text = String::with_capacity(self.text.len());
        for (index, line) in self.text.split_inclusive('\n').enumerate() {
            let Some(lines) = self.replaced.get(&(index + 1)) else {
                text.push_str(line);
                continue;
            };
            if !text.is_empty() && !text.ends_with('\n') {
                text.push_str(end);
            }
            for line in lines {
                text.push_str(line);
                text.push_str(end);
            }
        }
        text
    }
}
