//! The scenarios that come with the lab, and scenarios as one page of Markdown.

use crate::scenario::{Diagnostic, Scenario};
use std::sync::Arc;

/// Name and text of each, in the order of their names.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

const OPENING: &str = "\
# Scenarios

Made by `hierlock lab docs` from the files in `scenarios/`; a test sees to it that it is up to date. Each of them is
run on real servers: `hierlock lab run NAME`. [scenarios.md](scenarios.md) has the grammar.
";

impl Scenario {
    /// The scenarios that come with the lab, in the order of their names.
    ///
    /// # Errors
    /// What is wrong with one of them; a test sees to it that nothing is.
    pub fn builtin() -> Result<Vec<Arc<Scenario>>, Vec<Diagnostic>> {
        let file = |name: &str| format!("scenarios/{name}.{}", Self::EXTENSION);
        TEXTS.iter().map(|(name, text)| Self::parse(name, &file(name), text)).collect()
    }

    /// A page of Markdown about these scenarios, by topic.
    pub fn markdown(scenarios: &[Arc<Scenario>]) -> String {
        let mut page = OPENING.to_owned() + &contents(scenarios);
        let mut topic = "";
        for scenario in scenarios {
            if scenario.topic() != topic {
                topic = scenario.topic();
                page += &format!("\n## {}\n", capitalised(topic));
            }
            page += &chapter(scenario);
        }
        page
    }
}

fn contents(scenarios: &[Arc<Scenario>]) -> String {
    let mut list = "\n| scenario | what it shows | seed |\n|---|---|---|\n".to_owned();
    for scenario in scenarios {
        let Scenario { name, title, seeds, .. } = &**scenario;
        let (anchor, seeds) = (anchor(name), seeds.join(", "));
        list += &format!("| [{name}](#{anchor}) | {title} | {seeds} |\n");
    }
    list
}

fn chapter(scenario: &Scenario) -> String {
    let Scenario { name, title, why, advice, .. } = scenario;
    let transcript = transcript(scenario);
    let (why, transcript) = (why.trim(), transcript.trim_matches('\n'));
    let chapter = format!("\n### {name}\n\n**{title}.**\n\n{why}\n\n```lab\n{transcript}\n```\n");
    match advice.trim() {
        "" => chapter,
        advice => format!("{chapter}\n{advice}\n"),
    }
}

/// The file without what the chapter says already: its opening comment and its advice.
fn transcript(scenario: &Scenario) -> String {
    let lines = scenario.text.lines().skip_while(|line| line.starts_with('#'));
    let lines: Vec<&str> = lines.take_while(|line| line.trim_end() != "advice:").collect();
    lines.join("\n")
}

/// As the heading of a name becomes a link.
fn anchor(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_')
        .collect::<String>()
        .to_lowercase()
}

fn capitalised(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}
