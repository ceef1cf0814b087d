//! Parts of messages in logs and in output of programs.

use super::*;

#[test]
fn labels_are_recognized_in_every_language() {
    for (line, part, value) in [
        ("2026-11-17 22:42:14.541 UTC [3866] HINT:  See", LogPart::Hint, "See"),
        ("ASTUCE :  Voir", LogPart::Hint, "Voir"),
        ("2026 UTC [1] 文:  select 1", LogPart::Statement, "select 1"),
        ("2026 UTC [1] 文脈:  x", LogPart::Context, "x"),
        ("명령 구문:  x", LogPart::Statement, "x"),
    ] {
        let parsed = label(line).map(|(_, part, value)| (part, value));
        assert_eq!(parsed, Some((part, value)), "{line}");
    }
    for line in ["\tProcess 8: select 'ERROR: x'", "a catalog: b", ""] {
        assert_eq!(label(line), None, "{line}");
    }
}

#[test]
fn messages_of_programs_are_parsed() {
    let lines = [
        "Process 7 waits for ShareLock on transaction 740; blocked by process 8.",
        "Process 8 waits for ShareLock on transaction 739; blocked by process 7.",
    ];
    let java = format!(
        "PSQLException: ERROR: deadlock detected\n  Detail: {}\n  Hint: See\n  Where: while updating tuple (0,2) in relation \"t\"",
        lines.join("\n")
    );
    let psql = format!("ERROR:  deadlock detected\nDETAIL:  {}\nHINT:  See", lines.join("\n"));
    let folded =
        format!("msg=\"ERROR: deadlock detected\\nDETAIL:  {}\\nHINT: See\"", lines.join("\\n"));
    let flat = format!("ERROR: deadlock detected DETAIL: {} HINT: See", lines.join(" "));
    for text in [&java, &psql, &folded, &flat] {
        let dumps = parse_all(text);
        let sessions: Vec<_> = dumps
            .iter()
            .flat_map(|dump| &dump.members)
            .map(|member| (member.session, member.waits_for))
            .collect();
        assert_eq!(sessions, [(Some(7), Some(1)), (Some(8), Some(0))], "{text}");
    }
    assert_eq!(parse_all(&java)[0].members[0].row.as_ref().unwrap().relation, "t");
}

#[test]
fn messages_in_an_unknown_language_are_parsed() {
    let one = "2026-11-17 22:00:01 UTC [7] FEILUR:  klemmingur\n\
               2026-11-17 22:00:01 UTC [7] NANARA:  Ferli 7 bidur ShareLock vid faersla 740; stopp ferli 8.\n\
               \tFerli 8 bidur ShareLock vid faersla 739; stopp ferli 7.\n\
               \tFerli 7: select 1\n\tFerli 8: select 2\n\
               2026-11-17 22:00:01 UTC [7] RADLEGG:  Sja.\n";
    let dumps = parse_all(&format!("{one}{one}"));
    assert_eq!(dumps.len(), 2);
    for dump in dumps {
        let statements: Vec<_> =
            dump.members.iter().map(|member| member.statement.as_deref()).collect();
        assert_eq!(statements, [Some("select 1"), Some("select 2")]);
        assert_eq!((dump.is_cut, dump.time.as_deref()), (false, Some("2026-11-17 22:00:01 UTC")));
    }
}

#[test]
fn statements_of_processes_are_parsed_in_every_language() {
    for (line, pid, statement) in [
        ("\tProcess 8: select 1", 8, "select 1"),
        ("Processus 8 : select 1", 8, "select 1"),
        ("プロセス 8: select 1", 8, "select 1"),
        ("进程 8: select a::int", 8, "select a::int"),
    ] {
        assert_eq!(process_statement(line), Some((pid, statement)), "{line}");
    }
    for line in ["select 8: 9", "\twhere a = 8", "", "where x = 8::int", "8: x"] {
        assert!(line.starts_with("select") || process_statement(line).is_none(), "{line}");
    }
}
