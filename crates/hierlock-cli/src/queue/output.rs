//! Jobs and counts as text and as JSON.

use crate::output::{cell, json_list, table};
use crate::time::{duration_text, millis, timestamp};
use hierlock::lease::utc;
use hierlock::queue::{DeadJob, EnqueueOutcome, QueueStats};
use serde_json::{Value, json};

/// The maximum length of an error and of a payload in a table.
const MAX_CHARS: usize = 60;

pub(super) fn added_json(outcome: &EnqueueOutcome) -> Value {
    let result = if outcome.is_added() { "added" } else { "duplicate" };
    json!({ "result": result, "id": outcome.id() })
}

pub(super) fn stats(stats: &[QueueStats], json: bool) -> String {
    if json {
        return json_list(stats.iter().map(|stats| {
            json!({
                "queue": stats.queue,
                "ready": stats.ready,
                "scheduled": stats.scheduled,
                "claimed": stats.claimed,
                "dead": stats.dead,
                "oldest_ready_ms": stats.oldest_ready.map(millis),
            })
        }));
    }
    let rows = stats.iter().map(|stats| {
        let [ready, scheduled, claimed, dead] =
            [stats.ready, stats.scheduled, stats.claimed, stats.dead].map(|n| n.to_string());
        let oldest = stats.oldest_ready.map(duration_text).unwrap_or_default();
        [stats.queue.clone(), ready, oldest, scheduled, claimed, dead]
    });
    table(["queue", "ready", "oldest", "scheduled", "claimed", "dead"], rows, "no jobs")
}

pub(super) fn dead_jobs(dead: &[DeadJob], json: bool) -> String {
    if json {
        return json_list(dead.iter().map(|job| {
            json!({
                "id": job.id,
                "payload": job.payload,
                "attempts": job.attempts,
                "last_error": job.last_error,
                "worker": job.worker,
                "created": timestamp(job.created),
                "died": timestamp(job.died),
            })
        }));
    }
    let rows = dead.iter().map(|job| {
        let error = cell(job.last_error.as_deref().unwrap_or_default(), MAX_CHARS);
        let payload = cell(&job.payload, MAX_CHARS);
        [job.id.to_string(), utc(job.died), job.attempts.to_string(), error, payload]
    });
    table(["id", "died", "attempts", "error", "payload"], rows, "no dead jobs")
}
