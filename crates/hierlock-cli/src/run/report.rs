//! What happens around a command that runs under a lock.

use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum Event {
    /// The server is doubtful.
    Warning {
        message: String,
    },
    Waiting {
        targets: Vec<String>,
        /// What a `hierlock run` around this one holds.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    Acquired {
        targets: Vec<String>,
        waited_ms: u128,
        /// A person was told of the wait, so is told of its end.
        #[serde(skip)]
        noticed: bool,
    },
    NotAcquired {
        message: String,
        exit: u8,
    },
    Lost {
        message: String,
        exit: u8,
        /// How the command ended, if it ran to its own end.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<u8>,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    Failed {
        message: String,
        exit: u8,
    },
    Exited {
        code: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
}

impl crate::report::Event for Event {
    fn text(&self) -> Option<String> {
        text(self)
    }

    fn is_grave(&self) -> bool {
        matches!(self, Event::Lost { .. } | Event::Failed { .. })
    }
}

fn text(event: &Event) -> Option<String> {
    Some(match event {
        Event::Warning { message } => format!("warning: {message}"),
        Event::Waiting { targets, hint } => {
            let hint = hint.as_ref().map_or(String::new(), |held| {
                format!(
                    " (a `hierlock run` around this one holds `{held}`: if it waits for this \
                     command, both wait for ever)"
                )
            });
            format!("waiting for {} …{hint}", targets.join(", "))
        }
        Event::Acquired { targets, waited_ms, noticed: true } => {
            format!("got {} after {:.1} s", targets.join(", "), *waited_ms as f64 / 1000.0)
        }
        Event::NotAcquired { message, .. } => format!("{message}; the command did not run"),
        Event::Lost { message, code: None, .. } => format!("{message}; the command is ended"),
        Event::Lost { message, code: Some(code), .. } => {
            format!("{message}; the command has run to its end (exit code {code})")
        }
        Event::Failed { message, .. } => message.clone(),
        Event::Acquired { noticed: false, .. } | Event::Exited { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(code: Option<u8>, signal: Option<i32>) -> Event {
        Event::Lost { message: "the lock of `u1` is lost".into(), exit: 76, code, signal }
    }

    #[test]
    fn every_event_as_json_and_as_text() {
        let events = [
            Event::Warning { message: "one of several primaries".into() },
            Event::Waiting { targets: vec!["u1".into()], hint: Some("u1/a1".into()) },
            Event::Acquired { targets: vec!["u1".into()], waited_ms: 1500, noticed: true },
            Event::NotAcquired { message: "`u1` is locked".into(), exit: 75 },
            lost(None, None),
            lost(Some(3), None),
            lost(Some(143), Some(15)),
            Event::Failed { message: "cannot run the command".into(), exit: 127 },
            Event::Exited { code: 143, signal: Some(15) },
        ];
        let shown: Vec<String> = events
            .iter()
            .map(|event| {
                let text = text(event).unwrap_or_else(|| "(nothing)".into());
                format!("{}\n  {text}", serde_json::to_string(event).unwrap())
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"));
    }
}
