//! Scenarios as data: the file as it was written, and the cases that come of it.
//!
//! ```text
//!   text ──outline──► lines ──parse──► Scenario ──expand──► Cases     what is run
//!            │                            │ check: what only the whole of a file shows
//!            ├──► format: the same, laid out as everywhere
//!            └──► bless: the same, with what was observed
//! ```

mod bless;
mod case;
mod check;
mod expand;
mod expectation;
mod file;
mod format;
mod layout;
mod lock_step;
mod mistake;
mod only;
mod outline;
mod parse;
mod reader;
mod scan;
mod settings;
mod text;
mod wanted;
mod wording;

pub use case::{Case, CaseDeed, Statement, Step};
pub use file::{
    Actor, Expectation, Expected, ExpectedCell, ExpectedRows, LockDeed, Scenario, SettingValue,
};
pub use mistake::Mistake;

use crate::record::Record;

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
    pub fn format(file: &str, text: &str) -> Result<String, Vec<Mistake>> {
        format::format(file, text)
    }

    /// The text of the scenario, with what the records say wherever they disagree with it.
    ///
    /// Records of other scenarios are passed over. A step that was stuck or cancelled has nothing to say,
    /// and neither have the cases that were not run: there the file stays as it is. A wait that ended in a
    /// failure which no line speaks of gets a line. A scenario whose steps depend on what was seen before may
    /// need to be run and blessed again.
    pub fn bless(&self, records: &[Record]) -> String {
        bless::bless(self, records)
    }
}
