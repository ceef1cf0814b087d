//! Removes the prefixes of InnoDB lines in logs, terminals, mails and bug reports. Pure.

use std::borrow::Cow;

/// The beginnings of InnoDB lines about transactions.
const LINE_PREFIXES: [&str; 18] = [
    "*** (",
    "*** TRANSACTION:",
    "*** WE ROLL BACK",
    "*** WAITING FOR THIS LOCK",
    "*** CONFLICTING WITH",
    "*** HOLDS THE LOCK",
    "LATEST DETECTED DEADLOCK",
    "Transactions deadlock detected",
    "TRANSACTION ",
    "LOCK WAIT ",
    "mysql tables in use",
    "MySQL thread id ",
    "MariaDB thread id ",
    "RECORD LOCKS space id ",
    "TABLE LOCK table ",
    "Record lock, heap no ",
    "TRANSACTIONS",
    "END OF INNODB",
];

/// A line, and the length of its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PastedLine<'a> {
    text: Cow<'a, str>,
    prefix: usize,
}

impl PastedLine<'_> {
    pub(super) fn rest(&self) -> &str {
        &self.text[self.prefix..]
    }

    fn prefix(&self) -> &str {
        &self.text[..self.prefix]
    }

    /// Returns the time stamp in the prefix: `2026-11-17T22:24:18.103388Z`.
    pub(super) fn stamp(&self) -> Option<&str> {
        time_stamp(self.prefix())
    }
}

/// Returns whether a part of the text looks like InnoDB output.
pub(super) fn is_innodb(text: &str) -> bool {
    let words = ["INNODB MONITOR OUTPUT", "Trx id counter", "InnoDB: ", "[InnoDB]", "[MY-0"];
    let is_known = |line: &str| is_innodb_line(line) && line != "TRANSACTIONS";
    words.iter().any(|word| text.contains(word))
        || lines(text).iter().any(|line| is_known(line.rest()))
}

/// Returns the lines of a text, with the prefixes of InnoDB lines found.
pub(super) fn lines(text: &str) -> Vec<PastedLine<'_>> {
    let mut lines: Vec<PastedLine<'_>> = Vec::new();
    // The prefix of the last ` thread id ` line.
    let mut last_prefix = String::new();
    for raw in text.lines() {
        // `mysql -e` prints the whole text on one line.
        if raw.contains("\\n") && LINE_PREFIXES.iter().any(|begin| raw.contains(begin)) {
            let whole = raw.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\");
            let line = |line: &str| parse_line(Cow::Owned(line.trim_end().to_owned()), "");
            lines.extend(whole.lines().map(line));
            continue;
        }
        let line = parse_line(Cow::Borrowed(raw.trim_end()), &last_prefix);
        if line.rest().contains(" thread id ") {
            line.prefix().clone_into(&mut last_prefix);
        }
        push_line(&mut lines, line);
    }
    lines
}

/// Adds a line, or joins it with the previous one if a mail program has wrapped a lock.
fn push_line<'a>(lines: &mut Vec<PastedLine<'a>>, line: PastedLine<'a>) {
    const CONTINUATIONS: [&str; 7] =
        ["`", "trx id ", "lock_mode ", "lock mode ", "locks ", "insert intention", "waiting"];
    let rest = line.rest().trim_start();
    let is_lock = |line: &PastedLine| {
        line.rest().starts_with("RECORD LOCKS") || line.rest().starts_with("TABLE LOCK")
    };
    if let Some(last) = lines.last_mut()
        && is_lock(last)
        && CONTINUATIONS.iter().any(|begin| rest.starts_with(begin))
    {
        let joined = format!("{} {rest}", last.text.trim_end());
        last.text = Cow::Owned(joined);
    } else {
        lines.push(line);
    }
}

fn is_innodb_line(line: &str) -> bool {
    // Statements may begin with these words too.
    let is_known = match line.split(' ').next() {
        Some("TRANSACTION") => line.contains(", ACTIVE") || line.contains(", not started"),
        Some("TRANSACTIONS") => line.trim_end() == "TRANSACTIONS",
        Some("LOCK") => line.contains(" lock struct(s)"),
        _ => LINE_PREFIXES.iter().any(|begin| line.starts_with(begin)),
    };
    is_known || is_field(line)
}

/// Returns whether the line is a field: ` 0: len 4; hex 80000001; asc     ;;`.
fn is_field(line: &str) -> bool {
    let number = line.trim_start().split_once(": ");
    number.is_some_and(|(number, rest)| {
        number.parse::<u32>().is_ok() && (rest.starts_with("len ") || rest.starts_with("SQL NULL"))
    })
}

/// Finds the start of the InnoDB line. `last_prefix` is the prefix of the ` thread id ` line above.
fn parse_line<'a>(text: Cow<'a, str>, last_prefix: &str) -> PastedLine<'a> {
    let starts = LINE_PREFIXES.iter().filter_map(|begin| text.find(begin));
    let start = starts.filter(|at| is_prefix(&text[..*at]) && is_innodb_line(&text[*at..])).min();
    // Any other line is a statement, or empty.
    let start = start.or_else(|| field_start(&text));
    let prefix = start.unwrap_or_else(|| prefix_like(last_prefix, &text));
    PastedLine { text, prefix }
}

