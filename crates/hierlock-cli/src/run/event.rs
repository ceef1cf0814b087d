//! Events of `hierlock run`.

use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum CommandEvent {
    Warning {
        message: String,
    },
    Waiting {
        targets: Vec<String>,
        /// A target that an outer `hierlock run` holds.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    Acquired {
        targets: Vec<String>,
        waited_ms: u128,
        /// Whether [`Waiting`](Self::Waiting) was reported before.
        #[serde(skip)]
        after_notice: bool,
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

impl crate::event::Event for CommandEvent {
    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Warning { message } => format!("warning: {message}"),
            Self::Waiting { targets, hint: None } => {
                format!("waiting for {} …", targets.join(", "))
            }
            Self::Waiting { targets, hint: Some(held) } => format!(
                "waiting for {} … (a `hierlock run` around this one holds `{held}`: if it waits for \
                 this command, both wait for ever)",
                targets.join(", ")
            ),
            Self::Acquired { targets, waited_ms, after_notice: true } => {
                format!("got {} after {:.1} s", targets.join(", "), *waited_ms as f64 / 1000.0)
            }
            Self::NotAcquired { message, .. } => format!("{message}; the command did not run"),
            Self::Lost { message, code: None, .. } => format!("{message}; the command is ended"),
            Self::Lost { message, code: Some(code), .. } => {
                format!("{message}; the command has run to its end (exit code {code})")
            }
            Self::Failed { message, .. } => message.clone(),
            Self::Acquired { after_notice: false, .. } | Self::Exited { .. } => return None,
        })
    }

    fn is_error(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::CommandEvent::*;

    #[test]
    fn every_event_as_json_and_as_text() {
        let lost = |code, signal| {
            let message = "the lock of `u1` is lost".into();
            Lost { message, exit: 76, code, signal }
        };
        let events = [
            Warning { message: "one of several primaries".into() },
            Waiting { targets: vec!["u1".into()], hint: Some("u1/a1".into()) },
            Acquired { targets: vec!["u1".into()], waited_ms: 1500, after_notice: true },
            NotAcquired { message: "`u1` is locked".into(), exit: 75 },
            lost(None, None),
            lost(Some(3), None),
            lost(Some(143), Some(15)),
            Failed { message: "cannot run the command".into(), exit: 127 },
            Exited { code: 143, signal: Some(15) },
        ];
        insta::assert_snapshot!(crate::event::snapshot(&events));
    }
}
