//! One run as a Mermaid sequence diagram: the sessions, the server between them, and who waits for whom.

use super::grouping::{run_name, sessions};
use super::transcript::{Seen, Sort, transcript};
use super::words;
use crate::observation::{Name, Observation};
use crate::record::Record;
use std::fmt::Write as _;

/// Longer texts make a diagram too wide to read.
const MOST: usize = 72;

/// See [`Record::mermaid`].
pub(crate) fn mermaid(record: &Record) -> String {
    let mut text = "sequenceDiagram\n".to_owned();
    let mut line = |line: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    {line}");
    };
    line(format!("title {}", escape(&run_name(record), MOST * 2)));
    let names = sessions(record);
    for (i, name) in names.iter().enumerate() {
        line(format!("participant {} as {name}", id(name)));
        // Between the first and the others, so that arrows are short.
        if i == 0 {
            line(format!("participant server as {}", escape(&record.server, MOST)));
        }
    }
    for entry in transcript(record) {
        let who = id(&entry.step.session);
        if !entry.step.text.is_empty() {
            line(format!("{who}->>server: {}", escape(&entry.step.text, MOST)));
        }
        match &entry.step.seen {
            // A look changes nothing; only what it finds against expectation is worth a line.
            _ if entry.step.text.is_empty() => {}
            Observation::Blocked(wait) => {
                line(format!("activate {who}"));
                line(format!("Note over {who}: {}", escape(&words::wait(wait), MOST)));
            }
            seen => line(format!("server{}{who}: {}", arrow(seen), answer(&Seen::of(seen)))),
        }
        if let Some(difference) = &entry.step.difference {
            line(format!("Note over {who}: ✗ {}", escape(difference, MOST * 2)));
        }
        for end in &entry.let_go {
            let who = id(end.session);
            let seen = record.steps[end.step].ended.as_ref().map(|ended| &ended.observation);
            let arrow = seen.map_or("-->>", arrow);
            let after = words::duration(end.waited);
            line(format!("server{arrow}{who}: {}, after {after}", answer(&end.seen)));
            if matches!(record.steps[end.step].seen, Observation::Blocked(_)) {
                line(format!("deactivate {who}"));
            }
        }
        for deadlock in record.deadlocks.iter().filter(|deadlock| deadlock.step == entry.index) {
            let victim = &deadlock.victim;
            line(format!("Note over {}: ☠ {victim} was chosen to end the deadlock", id(victim)));
        }
        for circle in record.circles.iter().filter(|circle| circle.step == entry.index) {
            let who = id(&entry.step.session);
            let names: Vec<Name> = circle.links.iter().map(|link| link.waiter.clone()).collect();
            let names = words::names(&names);
            line(format!("Note over {who}: ∞ {names} wait in a circle that stays"));
        }
    }
    text
}

/// A failure is an arrow with a cross.
fn arrow(seen: &Observation) -> &'static str {
    match Sort::of(seen) {
        Sort::Done | Sort::Blocked => "-->>",
        Sort::Deadlock | Sort::Failed | Sort::Stuck => "--x",
    }
}

fn answer(seen: &Seen) -> String {
    match &seen.headline {
        Some(headline) => escape(headline, MOST),
        None => escape(&seen.rows.join(", "), MOST),
    }
}

/// A name that no word of Mermaid's language can be taken for: `A`, `s_Note`.
fn id(name: &Name) -> String {
    match name.as_str() {
        letter if letter.len() == 1 => letter.to_owned(),
        longer => format!("s_{longer}"),
    }
}

/// One line in which nothing means anything to Mermaid: what does is written as its number.
fn escape(text: &str, most: usize) -> String {
    let mut escaped = String::new();
    for c in words::shorten(&words::one_line(text), most).chars() {
        match c {
            '#' | ';' | '%' | '"' | '<' | '>' | '&' | '{' | '}' | '\\' | '`' | ':' => {
                let _ = write!(escaped, "#{};", u32::from(c));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Engine;
    use crate::report::fixtures::{cycle, hostile, readers, ring};

    #[test]
    fn a_deadlock_shows_the_wait_and_the_victim() {
        insta::assert_snapshot!(mermaid(&cycle(Engine::Mysql, "A")));
    }

    #[test]
    fn a_ring_of_three_and_those_that_are_let_go() {
        insta::assert_snapshot!(mermaid(&ring()));
    }

    #[test]
    fn nothing_in_a_text_means_anything_to_mermaid() {
        let text = mermaid(&hostile());
        insta::assert_snapshot!(text);
        let statements = text.lines().filter(|line| line.contains(": "));
        for line in statements {
            let after = line.split_once(": ").unwrap().1;
            let plain = after.split('#').skip(1).all(|rest| {
                let (code, _) = rest.split_once(';').unwrap();
                code.parse::<u32>().is_ok()
            });
            assert!(plain, "{line}");
        }
    }

    #[test]
    fn every_activation_ends() {
        let place = crate::report::fixtures::place(Engine::Memory);
        let text = mermaid(&readers(place, 1));
        assert_eq!(text.matches(" activate ").count(), text.matches("deactivate ").count());
    }
}
