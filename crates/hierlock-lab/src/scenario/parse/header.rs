//! The headers before the first step, which configure the scenario.

use super::{FilePart, Parser, sql};
use crate::engine::Engine;
use crate::observation::SessionName;
use crate::scenario::diagnostic::{ParseError, Position, nearest, unknown};
use crate::scenario::file::{GuardedValue, Scenario, Setting};
use crate::scenario::format::least_column;
use crate::scenario::reader::duration;
use crate::scenario::scan::with_single_blanks;
use crate::scenario::settings;
use crate::scenario::source_line::{Block, LineHead, LineKind, SourceLine, SourceSpan};
use crate::text::join;
use hierlock::sql::Strategy;
use std::time::Duration;

/// How often a header may occur, and whether it may have a guard (`Guarded`).
#[derive(Clone, Copy, PartialEq, Eq)]
enum HeaderRule {
    Once,
    Repeated,
    Guarded,
}

/// All headers: the key as it is written, the rule, and the message for a missing value or block.
const HEADERS: [(&str, HeaderRule, &str); 12] = [
    ("seed", HeaderRule::Repeated, "the seed is missing; it is `seed: 004 課題1`"),
    (
        "engines",
        HeaderRule::Once,
        "the engines are missing; it is `engines: mysql mariadb postgres`",
    ),
    (
        "strategies",
        HeaderRule::Once,
        "the strategies are missing; it is `strategies: striped per-id`",
    ),
    ("buckets", HeaderRule::Once, "the number is missing; it is `buckets: 257`"),
    ("anomaly", HeaderRule::Once, "the name is missing; it is `anomaly: G1a dirty read`"),
    ("limit", HeaderRule::Once, "the time is missing; it is `limit: 10s`"),
    ("sessions", HeaderRule::Guarded, MISSING_SETTINGS),
    ("session A", HeaderRule::Guarded, MISSING_SETTINGS),
    ("for each NAME", HeaderRule::Guarded, "the values are missing; they are separated by `|`"),
    ("setup", HeaderRule::Guarded, "`setup:` is empty; write its SQL below, indented"),
    ("teardown", HeaderRule::Guarded, "`teardown:` is empty; write its SQL below, indented"),
    ("advice", HeaderRule::Once, "`advice:` is empty; write its prose below, indented"),
];

const MISSING_SETTINGS: &str =
    "the settings are missing; it is `sessions: isolation read committed, autocommit off`";

