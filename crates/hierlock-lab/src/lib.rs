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
mod columns;
mod conflict;
mod environment;
mod lab;
mod lock_history;
mod markdown;
mod matrix;
mod observation;
mod place;
mod record;
mod report;
mod runner;
mod scenario;
mod verdict;

// What runs, and where.
pub use environment::LabError;
pub use lab::{Lab, RunEvent, RunOptions};
pub use place::{Engine, Place};

// A file, and the cases that come of it: steps, and what must be seen of each.
pub use scenario::{
    Action, Case, Diagnostic, Expectation, ExpectedCell, ExpectedOutcome, ExpectedRows, LockAction,
    Scenario, SessionSelector, SettingValue, Statement, Step,
};

// What was seen.
pub use observation::{
    Answer, Failure, FailureKind, Lock, LockKind, LockedObject, Observation, SessionName, Wait,
};
pub use record::{
    BlockingLock, Deadlock, Interruption, MissingEngine, Record, Report, StepRecord, Verdict,
    WaitCycle, WaitEdge, WaitEnd,
};

// What reports say of it.
pub use report::{AnomalyTable, RoundComparison, ScenarioSummary, TextStyle};

// Every pair of nodes.
pub use matrix::{
    FailedPlace, MatrixBoard, MatrixCell, MatrixCounts, MatrixError, MatrixOptions, MatrixReport,
    ModePair, PairOutcome, TreeError, TreeSize,
};

/// The example of the package's README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Package;
