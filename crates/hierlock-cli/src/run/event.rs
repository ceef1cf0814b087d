//! Events of `hierlock run`.

use crate::child::ChildExit;
use serde::Serialize;

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(super) enum CommandEvent<'a> {
    Warning {
        message: String,
    },
    Waiting {
        targets: &'a [String],
        /// A target that an outer `hierlock run` holds, if it conflicts.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    Acquired {
        targets: &'a [String],
        waited_ms: u128,
        /// Whether [`Waiting`](Self::Waiting) was reported.
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
        /// The exit of the command, if it ended by itself.
        #[serde(flatten)]
        child_exit: Option<ChildExit>,
    },
    Failed {
        message: String,
        exit: u8,
    },
    Exited(ChildExit),
}

impl crate::event::Event for CommandEvent<'_> {
    fn text(&self) -> Option<String> {
        Some(match self {
            Self::Warning { message } => format!("warning: {message}"),
            Self::Waiting { targets, hint } => {
                let hint = hint.as_ref().map(|held| {
                    format!(
                        " (a `hierlock run` around this one holds `{held}`: if it waits for this command, both wait \
                         for ever)"
                    )
                });
                format!("waiting for {} …{}", targets.join(", "), hint.unwrap_or_default())
            }
            Self::Acquired { targets, waited_ms, after_notice: true } => {
                format!("got {} after {:.1} s", targets.join(", "), *waited_ms as f64 / 1000.0)
            }
            Self::NotAcquired { message, .. } => format!("{message}; the command did not run"),
            Self::Lost { message, child_exit: None, .. } => {
                format!("{message}; the command is ended")
            }
            Self::Lost { message, child_exit: Some(ChildExit { code, .. }), .. } => {
                format!("{message}; the command has run to its end (exit code {code})")
            }
            Self::Failed { message, .. } => message.clone(),
            Self::Acquired { after_notice: false, .. } | Self::Exited(_) => return None,
        })
    }

    fn is_error(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Failed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::CommandEvent::*;
    use crate::child::ChildExit;

    #[test]
    fn every_event_as_json_and_as_text() {
        let lost = |child_exit| {
            let message = "the lock of `u1` is lost".into();
            Lost { message, exit: 76, child_exit }
        };
        let targets = &["u1".to_owned()];
        let events = [
            Warning { message: "one of several primaries".into() },
            Waiting { targets, hint: Some("u1/a1".into()) },
            Acquired { targets, waited_ms: 1500, after_notice: true },
            NotAcquired { message: "`u1` is locked".into(), exit: 75 },
            lost(None),
            lost(Some(ChildExit { code: 3, signal: None })),
            lost(Some(ChildExit { code: 143, signal: Some(15) })),
            Failed { message: "cannot run the command".into(), exit: 127 },
            Exited(ChildExit { code: 143, signal: Some(15) }),
        ];
        insta::assert_snapshot!(crate::event::snapshot(&events));
    }
}