/// Returns the start of a field such as ` 0: len 4`, with the space that InnoDB writes before it.
fn field_start(text: &str) -> Option<usize> {
    let at = text.find(": len ").or_else(|| text.find(": SQL NULL"))?;
    let digits = text[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
    let number = at - digits;
    let start = if text[..number].ends_with(' ') { number - 1 } else { number };
    (digits > 0 && is_prefix(&text[..start])).then_some(start)
}

/// Returns whether a text can be a prefix: it contains no SQL.
fn is_prefix(text: &str) -> bool {
    const VERBS: [&str; 9] =
        ["select", "insert", "update", "delete", "replace", "with", "set", "call", "--"];
    let first = text.split_whitespace().next().unwrap_or_default().to_lowercase();
    text.len() <= 160
        && !text.contains(['\'', '"', '`', '=', '('])
        && !VERBS.contains(&first.as_str())
}

/// Returns the length of the part of `text` that matches the prefix `like`: the same characters, other numbers.
fn prefix_like(like: &str, text: &str) -> usize {
    let mut rest = text;
    let mut pattern = like.chars().peekable();
    while let Some(c) = pattern.next() {
        if c.is_ascii_digit() {
            while pattern.next_if(char::is_ascii_digit).is_some() {}
            let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() == rest.len() {
                return 0;
            }
            rest = after;
        } else if c.is_whitespace() {
            // A right-aligned number may have fewer spaces before it.
            match rest.strip_prefix(c) {
                Some(after) => rest = after,
                None if rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit()) => {}
                None => return 0,
            }
        } else {
            match rest
                .strip_prefix(|next: char| next == c || ":-".contains(next) && ":-".contains(c))
            {
                Some(after) => rest = after,
                None if rest.is_empty() => {}
                None => return 0,
            }
        }
    }
    text.len() - rest.len()
}

/// Finds `2026-11-17 22:24:18.103 UTC`, `2026-11-17T22:24:18.103388Z` or `131117 10:00:00` in a text.
pub(super) fn time_stamp(text: &str) -> Option<&str> {
    let shapes = ["0000-00-00 00:00", "0000-00-00T00:00", "000000 00:00:00", "000000  0:00:00"];
    let shape = text.replace(|c: char| c.is_ascii_digit(), "0");
    let rest = &text[shapes.iter().filter_map(|known| shape.find(known)).min()?..];
    let day = rest.find([' ', 'T'])?;
    let is_time_character = |c: char| c.is_ascii_digit() || ":.,+Z".contains(c);
    let time = rest[day + 1..].trim_start();
    let begin = rest.len() - time.len();
    let end = time.find(|c| !is_time_character(c)).map_or(rest.len(), |end| begin + end);
    // The time zone is a word in capitals: `UTC`, `CET`.
    let zone = rest[end..].strip_prefix(' ').unwrap_or_default();
    let zone = zone.len() - zone.trim_start_matches(|c: char| c.is_ascii_uppercase()).len();
    let has_zone = (3..=5).contains(&zone) && !rest[end..].trim_start()[zone..].starts_with(':');
    Some(rest[..if has_zone { end + 1 + zone } else { end }].trim_end_matches([':', ',']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_lines_are_removed() {
        for (raw, rest) in [
            ("*** (1) TRANSACTION:", "*** (1) TRANSACTION:"),
            ("> > *** (1) TRANSACTION:  \r", "*** (1) TRANSACTION:"),
            ("  17: *** (1) TRANSACTION:", "*** (1) TRANSACTION:"),
            ("    18\tMySQL thread id 3, OS", "MySQL thread id 3, OS"),
            (
                "2026-11-17T22:24:18.1Z 0 [Note] [MY-012469] [InnoDB]  *** (1) HOLDS THE LOCK(S): ",
                "*** (1) HOLDS THE LOCK(S):",
            ),
            (
                "Nov 17 22:01:02 db1 mysqld[71]: InnoDB: *** WE ROLL BACK TRANSACTION (2)",
                "*** WE ROLL BACK TRANSACTION (2)",
            ),
            ("  12:  0: len 4; hex 80000001; asc     ;;", " 0: len 4; hex 80000001; asc     ;;"),
            ("| 3: SQL NULL;", " 3: SQL NULL;"),
            ("select '*** (1) TRANSACTION:'", "select '*** (1) TRANSACTION:'"),
            ("start TRANSACTION READ ONLY", "start TRANSACTION READ ONLY"),
        ] {
            assert_eq!(lines(raw)[0].rest(), rest, "{raw}");
        }
    }

    #[test]
    fn statements_lose_the_prefix_of_the_line_above() {
        for (thread, statement, rest) in [
            ("17: ", "18: update t", "update t"),
            ("  9\t", " 10\tupdate t", "update t"),
            ("> ", "> update t", "update t"),
            ("17- ", "18- update t", "update t"),
            ("    ", "      set n = 1", "  set n = 1"),
            ("> ", "update t", "update t"),
            ("", "  update t", "  update t"),
        ] {
            let text = format!("{thread}MySQL thread id 3, OS\n{statement}");
            assert_eq!(lines(&text)[1].rest(), rest, "{statement}");
        }
    }

    #[test]
    fn time_stamps_are_found() {
        for (text, time) in [
            ("2026-11-17 22:42:14.541 UTC [3866] ", Some("2026-11-17 22:42:14.541 UTC")),
            ("2026-11-17 22:44:20 UTC:127.0.0.1(46692):", Some("2026-11-17 22:44:20")),
            ("> 2026-11-17T22:24:18.103388Z 0 [Note]", Some("2026-11-17T22:24:18.103388Z")),
            ("2026-11-17 22:25:23 9 [Note]", Some("2026-11-17 22:25:23")),
            ("131117  9:08:07 [Note]", Some("131117  9:08:07")),
            ("131117 10:08:07", Some("131117 10:08:07")),
            ("[3866] ", None),
            ("日本 2026", None),
        ] {
            assert_eq!(time_stamp(text), time, "{text}");
        }
    }
}