impl Parser<'_, '_> {
    /// Reads a header and the block below it. Returns whether the header is known.
    pub(super) fn header(&mut self, head: &LineHead<'_>, below: &[SourceLine<'_>]) -> bool {
        let LineHead { name: key, guard, rest: value, .. } = head;
        let words: Vec<&str> = key.text.split_whitespace().collect();
        let Some((name, rule, missing)) = known_header(&words) else {
            self.report(key.position, unknown_key(key.text, &words));
            return false;
        };
        let part = match name {
            "advice" => FilePart::Advice,
            "teardown" if self.part != FilePart::Header => FilePart::Teardown,
            _ => FilePart::Header,
        };
        self.enter(part, key.position);
        let known = self.scenario.headers.iter().find(|(known, _)| *known == name);
        match known.map(|(_, position)| position.line) {
            _ if rule != HeaderRule::Once => {}
            None => self.scenario.headers.push((name, key.position)),
            Some(line) => self.report(
                key.position,
                format!("`{name}:` is already on line {line}; put all of it there"),
            ),
        }
        if let Some(guard) = guard.filter(|_| rule != HeaderRule::Guarded) {
            let only = "only sessions, setup and teardown can";
            self.report(guard.position, format!("`{}:` cannot be guarded; {only}", key.text));
        }
        if matches!(name, "setup" | "teardown" | "advice") {
            if !value.text.is_empty() {
                let hint = "goes on the lines below it, indented";
                self.report(value.position, format!("the text of `{name}:` {hint}"));
            }
            if below.is_empty() {
                self.report(key.position, missing);
            } else {
                self.block(name, head, below);
            }
        } else if value.text.is_empty() {
            self.report(value.position, missing);
        } else if let Err(message) = self.value(name, head) {
            self.report(value.position, message);
        }
        true
    }

    fn block(&mut self, name: &str, head: &LineHead<'_>, below: &[SourceLine<'_>]) {
        if name == "advice" {
            self.scenario.advice = prose(below);
            return;
        }
        let guard = self.guard(head.guard);
        for statement in sql::statements(below, self.diagnostics) {
            let position = statement.begin();
            let value = self.read(statement, |sql| Ok::<_, ParseError>(sql.to_owned()));
            let Scenario { setup, teardown, .. } = &mut self.scenario;
            let statements = if name == "setup" { setup } else { teardown };
            statements.push(GuardedValue { position, guard: guard.clone(), value });
        }
    }

    /// Reads the value of a header. Fails with a message about the whole value.
    fn value(&mut self, name: &str, head: &LineHead<'_>) -> Result<(), String> {
        let value = head.rest;
        match name {
            "seed" => {
                let seeds = value.text.split(',').map(with_single_blanks);
                self.scenario.seeds.extend(seeds.filter(|seed| !seed.is_empty()));
            }
            "engines" => {
                let names = Engine::ALL.map(Engine::name);
                self.scenario.engines = Some(self.list(value, "an engine", &names));
            }
            "strategies" => {
                let names = Strategy::ALL.map(Strategy::name);
                self.scenario.strategies = Some(self.list(value, "a strategy", &names));
            }
            "buckets" => {
                let count =
                    value.text.parse().ok().filter(|count| (1..=0x7fff_ffff).contains(count));
                let hint = "it is 1 to 2147483647, such as 257";
                self.scenario.buckets = Some(count.ok_or_else(|| {
                    format!("`{}` is not a number of buckets; {hint}", value.text)
                })?);
            }
            "anomaly" => self.scenario.anomaly = Some(with_single_blanks(value.text)),
            "limit" => self.scenario.limit = Some(duration(value.text, Duration::from_millis(1))?),
            "sessions" => self.setting(None, head),
            "session A" => {
                let session = head.name.after("session".len());
                if let Some(name) = SessionName::new(session.text) {
                    self.setting(Some((name, session.position)), head);
                } else {
                    let hint = "its name begins with a capital and has letters and digits";
                    let message = format!("`{}` is not a session; {hint}", session.text);
                    self.report(session.position, message);
                }
            }
            // Axes are parsed before all other headers.
            _ => {}
        }
        Ok(())
    }

    fn setting(&mut self, session: Option<(SessionName, Position)>, head: &LineHead<'_>) {
        let guard = self.guard(head.guard);
        let values = self.read(head.rest.into(), settings::read);
        self.scenario.settings.push(Setting { session, guard, values });
    }

    /// Reads words of one kind, separated by blanks or commas.
    fn list<T: PartialEq + std::str::FromStr>(
        &mut self,
        value: SourceSpan<'_>,
        kind: &str,
        known: &[&str],
    ) -> Vec<T> {
        let mut items = Vec::new();
        let mut at = 0;
        for part in value.text.split_inclusive([' ', '\t', ',', '\u{3000}']) {
            let word = part.trim_end_matches([' ', '\t', ',', '\u{3000}']);
            let message = match word.parse() {
                _ if word.is_empty() => None,
                Ok(item) if items.contains(&item) => Some(format!("`{word}` is there twice")),
                Ok(item) => {
                    items.push(item);
                    None
                }
                Err(_) => Some(unknown(word, kind, known)),
            };
            if let Some(message) = message {
                self.report(value.at(at), message);
            }
            at += part.len();
        }
        items
    }
}

fn known_header(words: &[&str]) -> Option<(&'static str, HeaderRule, &'static str)> {
    let key = match words {
        ["session", _] => "session A",
        ["for", "each", ..] => "for each NAME",
        [word] => word,
        _ => return None,
    };
    HEADERS.into_iter().find(|(known, ..)| *known == key)
}

fn unknown_key(key: &str, words: &[&str]) -> String {
    let keys = HEADERS.map(|(key, ..)| key);
    let first = words.first().copied().unwrap_or_default();
    if first == "foreach" || (first == "for" && words.len() > 1) {
        "an axis is written `for each NAME: VALUE | VALUE`".to_owned()
    } else if first == "session" {
        "the settings of all are written `sessions: …`, those of one `session A: …`".to_owned()
    } else if SessionName::new(first).is_some() && nearest(first, &keys).is_none() {
        format!("a step is written `{first}> statement`")
    } else {
        unknown(key, "a header", &keys)
    }
}

/// Returns the lines of a block of prose, without their common indentation; blank lines stay.
fn prose(below: &[SourceLine<'_>]) -> String {
    let margin = least_column(below);
    let lines = below.iter().filter_map(|line| match &line.kind {
        LineKind::Indented(Block::Prose, span) => {
            Some(format!("{}{}", " ".repeat(span.position.column - margin), span.text))
        }
        LineKind::Blank => Some(String::new()),
        _ => None,
    });
    join(lines, "\n").trim_matches('\n').to_owned()
}
