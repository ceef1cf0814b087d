//! Parses PostgreSQL's deadlock messages in any language: numbers, brackets and the names of modes are never
//! translated, and the words that distinguish objects are in one table. Pure.

use super::conflict::POSTGRES_MODES;
use super::deadlock_dump::RowContext;
use super::{DeadlockWait, LockKind, LockTarget};

// Words of the messages in the languages of PostgreSQL 15, separated by `|`: English, German, Spanish, French, Italian,
// Japanese, Georgian, Korean, Russian, Swedish, Ukrainian, Chinese.
const EXTENSION: &str = "xtension|Erweiterung|extensión|estensione|拡張|გაფართოება|확장|\
     асширение|utökning|розширення|扩展";
const SPECULATIVE: &str = "speculativ|spekulativ|spéculatif|投機|위험한 토큰|спекулятивный|\
     орієнтовний|推测";
const PAGE: &str = "page |Seite |página |pagina |ページ|გვერდი|페이지|страница|sida |\
     сторінка|页";
/// Languages that name the database before the other parts.
const DATABASE_FIRST: &str = "データベース|数据库";

/// The verbs of error contexts: what a statement did with a row.
const VERBS: [(&str, &str); 4] = [
    // First: in some languages `locking updated version` also contains the word for updating.
    (
        "locking",
        "locking|Sperren|bloqueaba|verrou|blocco|ロック|დაბლოკვისას|잠그는|блокировке|låsning|\
         блокуванні|锁定",
    ),
    (
        "updating",
        "updating|Aktualisieren|actualizaba|mise à jour|modifica|更新|განახლებისას|갱신|\
         изменении|uppdatering|оновленні",
    ),
    (
        "deleting",
        "deleting|Löschen|borraba|suppression|eliminazione|削除|წაშლისას|삭제|удалении|\
         borttagning|видаленні|删除",
    ),
    (
        "inserting",
        "inserting|Einfügen|insertaba|insertion|inserimento|挿入|삽입|добавлении|insättning|\
         вставці|插入",
    ),
];

/// The quotes around a table name, opening and closing.
const QUOTES: [(char, char); 4] = [('"', '"'), ('»', '«'), ('«', '»'), ('“', '”')];

/// Parses `Process 7 waits for ShareLock on transaction 740; blocked by process 8.`, in any language, after any prefix.
/// Tables stay OIDs.
pub(super) fn parse_wait(line: &str) -> Option<DeadlockWait> {
    // The modes are the same in every language. Some end with the name of another.
    let modes = POSTGRES_MODES.iter().map(|(mode, _)| *mode);
    let mode = modes.filter(|mode| line.contains(mode)).max_by_key(|mode| mode.len())?;
    let at = line.find(mode)?;
    // Skips the prefix of the log and `DETAIL:  `.
    let begin = line[..at].rfind(":  ").map_or(0, |begin| begin + 3);
    let begin = line[..at].rfind("进程").unwrap_or(begin);
    let line = &line[begin..];
    let at = at - begin;
    let numbers = numbers(line);
    let (last_at, holder) = *numbers.last()?;
    // The line of a statement may end with a number too, and so does `still waiting for … after 1000.154 ms`.
    let end = line[last_at..].trim_start_matches(|c: char| c.is_ascii_digit());
    let is_fraction = line[..last_at].ends_with(['.', ',']);
    if at > last_at
        || is_fraction
        || end.chars().count() > 24
        || end.contains([';', '\'', '(', '='])
    {
        return None;
    }
    // Several numbers before the mode and one after it: the object comes before the mode, as in Chinese. Otherwise the
    // first of several may be a line number.
    let before: Vec<_> = numbers.iter().filter(|(number_at, _)| *number_at < at).collect();
    let is_object_first = before.len() > 1 && numbers.len() - before.len() == 1;
    let (waiter_at, waiter) = **(if is_object_first { before.first() } else { before.last() })?;
    let after_waiter = waiter_at + digit_count(&line[waiter_at..]);
    let object =
        if is_object_first { &line[after_waiter..at] } else { &line[at + mode.len()..last_at] };
    let wanted = parse_object(object, mode)?;
    // A line with two messages is not parsed here.
    let is_single = line.matches("Lock").count() == 1 && waiter != holder;
    is_single.then(|| DeadlockWait { waiter, holder, wanted: Some(wanted), blocking: Vec::new() })
}

