//! Real dumps of MySQL 9.7, MariaDB 10.11 and PostgreSQL 15, complete and in the forms in which they are pasted.

use super::*;
use crate::introspection::lock_words;
use proptest::prelude::*;
use std::fs;
use std::path::Path;

/// The files of `tests/deadlocks`, by name.
fn files() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/deadlocks");
    let mut files: Vec<(String, String)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    assert!(files.len() > 30, "{}", files.len());
    files
}

fn file(name: &str) -> String {
    files().into_iter().find(|(file, _)| file == name).unwrap().1
}

/// Formats one line per member: `1 waits to … →Some(2); holds … VICTIM`.
fn describe(dumps: &[DeadlockDump]) -> Vec<String> {
    let words = |DeadlockLock { target, columns, granted }: &DeadlockLock| {
        format!("{} [{}]", lock_words(target, columns, *granted), target.mode)
    };
    let mut lines = Vec::new();
    for dump in dumps {
        for (index, member) in dump.members.iter().enumerate() {
            let wanted = member.wanted.as_ref().map(words).unwrap_or_default();
            let next = member.waits_for.map(|next| next + 1);
            let held = member.held.iter().map(words).collect::<Vec<_>>().join(", ");
            let victim = if dump.victim == Some(index) { " VICTIM" } else { "" };
            lines.push(format!("{} {wanted} →{next:?}; {held}{victim}", index + 1));
        }
    }
    lines
}

#[test]
fn every_dump_is_parsed_completely() {
    for (name, text) in files() {
        let dumps = read_deadlocks(&text);
        assert!(!dumps.is_empty(), "{name}");
        assert!(is_server_text(&text), "{name}");
        for dump in dumps {
            let server = name.split(['-', '.']).next().unwrap();
            assert_eq!(dump.dialect, Dialect::from_scheme(server), "{name}");
            assert!(!dump.is_cut, "{name}: {dump:?}");
            let time = dump.time.as_deref().unwrap_or_default();
            assert!(time.starts_with("2026-11-17"), "{name}: {dump:?}");
            assert!(dump.victim.is_some() && dump.members.len() > 1, "{name}: {dump:?}");
            for member in &dump.members {
                assert!(member.session.is_some() && member.wanted.is_some(), "{name}: {member:?}");
                assert!(member.waits_for.is_some(), "{name}: {member:?}");
                let verb = member.statement.as_ref().and_then(|it| it.split(' ').next());
                let is_known = ["update", "insert", "select", "delete"].map(Some).contains(&verb);
                assert!(is_known, "{name}: {member:?}");
                if dump.dialect != Some(Dialect::Postgres) {
                    let account = (member.user.as_deref(), member.host.as_deref());
                    assert_eq!(account, (Some("root"), Some("127.0.0.1")), "{name}");
                }
            }
        }
    }
}

#[test]
fn locks_of_innodb_have_plain_words() {
    for (name, first, second) in [
        (
            "mysql-update.txt",
            "1 waits to lock key 2 of shop.accounts exclusively [X,REC_NOT_GAP] →Some(2); holds key 1 of shop.accounts exclusively [X,REC_NOT_GAP]",
            "2 waits to lock key 1 of shop.accounts exclusively [X,REC_NOT_GAP] →Some(1); holds key 2 of shop.accounts exclusively [X,REC_NOT_GAP] VICTIM",
        ),
        (
            "mysql-gap.txt",
            "1 waits to insert into the gap before key 10 of shop.orders [X,GAP,INSERT_INTENTION] →Some(2); holds the gap before key 10 of shop.orders, so that nobody else inserts into it [X,GAP]",
            "2 waits to insert into the gap before key 10 of shop.orders [X,GAP,INSERT_INTENTION] →Some(1); holds the gap before key 10 of shop.orders, so that nobody else inserts into it [X,GAP] VICTIM",
        ),
        (
            "mariadb-gap.txt",
            "1 waits to insert into the gap before key 10 of shop.orders [X,GAP,INSERT_INTENTION] →Some(2); holds the gap before key 10 of shop.orders, so that nobody else inserts into it [X,GAP] VICTIM",
            "2 waits to insert into the gap before key 10 of shop.orders [X,GAP,INSERT_INTENTION] →Some(1); holds the gap before key 10 of shop.orders, so that nobody else inserts into it [X,GAP]",
        ),
        (
            "mysql-supremum.txt",
            "1 waits to insert behind the last row of shop.events [X,INSERT_INTENTION] →Some(2); holds the gap behind the last row of shop.events, so that nobody else inserts there [X]",
            "2 waits to insert behind the last row of shop.events [X,INSERT_INTENTION] →Some(1); holds the gap behind the last row of shop.events, so that nobody else inserts there [X] VICTIM",
        ),
        (
            "mysql-unicode.txt",
            "1 waits to lock key '大阪''s' of shop.注文 書 exclusively [X,REC_NOT_GAP] →Some(2); holds key '東京' of shop.注文 書 exclusively [X,REC_NOT_GAP]",
            "2 waits to lock key '東京' of shop.注文 書 exclusively [X,REC_NOT_GAP] →Some(1); holds key '大阪''s' of shop.注文 書 exclusively [X,REC_NOT_GAP] VICTIM",
        ),
        (
            "mariadb-auto-increment.txt",
            "1 waits for the AUTO_INCREMENT counter of shop.logs [AUTO_INC] →Some(2); holds key 2 of shop.sources exclusively [X,REC_NOT_GAP] VICTIM",
            "2 waits to lock key 2 of shop.sources shared, and the gap before it [S] →Some(1); holds the AUTO_INCREMENT counter of shop.logs [AUTO_INC], holds the right to change or lock rows of shop.logs [IX]",
        ),
    ] {
        assert_eq!(describe(&read_deadlocks(&file(name))), [first, second], "{name}");
    }
}

