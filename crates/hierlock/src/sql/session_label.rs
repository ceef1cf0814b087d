//! Session labels: a text on each lock session that names its client and its targets, for everybody who lists sessions.
//!
//! ```text
//!   billing/rebuild-index@web-3:4711 @1763418665 u1/a1/r1 u7=S +3
//!   the client                       since       the targets, and the number of omitted ones
//! ```
//!
//! `=S` and `=U` follow a target that is locked shared or for update; the other targets are exclusive.
//!
//! On MySQL and MariaDB the label is the user variable `@hierlock`, which other sessions can read in
//! `performance_schema.user_variables_by_thread`. On PostgreSQL it is `application_name`, which has 63 bytes: a target that
//! does not fit ends with `*`. The lock statement itself sets the label, in a condition or a column that the server evaluates
//! before it takes the first lock, so it costs no round trip. The time is that of the server, computed by the client.
//!
//! Where `performance_schema` is off, MariaDB shows the label of a waiting session in the process list, as part of its statement.
//! The keep-alive task adds what the lock statement cannot show (`label_rows.rs`): it writes the label of a hold to a table
//! where `performance_schema` is off, and sends the whole label in a comment where `application_name` is too short.
//!
//! A label can be stale: on MySQL and MariaDB the variable outlives the transaction. So a label is used for a slot only if one
//! of its targets, or an ancestor of one, maps to that slot ([`SessionLabel::target_of_slot`]).

use super::statement::Writer;
use super::{ClientIdentity, Dialect, Scheme, client_identity};
use crate::{Claim, Mode, Target};
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// The user variable of MySQL and MariaDB.
pub(super) const VARIABLE: &str = "hierlock";

/// The maximum length of `application_name`.
pub(super) const MAX_POSTGRES_LENGTH: usize = 63;

/// The length of ` @1763418665 `.
const SINCE_LENGTH: usize = 13;

/// The characters of a target that are percent-encoded. `%` is not, since [`Target`] itself escapes with it. No other
/// character can end a literal or a comment.
const ENCODED: &AsciiSet =
    &client_identity::ENCODED.remove(b':').remove(b'@').remove(b'/').remove(b'%');

/// The maximum length of a label, and the bytes of it that are reserved for the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelLimit {
    label: usize,
    client: usize,
}

impl LabelLimit {
    /// The limit where the server has none: of user variables, rows and comments.
    pub(super) const NO_SERVER_LIMIT: Self = Self { label: 1000, client: 500 };
    /// The limit of `application_name` on PostgreSQL.
    const APPLICATION_NAME: Self = Self { label: MAX_POSTGRES_LENGTH, client: 28 };

    pub(super) fn of(dialect: Dialect) -> Self {
        if dialect.is_innodb() { Self::NO_SERVER_LIMIT } else { Self::APPLICATION_NAME }
    }
}

/// The text of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LabelText(String);

impl LabelText {
    /// Returns the label of a session that holds or wants these targets. `now` is in seconds since 1970.
    pub(super) fn new<'a>(
        limit: LabelLimit,
        client: &ClientIdentity,
        now: u64,
        targets: impl IntoIterator<Item = (&'a Target, Mode)>,
    ) -> Self {
        let targets: Vec<(&Target, Mode)> = targets.into_iter().collect();
        let room = limit.label - SINCE_LENGTH;
        let full = client.to_string();
        let targets = targets_within(&targets, room - full.len().min(limit.client));
        let client = client.within(room - targets.len());
        Self(format!("{client} @{now} {targets}"))
    }

    /// Returns the text: printable ASCII that can end neither a literal nor a comment.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the call of PostgreSQL's function that sets the label until the transaction ends.
fn set_config(text: &str) -> String {
    format!("set_config('application_name', {text}, true)")
}

impl Writer<'_> {
    /// Returns the condition that labels the session. `None` without a label, or if it was written before.
    pub(super) fn label_condition(&mut self) -> Option<String> {
        let LabelText(text) = self.label.take()?.clone();
        let text = self.value(text);
        Some(if self.scheme.dialect.is_innodb() {
            format!("(@{VARIABLE} := {text}) IS NOT NULL")
        } else {
            // An uncorrelated subquery runs once, before the first row is read.
            format!("(SELECT {}) IS NOT NULL", set_config(&text))
        })
    }

