//! For any text, parsing ends with a scenario or with diagnostics, never with a panic; and formatting changes only
//! whitespace.

use crate::formatting::{meaning, untidy};
use crate::reading::CYCLE;
use hierlock_lab::Scenario;
use proptest::prelude::*;

/// Parses a text, and checks the properties that hold for every text.
fn check(text: &str) {
    match Scenario::parse("a/b", "b.lab", text) {
        Ok(scenario) => {
            let tidy =
                Scenario::format("b.lab", text).expect("a text that parses can be formatted");
            let again = Scenario::parse("a/b", "b.lab", &tidy);
            let again = again.expect("a formatted text parses");
            // A file without a title has its name as the title; everything else is in its text.
            assert_eq!(meaning(&scenario), meaning(&again), "{text:?}");
            assert_eq!(Scenario::format("b.lab", &tidy).unwrap(), tidy, "{text:?}");
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for diagnostic in diagnostics {
                assert!(diagnostic.line >= 1 && diagnostic.column >= 1);
                assert!(diagnostic.line <= text.lines().count().max(1), "{diagnostic}");
                assert!(diagnostic.to_string().lines().count() >= 3);
            }
        }
    }
}

/// Pieces of the language, from which a nearly valid file can be made.
const PIECES: &[&str] = &[
    "A> ",
    "B> ",
    "B< ",
    "victim> ",
    "survivor< ",
    "begin",
    "select 1",
    "lock u1",
    "lock {x} u2/a1",
    "release",
    "try shared u1",
    "\n",
    "\n ",
    "\n\n",
    " = ",
    " | ",
    " ! ",
    " : ",
    "done",
    "rows (1, 2) (3, 'x')",
    "rows 1 2",
    "no rows",
    "changed 1",
    "blocked by A",
    " on gap of t",
    "deadlock, A or B",
    "timed out",
    " or ",
    "error 1062 'x'",
    ", in any order",
    "[mysql]",
    "[postgres, x]",
    "['",
    "# ",
    "'",
    "\"",
    "`",
    "$$",
    "/*",
    "--",
    ";",
    "engines: mysql postgres\n",
    "for each x: 1 | 2\n",
    "for each isolation: serializable | read committed\n",
    "for each x, y: 1, 2 | 3, 4\n",
    "by isolation | mysql | *",
    "serializable",
    "* | ",
    "setup:\n  ",
    "setup [mysql]:\n  ",
    "teardown:\n  ",
    "advice:\n  ",
    "anomaly: x\n",
    "sessions: isolation serializable\n",
    "session A: autocommit off\n",
    "seed: 課題1\n",
    "buckets: 3\n",
    "strategies: striped\n",
    "limit: 5s\n",
    "{x}",
    "{",
    "}",
    "\t",
    "\u{3000}",
    "\r\n",
    "é",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_without_a_panic(text in "\\PC{0,200}") {
        check(&text);
    }

    #[test]
    fn any_pieces_are_parsed_without_a_panic(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        check(&pieces.concat());
    }

    #[test]
    fn a_file_with_a_replaced_piece_is_parsed_without_a_panic(
        is_cycle in any::<bool>(),
        from in any::<prop::sample::Index>(),
        length in 0usize..12,
        piece in prop::sample::select(PIECES),
    ) {
        let text = if is_cycle { CYCLE.to_owned() } else { untidy() };
        let chars: Vec<char> = text.chars().collect();
        let from = from.index(chars.len());
        let to = (from + length).min(chars.len());
        let changed: String =
            chars[..from].iter().copied().chain(piece.chars()).chain(chars[to..].iter().copied()).collect();
        check(&changed);
    }

    #[test]
    fn a_file_with_shuffled_lines_is_parsed_without_a_panic(
        lines in Just(untidy().lines().map(str::to_owned).collect::<Vec<_>>()).prop_shuffle(),
        count in 1usize..40,
    ) {
        let text: Vec<String> = lines.into_iter().take(count).collect();
        check(&text.join("\n"));
    }
}
