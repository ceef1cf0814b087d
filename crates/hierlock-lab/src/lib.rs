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

mod book;
mod builtin;
mod columns;
mod conflict;
mod lab;
mod ledger;
mod matrix;
mod observation;
mod place;
mod record;
mod report;
mod run;
mod scenario;
mod stage;
mod verdict;

// What runs, and where.
pub use lab::{Lab, RunOptions};
pub use place::{Engine, Place};
pub use stage::StageError;

// A file, and the cases that come of it: steps, and what must be seen of each.
pub use scenario::{
    Actor, Case, CaseDeed, Expectation, Expected, ExpectedCell, ExpectedRows, LockDeed, Mistake,
    Scenario, SettingValue, Statement, Step,
};

// What was seen.
pub use observation::{
    Answer, Failure, FailureKind, Lock, LockKind, LockedObject, Name, Observation, Wait,
};
pub use record::{
    BlockingLock, Circle, Deadlock, Ended, Interruption, Link, Missing, Record, Report, StepRecord,
    Verdict,
};

// What is told of it.
pub use report::{Anomalies, Look, Stability, Story};

// Every pair of nodes.
pub use matrix::{
    MatrixBoard, MatrixCell, MatrixCounts, MatrixError, MatrixOptions, MatrixProgress,
    MatrixReport, ModePair, PairOutcome, TreeError, TreeSize, UnusablePlace,
};

/// The example of the package's README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
