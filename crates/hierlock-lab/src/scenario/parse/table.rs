//! Parses expectations that are written as a table.

use super::{Parser, expectation};
use crate::scenario::diagnostic::{Position, unknown};
use crate::scenario::expectation::Expectation;
use crate::scenario::file::{ExpectationTable, GuardedValue};
use crate::scenario::guard::{CaseGuard, Dimension};
use crate::scenario::source_line::{LineHead, SourceSpan};
use crate::text::count;

impl Parser<'_, '_> {
    /// Reads ` = by isolation | mysql | postgres` and its `:` lines. Returns the table, and its cells row by row.
    pub(super) fn table(
        &mut self,
        head: &LineHead<'_>,
        rows: &[LineHead<'_>],
    ) -> Option<(ExpectationTable, Vec<GuardedValue<Expectation>>)> {
        if let Some(guard) = head.guard {
            let message = "a table cannot be guarded; it has a column for each engine";
            self.report(guard.position, message);
        }
        let heads = head.rest.split('|');
        let by = self.table_dimension(heads[0].after("by".len()))?;
        let (across, columns) = self.columns(&by, &heads[1..])?;
        let (lines, position) = (vec![head.name.position.line], head.rest.position);
        let mut table = ExpectationTable { lines, position, by, across, columns, rows: Vec::new() };
        if rows.is_empty() {
            let message = "the table has no rows; each is ` : VALUE | EXPECTATION | …`";
            self.report(position, message);
        }
        let errors = self.diagnostics.found.len();
        let mut cells = Vec::new();
        for row in rows {
            let Some((label, own)) = self.table_row(row.rest, &table) else { continue };
            if let Some(value) = repeated_value(&table.rows, &label) {
                let position = Position { line: row.name.position.line, ..position };
                self.report(position, format!("there is already a row for {value}"));
            }
            cells.extend(own);
            table.lines.push(row.name.position.line);
            table.rows.push(label);
        }
        (self.diagnostics.found.len() == errors).then_some((table, cells))
    }

    fn table_dimension(&mut self, name: SourceSpan<'_>) -> Option<Dimension> {
        let dimension = self.vocabulary.dimension(name.text).cloned();
        if dimension.is_none() {
            let mut known: Vec<&str> =
                self.vocabulary.dimensions.iter().map(Dimension::name).collect();
            // Axes are listed first.
            known.rotate_left(2);
            let message = match name.text {
                "" => "the axis is missing; it is ` = by isolation | mysql | postgres`".to_owned(),
                word => unknown(word, "an axis", &known),
            };
            self.report(name.position, message);
        }
        dimension
    }

    /// Reads the heads of the columns. Returns them with their dimension; without heads, one column for all cases.
    fn columns(
        &mut self,
        by: &Dimension,
        columns: &[SourceSpan<'_>],
    ) -> Option<(Option<Dimension>, Vec<CaseGuard>)> {
        let Some(first) = columns.iter().find(|column| column.text != "*") else {
            if columns.len() > 1 {
                self.report(columns[1].position, "there is already a column for all others");
            }
            return Some((None, vec![CaseGuard::default()]));
        };
        if let Some(empty) = columns.iter().find(|column| column.text.is_empty()) {
            let hint = "it is an engine, a value of another axis, or * for all others";
            self.report(empty.position, format!("the head of a column is missing; {hint}"));
            return None;
        }
        let across = self.vocabulary.across(*first, by).cloned();
        let across = self.value_of(across)?;
        let mut labels: Vec<CaseGuard> = Vec::new();
        for column in columns {
            let label = self.vocabulary.label(*column, &across);
            let Some(label) = self.value_of(label) else { continue };
            if let Some(value) = repeated_value(&labels, &label) {
                self.report(column.position, format!("there is already a column for {value}"));
            }
            labels.push(label);
        }
        // Rows must have as many cells as there are heads, even if a head is invalid.
        labels.resize(columns.len(), CaseGuard::default());
        Some((Some(across), labels))
    }

    /// Reads a row: its head, and the expectation of each column.
    fn table_row(
        &mut self,
        row: SourceSpan<'_>,
        table: &ExpectationTable,
    ) -> Option<(CaseGuard, Vec<GuardedValue<Expectation>>)> {
        let parts = row.split('|');
        let (head, cells) = parts.split_first()?;
        let label = self.vocabulary.label(*head, &table.by);
        let label = self.value_of(label)?;
        let columns = table.columns.len();
        if cells.len() != columns {
            let at = cells.get(columns).or(cells.last()).unwrap_or(head);
            let message = format!(
                "this row has {}, the table has {}; write one for each",
                count(cells.len(), "cell"),
                count(columns, "column"),
            );
            self.report(at.position, message);
            return None;
        }
        let mut expectations = Vec::new();
        for cell in cells {
            if cell.text.is_empty() {
                let message = "the cell is empty; write an expectation, at least `done`";
                self.report(cell.position, message);
            }
            let value = self.read((*cell).into(), expectation::read);
            let guard = CaseGuard::default();
            expectations.push(GuardedValue { position: cell.position, guard, value });
        }
        Some((label, expectations))
    }
}

/// Returns a value of the label that an earlier label contains.
fn repeated_value(before: &[CaseGuard], label: &CaseGuard) -> Option<String> {
    if label.is_always() {
        return before.contains(label).then(|| "all others".to_owned());
    }
    let known: Vec<&str> =
        before.iter().flat_map(|label| &label.0).map(|word| word.value.as_str()).collect();
    let word = label.0.iter().find(|word| known.contains(&word.value.as_str()))?;
    Some(format!("`{}`", word.value))
}
