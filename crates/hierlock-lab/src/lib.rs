//! The lab: scenarios written as terminal transcripts, run on real servers, so that what blocks, what
//! deadlocks and which anomaly shows is *observed* and not believed.
//!
//! ```text
//!   file.lab ──parse──► Scenario ──cases───► Case: one variant, at one place       scenario/
//!                       the matrix of all pairs ──┤                                matrix/
//!                                                 ▼
//!   environment/: a database ◄──begin, waits── runner/ ──► observations ──verdict──► Record
//!   or a tree of its own                                                             │ as they come
//!                                                 RunEvent, Report ◄─────────────────┘
//!                                                 report/: text, JSON, Mermaid, JUnit, HTML
//! ```
//!
//! One step walked through: the runner gives a session its statement and, until that is over, asks the
//! server who waits for whom. It is *blocked* when the server says so twice; then the next line of the
//! transcript begins. Nothing here sleeps and hopes.

mod builtin;
mod conflict;
mod environment;
mod group;
mod lab;
mod lock_history;
mod matrix;
#[allow(missing_docs, reason = "exported only to the tests of this package")]
mod observation;
mod place;
mod record;
mod report;
mod runner;
mod scenario;
mod text;
mod verdict;

pub use environment::LabError;
pub use lab::{Lab, RunEvent, RunOptions};
pub use matrix::{MatrixError, MatrixOptions, MatrixReport, ModePair, TreeSize};
pub use place::{Engine, Place};
pub use record::{MissingEngine, Record, Report, Verdict};
pub use report::{AnomalyTable, RoundComparison, ScenarioSummary, TextStyle};
pub use scenario::{Case, Diagnostic, Scenario};

/// What cases and records are made of, for the tests of this package.
#[doc(hidden)]
pub mod parts {
    pub use crate::matrix::PairOutcome;
    pub use crate::observation::{
        Answer, Failure, FailureKind, LockKind, LockedObject, Observation, SessionName, Wait,
    };
    pub use crate::record::{BlockingLock, Deadlock, StepRecord, WaitEdge};
    pub use crate::scenario::{
        Action, Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, SessionSelector,
        SettingValue, Step,
    };
}

/// The example of the package's README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
