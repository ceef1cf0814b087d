//! The lab: scenarios written as terminal transcripts, run on real servers, so that blocking, deadlocks and anomalies
//! are *observed* and not assumed.
//!
//! ```text
//!   file.lab ──parse──► Scenario ──cases───► Case: one variant, on one backend     scenario/
//!                       the matrix of all pairs ──┤                                matrix/
//!                                                 ▼
//!   environment/: a database ◄──begin, waits── runner/ ──► observations ──verdict──► Record
//!   or a tree of its own                                                             │ as they come
//!                                                 RunEvent, Report ◄─────────────────┘
//!                                                 report/: text, JSON, Mermaid, JUnit, HTML
//! ```
//!
//! One step: the runner sends the statement to the session and, until it ends, asks the server which sessions wait for
//! which. The step is *blocked* when two probes in a row say so; then the next line of the transcript begins. No step
//! depends on sleeps.

mod builtin;
mod conflict;
mod deadlock;
mod engine;
mod environment;
mod group;
mod lab;
mod lock_history;
mod matrix;
#[allow(missing_docs, reason = "exported only to the tests of this package")]
mod observation;
mod record;
mod report;
mod runner;
mod scenario;
mod text;
mod verdict;

pub use deadlock::{DeadlockSkeleton, guess_columns, member_name, scanned_table};
pub use engine::{BackendKind, Engine};
pub use environment::LabError;
pub use lab::{Lab, RunEvent, RunOptions};
pub use matrix::{MatrixError, MatrixOptions, MatrixReport, ModePair, TreeSize};
pub use record::{MissingEngine, Record, Report, Verdict};
pub use report::{AnomalyTable, RoundComparison, ScenarioSummary, TextStyle};
pub use scenario::{Case, Diagnostic, Scenario};

/// The types that cases and records consist of, for the tests of this package.
#[doc(hidden)]
pub mod parts {
    pub use crate::matrix::PairOutcome;
    pub use crate::observation::{
        Answer, Failure, FailureKind, LockKind, LockTarget, Observation, SessionName, SessionWait,
    };
    pub use crate::record::{BlockingLock, Deadlock, StepRecord, WaitEdge};
    pub use crate::scenario::{
        Action, Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, ScenarioStep,
        SessionSelector, SettingValue,
    };
}

/// Compiles and runs the example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
