//! `memory:` passes the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::Hierlock;
use hierlock_conformance::conformance;

conformance!(async || Hierlock::connect("memory:").await.unwrap());
