//! Reports warnings of the library as events, for example that it retries after the database was unreachable.

use super::event::WorkEvent;
use crate::event::Reporter;
use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

const REPEAT_INTERVAL: Duration = Duration::from_secs(60);

pub(super) struct WarningSubscriber {
    reporter: Reporter,
    last: Mutex<Option<(String, Instant)>>,
}

impl WarningSubscriber {
    /// Reports warnings from now on, until the end of the process.
    pub(super) fn install(json: bool) {
        let subscriber = Self { reporter: Reporter::new(json, false), last: Mutex::default() };
        // Cannot fail: the program sets no other subscriber.
        let _ = tracing::subscriber::set_global_default(subscriber);
    }

    fn is_due(&self, message: &str) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new =
            |(text, at): &(String, Instant)| text != message || at.elapsed() >= REPEAT_INTERVAL;
        let is_due = last.as_ref().is_none_or(is_new);
        if is_due {
            *last = Some((message.to_owned(), Instant::now()));
        }
        is_due
    }
}

impl Subscriber for WarningSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Warnings of drivers are left out, because the errors of hierlock contain them.
        *metadata.level() <= Level::WARN && metadata.target().starts_with("hierlock")
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let (mut message, mut error) = (String::new(), String::new());
        event.record(&mut |field: &Field, value: &dyn Debug| match field.name() {
            "message" => message = format!("{value:?}"),
            "error" => error = format!(": {value:?}"),
            _ => {}
        });
        message += &error;
        if self.is_due(&message) {
            self.reporter.report(&WorkEvent::Warning { message: &message });
        }
    }

    // Spans are not used.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_warning_is_reported_once() {
        let reporter = Reporter::new(false, true);
        let subscriber = WarningSubscriber { reporter, last: Mutex::default() };
        let is_due = ["away", "away", "back", "away"].map(|message| subscriber.is_due(message));
        assert_eq!(is_due, [true, false, true, true]);
    }
}