/// Victim, locks and row are found in every language.
#[test]
fn every_language_of_postgres_is_parsed() {
    for (name, text) in files().into_iter().filter(|(name, _)| name.starts_with("postgres-")) {
        for dump in read_deadlocks(&text) {
            for (index, member) in dump.members.iter().enumerate() {
                let wanted = &member.wanted.as_ref().unwrap().target;
                // The first member is the victim, which wrote the log.
                let is_victim = text.contains(&format!("[{}]", member.session.unwrap()));
                assert!(index > 0 || is_victim, "{name}: {member:?}");
                assert!(!wanted.object.is_empty(), "{name}: {wanted}");
                assert!(wanted.mode.ends_with("Lock"), "{name}: {wanted}");
                if let Some(row) = &member.row {
                    assert!(!row.verb.is_empty(), "{name}: {row:?}");
                    assert!(index == 0 && row.ctid.starts_with("(0,"), "{name}: {row:?}");
                    let tables = ["accounts", "hot", "keys_pkey", "seats", "counters", "注文 書"];
                    assert!(tables.contains(&&*row.relation), "{name}: {row:?}");
                }
            }
        }
    }
}

#[test]
fn csv_json_and_text_logs_have_the_same_result() {
    let [csv, json, lines] = ["postgres.csv", "postgres.json", "postgres-prefix.log"]
        .map(|name| read_deadlocks(&file(name)));
    assert_eq!(csv, json);
    let victim = &csv[0].members[0];
    assert_eq!(
        (victim.user.as_deref(), victim.program.as_deref(), victim.host.as_deref()),
        (Some("hierlock"), Some("checkout"), Some("127.0.0.1"))
    );
    assert_eq!(
        (lines[0].members[0].user.as_deref(), lines[0].members[0].database.as_deref()),
        (Some("hierlock"), Some("postgres"))
    );
    assert_eq!(describe(&csv), describe(&lines));
    let statements = |dump: &DeadlockDump| {
        dump.members.iter().map(|member| member.statement.clone()).collect::<Vec<_>>()
    };
    assert_eq!(statements(&csv[0]), statements(&lines[0]));
}

#[test]
fn statements_of_several_lines_are_complete() {
    let dumps = read_deadlocks(&file("postgres-kinds.log"));
    assert_eq!(dumps.len(), 7);
    assert_eq!(
        dumps[1].members[1].statement.as_deref(),
        Some("update \"注文 書\" set n = 3\n where \"名前\" = '大阪''s'")
    );
    assert_eq!(dumps[0].members.len(), 3);
    let mysql = read_deadlocks(&file("mysql-unicode.txt"));
    assert_eq!(
        mysql[0].members[0].statement.as_deref(),
        Some("update `注文 書` set n = 3\n where `名前` = '大阪''s'")
    );
}

