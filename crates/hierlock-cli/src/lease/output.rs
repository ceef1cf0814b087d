//! Leases as text and as JSON.

use crate::output::{cell, json_list, table};
use crate::time::{relative_time, timestamp};
use hierlock::lease::{ForcedRelease, LeaseInfo, LeaseLoss, utc};
use serde::Serialize;
use std::time::SystemTime;

/// The maximum length of a text in a table. Texts of leases are not longer.
const MAX_CHARS: usize = 255;

#[derive(Serialize)]
pub(super) struct LeaseJson<'a> {
    token: i64,
    path: String,
    owner: &'a str,
    session: Option<&'a str>,
    reason: Option<&'a str>,
    acquired: String,
    expires: String,
    expired: bool,
}

impl<'a> From<&'a LeaseInfo> for LeaseJson<'a> {
    fn from(lease: &'a LeaseInfo) -> Self {
        Self {
            token: lease.token,
            path: lease.target.to_string(),
            owner: &lease.owner,
            session: lease.session.as_deref(),
            reason: lease.reason.as_deref(),
            acquired: timestamp(lease.acquired),
            expires: timestamp(lease.expires),
            expired: lease.is_expired,
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub(super) enum LeaseResultJson<'a> {
    Acquired(LeaseJson<'a>),
    Renewed(LeaseJson<'a>),
    Held {
        wanted: String,
        holder: LeaseJson<'a>,
    },
    Lost {
        token: i64,
        why: &'static str,
        actor: Option<&'a str>,
        reason: Option<&'a str>,
        at: Option<String>,
    },
}

impl<'a> LeaseResultJson<'a> {
    pub(super) fn lost(token: i64, lost: &'a LeaseLoss) -> Self {
        let (why, actor, reason, at) = match lost {
            LeaseLoss::Forced { actor, why, at } => ("forced", Some(actor), Some(why), Some(at)),
            LeaseLoss::Expired { at } => ("expired", None, None, Some(at)),
            LeaseLoss::Released => ("released", None, None, None),
            LeaseLoss::NotRenewed { why } => ("not-renewed", None, Some(why), None),
            _ => ("gone", None, None, None),
        };
        let [actor, reason] = [actor, reason].map(|text| text.map(String::as_str));
        Self::Lost { token, why, actor, reason, at: at.map(|at| timestamp(*at)) }
    }
}

pub(super) fn leases(leases: &[LeaseInfo], now: SystemTime, json: bool) -> String {
    if json {
        return json_list(leases.iter().map(LeaseJson::from));
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

#[derive(Serialize)]
struct ForcedReleaseJson<'a> {
    #[serde(flatten)]
    lease: LeaseJson<'a>,
    actor: &'a str,
    why: &'a str,
    released: String,
}

pub(super) fn forced_releases(releases: &[ForcedRelease], json: bool) -> String {
    if json {
        return json_list(releases.iter().map(|release| ForcedReleaseJson {
            lease: LeaseJson::from(&release.lease),
            actor: &release.actor,
            why: &release.why,
            released: timestamp(release.released),
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
