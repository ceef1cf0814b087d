//! Leases as text and as JSON.

use crate::output::{cell, json_list, table};
use crate::time::{relative_time, timestamp};
use hierlock::lease::{ForcedRelease, LeaseInfo, LeaseLoss, utc};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::SystemTime;

/// The maximum length of a text in a table. Texts of leases are not longer.
const MAX_CHARS: usize = 255;

/// A lease as JSON, after the result of the command.
#[derive(Serialize)]
pub(super) struct LeaseResultJson {
    result: &'static str,
    #[serde(flatten)]
    lease: Value,
}

impl LeaseResultJson {
    pub(super) fn new(result: &'static str, lease: &LeaseInfo) -> Self {
        Self { result, lease: lease_json(lease) }
    }
}

pub(super) fn lease_json(lease: &LeaseInfo) -> Value {
    json!({
        "token": lease.token,
        "path": lease.target.to_string(),
        "owner": lease.owner,
        "session": lease.session,
        "reason": lease.reason,
        "acquired": timestamp(lease.acquired),
        "expires": timestamp(lease.expires),
        "expired": lease.is_expired,
    })
}

pub(super) fn lost_json(token: i64, lost: &LeaseLoss) -> Value {
    let (why, actor, reason, at) = match lost {
        LeaseLoss::Forced { actor, why, at } => ("forced", Some(actor), Some(why), Some(at)),
        LeaseLoss::Expired { at } => ("expired", None, None, Some(at)),
        LeaseLoss::Released => ("released", None, None, None),
        LeaseLoss::NotRenewed { why } => ("not-renewed", None, Some(why), None),
        _ => ("gone", None, None, None),
    };
    json!({
        "result": "lost",
        "token": token,
        "why": why,
        "actor": actor,
        "reason": reason,
        "at": at.map(|at| timestamp(*at)),
    })
}

pub(super) fn leases(leases: &[LeaseInfo], now: SystemTime, json: bool) -> String {
    if json {
        return json_list(leases.iter().map(lease_json));
    }
    let rows = leases.iter().map(|lease| {
        let optional = |text: &Option<String>| text.as_deref().map(short).unwrap_or_default();
        [
            lease.token.to_string(),
            short(&lease.target.to_string()),
            short(&lease.owner),
            optional(&lease.session),
            utc(lease.acquired),
            format!("{} ({})", utc(lease.expires), relative_time(lease.expires, now)),
            optional(&lease.reason),
        ]
    });
    table(["token", "node", "owner", "session", "since", "until", "reason"], rows, "no leases")
}

pub(super) fn forced_releases(releases: &[ForcedRelease], json: bool) -> String {
    if json {
        return json_list(releases.iter().map(|release| {
            let mut json = lease_json(&release.lease);
            json["actor"] = release.actor.as_str().into();
            json["why"] = release.why.as_str().into();
            json["released"] = timestamp(release.released).into();
            json
        }));
    }
    let rows = releases.iter().map(|ForcedRelease { lease, actor, why, released, .. }| {
        [
            utc(*released),
            short(actor),
            short(why),
            lease.token.to_string(),
            short(&lease.target.to_string()),
            short(&lease.owner),
        ]
    });
    table(["at", "actor", "why", "token", "node", "owner"], rows, "no forced releases")
}

fn short(text: &str) -> String {
    cell(text, MAX_CHARS)
}
