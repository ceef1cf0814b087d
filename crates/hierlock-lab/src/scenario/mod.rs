//! Scenarios as data: the file as it is written, and its cases.
//!
//! ```text
//!   text ──source_lines──► lines ──parse──► Scenario ──cases──► Cases     for the runner
//!                            │                 │          └─ check: errors of the whole file
//!                            │                 └─ templates: text with {name}s, and its value in each variant
//!                            ├──► format: the file in the standard layout
//!                            └──► bless: the file with the observations
//! ```
//!
//! Every text is parsed once: a template when its line is parsed, for each variant if it contains an axis. Making cases
//! only selects from these values, so it cannot fail.

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
pub use case::{Action, Case, ScenarioStep};
pub use diagnostic::Diagnostic;
pub(crate) use expectation::quoted;
pub use expectation::{Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, SessionSelector};
pub use file::Scenario;
pub(crate) use lock_action::{LockAction, LockRequest};
#[cfg(test)]
pub(crate) use parse::expectation::read as read_expectation;
pub(crate) use settings::ISOLATION_LEVELS;
pub use settings::SettingValue;

use source_line::source_lines;

impl Scenario {
    /// The extension of a scenario file.
    pub const EXTENSION: &str = "lab";

    /// Returns a scenario file in the standard layout. `file` is its name in messages.
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
    /// The errors of the file.
    pub fn format(file: &str, text: &str) -> Result<String, Vec<Diagnostic>> {
        Self::parse(file, file, text)?;
        Ok(format::format(&source_lines(parse::without_byte_order_mark(text))))
    }
}
