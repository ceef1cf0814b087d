//! One run as a Mermaid sequence diagram: the sessions, the server between them, and the waits.

use super::display::{duration, one_line, run_name, truncate};
use super::grouping::sessions;
use super::transcript::{Outcome, WakeUp, is_look, wake_ups};
use crate::observation::{Observation, SessionName};
use crate::record::Record;
use crate::text::listed;

/// The longest text of an arrow. Longer ones make a diagram too wide to read.
const MAX_TEXT: usize = 72;

impl Record {
    /// Returns the run as a sequence diagram of Mermaid.
    pub fn mermaid(&self) -> String {
        let mut text = "sequenceDiagram\n".to_owned();
        let mut line = |line: String| text += &format!("    {line}\n");
        line(format!("title {}", escape(&run_name(self), MAX_TEXT * 2)));
        for (i, name) in sessions(self).into_iter().enumerate() {
            line(format!("participant {} as {name}", id(name)));
            // The server is between the first session and the others, so that arrows are short.
            if i == 0 {
                line(format!("participant server as {}", escape(&self.server, MAX_TEXT)));
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            let session = id(&step.session);
            // A look changes nothing; it is shown only with a difference.
            if !is_look(step) {
                line(format!("{session}->>server: {}", escape(&step.text, MAX_TEXT)));
                if let Observation::Blocked(_) = step.seen {
                    line(format!("activate {session}"));
                    line(format!("Note over {session}: {}", answer(&step.seen)));
                } else {
                    line(format!("server{}{session}: {}", arrow(&step.seen), answer(&step.seen)));
                }
            }
            if let Some(difference) = &step.difference {
                line(format!("Note over {session}: ✗ {}", escape(difference, MAX_TEXT * 2)));
            }
            for WakeUp { step, ended, waited, .. } in wake_ups(self, index) {
                let (arrow, answer) = (arrow(&ended.observation), answer(&ended.observation));
                let (session, after) = (id(&step.session), duration(waited));
                line(format!("server{arrow}{session}: {answer}, after {after}"));
                if let Observation::Blocked(_) = step.seen {
                    line(format!("deactivate {session}"));
                }
            }
            for deadlock in self.deadlocks.iter().filter(|deadlock| deadlock.step == index) {
                let victim = &deadlock.victim;
                let session = id(victim);
                line(format!("Note over {session}: ☠ deadlock, the victim was {victim}"));
            }
            for cycle in self.cycles.iter().filter(|cycle| cycle.step == index) {
                let waiters = listed(cycle.links.iter().map(|edge| &edge.waiter), "and");
                line(format!("Note over {session}: ∞ {waiters} wait in an unresolved cycle"));
            }
        }
        text
    }
}

/// Returns the arrow of an observation; that of a failure has a cross.
fn arrow(seen: &Observation) -> &'static str {
    match seen {
        Observation::Done(_) | Observation::Blocked(_) => "-->>",
        Observation::Failed(_) | Observation::Stuck => "--x",
    }
}

fn answer(seen: &Observation) -> String {
    let Outcome { headline, rows, .. } = Outcome::new(seen);
    escape(&(headline + &rows.join(", ")), MAX_TEXT)
}

/// Returns a name that is no keyword of Mermaid: `A`, `s_Note`.
fn id(name: &SessionName) -> String {
    match name.as_str() {
        letter if letter.len() == 1 => letter.to_owned(),
        longer => format!("s_{longer}"),
    }
}

/// Returns at most `max` characters on one line; characters with a meaning in Mermaid are written as numbers.
fn escape(text: &str, max: usize) -> String {
    let escape = |c: char| match c {
        '#' | ';' | '%' | '"' | '<' | '>' | '&' | '{' | '}' | '\\' | '`' | ':' => {
            format!("#{};", u32::from(c))
        }
        c => c.to_string(),
    };
    truncate(&one_line(text), max).chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use crate::engine::Engine;
    use crate::report::fixtures::{backend, cycle, injection, readers, ring};

    #[test]
    fn a_deadlock_shows_the_wait_and_the_victim() {
        insta::assert_snapshot!(cycle(Engine::Mysql, "A").mermaid());
    }

    #[test]
    fn a_cycle_of_three_shows_its_wake_ups() {
        insta::assert_snapshot!(ring().mermaid());
    }

    #[test]
    fn texts_are_escaped_for_mermaid() {
        let text = injection().mermaid();
        insta::assert_snapshot!(text);
        for line in text.lines().filter(|line| line.contains(": ")) {
            let after = line.split_once(": ").unwrap().1;
            let plain = after.split('#').skip(1).all(|rest| {
                let (code, _) = rest.split_once(';').unwrap();
                code.parse::<u32>().is_ok()
            });
            assert!(plain, "{line}");
        }
    }

    #[test]
    fn every_activation_is_deactivated() {
        let text = readers(backend(Engine::Memory), 1).mermaid();
        assert_eq!(text.matches(" activate ").count(), text.matches("deactivate ").count());
    }
}
