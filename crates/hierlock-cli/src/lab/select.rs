//! Which scenarios, and which cases of them.

use super::told;
use crate::exit::Stop;
use hierlock_lab::{Case, Engine, Scenario};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The scenarios of these topics; all, if none is named.
pub(super) fn of_topics(topics: &[String]) -> Result<Vec<Arc<Scenario>>, Stop> {
    let all = Scenario::builtin().map_err(|mistakes| Stop::usage(told(&mistakes)))?;
    let mut known: Vec<&str> = all.iter().map(|scenario| scenario.topic()).collect();
    known.dedup();
    if let Some(unknown) = topics.iter().find(|topic| !known.contains(&topic.as_str())) {
        return Err(Stop::usage(format!(
            "`{unknown}` is not a topic; there are {}",
            known.join(", ")
        )));
    }
    let is_wanted = |scenario: &Arc<Scenario>| {
        topics.is_empty() || topics.iter().any(|topic| topic == scenario.topic())
    };
    Ok(all.iter().filter(|scenario| is_wanted(scenario)).cloned().collect())
}

/// Files, and built-in scenarios by their names.
pub(super) fn named(names: &[String]) -> Result<Vec<Arc<Scenario>>, Stop> {
    names.iter().map(|name| one(name)).collect()
}

fn one(name: &str) -> Result<Arc<Scenario>, Stop> {
    let path = Path::new(name);
    let is_file =
        path.exists() || path.extension().is_some_and(|known| known == Scenario::EXTENSION);
    if !is_file && let Some(found) = Scenario::builtin_named(name) {
        return found.map_err(|mistakes| Stop::usage(told(&mistakes)));
    }
    let text = fs::read_to_string(path).map_err(|error| match is_file {
        true => Stop::usage(format!("{name} cannot be read: {error}")),
        false => Stop::usage(format!(
            "`{name}` is neither a file nor a built-in scenario; `hierlock lab list` lists them"
        )),
    })?;
    // The last directory is its topic, as it is of those that are built in.
    let whole = path.with_extension("");
    let parts: Vec<_> = whole.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let short = parts[parts.len().saturating_sub(2)..].join("/");
    Scenario::parse(&short, name, &text)
        .map(Arc::new)
        .map_err(|mistakes| Stop::usage(told(&mistakes)))
}

/// Their cases on these engines; on all, if none is named.
pub(super) fn cases(scenarios: &[Arc<Scenario>], engines: &[Engine]) -> Result<Vec<Case>, Stop> {
    let mut cases = Vec::new();
    for scenario in scenarios {
        let all = scenario.cases().map_err(|mistakes| Stop::usage(told(&mistakes)))?;
        cases.extend(
            all.into_iter()
                .filter(|case| engines.is_empty() || engines.contains(&case.place.engine)),
        );
    }
    match cases.is_empty() {
        true => Err(Stop::usage("none of these scenarios is for the engines that were named")),
        false => Ok(cases),
    }
}

/// The engines of cases, each once.
pub(super) fn engines(cases: &[Case]) -> Vec<Engine> {
    Engine::ALL
        .into_iter()
        .filter(|engine| cases.iter().any(|case| case.place.engine == *engine))
        .collect()
}
