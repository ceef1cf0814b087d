//! MySQL: bucket rows, `FOR SHARE` and `FOR UPDATE`.

use crate::mode::SlotMode;
use crate::plan::Plan;

pub(super) fn lock(plan: &Plan) -> String {
    super::union_of_rows(plan, |mode| match mode {
        SlotMode::Shared => "FOR SHARE",
        _ => "FOR UPDATE",
    })
}
