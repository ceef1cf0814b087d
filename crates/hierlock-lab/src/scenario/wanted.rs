//! What must be seen, read for one case: the words behind the mark and the rows below them.

use super::expectation;
use super::file::{Expectation, Wanted};
use super::mistake::{Mistakes, Slip};
use super::text::Text;

impl Wanted {
    /// What it means in a case. What is wrong with it is noted.
    pub(crate) fn read(
        &self,
        variant: &[(String, String)],
        mistakes: &mut Mistakes<'_>,
    ) -> Option<Expectation> {
        let filled = self.text.fill(variant);
        let read = match filled.text.as_str() {
            // Rows alone.
            "" => expectation::read("done"),
            text => expectation::read(text),
        };
        let mut expectation = match read {
            Ok(expectation) => expectation,
            Err(slip) => {
                filled.slip(&slip, mistakes);
                return None;
            }
        };
        let mut block = Vec::new();
        for text in &self.rows {
            let row = text.fill(variant);
            match expectation::row(&row.text) {
                Ok(cells) => {
                    let first = block.first().map_or(cells.len(), Vec::len);
                    if cells.len() != first {
                        let slip = Slip::new(0, expectation::unequal(first, cells.len()));
                        row.slip(&slip, mistakes);
                    }
                    block.push(cells);
                }
                Err(slip) => row.slip(&slip, mistakes),
            }
        }
        if block.len() == self.rows.len()
            && let Err(slip) = expectation::with_rows(&mut expectation, block)
        {
            filled.slip(&slip, mistakes);
        }
        Some(expectation)
    }

    /// Its texts.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Text> {
        std::iter::once(&self.text).chain(&self.rows)
    }
}
