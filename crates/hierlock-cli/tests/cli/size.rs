//! Tests of `hierlock size`, which run the command.

use crate::support::{TestDirectory, code, hierlock, stderr, stdout};
use serde_json::Value;
use std::fs;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
const EXAMPLE: [&str; 6] = ["--ids", "5e6", "--held", "200", "--buckets", "1e7"];

/// Returns what `hierlock size` prints.
fn size(arguments: &[&str]) -> String {
    let output = hierlock(&["size"]).args(arguments).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    stdout(&output)
}

/// Returns the text that `hierlock size` prints, which must fit into 80 columns.
fn size_text(arguments: &[&str]) -> String {
    let text = size(arguments);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text
}

#[test]
fn the_report_is_printed_as_text() {
    insta::assert_snapshot!(size_text(&EXAMPLE));
}

#[test]
fn the_report_has_numbers_by_level() {
    insta::assert_snapshot!(size_text(&[
        "--ids",
        "10,1e5,5M",
        "--held",
        "1,5,200",
        "--engine",
        "postgres",
        "--target-chance",
        "0.01%",
        "--rows-per-second",
        "50k",
    ]));
}

#[test]
fn the_report_is_printed_as_json() {
    let report: Value = serde_json::from_str(&size(&[&EXAMPLE[..], &["--json"]].concat())).unwrap();
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn extreme_numbers_are_accepted() {
    let text = size_text(&["--ids", "1G", "--held", "1e8"]);
    assert!(text.contains("no table has enough buckets for a chance of 0.1 %"), "{text}");
    let arguments = ["--json", "--ids", "18446744073709551615", "--held", "18446744073709551615"];
    let report: Value = serde_json::from_str(&size(&arguments)).unwrap();
    assert_eq!(report["recommended_buckets"], Value::Null);
    assert_eq!(
        (&report["buckets"], &report["false_contention"]),
        (&10_000_000.into(), &1.0.into())
    );
    // No locks, or more locks than nodes.
    for arguments in [["--ids", "0", "--held", "0"], ["--ids", "1", "--held", "5"]] {
        let text = size_text(&[&arguments[..], &["--buckets", "1"]].concat());
        assert!(text.contains("choose 1,000") && !text.contains("NaN"), "{text}");
    }
}

#[test]
fn a_usage_error_exits_with_64_and_a_hint() {
    for (arguments, message) in [
        (&["--ids", "many", "--held", "1"][..], "`many` is not a whole number"),
        (&["--ids", "1.5", "--held", "1"], "5e6 or 5M"),
        (&["--ids=-1", "--held", "1"], "`-1` is not a whole number"),
        (&["--ids", "5,000,000", "--held", "1"], "for one number write 5000000"),
        (&["--ids", "5e6", "--held", "1,2"], "--held has 2 numbers, but the tree has 3 levels"),
        (&["--ids", "5e6", "--held", "1", "--buckets", "0"], "1 to 2147483647"),
        (
            &["--ids", "5e6", "--held", "1", "--buckets", "1e10"],
            "more buckets than a table can have",
        ),
        (&["--ids", "5e6", "--held", "1", "--target-chance", "0"], "0.1% or 0.001"),
        (&["--ids", "5e6", "--held", "1", "--engine", "oracle"], "mysql, mariadb or postgres"),
        (&["--ids", "5e6", "--held", "1", "--rows-per-second", "0"], "never filled"),
        (&["--ids", "5e6", "--held", "1", "--svg", "-", "--json"], "cannot be used with"),
        (&["--ids", "5e6"], "--held"),
    ] {
        let output = hierlock(&["size"]).args(arguments).output().unwrap();
        assert_eq!(code(&output), Some(64), "{arguments:?}");
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
        assert!(stdout(&output).is_empty());
    }
}

/// Panics if an element of the SVG is not closed in order.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let tag = tag.split_once('>').unwrap_or_else(|| panic!("<{tag} does not end")).0;
        let name = tag.split([' ', '\n']).next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_chart_in_the_docs_is_up_to_date() {
    let place = TestDirectory::new();
    let file = place.directory.path().join("chart.svg");
    let text = size(&[&EXAMPLE[..], &["--svg", file.to_str().unwrap()]].concat());
    assert!(text.starts_with("5,000,000 ids"), "the text is printed too");
    let svg = fs::read_to_string(file).unwrap();
    assert_eq!(size(&[&EXAMPLE[..], &["--svg", "-"]].concat()), svg);
    let is_current = svg == fs::read_to_string(format!("{DOCS}/buckets.svg")).unwrap();
    assert!(is_current, "run: hierlock size {} --svg docs/buckets.svg", EXAMPLE.join(" "));

    let output = hierlock(&["size", "--svg", "/nowhere/chart.svg"]).args(EXAMPLE).output().unwrap();
    assert_eq!(code(&output), Some(69));
    assert!(stdout(&output).is_empty());
}

#[test]
fn charts_of_extreme_numbers_are_well_formed() {
    for (held, buckets, curves) in [
        ("200", "1e7", 3),
        ("0", "1", 0),
        ("3", "2147483647", 2),
        ("18446744073709551615", "77", 3),
    ] {
        let svg = size(&["--ids", "5e6", "--held", held, "--buckets", buckets, "--svg", "-"]);
        assert_well_formed(&svg);
        assert!(!svg.contains("NaN") && !svg.contains("inf "), "{svg}");
        assert_eq!(
            svg.matches("class=\"faint\"").count() + svg.matches("class=\"curve\"").count(),
            curves
        );
        let is_marked = svg.contains("<circle class=\"chosen\"")
            || svg.contains("<circle class=\"recommended\"");
        assert!(is_marked);
    }
}

/// Returns the cells of the rows of a Markdown table that follows a heading.
fn table_rows(page: &str, heading: &str) -> Vec<Vec<String>> {
    let section = page.split_once(heading).unwrap().1;
    let lines = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

#[test]
fn the_table_in_the_docs_is_up_to_date() {
    let page = fs::read_to_string(format!("{DOCS}/provisioning.md")).unwrap();
    let rows = table_rows(&page, "\n## How many buckets\n");
    assert_eq!(rows.len(), 5);
    // Returns the line of the chart for this number of buckets.
    let line = |engine: &str, held: &str, buckets: &str| {
        let text = size_text(&["--ids", "5e6", "--held", held, "--engine", engine]);
        let line = text.lines().rfind(|line| line.split_whitespace().next() == Some(buckets));
        line.unwrap_or_else(|| panic!("no {buckets} in {text}")).trim_end().to_owned()
    };
    for row in rows {
        let [buckets, few, some, many, lock_rows, innodb, innodb_time, postgres, postgres_time] =
            &row[..]
        else {
            panic!("{row:?}");
        };
        for (held, chance) in [("20", few), ("200", some), ("2000", many)] {
            for (engine, bytes, time) in [
                ("mysql", innodb, innodb_time),
                ("mariadb", innodb, innodb_time),
                ("postgres", postgres, postgres_time),
            ] {
                let line = line(engine, held, buckets);
                let end = format!(" {chance:>10} {bytes:>10} {time:>11}");
                assert!(line.ends_with(&end), "{line:?} does not end with {end:?}");
            }
        }
        let [buckets, lock_rows] =
            [buckets, lock_rows].map(|count| count.replace(',', "").parse::<u64>().unwrap());
        assert_eq!(lock_rows, 3 * buckets);
    }
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        page.contains("5 other nodes on average with 1,000,000 buckets, and 0.5 with 10,000,000")
    );
    for (buckets, message) in [("1e6", " keeps 5 other ids"), ("1e7", " keeps 0.5 other ids")] {
        let text = size_text(&["--ids", "5e6", "--held", "200", "--buckets", buckets]);
        assert!(text.contains(message), "{text}");
    }
}
