//! Jobs and counts, as a person and a program read them.

use crate::show::{cell, json, json_list, table};
use crate::time::{exact, span};
use hierlock::lease::utc;
use hierlock::queue::{DeadJob, Enqueued, Stats};
use serde::Serialize;

/// So much of an error and of a payload fits beside the rest.
const SOME: usize = 60;

#[derive(Serialize)]
struct Added {
    result: &'static str,
    id: i64,
}

impl From<Enqueued> for Added {
    fn from(enqueued: Enqueued) -> Self {
        let result = if enqueued.is_added() { "added" } else { "duplicate" };
        Self { result, id: enqueued.id() }
    }
}

pub(super) fn added_json(enqueued: Enqueued) -> String {
    json(&Added::from(enqueued))
}

pub(super) fn all_added_json(enqueued: &[Enqueued]) -> String {
    json_list(enqueued.iter().map(|enqueued| Added::from(*enqueued)))
}

#[derive(Serialize)]
struct Counts<'a> {
    queue: &'a str,
    ready: u64,
    scheduled: u64,
    claimed: u64,
    dead: u64,
    oldest_ready_ms: Option<u128>,
}

pub(super) fn stats_json(stats: &[Stats]) -> String {
    json_list(stats.iter().map(|stats| Counts {
        queue: &stats.queue,
        ready: stats.ready,
        scheduled: stats.scheduled,
        claimed: stats.claimed,
        dead: stats.dead,
        oldest_ready_ms: stats.oldest_ready.map(|age| age.as_millis()),
    }))
}

pub(super) fn stats_text(stats: &[Stats]) -> String {
    let rows = stats.iter().map(|stats| {
        let [ready, scheduled, claimed, dead] =
            [stats.ready, stats.scheduled, stats.claimed, stats.dead].map(|n| n.to_string());
        let oldest = stats.oldest_ready.map(span).unwrap_or_default();
        [stats.queue.clone(), ready, oldest, scheduled, claimed, dead]
    });
    table(["queue", "ready", "oldest", "scheduled", "claimed", "dead"], rows, "no jobs")
}

#[derive(Serialize)]
struct Dead<'a> {
    id: i64,
    payload: &'a str,
    attempts: u32,
    last_error: Option<&'a str>,
    worker: Option<&'a str>,
    created: String,
    died: String,
}

pub(super) fn dead_json(dead: &[DeadJob]) -> String {
    json_list(dead.iter().map(|job| Dead {
        id: job.id,
        payload: &job.payload,
        attempts: job.attempts,
        last_error: job.last_error.as_deref(),
        worker: job.worker.as_deref(),
        created: exact(job.created),
        died: exact(job.died),
    }))
}

pub(super) fn dead_text(dead: &[DeadJob]) -> String {
    let rows = dead.iter().map(|job| {
        let error = cell(job.last_error.as_deref().unwrap_or_default(), SOME);
        let payload = cell(&job.payload, SOME);
        [job.id.to_string(), utc(job.died), job.attempts.to_string(), error, payload]
    });
    table(["id", "died", "attempts", "error", "payload"], rows, "no dead jobs")
}
