//! Deadlocks in logs of PostgreSQL: lines with any prefix, CSV or JSON, in any language. Pure.

use super::DeadlockWait;
use super::deadlock_dump::{DeadlockDump, DeadlockLock, DeadlockMember};
use super::log_fields::{LogMessage, csv_record, json_object};
use super::pasted_text::time_stamp;
use super::postgres_wait::{numbers, parse_context, parse_wait};
use crate::Dialect;
use crate::redact_statement;

/// The labels of message parts in the languages of PostgreSQL, and in its Java driver, separated by `|`. A colon follows:
/// `HINT:  `.
const LABELS: [(LogPart, &str); 5] = [
    (
        LogPart::Detail,
        "DETAIL|Detail|DETALLE|DÉTAIL|DETTAGLI|詳細|დეტალები|상세정보|ПОДРОБНОСТИ|DETALJ|\
         ВІДОМОСТІ|详细信息",
    ),
    (
        LogPart::Hint,
        "HINT|Hint|TIPP|ASTUCE|SUGGERIMENTO|ヒント|მინიშნება|힌트|ПОДСКАЗКА|TIPS|УКАЗІВКА|提示",
    ),
    (
        LogPart::Context,
        "CONTEXT|Where|ZUSAMMENHANG|CONTEXTO|CONTEXTE|CONTESTO|文脈|კონტექსტი|내용|КОНТЕКСТ|\
         KONTEXT|上下文",
    ),
    (
        LogPart::Statement,
        "STATEMENT|ANWEISUNG|SENTENCIA|INSTRUCTION|ISTRUZIONE|文|ოპერატორი|명령 구문|ОПЕРАТОР|\
         SATS|ІНСТРУКЦІЯ|语句",
    ),
    (
        LogPart::Message,
        "ERROR|FEHLER|ERREUR|ERRORE|შეცდომა|오류|ОШИБКА|FEL|ПОМИЛКА|错误|LOG|FATAL|WARNING",
    ),
];

/// A part of a log message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogPart {
    Message,
    Detail,
    Hint,
    Context,
    Statement,
}

/// Returns whether a text looks like a log of PostgreSQL.
pub(super) fn is_log(text: &str) -> bool {
    // A CSV column, and fields of CSV and JSON.
    let fields = [",00000,", "\"client backend\"", "\"error_severity\":"];
    fields.iter().any(|field| text.contains(field))
        || text.lines().any(|line| label(line).is_some())
}

/// Parses all deadlocks, in the order of the text.
pub(super) fn parse_all(text: &str) -> Vec<DeadlockDump> {
    let mut dumps = Vec::new();
    let mut rest = text;
    // The line before the detail, which contains the message.
    let mut message = "";
    while !rest.is_empty() {
        let (line, mut next) = rest.split_once('\n').unwrap_or((rest, ""));
        if let Some(message) = json_object(line) {
            dumps.extend(message.dump());
        } else if let Some((message, after)) = csv_record(rest) {
            dumps.extend(message.dump());
            next = after;
        } else if let Some(lines) = unfold(line) {
            dumps.extend(parse_all(&lines));
        } else if parse_wait(line).is_some() {
            let (block, after) = LogMessage::of_lines(message, rest);
            dumps.extend(block.dump());
            next = after;
        } else {
            message = line;
        }
        rest = next;
    }
    dumps
}

/// Splits a message that a program has written on one line, with `\\n` or spaces between its lines. None for any other
/// line.
fn unfold(line: &str) -> Option<String> {
    let count = |text: &str| text.lines().filter(|line| parse_wait(line).is_some()).count();
    if line.matches("Lock").count() < 2 {
        return None;
    }
    let parts = ["Process ", "HINT:", "CONTEXT:", "STATEMENT:", "Hint:", "Where:"];
    let by_spaces = parts.iter().fold(line.to_owned(), |text, part| {
        text.replace(&format!(". {part}"), &format!(".\n{part}"))
            .replace(&format!("; {part}"), &format!(";\n{part}"))
    });
    [line.replace("\\n", "\n").replace("\\t", "\t"), by_spaces]
        .into_iter()
        .find(|text| count(text) > 1)
}

