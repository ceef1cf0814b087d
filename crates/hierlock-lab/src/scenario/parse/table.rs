//! The table form of what must be seen.

use super::Parser;
use crate::scenario::file::{Label, Table, TableRow, Wanted};
use crate::scenario::mistake::{counted, unknown};
use crate::scenario::only::Dimension;
use crate::scenario::outline::{Expect, Part};
use crate::scenario::scan::split;
use crate::scenario::text::Text;

impl Parser<'_, '_> {
    /// Reads ` = by isolation | mysql | postgres` and the `:` lines below it.
    pub(super) fn table(&mut self, head: &Expect<'_>, rows: &[Expect<'_>]) -> Option<Table> {
        if let Some(guard) = head.guard {
            self.mistakes
                .at(guard.spot, "a table cannot be guarded; it has a column for each engine");
        }
        let cells = cells(head.rest);
        let (name, columns) = cells.split_first()?;
        let by_name = name.part("by".len(), &name.text["by".len()..]);
        let Some(by) = self.words.dimension(by_name.text) else {
            let mut known: Vec<&str> = self
                .scenario
                .axes
                .iter()
                .flat_map(|axis| &axis.names)
                .map(String::as_str)
                .collect();
            known.extend(["engine", "strategy"]);
            let message = match by_name.text {
                "" => "the axis is missing; it is ` = by isolation | mysql | postgres`".to_owned(),
                word => unknown(word, "an axis", &known),
            };
            self.mistakes.at(by_name.spot, message);
            return None;
        };
        let (across, labels) = self.columns(&by, columns)?;
        if rows.is_empty() {
            self.mistakes.at(
                head.rest.spot,
                "the table has no rows; each is ` : VALUE | what must be seen | …`",
            );
        }
        let before = self.mistakes.count();
        let rows: Vec<TableRow> =
            rows.iter().filter_map(|row| self.table_row(row, &by, labels.len())).collect();
        self.twice(rows.iter().map(|row| (row.line, &row.label)), head);
        if self.mistakes.count() > before {
            return None;
        }
        Some(Table { line: head.spot.line, by, across, columns: labels, rows })
    }

    /// The heads of the columns and what they go by. Without any there is one, for all.
    fn columns(
        &mut self,
        by: &Dimension,
        columns: &[Part<'_>],
    ) -> Option<(Option<Dimension>, Vec<Label>)> {
        let Some(first) = columns.iter().find(|column| column.text != "*") else {
            if columns.len() > 1 {
                self.mistakes.at(columns[1].spot, "there is already a column for all others");
            }
            return Some((None, vec![Label::Others]));
        };
        if let Some(empty) = columns.iter().find(|column| column.text.is_empty()) {
            self.mistakes.at(
                empty.spot,
                "the head of a column is missing; it is an engine, a value of another axis, or * \
                 for all others",
            );
            return None;
        }
        let across = match self.words.across(first.text, by) {
            Ok(across) => across,
            Err(slip) => {
                self.mistakes.at(first.at(slip.at), slip.message);
                return None;
            }
        };
        let mut labels: Vec<Label> = Vec::new();
        for column in columns {
            let label = self.words.label(column.text, &across).unwrap_or_else(|slip| {
                self.mistakes.at(column.at(slip.at), slip.message);
                Label::Values(Vec::new())
            });
            if let Some(value) = common(&labels, &label) {
                self.mistakes.at(column.spot, format!("there is already a column for {value}"));
            }
            labels.push(label);
        }
        Some((Some(across), labels))
    }

    fn table_row(&mut self, row: &Expect<'_>, by: &Dimension, columns: usize) -> Option<TableRow> {
        let cells = cells(row.rest);
        let (head, cells) = cells.split_first()?;
        let label = match self.words.label(head.text, by) {
            Ok(label) => label,
            Err(slip) => {
                self.mistakes.at(head.at(slip.at), slip.message);
                return None;
            }
        };
        if cells.len() != columns {
            let spot = cells.get(columns).or(cells.last()).unwrap_or(head).spot;
            let message = format!(
                "this row has {}, the table has {}; write one for each",
                counted(cells.len(), "cell"),
                counted(columns, "column"),
            );
            self.mistakes.at(spot, message);
            return None;
        }
        let mut wanted = Vec::new();
        for cell in cells {
            let what = Wanted { text: Text::of(*cell), rows: Vec::new() };
            match cell.text.is_empty() {
                true => self
                    .mistakes
                    .at(cell.spot, "the cell is empty; write what must be seen, `done` at least"),
                false => self.check_wanted(&what),
            }
            wanted.push(what);
        }
        Some(TableRow { line: row.spot.line, label, cells: wanted })
    }

    fn twice<'l>(&mut self, labels: impl Iterator<Item = (usize, &'l Label)>, head: &Expect<'_>) {
        let mut seen: Vec<Label> = Vec::new();
        for (line, label) in labels {
            if let Some(value) = common(&seen, label) {
                let spot = crate::scenario::mistake::Spot { line, ..head.rest.spot };
                self.mistakes.at(spot, format!("there is already a row for {value}"));
            }
            seen.push(label.clone());
        }
    }
}

/// Something that the label has and that was there before.
fn common(before: &[Label], label: &Label) -> Option<String> {
    match label {
        Label::Others => before.contains(label).then(|| "all others".to_owned()),
        Label::Values(values) => values
            .iter()
            .find(|value| {
                before.iter().any(|label| match label {
                    Label::Values(known) => known.contains(value),
                    Label::Others => false,
                })
            })
            .map(|value| format!("`{value}`")),
    }
}

/// The cells of a line, without white space around.
fn cells(part: Part<'_>) -> Vec<Part<'_>> {
    split(part.text, '|').into_iter().map(|(at, cell)| part.part(at, cell)).collect()
}
