//! `memory:` passes the conformance suite.

use hierlock::Hierlock;
use hierlock_conformance::{Intentions, conformance};

conformance!(Intentions::Yes, async || Hierlock::connect("memory:").await.unwrap());
