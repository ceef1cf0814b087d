//! `file:` passes the conformance suite.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock::Hierlock;
use hierlock_conformance::conformance;

conformance!(async || {
    // The directory is leaked on purpose, so that the file exists as long as the test runs.
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("locks").display());
    let locks = Hierlock::connect(&url).await.unwrap();
    std::mem::forget(directory);
    locks
});
