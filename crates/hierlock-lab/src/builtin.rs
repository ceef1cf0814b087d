//! The built-in scenarios, and a page of Markdown about scenarios.

use crate::group::group_by;
use crate::scenario::{Diagnostic, Scenario};
use crate::text::join;
use askama::Template;
use std::sync::Arc;

/// The name and text of each built-in scenario, in the order of their names.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

impl Scenario {
    /// Returns the built-in scenarios, in the order of their names.
    ///
    /// # Errors
    /// The problems of a scenario that does not parse; a test checks that all parse.
    pub fn builtin() -> Result<Vec<Arc<Scenario>>, Vec<Diagnostic>> {
        let file = |name: &str| format!("scenarios/{name}.{}", Self::EXTENSION);
        TEXTS.iter().map(|(name, text)| Self::parse(name, &file(name), text)).collect()
    }

    /// Returns a page of Markdown about `scenarios`, by topic.
    pub fn markdown(scenarios: &[Arc<Scenario>]) -> String {
        let topics = group_by(scenarios, |scenario| scenario.topic());
        // Rendering into a String cannot fail: the template uses no filter that can fail.
        CatalogPage { scenarios, topics }.render().unwrap_or_default()
    }

    /// Returns the file without the opening comment and the advice, which the page shows elsewhere.
    fn transcript(&self) -> String {
        let lines = self.text.lines().skip_while(|line| line.starts_with('#'));
        let lines = join(lines.take_while(|line| line.trim_end() != "advice:"), "\n");
        lines.trim_matches('\n').to_owned()
    }

    /// Returns the anchor of the heading with the scenario's name.
    fn anchor(&self) -> String {
        let is_in_anchor = |c: &char| c.is_alphanumeric() || *c == '-' || *c == '_';
        self.name.chars().filter(is_in_anchor).collect::<String>().to_lowercase()
    }
}

#[derive(Template)]
#[template(path = "scenarios.md", whitespace = "preserve")]
struct CatalogPage<'a> {
    scenarios: &'a [Arc<Scenario>],
    topics: Vec<(&'a str, Vec<&'a Arc<Scenario>>)>,
}
