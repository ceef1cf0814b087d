//! Scenarios as data: the file as it was written, and the cases that come of it.
//!
//! ```text
//!   text ──source_lines──► lines ──parse──► Scenario ──cases──► Cases     what is run
//!                            │                 │          └─ check: what only the whole of a file shows
//!                            │                 └─ templates: text with {name}s, and its value in each variant
//!                            ├──► format: the same, laid out as everywhere
//!                            └──► bless: the same, with what was observed
//! ```
//!
//! Every text is read once: a template while its line is parsed, for each variant if an axis stands in it. Making cases
//! only picks from these values, and so cannot fail.

mod bless;
mod case;
mod check;
mod diagnostic;
#[allow(missing_docs, reason = "exported only to the tests of this package")]
mod expectation;
mod file;
mod format;
mod guard;
mod lock_action;
mod parse;
mod reader;
mod scan;
mod settings;
mod source_line;
mod template;

pub(crate) use case::Statement;
pub use case::{Action, Case, Step};
pub use diagnostic::Diagnostic;
pub(crate) use expectation::quoted;
pub use expectation::{Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, SessionSelector};
pub use file::Scenario;
pub(crate) use lock_action::{LockAction, LockRequest};
pub(crate) use settings::ISOLATION_LEVELS;
pub use settings::SettingValue;

use crate::record::Record;
use source_line::source_lines;
use std::sync::Arc;

impl Scenario {
    /// The extension of a scenario file.
    pub const EXTENSION: &str = "lab";

    /// Lays a scenario file out as all of them are. `file` is what messages call it.
    ///
    /// ```
    /// use hierlock_lab::Scenario;
    ///
    /// let untidy = "engines:  mysql\nA>   select 1, 2   # why not\n    =   rows (1, 2)\n";
    /// assert_eq!(
    ///     Scenario::format("x.lab", untidy).unwrap(),
    ///     "engines: mysql\n\nA> select 1, 2     # why not\n = rows (1, 2)\n"
    /// );
    /// ```
    ///
    /// # Errors
    /// What is wrong with it; such a file is left as it is.
    pub fn format(file: &str, text: &str) -> Result<String, Vec<Diagnostic>> {
        let text = parse::without_byte_order_mark(text);
        let lines = source_lines(text);
        parse::parse(file, file, text, &lines)?;
        Ok(format::format(&lines))
    }

    /// The text of the scenario, with what the records say wherever they disagree with it.
    ///
    /// Records of other scenarios are passed over. A step that was stuck or cancelled has nothing to say,
    /// and neither have the cases that were not run: there the file stays as it is. A wait that ended in a
    /// failure which no line speaks of gets a line. A scenario whose steps depend on what was seen before may
    /// need to be run and blessed again.
    pub fn bless(self: &Arc<Self>, records: &[Record]) -> String {
        bless::bless(self, records)
    }
}