    /// Returns the WHERE clause that labels the session, or nothing.
    pub(super) fn label_clause(&mut self) -> String {
        self.label_condition().map(|label| format!(" WHERE {label}")).unwrap_or_default()
    }

    /// Returns the first column of a SELECT without a table that labels the session on PostgreSQL, or nothing. It costs the
    /// server less than a subquery.
    pub(super) fn label_column(&mut self) -> String {
        let Some(LabelText(text)) = self.label.take().cloned() else { return String::new() };
        set_config(&self.value(text)) + ", "
    }
}

/// The suffix of a target that is not locked exclusively.
const MODE_SUFFIXES: [(&str, Mode); 2] = [("=S", Mode::Shared), ("=U", Mode::Update)];

/// Returns as many targets as fit into `limit`, and the number of the others. If the first does not fit, it is cut.
fn targets_within(targets: &[(&Target, Mode)], limit: usize) -> String {
    let mut text = String::new();
    for (index, (target, mode)) in targets.iter().enumerate() {
        let path = target.to_string();
        let suffix = MODE_SUFFIXES.iter().find(|(_, known)| known == mode);
        let suffix = suffix.map_or("", |(suffix, _)| suffix);
        let path = utf8_percent_encode(&path, ENCODED).to_string() + suffix;
        let omitted = |count: usize| if count > 0 { format!(" +{count}") } else { String::new() };
        let (rest, gap) = (omitted(targets.len() - index - 1), usize::from(index > 0));
        if text.len() + gap + path.len() + rest.len() <= limit {
            text.extend([&" "[..gap], &path]);
            continue;
        }
        if index == 0 {
            let room = limit.saturating_sub(rest.len() + 1);
            text.extend([&path[..path.len().min(room)], "*", &rest]);
        } else {
            text += &omitted(targets.len() - index);
        }
        break;
    }
    text
}

/// The label of a lock session: its client, and the targets that it holds or waits for.
///
/// ```
/// use hierlock::sql::SessionLabel;
///
/// let label = SessionLabel::parse("cron@web-3:4711 @1763418665 u1/a1 u7/a7/r7=S +2").unwrap();
/// assert_eq!(label.client.host, "web-3");
/// assert_eq!(label.claims[0].target, "u1/a1".parse()?);
/// assert_eq!(label.claims[1].mode, hierlock::Mode::Shared);
/// assert_eq!(label.omitted, 2);
/// assert_eq!(SessionLabel::parse("psql"), None);
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLabel {
    /// The client of the session.
    pub client: ClientIdentity,
    /// The time at which the session began to take its locks, by the clock of the server.
    pub since: Option<SystemTime>,
    /// The requested targets that the session holds or waits for, with their modes.
    pub claims: Vec<Claim>,
    /// The beginning of a target that was too long.
    pub cut_target: Option<String>,
    /// The number of further targets that did not fit.
    pub omitted: usize,
}

impl SessionLabel {
    /// Parses a label. Returns `None` for any other text, such as the `application_name` of another program.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let client = words.next()?.parse().ok()?;
        let mut label =
            Self { client, since: None, claims: Vec::new(), cut_target: None, omitted: 0 };
        for word in words {
            if let Some(seconds) = word.strip_prefix('@') {
                let since = Duration::from_secs(seconds.parse().ok()?);
                label.since = Some(SystemTime::UNIX_EPOCH.checked_add(since)?);
            } else if let Some(count) = word.strip_prefix('+') {
                label.omitted = count.parse().ok()?;
            } else if let Some(cut) = word.strip_suffix('*') {
                label.cut_target = Some(decode_cut(cut));
            } else {
                let of_suffix = |(suffix, mode)| Some((word.strip_suffix(suffix)?, mode));
                let claim = MODE_SUFFIXES.into_iter().find_map(of_suffix);
                let (path, mode) = claim.unwrap_or((word, Mode::Exclusive));
                label.claims.push(Claim { target: decode(path)?.parse().ok()?, mode });
            }
        }
        Some(label)
    }

    /// Returns the targets without their modes.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.claims.iter().map(|claim| &claim.target)
    }

    /// Returns whether the label contains all targets in full.
    pub fn is_complete(&self) -> bool {
        self.omitted == 0 && self.cut_target.is_none()
    }

    /// Returns the targets and their ancestors. Of a cut target only the ancestors of its last ID, which may be cut.
    pub fn nodes(&self) -> BTreeSet<Target> {
        let cut = self.cut_target.as_ref().and_then(|path| path.rsplit_once('/')?.0.parse().ok());
        let above_cut: Option<Target> = cut;
        let paths = self.targets().chain(&above_cut);
        paths.flat_map(|path| (0..=path.level()).map(|level| path.ancestor(level))).collect()
    }

    /// Returns the target, or the ancestor of one, that maps to a slot, or `None` if there is none. `slot` is the name from
    /// [`Scheme::slot_name`].
    pub fn target_of_slot(&self, scheme: &Scheme, slot: &str) -> Option<Target> {
        self.claims.iter().find_map(|claim| {
            let plan = scheme.plan([claim.clone()]).ok()?;
            plan.steps().find(|step| scheme.slot_name(step) == slot).map(|step| step.target)
        })
    }
}

