//! Scenarios as data: the file as it was written, and the cases that come of it.

mod case;
mod file;

pub use case::{Case, CaseDeed, Step};
pub use file::{
    Axis, Deed, Expectation, Expected, ExpectedCell, ExpectedRows, Guarded, Line, LockDeed,
    Scenario, Setting, SettingValue, Table, Who,
};