/// Parses the object of a lock by the pattern of its numbers.
fn parse_object(text: &str, mode: &str) -> Option<LockTarget> {
    if let Some((_, rest)) = text.split_once('[') {
        let key = advisory_key(rest.split_once(']')?.0)?;
        return Some(LockTarget::new(LockKind::Advisory, key, mode));
    }
    let has = |words: &str| has_any(text, words);
    let is_reversed = has(DATABASE_FIRST);
    if let Some((before, ctid, after)) = tuple(text) {
        let numbers = numbers(if is_reversed { before } else { after });
        let (_, relation) = *(if is_reversed { numbers.get(1) } else { numbers.first() })?;
        // The Japanese message has page and row in the wrong order.
        let (page, row) = if text.contains('タ') { (ctid.1, ctid.0) } else { ctid };
        let record = Some(format!("({page},{row})"));
        return Some(LockTarget { record, ..LockTarget::new(LockKind::Row, relation, mode) });
    }
    let mut values: Vec<i64> = numbers(text).into_iter().map(|(_, number)| number).collect();
    let other = |object: String| LockTarget::new(LockKind::Other, object, mode);
    if text.contains("datfrozenxid") {
        return Some(other(format!("frozen transaction ids of database {}", values.first()?)));
    }
    if is_reversed || text.contains('ト') {
        values.reverse();
    }
    Some(match values[..] {
        [transaction, number] if is_virtual(text) => {
            other(format!("virtual transaction {transaction}/{number}"))
        }
        [transaction] => LockTarget::new(LockKind::Transaction, transaction, mode),
        [token, transaction] if has(SPECULATIVE) => {
            other(format!("speculative token {token} of transaction {transaction}"))
        }
        [relation, _] if has(EXTENSION) => other(format!("extension of relation {relation}")),
        [relation, _] => LockTarget::new(LockKind::Table, relation, mode),
        [page, relation, _] if has(PAGE) => other(format!("page {page} of relation {relation}")),
        [object, class, _] => other(format!("object {object} of class {class}")),
        _ => return None,
    })
}

/// Returns whether the text contains one of the words, which are separated by `|`.
fn has_any(text: &str, words: &str) -> bool {
    words.split('|').any(|word| text.contains(word))
}

/// Returns whether the text has a virtual transaction id: `3/15`.
fn is_virtual(text: &str) -> bool {
    let sides = text.split_once('/');
    sides.is_some_and(|(before, after)| {
        before.ends_with(|c: char| c.is_ascii_digit()) && digit_count(after) > 0
    })
}

/// Returns the text before `(0,2)`, its numbers, and the text after it.
fn tuple(text: &str) -> Option<(&str, (u64, u64), &str)> {
    text.match_indices('(').find_map(|(at, _)| {
        let (inside, after) = text[at + 1..].split_once(')')?;
        let (page, row) = inside.split_once(',')?;
        let ctid = (page.trim().parse().ok()?, row.trim().parse().ok()?);
        Some((&text[..at], ctid, after))
    })
}

/// Parses `5,0,7,1`: database, upper half, lower half, and whether these are one key or two.
fn advisory_key(numbers: &str) -> Option<String> {
    let numbers: Option<Vec<u64>> = numbers.split(',').map(|n| n.trim().parse().ok()).collect();
    match numbers?[..] {
        [_, upper, lower, 1] => Some(((upper << 32 | lower) as i64).to_string()),
        [_, first, second, _] | [_, first, second] => Some(format!("{first}, {second}")),
        _ => None,
    }
}

/// Returns the numbers in a text that fit into `i64`, each with its position.
pub(super) fn numbers(text: &str) -> Vec<(usize, i64)> {
    let (mut numbers, mut at) = (Vec::new(), 0);
    while let Some(begin) = text[at..].find(|c: char| c.is_ascii_digit()) {
        let length = digit_count(&text[at + begin..]);
        if let Ok(number) = text[at + begin..at + begin + length].parse() {
            numbers.push((at + begin, number));
        }
        at += begin + length;
    }
    numbers
}

fn digit_count(text: &str) -> usize {
    text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len()
}

/// Parses `while updating tuple (0,2) in relation "numbers"`, in any language.
pub(super) fn parse_context(line: &str) -> Option<RowContext> {
    let relation = QUOTES.iter().find_map(|(open, close)| {
        let begin = line.find(*open)? + open.len_utf8();
        let end = line.rfind(*close).filter(|end| *end > begin)?;
        Some((begin, line[begin..end].trim_matches([' ', '\u{a0}', '\u{202f}'])))
    });
    let (at, relation) = relation?;
    let surroundings = [&line[..at], &line[at + relation.len()..]].concat();
    let (page, row) =
        tuple(&surroundings).map(|(_, ctid, _)| ctid).or_else(|| bare_tuple(&surroundings))?;
    let verb = VERBS.iter().find(|(_, words)| has_any(&surroundings, words));
    let verb = verb.map_or("", |(verb, _)| verb);
    Some(RowContext { verb, ctid: format!("({page},{row})"), relation: relation.to_owned() })
}

/// Parses `0,2` without parentheses, as in Korean.
fn bare_tuple(text: &str) -> Option<(u64, u64)> {
    let (page, row) = text.split_once(',')?;
    let page = page.trim_start_matches(|c: char| !c.is_ascii_digit());
    Some((page.parse().ok()?, row[..digit_count(row)].parse().ok()?))
}

#[cfg(test)]
mod tests;
