//! The scenarios as one page of Markdown: what they show, why, and what to do about it.

use crate::scenario::Scenario;
use std::fmt::Write as _;
use std::sync::Arc;

const OPENING: &str = "\
# Scenarios

Made by `hierlock lab docs` from the files in `scenarios/`; a test sees to it that it is up to date. Each of them is
run on real servers: `hierlock lab run NAME`. [scenarios.md](scenarios.md) has the grammar.
";

impl Scenario {
    /// A page of Markdown about these scenarios, by topic.
    pub fn markdown(scenarios: &[Arc<Scenario>]) -> String {
        let mut page = OPENING.to_owned() + &contents(scenarios);
        let mut topic = "";
        for scenario in scenarios {
            if scenario.topic() != topic {
                topic = scenario.topic();
                // Writing to a String cannot fail, here and below.
                let _ = write!(page, "\n## {}\n", capitalised(topic));
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
        let _ = writeln!(list, "| [{name}](#{}) | {title} | {} |", anchor(name), seeds.join(", "));
    }
    list
}

fn chapter(scenario: &Scenario) -> String {
    let Scenario { name, title, why, advice, .. } = scenario;
    let mut chapter = format!("\n### {name}\n\n**{title}.**\n\n{}\n", why.trim());
    let _ = write!(chapter, "\n```lab\n{}\n```\n", transcript(scenario).trim_matches('\n'));
    if !advice.trim().is_empty() {
        let _ = write!(chapter, "\n{}\n", advice.trim());
    }
    chapter
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