impl LogMessage {
    /// Parses lines from the first wait on. Returns the rest of the text.
    fn of_lines<'a>(message: &str, text: &'a str) -> (Self, &'a str) {
        let mut log_message = Self::default();
        let (mut part, mut rest, mut prefix) = (LogPart::Detail, text, "");
        while !rest.is_empty() {
            let (line, next) = rest.split_once('\n').unwrap_or((rest, ""));
            let line = line.trim_end();
            match label(line) {
                Some((_, LogPart::Message, _)) => break,
                // The next deadlock begins.
                Some(_) if log_message.has_end && parse_wait(line).is_some() => break,
                Some((_, LogPart::Detail, _)) if log_message.detail.is_some() => break,
                Some((before, next_part, value)) => {
                    let is_wait = parse_wait(line).is_some();
                    let next_part = if is_wait { LogPart::Detail } else { next_part };
                    log_message.has_end |= next_part != LogPart::Detail;
                    part = next_part;
                    prefix = before;
                    log_message.add(part, value);
                }
                // Only the lines of a statement have no prefix.
                None if log_message.detail.is_none() || is_continuation(line, part) => {
                    log_message.add(part, line);
                }
                None => break,
            }
            rest = next;
        }
        let prefix = if prefix.is_empty() { message } else { prefix };
        log_message.time = time_stamp(prefix).map(str::to_owned);
        let account = prefix.split([' ', ':', '[', ',']).find_map(|word| word.split_once('@'));
        let account = account.filter(|(user, database)| !user.is_empty() && !database.is_empty());
        let account = account.map(|(user, database)| (user.to_owned(), database.to_owned()));
        (log_message.user, log_message.database) = account.unzip();
        (log_message, rest)
    }

    fn add(&mut self, part: LogPart, line: &str) {
        let text = match part {
            LogPart::Detail => &mut self.detail,
            LogPart::Context => &mut self.context,
            LogPart::Statement => &mut self.statement,
            LogPart::Message | LogPart::Hint => return,
        }
        .get_or_insert_default();
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(line);
    }

    /// Returns the deadlock; None if the message is about something else.
    fn dump(self) -> Option<DeadlockDump> {
        let waits: Vec<DeadlockWait> = self.detail_lines().filter_map(parse_wait).collect();
        let index = |pid: i64| waits.iter().position(|wait| wait.waiter == pid);
        let wanted = |target| DeadlockLock { target, columns: Vec::new(), granted: false };
        let mut members: Vec<DeadlockMember> = waits
            .iter()
            .map(|wait| DeadlockMember {
                session: Some(wait.waiter),
                statement: self.statement_of(wait.waiter),
                waits_for: index(wait.holder),
                wanted: wait.wanted.clone().map(wanted),
                ..DeadlockMember::default()
            })
            .collect();
        // The session that detects the deadlock is the victim, and the first in the list.
        let victim = members.first_mut()?;
        victim.row = self.context.as_deref().and_then(|text| text.lines().find_map(parse_context));
        victim.user = self.user;
        victim.database = self.database;
        victim.host = self.host;
        victim.program = self.program;
        let statement = self.statement.map(|statement| statement_text(&statement));
        victim.statement = statement.or(victim.statement.take());
        Some(DeadlockDump {
            dialect: Some(Dialect::Postgres),
            time: self.time,
            victim: Some(0),
            is_cut: !self.has_end || members.iter().any(|member| member.waits_for.is_none()),
            members,
            has_guessed_keys: false,
        })
    }

    fn detail_lines(&self) -> impl Iterator<Item = &str> {
        self.detail.as_deref().unwrap_or_default().lines()
    }

    /// Returns the statement after `Process 8: `, in any language, up to the next such line.
    fn statement_of(&self, pid: i64) -> Option<String> {
        let mut lines = self
            .detail_lines()
            .skip_while(|line| process_statement(line).is_none_or(|(process, _)| process != pid));
        let (_, first) = process_statement(lines.next()?)?;
        let other_lines = lines.take_while(|line| process_statement(line).is_none());
        let statement = std::iter::once(first).chain(other_lines).collect::<Vec<_>>().join("\n");
        Some(statement_text(&statement)).filter(|statement| !statement.is_empty())
    }
}

/// Returns a statement without the tabs that a log puts before its lines, and without passwords.
fn statement_text(text: &str) -> String {
    let lines: Vec<&str> =
        text.lines().map(|line| line.strip_prefix('\t').unwrap_or(line)).collect();
    redact_statement(lines.join("\n").trim().trim_end_matches(';').trim_end()).into_owned()
}

/// Parses `Process 8: update t …`, in any language: a word, a number and a colon.
fn process_statement(line: &str) -> Option<(i64, &str)> {
    let (colon, width) = line.char_indices().find_map(|(at, c)| match c {
        ':' | '：' => Some((at, c.len_utf8())),
        _ => None,
    })?;
    let before = line[..colon].trim_end_matches([' ', '\u{a0}', '\u{202f}']);
    let (at, pid) = *numbers(before).last()?;
    let word = before[..at].trim();
    let is_word = !word.is_empty()
        && word.chars().count() <= 24
        && word.chars().all(|c| c.is_alphabetic() || c == ' ' || c == '>');
    let is_number_last = before.ends_with(|c: char| c.is_ascii_digit());
    (is_word && is_number_last).then(|| (pid, line[colon + width..].trim_start_matches(' ')))
}

/// Splits `2026-11-17 22:42:14 UTC [3866] HINT:  See …` into prefix, part and value.
fn label(line: &str) -> Option<(&str, LogPart, &str)> {
    let known = LABELS.iter().find_map(|(part, words)| {
        words.split('|').find_map(|word| {
            let at = line.find(word)?;
            let after = line[at + word.len()..].trim_start_matches([' ', '\u{a0}']);
            let value = after.strip_prefix(':')?.strip_prefix(' ')?;
            let before = &line[..at];
            let is_word =
                before.is_empty() || before.ends_with([' ', '\t', ':', ']', '>', '|', ')']);
            // A label in a quoted string is part of a statement.
            (is_word && !before.contains(['\'', '"'])).then(|| (before, *part, value.trim_start()))
        })
    });
    known.or_else(|| {
        // In an unknown language a label is a word in capitals, a colon and two spaces.
        let (before, value) = line.split_once(":  ")?;
        let (prefix, word) = before.rsplit_once(' ').unwrap_or(("", before));
        let is_label = word.chars().count() > 2 && word.chars().all(char::is_uppercase);
        is_label.then_some((prefix, LogPart::Hint, value))
    })
}

/// Returns whether a line continues the part above. PostgreSQL puts a tab before it, which may be lost.
fn is_continuation(line: &str, part: LogPart) -> bool {
    let is_new = time_stamp(line).is_some_and(|stamp| line.find(stamp).is_some_and(|at| at < 8));
    let is_statement =
        matches!(part, LogPart::Detail | LogPart::Statement) && !line.trim().is_empty();
    line.starts_with('\t') || is_statement && !is_new && !line.starts_with("```")
}

#[cfg(test)]
mod tests;
