//! PostgreSQL: advisory keys of the transaction; nothing is written.

use crate::mode::SlotMode;
use crate::plan::{Plan, Step};

/// One statement a key, all sent together: within one SELECT no order is promised.
pub(super) fn lock(plan: &Plan) -> String {
    let statement = |Step { slot, mode, .. }: Step| {
        let function = match mode {
            SlotMode::Shared => "pg_advisory_xact_lock_shared",
            _ => "pg_advisory_xact_lock",
        };
        // The server's keys are signed; all 64 bits are used.
        format!("SELECT {function}({});", slot as i64)
    };
    plan.steps().map(statement).collect::<Vec<_>>().join("\n")
}