#[test]
fn all_deadlocks_in_a_log_are_found() {
    for name in ["mysql-error.log", "mariadb-error.log"] {
        let dumps = read_deadlocks(&file(name));
        assert_eq!(dumps.len(), 2, "{name}");
        let whole = name.replace("error.log", "gap.txt");
        assert_eq!(describe(&dumps[1..]), describe(&read_deadlocks(&file(&whole))), "{name}");
    }
}

/// Returns a text in the forms in which it is pasted: each line is changed.
fn pasted(text: &str) -> Vec<(&'static str, String)> {
    let lines = |change: &dyn Fn(usize, &str) -> String| {
        text.lines()
            .enumerate()
            .map(|(index, line)| change(index, line))
            .collect::<Vec<_>>()
            .join("\n")
    };
    vec![
        ("quoted mail", lines(&|_, line| format!("> {line}"))),
        ("quoted twice, without spaces", lines(&|_, line| format!(">>{line}"))),
        ("line numbers", lines(&|index, line| format!("{:4}  {line}", index + 97))),
        ("numbers of grep", lines(&|index, line| format!("{}:{line}", index + 97))),
        ("numbers and tabs", lines(&|index, line| format!("{:6}\t{line}", index + 1))),
        ("indented", lines(&|_, line| format!("    {line}"))),
        ("CRLF", lines(&|_, line| format!("{line}\r")) + "\r\n"),
        ("trailing spaces", lines(&|_, line| format!("{line}  "))),
        ("code fence", format!("Look:\n```\n{text}\n```\nWhat is this?")),
        (
            "table",
            lines(&|_, line| format!("| {line} |"))
                .replace(" |\n", "\n")
                .trim_end_matches(" |")
                .to_owned(),
        ),
        (
            "prompt",
            format!(
                "mysql> show engine innodb status\\G\n*************************** 1. row ***************************\n  Type: InnoDB\n  Name: \nStatus: \n=====================================\n2026-11-17 22:43:00 139857046329024 INNODB MONITOR OUTPUT\n{text}"
            ),
        ),
        ("one line", format!("InnoDB\t\t{}", text.replace('\\', "\\\\").replace('\n', "\\n"))),
        ("syslog", lines(&|_, line| format!("Nov 17 22:43:05 db1 mysqld[4711]: {line}"))),
    ]
}

#[test]
fn pasted_innodb_output_has_the_same_result() {
    for (name, text) in files().into_iter().filter(|(name, _)| name.ends_with(".txt")) {
        let whole = read_deadlocks(&text);
        for (form, text) in pasted(&text) {
            let mut dumps = read_deadlocks(&text);
            for dump in &mut dumps {
                dump.time.clone_from(&whole[0].time);
            }
            assert_eq!(dumps, whole, "{name} as {form}:\n{text}");
        }
    }
}

#[test]
fn pasted_postgres_logs_have_the_same_result() {
    for name in ["postgres-en.log", "postgres-de.log", "postgres-ja.log", "postgres-kinds.log"] {
        let text = file(name);
        let whole = describe(&read_deadlocks(&text));
        for (form, text) in pasted(&text).into_iter().filter(|(form, _)| *form != "one line") {
            assert_eq!(describe(&read_deadlocks(&text)), whole, "{name} as {form}:\n{text}");
        }
    }
}

/// MySQL 5.7 does not list the locks that the first transaction holds. Older servers write other transaction ids.
#[test]
fn dumps_of_old_servers_are_parsed() {
    let text = file("mysql-update.txt");
    let (before, rest) = text.split_once("*** (1) HOLDS THE LOCK(S):").unwrap();
    let (_, behind) = rest.split_once("*** (1) WAITING").unwrap();
    let old = format!("{before}*** (1) WAITING{behind}");
    let dumps = read_deadlocks(&old);
    assert_eq!(dumps[0].members[0].held, []);
    assert_eq!(dumps[0].members[1], read_deadlocks(&text)[0].members[1]);
    let older = old
        .replace("trx id 1565", "trx id 0 1565")
        .replace("TRANSACTION 1565,", "TRANSACTION 0 1565,");
    assert_eq!(read_deadlocks(&older), dumps);
    let hexadecimal = text.replace("1565", "61D").replace("1566", "61E");
    assert_eq!(read_deadlocks(&hexadecimal), read_deadlocks(&text));
}

