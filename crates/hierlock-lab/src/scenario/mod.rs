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

pub use bless::bless;
pub use case::{Case, CaseDeed, Statement, Step};
pub use expand::{DEFAULT_BUCKETS, DEFAULT_LIMIT};
pub use file::{
    Actor, Axis, Deed, Expectation, Expected, ExpectedCell, ExpectedRows, Guarded, Label, Line,
    LockDeed, Scenario, Setting, SettingValue, Table, TableRow, Wanted,
};
pub use format::format;
pub use mistake::Mistake;
pub use only::{Dimension, Only};
pub use settings::ISOLATION_LEVELS;
pub use text::Text;
