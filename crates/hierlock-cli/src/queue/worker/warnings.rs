//! What the library warns of while it goes on (the database is away, and it tries again), told as events.

use super::report::Event;
use crate::report::Reporter;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

/// What is always the same is told so often.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

pub(super) struct Warnings {
    reporter: Reporter,
    last: Mutex<Option<(String, Instant)>>,
}

impl Warnings {
    /// From now on, until the end of the process.
    pub(super) fn tell(json: bool) {
        let warnings = Self { reporter: Reporter::new(json, false), last: Mutex::default() };
        // Only a program that listens itself could be in the way.
        let _ = tracing::subscriber::set_global_default(warnings);
    }

    fn is_new(&self, message: &str) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known =
            last.as_ref().is_some_and(|(said, at)| said == message && at.elapsed() < AGAIN_AFTER);
        if !is_known {
            *last = Some((message.to_owned(), Instant::now()));
        }
        !is_known
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // What drivers say in their own words is part of our errors.
        *metadata.level() <= Level::WARN && metadata.target().starts_with("hierlock")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        let message = match said.error {
            Some(error) => format!("{}: {error}", said.message),
            None => said.message,
        };
        if self.is_new(&message) {
            self.reporter.tell(&Event::Warning { message: &message });
        }
    }

    // There is nothing to be known of spans.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Said {
    message: String,
    error: Option<String>,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = Some(format!("{value:?}")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_not_told_all_the_time() {
        let warnings = Warnings { reporter: Reporter::new(false, true), last: Mutex::default() };
        let told = ["away", "away", "back", "away"].map(|message| warnings.is_new(message));
        assert_eq!(told, [true, false, true, true]);
    }
}
