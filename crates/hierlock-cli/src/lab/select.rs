//! Selects scenarios and their cases.

use super::invalid;
use crate::exit::CommandError;
use crate::usage::redact_argument;
use hierlock_engine::nearest;
use hierlock_lab::{Case, Engine, Scenario};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

/// Returns the built-in scenarios of these topics; all of them if `topics` is empty.
pub(super) fn by_topic(topics: &[String]) -> Result<Vec<Arc<Scenario>>, CommandError> {
    let mut scenarios = Scenario::builtin().map_err(invalid)?;
    let known = topics_of(&scenarios);
    if let Some(unknown) = topics.iter().find(|topic| !known.contains(&topic.as_str())) {
        let hint = match nearest(unknown, &known) {
            Some(near) => format!("did you mean `{near}`? There"),
            None => "there".to_owned(),
        };
        let known = known.join(", ");
        return Err(CommandError::usage(format!("`{unknown}` is not a topic; {hint} are {known}")));
    }
    if !topics.is_empty() {
        scenarios.retain(|scenario| topics.iter().any(|topic| topic == scenario.topic()));
    }
    Ok(scenarios)
}

/// Returns the topics of built-in scenarios, each once. The scenarios are sorted by name.
fn topics_of(scenarios: &[Arc<Scenario>]) -> Vec<&str> {
    let mut topics: Vec<&str> = scenarios.iter().map(|scenario| scenario.topic()).collect();
    topics.dedup();
    topics
}

/// Returns the scenarios that these patterns name, each once. A pattern is a file, a directory, or the name or topic
/// of built-in scenarios, with `*` and `?` for any characters but `/`. Files come before built-in scenarios.
pub(super) fn by_pattern(patterns: &[String]) -> Result<Vec<Arc<Scenario>>, CommandError> {
    let mut selected: Vec<Arc<Scenario>> = Vec::new();
    for pattern in patterns {
        for scenario in matching(pattern)? {
            if selected.iter().all(|known| known.file != scenario.file) {
                selected.push(scenario);
            }
        }
    }
    Ok(selected)
}

fn matching(pattern: &str) -> Result<Vec<Arc<Scenario>>, CommandError> {
    let files = files(pattern).map_err(|error| unreadable(Path::new(pattern), error))?;
    if !files.is_empty() {
        return files.iter().map(|file| read(file)).collect();
    }
    let builtin = Scenario::builtin().map_err(invalid)?;
    let is_selected = |scenario: &&Arc<Scenario>| matches_name_or_folder(pattern, &scenario.name);
    let selected: Vec<_> = builtin.iter().filter(is_selected).cloned().collect();
    if selected.is_empty() { Err(unknown(pattern, &builtin)) } else { Ok(selected) }
}

/// Returns the scenario files that a pattern names, in the order of their paths.
fn files(pattern: &str) -> io::Result<Vec<PathBuf>> {
    let path = Path::new(pattern);
    if path.is_dir() {
        return files_below(path);
    }
    if path.exists() || is_scenario_file(path) && !has_wildcard(pattern) {
        return Ok(vec![path.to_owned()]);
    }
    // `mine/c*` matches files below `mine`. A pattern without a directory is for built-in scenarios.
    let directory = pattern.find(WILDCARDS).and_then(|at| pattern[..at].rsplit_once('/'));
    let Some((directory, _)) = directory.filter(|(path, _)| Path::new(path).is_dir()) else {
        return Ok(Vec::new());
    };
    let mut files = files_below(Path::new(directory))?;
    files.retain(|file| {
        let name = file.with_extension("");
        matches(pattern, &file.to_string_lossy())
            || matches_name_or_folder(pattern, &name.to_string_lossy())
    });
    Ok(files)
}

fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Links to directories are not followed, because they may form a cycle.
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else if is_scenario_file(&entry.path()) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn is_scenario_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == Scenario::EXTENSION)
}

fn read(file: &Path) -> Result<Arc<Scenario>, CommandError> {
    let text = fs::read_to_string(file).map_err(|error| unreadable(file, error))?;
    // The last directory is the topic, as for built-in scenarios.
    let path = file.with_extension("");
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_)));
    let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
    let name = parts[parts.len().saturating_sub(2)..].join("/");
    Scenario::parse(&name, &file.to_string_lossy(), &text).map_err(invalid)
}