/// Decodes percent-encoded characters, except `%2F` and `%25`, which are escapes of the target itself.
fn decode(word: &str) -> Option<String> {
    let escaped = word.replace("%25", "%2525").replace("%2F", "%252F");
    percent_decode_str(&escaped).decode_utf8().ok().map(Cow::into_owned)
}

/// Decodes a cut word, which may end within a character. Leaves out the incomplete character.
fn decode_cut(word: &str) -> String {
    let ends = word.char_indices().map(|(end, _)| end).chain([word.len()]).rev();
    ends.filter_map(|end| decode(&word[..end])).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(paths: &[&str]) -> Vec<Target> {
        paths.iter().map(|path| path.parse().unwrap()).collect()
    }

    fn label(dialect: Dialect, client: &str, paths: &[&str]) -> String {
        let client = client.parse().unwrap();
        let targets = targets(paths);
        let claims = targets.iter().map(|target| (target, Mode::Exclusive));
        LabelText::new(LabelLimit::of(dialect), &client, 1_763_418_665, claims).0
    }

    #[test]
    fn a_label_survives_formatting_and_parsing() {
        let paths = ["u1/a1/r1", "u2/50%25 off%2Fsale/'; \\", "利用者/口座"];
        let label = SessionLabel::parse(&label(Dialect::Mysql, "a/p@h:1", &paths)).unwrap();
        assert_eq!(label.targets().cloned().collect::<Vec<_>>(), targets(&paths));
        assert!(label.is_complete());
        assert_eq!(label.client, "a/p@h:1".parse().unwrap());
    }

    #[test]
    fn a_label_has_no_character_that_can_end_a_literal_or_a_comment() {
        let label = label(Dialect::Mysql, "p@h:1", &["'\"\\\n\u{0}$;?*+ ", "*%2F/%2F*/*"]);
        assert!(label.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "{label}");
        assert!(!label.contains(['\'', '"', '\\', '$', ';', '?', '*', '+']), "{label}");
    }

    #[test]
    fn a_long_label_of_postgres_is_cut() {
        let uuid = "018f3c5a-7b1e-7c3d-9e4f-aaaaaaaaaaaa";
        let long = format!("{uuid}/{uuid}");
        for (client, paths, text) in [
            ("cron@web-3:4711", vec!["u1/a1/r1"], "cron@web-3:4711 @1763418665 u1/a1/r1"),
            (
                "cron@web-3:4711",
                vec!["u1", "u2", "u3/a-rather-long-account", "u4/a4"],
                "cron@web-3:4711 @1763418665 u1 u2 u3/a-rather-long-account +1",
            ),
            (
                "cron@web-3:4711",
                vec![&long, "u2"],
                "cron@web-3:4711 @1763418665 018f3c5a-7b1e-7c3d-9e4f-aaaaaaa* +1",
            ),
            (
                "billing/rebuild-index@web-3.example.org:4711",
                vec![&long],
                "rebuild-index@web-3:4711 @1763418665 018f3c5a-7b1e-7c3d-9e*",
            ),
        ] {
            let written = label(Dialect::Postgres, client, &paths);
            assert_eq!(written, text);
            assert!(written.len() <= MAX_POSTGRES_LENGTH, "{written}");
            assert!(SessionLabel::parse(&written).is_some(), "{written}");
        }
        let many: Vec<String> = (0..500).map(|number| format!("u1/a1/r{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let written = label(Dialect::Mariadb, "cron@web-3:4711", &many);
        let label = SessionLabel::parse(&written).unwrap();
        assert!(written.len() <= LabelLimit::NO_SERVER_LIMIT.label, "{}", written.len());
        assert_eq!(label.claims.len() + label.omitted, 500);
    }

    #[test]
    fn modes_survive_formatting_and_parsing() {
        let path: Target = "u1/a=S".parse().unwrap();
        for (mode, text) in [
            (Mode::Exclusive, "p@h:1 @7 u1/a%3DS"),
            (Mode::Shared, "p@h:1 @7 u1/a%3DS=S"),
            (Mode::Update, "p@h:1 @7 u1/a%3DS=U"),
        ] {
            let client = "p@h:1".parse().unwrap();
            let LabelText(written) =
                LabelText::new(LabelLimit::APPLICATION_NAME, &client, 7, [(&path, mode)]);
            assert_eq!(written, text);
            let target = path.clone();
            assert_eq!(SessionLabel::parse(text).unwrap().claims, [Claim { target, mode }]);
        }
    }

    /// The failure this prevents: a long path that was cut within a character made the whole label unreadable.
    #[test]
    fn a_cut_label_names_the_ancestors_of_the_cut_id() {
        let long = "利用者".repeat(8);
        let long = format!("u1/a1/{long}");
        // The length of the client decides at which byte of a character the path is cut.
        for length in 1..=9 {
            let client = format!("{}@h:1", "p".repeat(length));
            let written = label(Dialect::Postgres, &client, &[&long]);
            let label = SessionLabel::parse(&written).unwrap_or_else(|| panic!("{written}"));
            let cut = label.cut_target.unwrap();
            assert!(
                cut.len() > "u1/a1/利用".len()
                    && long.starts_with(cut.trim_end_matches(|c: char| c.is_ascii())),
                "{cut}"
            );
        }
        let written = label(Dialect::Postgres, "p@h:1", &[&long]);
        for (text, cut, nodes) in [
            (&*written, "u1/a1/利用", &["u1", "u1/a1"][..]),
            ("p@h:1 u1/a1/r*", "u1/a1/r", &["u1", "u1/a1"]),
            ("p@h:1 u1/a%2*", "u1/a%2", &["u1"]),
            ("p@h:1 u1/a%2Fb/c*", "u1/a%2Fb/c", &["u1", "u1/a%2Fb"]),
            ("p@h:1 018f*", "018f", &[]),
            ("p@h:1 u7=S 018f/x*", "018f/x", &["u7", "018f"]),
        ] {
            let label = SessionLabel::parse(text).unwrap_or_else(|| panic!("{text}"));
            let found = label.cut_target.as_deref().unwrap();
            assert!(found.starts_with(cut), "{text}: {found}");
            let found: Vec<String> = label.nodes().iter().map(Target::to_string).collect();
            assert_eq!(found, nodes, "{text}");
            assert!(!label.is_complete(), "{text}");
        }
    }

    #[test]
    fn other_texts_do_not_parse_as_labels() {
        for text in ["", "psql", "pgAdmin 4 - DB:postgres", "a@b:1 @x", "a@b:1 u1//r1", "a@b:1 +x"]
        {
            assert_eq!(SessionLabel::parse(text), None, "{text}");
        }
    }

    /// A stale label of an earlier hold must not name a slot of the next one.
    #[test]
    fn a_label_names_only_slots_of_its_own_targets() {
        let scheme = Scheme::new(Dialect::Mysql);
        let label = SessionLabel::parse("p@h:1 u1/a1/r1").unwrap();
        let slot = |path: &str| {
            let claim = Claim { target: path.parse().unwrap(), mode: Mode::Exclusive };
            scheme.slot_name(&scheme.plan([claim]).unwrap().steps().last().unwrap())
        };
        for (path, is_named) in
            [("u1/a1/r1", true), ("u1/a1", true), ("u1", true), ("u1/a1/r2", false)]
        {
            let target = label.target_of_slot(&scheme, &slot(path));
            assert_eq!(target, is_named.then(|| path.parse().unwrap()), "{path}");
        }
    }
}