#[test]
fn a_truncated_text_is_parsed_as_far_as_it_goes() {
    let text = file("mysql-gap.txt");
    let whole = &read_deadlocks(&text)[0];
    let at = |words: &str| text.find(words).unwrap();
    let end = &read_deadlocks(&text[..at("*** WE ROLL BACK")])[0];
    assert!(end.is_cut && end.victim.is_none());
    assert_eq!(
        (end.members[0].clone(), end.members[1].waits_for),
        (whole.members[0].clone(), None)
    );
    let begin = &read_deadlocks(&text[at("MySQL thread id")..])[0];
    assert_eq!(begin.members[0].statement, whole.members[0].statement);
    assert_eq!((&begin.members[1], begin.victim), (&whole.members[1], whole.victim));
    let second = &read_deadlocks(&text[at("*** (2) TRANSACTION")..])[0];
    assert!(second.is_cut);
    assert_eq!((second.members[0].session, &second.members[1]), (None, &whole.members[1]));
    assert_eq!(read_deadlocks("nothing of the kind"), []);
    for (text, is_known) in [
        ("nothing of the kind", false),
        ("we use InnoDB", false),
        ("2026-11-17 22:25:23 0 [Note] InnoDB: 10.11 started", true),
        ("{\"timestamp\":\"2026-11-17\",\"error_severity\":\"LOG\"}", true),
        ("2026-11-17 22:44:20 UTC,,,7,,,,,,,0,LOG,00000,\"x\"", true),
    ] {
        assert_eq!(is_server_text(text), is_known, "{text}");
    }
}

/// The failure this prevents: the transaction of another section of the status was reported as a member.
#[test]
fn a_transaction_above_the_title_is_not_a_member() {
    let text = file("mysql-gap.txt");
    let above = "LATEST FOREIGN KEY ERROR\n2026-11-17 22:00:00 139857046329024 Transaction:\n\
                 TRANSACTION 1501, ACTIVE 0 sec inserting\n2 lock struct(s), heap size 1128, 1 row lock(s)\n\
                 MySQL thread id 99, OS thread handle 139857046329024, query id 77 127.0.0.1 root update\n\
                 insert into children values (1)\nForeign key constraint fails for table `shop`.`children`:\n";
    assert_eq!(read_deadlocks(&format!("{above}{text}")), read_deadlocks(&text));
}

#[test]
fn a_wrapped_lock_line_is_joined() {
    let text = file("mysql-gap.txt");
    let broken = text
        .replace(" trx id 15", "\ntrx id 15")
        .replace("rec insert intention", "rec\ninsert intention");
    assert_eq!(read_deadlocks(&broken), read_deadlocks(&text));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any concatenation of parts names only sessions that are in the text.
    #[test]
    fn any_part_names_only_sessions_in_the_text(
        file in 0usize..40,
        cuts in proptest::collection::vec((0usize..6000, 0usize..6000), 1..4),
        form in 0usize..13,
    ) {
        let files = files();
        let (name, text) = &files[file % files.len()];
        let boundary = |at: usize| {
            let at = at.min(text.len());
            (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
        };
        let glued: String =
            cuts.iter().map(|(a, b)| &text[boundary(*a.min(b))..boundary(*a.max(b))]).collect();
        let (_, pasted_text) = pasted(&glued).swap_remove(form);
        for text in [&glued, &pasted_text] {
            for member in read_deadlocks(text).iter().flat_map(|dump| &dump.members) {
                let session = member.session.map(|session| session.to_string()).unwrap_or_default();
                prop_assert!(text.contains(&session), "{name}: {session} in\n{text}");
            }
        }
    }
}

#[test]
fn the_cycle_follows_the_waits() {
    for (waits, cycle) in [
        (&[Some(1), Some(0)][..], Some(&[0, 1][..])),
        (&[Some(2), Some(0), Some(1)], Some(&[0, 2, 1])),
        // The first one waits for a cycle that it is not part of.
        (&[Some(2), Some(2), Some(1)], Some(&[1, 2])),
        (&[Some(1), None], None),
        (&[Some(7)], None),
        (&[], None),
    ] {
        let member = |waits_for: &Option<usize>| DeadlockMember {
            waits_for: *waits_for,
            ..DeadlockMember::default()
        };
        let members = waits.iter().map(member).collect();
        let dump = DeadlockDump { members, ..DeadlockDump::default() };
        assert_eq!(dump.cycle().as_deref(), cycle, "{waits:?}");
    }
}
