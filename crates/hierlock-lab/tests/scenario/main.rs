//! Scenario files as text: what they mean, what can be wrong with them, how they are laid out, and what
//! blessing writes into them. No server is needed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod anything;
mod blessing;
mod diagnostics;
mod diagnostics_expected;
mod documents;
mod formatting;
mod reading;
