//! What stands before the first step: where and how a scenario runs.

use super::{Parser, Stage, sql};
use crate::observation::Name;
use crate::place::Engine;
use crate::scenario::file::{Guarded, Setting};
use crate::scenario::layout::squeezed;
use crate::scenario::mistake::{Spot, nearest, unknown};
use crate::scenario::outline::{LineKind, Part, SourceLine};
use crate::scenario::reader::{DURATION, duration};
use crate::scenario::settings;
use crate::scenario::text::Text;
use hierlock::sql::Strategy;

/// Every header there is, as it is written.
const KEYS: [&str; 12] = [
    "seed",
    "engines",
    "strategies",
    "buckets",
    "anomaly",
    "limit",
    "sessions",
    "session A",
    "for each NAME",
    "setup",
    "teardown",
    "advice",
];

/// Those that were there already, with their lines.
#[derive(Default)]
pub(super) struct Seen(Vec<(&'static str, usize)>);

impl Parser<'_, '_> {
    /// Reads a header and the block below it; whether it is one that is known.
    pub(super) fn header(
        &mut self,
        stage: &mut Stage,
        seen: &mut Seen,
        key: Part<'_>,
        guard: Option<Part<'_>>,
        value: Part<'_>,
        below: &[SourceLine<'_>],
    ) -> bool {
        let words: Vec<&str> = key.text.split_whitespace().collect();
        let Some(name) = known(&words) else {
            self.mistakes.at(key.spot, not_known(key.text, &words));
            return false;
        };
        let to = match name {
            "advice" => Stage::Advice,
            "teardown" if *stage == Stage::Header => Stage::Header,
            "teardown" => Stage::Teardown,
            _ => Stage::Header,
        };
        self.enter(stage, to, key.spot);
        self.once(seen, name, key.spot);

        let guarded = matches!(name, "sessions" | "session A" | "setup" | "teardown");
        if let Some(guard) = guard.filter(|_| !guarded && name != "for each NAME") {
            self.mistakes.at(
                guard.spot,
                format!("`{}:` cannot be guarded; only sessions, setup and teardown can", key.text),
            );
        }
        let block = matches!(name, "setup" | "teardown" | "advice");
        match (block, value.text.is_empty()) {
            (true, false) => self.mistakes.at(
                value.spot,
                format!("what belongs to `{name}:` stands on the lines below it, indented"),
            ),
            (false, true) => self.mistakes.at(value.spot, missing(name)),
            _ => {}
        }
        if block {
            self.block(name, key.spot, guard, below);
        } else if !value.text.is_empty() {
            self.value(name, key, guard, value);
        }
        true
    }

    /// Most headers may be there only once.
    fn once(&mut self, seen: &mut Seen, name: &'static str, spot: Spot) {
        if matches!(
            name,
            "seed" | "sessions" | "session A" | "for each NAME" | "setup" | "teardown"
        ) {
            return;
        }
        match seen.0.iter().find(|(known, _)| *known == name) {
            Some((_, line)) => self
                .mistakes
                .at(spot, format!("`{name}:` is already on line {line}; put all of it there")),
            None => seen.0.push((name, spot.line)),
        }
    }

    fn block(&mut self, name: &str, spot: Spot, guard: Option<Part<'_>>, below: &[SourceLine<'_>]) {
        if below.is_empty() {
            let what = if name == "advice" { "prose" } else { "SQL" };
            self.mistakes.at(
                spot,
                format!("nothing stands below `{name}:`; write its {what} there, indented"),
            );
            return;
        }
        if name == "advice" {
            self.scenario.advice = prose(below);
            return;
        }
        let only = self.only(guard);
        let statements = sql::statements(below, self.mistakes);
        let into = match name {
            "setup" => &mut self.scenario.setup,
            _ => &mut self.scenario.teardown,
        };
        into.extend(statements.into_iter().map(|what| Guarded {
            line: what.begins().line,
            only: only.clone(),
            what,
        }));
    }

    fn value(&mut self, name: &str, key: Part<'_>, guard: Option<Part<'_>>, value: Part<'_>) {
        match name {
            "seed" => {
                let seeds = value.text.split(',').map(squeezed).filter(|seed| !seed.is_empty());
                self.scenario.seeds.extend(seeds);
            }
            "engines" => {
                let names = Engine::ALL.map(Engine::name);
                self.scenario.engines =
                    Some(self.list(value, "an engine", &names, |word| word.parse().ok()));
            }
            "strategies" => {
                let names = Strategy::ALL.map(Strategy::name);
                self.scenario.strategies =
                    Some(self.list(value, "a strategy", &names, |word| word.parse().ok()));
            }
            "buckets" => match value.text.parse() {
                Ok(count @ 1..=0x7fff_ffff) => self.scenario.buckets = Some(count),
                _ => self.mistakes.at(
                    value.spot,
                    format!(
                        "`{}` is not a number of buckets; it is 1 to 2147483647, such as 257",
                        value.text
                    ),
                ),
            },
            "anomaly" => self.scenario.anomaly = Some(squeezed(value.text)),
            "limit" => match duration(value.text) {
                Some(time) if !time.is_zero() => self.scenario.limit = Some(time),
                _ => self.mistakes.at(value.spot, format!("`{}` is not {DURATION}", value.text)),
            },
            "sessions" => self.setting(None, key, guard, value),
            "session A" => {
                let session = key.text["session".len()..].trim();
                match Name::new(session) {
                    Some(session) => self.setting(Some(session), key, guard, value),
                    None => self.mistakes.at(
                        key.at("session ".len()),
                        format!(
                            "`{session}` is not a session; its name begins with a capital and has \
                         letters and digits"
                        ),
                    ),
                }
            }
            // Axes were read before everything else.
            _ => {}
        }
    }

    fn setting(
        &mut self,
        session: Option<Name>,
        key: Part<'_>,
        guard: Option<Part<'_>>,
        value: Part<'_>,
    ) {
        let only = self.only(guard);
        let what = Setting { session, text: Text::of(value) };
        if !self.varies(&what.text)
            && let Err(slip) = settings::read(value.text)
        {
            self.mistakes.at(value.at(slip.at), slip.message);
        }
        self.scenario.settings.push(Guarded { line: key.spot.line, only, what });
    }

    /// Words of one sort, separated by blanks or commas.
    fn list<T: PartialEq>(
        &mut self,
        value: Part<'_>,
        what: &str,
        known: &[&str],
        read: impl Fn(&str) -> Option<T>,
    ) -> Vec<T> {
        let mut items = Vec::new();
        let mut at = 0;
        for word in value.text.split([' ', '\t', ',', '\u{3000}']) {
            match read(word) {
                _ if word.is_empty() => {}
                Some(item) if items.contains(&item) => {
                    self.mistakes.at(value.at(at), format!("`{word}` is there twice"))
                }
                Some(item) => items.push(item),
                None => self.mistakes.at(value.at(at), unknown(word, what, known)),
            }
            // The separators are of one byte, but for the wide blank.
            at += word.len();
            at += value.text[at..].chars().next().map_or(0, char::len_utf8);
        }
        items
    }
}

/// The header that these words are, in the spelling of [`KEYS`].
fn known(words: &[&str]) -> Option<&'static str> {
    match words {
        ["session", _] => Some("session A"),
        ["for", "each", ..] => Some("for each NAME"),
        [word] => KEYS.into_iter().find(|key| key == word),
        _ => None,
    }
}

fn not_known(key: &str, words: &[&str]) -> String {
    let first = words.first().copied().unwrap_or_default();
    if first == "foreach" || (first == "for" && words.len() > 1) {
        return "an axis is written `for each NAME: VALUE | VALUE`".to_owned();
    }
    if first == "session" {
        let all = "the settings of all are written `sessions: …`";
        return format!("{all}, those of one `session A: …`");
    }
    if Name::new(first).is_some() && nearest(first, &KEYS).is_none() {
        return format!("a step is written `{first}> statement`");
    }
    unknown(key, "a header", &KEYS)
}

fn missing(name: &str) -> &'static str {
    match name {
        "seed" => "the seed is missing; it is `seed: 004 課題1`",
        "engines" => {
            "the engines are missing; it is `engines: mysql mariadb postgres memory file`, or \
                 some of them"
        }
        "strategies" => {
            "the strategies are missing; it is `strategies: striped per-id on-demand \
                 advisory`, or some of them"
        }
        "buckets" => "the number is missing; it is `buckets: 257`",
        "anomaly" => "the name is missing; it is `anomaly: G1a dirty read`",
        "limit" => "the time is missing; it is `limit: 10s`",
        "for each NAME" => "the values are missing; they are separated by `|`",
        _ => "the settings are missing; it is `sessions: isolation read committed, autocommit off`",
    }
}

/// The lines of a block of prose, without the indentation that they share; blank lines stay.
fn prose(below: &[SourceLine<'_>]) -> String {
    let column = |line: &SourceLine<'_>| match &line.kind {
        LineKind::Prose(part) => Some(part.spot.column),
        _ => None,
    };
    let margin = below.iter().filter_map(column).min().unwrap_or(1);
    let lines: Vec<String> = below
        .iter()
        .filter_map(|line| match &line.kind {
            LineKind::Prose(part) => {
                Some(format!("{}{}", " ".repeat(part.spot.column - margin), part.text))
            }
            LineKind::Blank => Some(String::new()),
            _ => None,
        })
        .collect();
    lines.join("\n").trim_matches('\n').to_owned()
}