fn unreadable(file: &Path, error: io::Error) -> CommandError {
    CommandError::usage(format!("{} cannot be read: {error}", file.display()))
}

fn unknown(pattern: &str, builtin: &[Arc<Scenario>]) -> CommandError {
    let topics = topics_of(builtin);
    let near = if has_wildcard(pattern) {
        let (topic, rest) = pattern.split_once('/').unwrap_or((pattern, ""));
        nearest(topic, &topics).map(|near| format!("{near}/{rest}"))
    } else {
        let names: Vec<&str> = builtin.iter().map(|s| s.name.as_str()).chain(topics).collect();
        nearest(pattern.trim_end_matches('/'), &names).map(str::to_owned)
    };
    let hint = match near.filter(|near| near != pattern) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`hierlock lab list` lists them".to_owned(),
    };
    let pattern = redact_argument(pattern);
    let what = "neither a file or directory nor a built-in scenario or topic";
    CommandError::usage(format!("`{pattern}` is {what}; {hint}"))
}

const WILDCARDS: [char; 2] = ['*', '?'];

fn has_wildcard(pattern: &str) -> bool {
    pattern.contains(WILDCARDS)
}

/// Returns whether a pattern matches a name or a folder above it: `deadlock/c*`, `deadlock`, `deadlock/`.
fn matches_name_or_folder(pattern: &str, name: &str) -> bool {
    let pattern = pattern.trim_end_matches('/');
    let folders = name.match_indices('/').map(|(at, _)| &name[..at]);
    folders.chain([name]).any(|name| matches(pattern, name))
}

fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern_rest, mut name_rest) = (pattern.chars(), name.chars());
    match (pattern_rest.next(), name_rest.next()) {
        (None, None) => true,
        (Some('*'), next) => {
            let takes_next = next.is_some_and(|c| c != '/') && matches(pattern, name_rest.as_str());
            takes_next || matches(pattern_rest.as_str(), name)
        }
        (Some('?'), Some('/')) => false,
        (Some(wanted), Some(c)) if wanted == c || wanted == '?' => {
            matches(pattern_rest.as_str(), name_rest.as_str())
        }
        _ => false,
    }
}

/// Returns the cases of these scenarios on these engines; on all of them if `engines` is empty.
pub(super) fn cases(
    scenarios: &[Arc<Scenario>],
    engines: &[Engine],
) -> Result<Vec<Case>, CommandError> {
    let mut cases: Vec<Case> = scenarios.iter().flat_map(|scenario| scenario.cases()).collect();
    cases.retain(|case| engines.is_empty() || engines.contains(&case.backend.engine));
    if cases.is_empty() {
        return Err(CommandError::usage("none of these scenarios runs on the named engines"));
    }
    Ok(cases)
}

/// Returns the engines of cases, each once.
pub(super) fn engines<'a>(cases: impl IntoIterator<Item = &'a Case>) -> Vec<Engine> {
    let used: Vec<Engine> = cases.into_iter().map(|case| case.backend.engine).collect();
    Engine::ALL.into_iter().filter(|engine| used.contains(engine)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names_and_folders() {
        for (pattern, name, expected) in [
            ("deadlock/cycle", "deadlock/cycle", true),
            ("deadlock", "deadlock/cycle", true),
            ("deadlock/", "deadlock/cycle", true),
            ("deadlock/c*", "deadlock/cycle", true),
            ("deadlock/c*e", "deadlock/cycle", true),
            ("deadlock/c?cle", "deadlock/cycle", true),
            ("dead*", "deadlock/cycle", true),
            ("*/cycle", "deadlock/cycle", true),
            ("*", "deadlock/cycle", true),
            ("mine/*/c*", "mine/deadlock/cycle", true),
            ("dead", "deadlock/cycle", false),
            ("cycle", "deadlock/cycle", false),
            ("deadlock/c", "deadlock/cycle", false),
            ("deadlock*cycle", "deadlock/cycle", false),
            ("deadlock?cycle", "deadlock/cycle", false),
            ("deadlock/*x*", "deadlock/cycle", false),
            ("", "deadlock/cycle", false),
        ] {
            assert_eq!(matches_name_or_folder(pattern, name), expected, "{pattern} {name}");
        }
    }
}
