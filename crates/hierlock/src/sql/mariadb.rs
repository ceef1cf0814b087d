//! MariaDB: bucket rows. It has no `FOR SHARE`.

use crate::mode::SlotMode;
use crate::plan::Plan;

pub(super) fn lock(plan: &Plan) -> String {
    super::union_of_rows(plan, |mode| match mode {
        SlotMode::Shared => "LOCK IN SHARE MODE",
        _ => "FOR UPDATE",
    })
}
