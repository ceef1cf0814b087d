//! Playing a case: one step after the other, each settled before the next begins.
//!
//! ```text
//!   step ──begin──► session        settle: until every session that has something unfinished is
//!    ▲                │                    over, or seen to wait by two probes that agree
//!    │                ▼
//!   next ◄──judge── settled ──► StepRecord
//! ```
//!
//! 1. A step is *blocked* when two probes, some milliseconds apart, both see its session wait, and for
//!    the same ones.
//! 2. A circle of waiting sessions is a deadlock that the server has not seen yet: settling goes on
//!    until it has. One that stays for longer than the server's detector needs is one that the server does
//!    not end: its sessions are *blocked*, and the record has the circle.
//! 3. What is neither over nor seen to wait within the limit is stuck: it is ended on the server and
//!    the case has failed.
//! 4. A difference does not end a case, so that the whole of it can be looked at; a step that cannot
//!    be begun, because its session still waits, does.

mod circle;
mod player;
mod settle;

pub(crate) use player::{Options, play};
