//! Scenario files as text: their meaning, their errors, their layout, and blessing. No server is needed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod anything;
mod blessing;
mod diagnostics;
mod diagnostics_expected;
mod documents;
mod formatting;
mod reading;
