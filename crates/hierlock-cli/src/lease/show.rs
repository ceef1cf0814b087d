//! Leases, as a person and a program read them.

use crate::show::{cell, json, json_list, table};
use crate::time::{exact, relative};
use hierlock::lease::{ForcedRelease, LeaseInfo, LostLease, utc};
use serde::Serialize;
use std::time::SystemTime;

/// No text of a lease is longer than that.
const WHOLE: usize = 255;

#[derive(Serialize)]
pub(super) struct Shown<'a> {
    token: i64,
    path: String,
    owner: &'a str,
    session: Option<&'a str>,
    reason: Option<&'a str>,
    acquired: String,
    expires: String,
    expired: bool,
}

impl<'a> From<&'a LeaseInfo> for Shown<'a> {
    fn from(lease: &'a LeaseInfo) -> Self {
        Self {
            token: lease.token,
            path: lease.target.to_string(),
            owner: &lease.owner,
            session: lease.session.as_deref(),
            reason: lease.reason.as_deref(),
            acquired: exact(lease.acquired),
            expires: exact(lease.expires),
            expired: lease.is_expired,
        }
    }
}

/// What became of a request, for a program.
#[derive(Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub(super) enum Outcome<'a> {
    Acquired(Shown<'a>),
    Renewed(Shown<'a>),
    Held { wanted: String, holder: Shown<'a> },
    Lost(Lost<'a>),
}

#[derive(Serialize)]
pub(super) struct Lost<'a> {
    token: i64,
    why: &'static str,
    actor: Option<&'a str>,
    reason: Option<&'a str>,
    at: Option<String>,
}

impl<'a> Lost<'a> {
    pub(super) fn new(token: i64, lost: &'a LostLease) -> Self {
        let (why, actor, reason, at) = match lost {
            LostLease::Forced { actor, why, at } => {
                ("forced", Some(actor.as_str()), Some(why.as_str()), Some(at))
            }
            LostLease::Expired { at } => ("expired", None, None, Some(at)),
            LostLease::Released => ("released", None, None, None),
            LostLease::NotRenewed { why } => ("not-renewed", None, Some(why.as_str()), None),
            _ => ("gone", None, None, None),
        };
        Self { token, why, actor, reason, at: at.map(|at| exact(*at)) }
    }
}

pub(super) fn list_json(leases: &[LeaseInfo]) -> String {
    json_list(leases.iter().map(Shown::from))
}

pub(super) fn list_text(leases: &[LeaseInfo], now: SystemTime) -> String {
    let rows = leases.iter().map(|lease| {
        let until = format!("{} ({})", utc(lease.expires), relative(lease.expires, now));
        let [session, reason] =
            [&lease.session, &lease.reason].map(|text| optional(text.as_deref()));
        let (token, node) = (lease.token.to_string(), lease.target.to_string());
        [
            token,
            cell(&node, WHOLE),
            cell(&lease.owner, WHOLE),
            session,
            utc(lease.acquired),
            until,
            reason,
        ]
    });
    table(["token", "node", "owner", "session", "since", "until", "reason"], rows, "no leases")
}

#[derive(Serialize)]
struct Forced<'a> {
    #[serde(flatten)]
    lease: Shown<'a>,
    actor: &'a str,
    why: &'a str,
    released: String,
}

pub(super) fn audit_json(forced: &[ForcedRelease]) -> String {
    json_list(forced.iter().map(|forced| Forced {
        lease: Shown::from(&forced.lease),
        actor: &forced.actor,
        why: &forced.why,
        released: exact(forced.released),
    }))
}

pub(super) fn audit_text(forced: &[ForcedRelease]) -> String {
    let rows = forced.iter().map(|ForcedRelease { lease, actor, why, released, .. }| {
        let (token, node) = (lease.token.to_string(), cell(&lease.target.to_string(), WHOLE));
        let [actor, why, owner] = [actor, why, &lease.owner].map(|text| cell(text, WHOLE));
        [utc(*released), actor, why, token, node, owner]
    });
    table(["at", "actor", "why", "token", "node", "owner"], rows, "no forced releases")
}

fn optional(text: Option<&str>) -> String {
    text.map(|text| cell(text, WHOLE)).unwrap_or_default()
}

/// The result of an acquire or a renewal, as JSON.
pub(super) fn outcome(outcome: &Outcome<'_>) -> String {
    json(outcome)
}
