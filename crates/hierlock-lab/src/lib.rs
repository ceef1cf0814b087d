//! The lab: scenarios written as terminal transcripts, run on real servers, so that what blocks, what
//! deadlocks and which anomaly shows is *observed* and not believed.
//!
//! ```text
//!   file.lab ──parse──► Scenario ──expand──► Case ──┐      a variant, at a place
//!                       scenario/                   ▼
//!                          stage/ (a database ◄── run/ ──► Record ──verdict──► Report
//!                          of its own on one         observation.rs          report/: text, JSON,
//!                          server, or a tree)                                Mermaid, JUnit, HTML
//! ```
//!
//! One step walked through: the runner gives a session its statement and, until that is over, asks the
//! server who waits for whom. It is *blocked* when the server says so twice; then the next line of the
//! transcript has its turn. Nothing here sleeps and hopes.

pub mod book;
pub mod builtin;
mod columns;
mod conflict;
pub mod lab;
mod ledger;
pub mod matrix;
pub mod observation;
pub mod place;
pub mod record;
pub mod report;
mod run;
pub mod scenario;
pub mod stage;
mod verdict;

pub use lab::Lab;
