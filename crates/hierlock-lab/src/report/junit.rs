//! The report for CI, as JUnit XML: a suite for every scenario, a test for every case and place.

use super::grouping::{Tally, by_scenario, variant};
use super::text::{Look, story};
use super::{Story, words};
use crate::record::{Record, Report, Verdict};
use std::fmt::Write as _;
use std::time::Duration;

/// See [`Report::junit`].
pub(crate) fn junit(report: &Report, stories: &[Story]) -> String {
    let groups = by_scenario(report, stories);
    let skipped = groups.iter().map(|group| group.missing.len()).sum();
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    let mut tally = Tally::of(&report.records);
    tally.failed += usize::from(report.interruption.is_some());
    let all = counts(tally, skipped, report.took);
    // Writing to a String cannot fail.
    let _ = writeln!(text, "<testsuites name=\"hierlock lab\" {all}>");
    for group in &groups {
        let records = || group.records.iter().map(|(_, record)| *record);
        let took = records().map(|record| record.took).sum();
        let counts = counts(Tally::of(records()), group.missing.len(), took);
        let _ = writeln!(text, "  <testsuite name=\"{}\" {counts}>", escape(group.name));
        for record in records() {
            case(&mut text, record);
        }
        for missing in &group.missing {
            let _ = writeln!(
                text,
                "    <testcase classname=\"{}\" name=\"{}\" time=\"0.000\">\n      <skipped message=\"{}\"/>\n    </testcase>",
                escape(group.name),
                missing.engine,
                escape(&words::one_line(&missing.why))
            );
        }
        text += "  </testsuite>\n";
    }
    if let Some(interruption) = report.interruption {
        let _ = writeln!(
            text,
            "  <testsuite name=\"hierlock lab\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" time=\"0.000\">\n    \
             <testcase classname=\"hierlock lab\" name=\"everything is run\" time=\"0.000\">\n      \
             <error message=\"{interruption}\"/>\n    </testcase>\n  </testsuite>"
        );
    }
    text += "</testsuites>\n";
    text
}

fn case(text: &mut String, record: &Record) {
    let mut name = record.place.to_string();
    if !record.variant.is_empty() {
        name += &format!(" [{}]", variant(record));
    }
    if record.round > 1 {
        name += &format!(", round {}", record.round);
    }
    let _ = write!(
        text,
        "    <testcase classname=\"{}\" name=\"{}\" file=\"{}\" time=\"{}\"",
        escape(&record.scenario),
        escape(&name),
        escape(&record.file),
        seconds(record.took)
    );
    let (element, why) = match &record.verdict {
        Verdict::Agrees => {
            *text += "/>\n";
            return;
        }
        Verdict::Disagrees { why, .. } => ("failure", why),
        Verdict::Failed { why } => ("error", why),
    };
    let told = story(record, Look::default());
    let _ = writeln!(
        text,
        ">\n      <{element} message=\"{}\">{}</{element}>\n    </testcase>",
        escape(&words::one_line(why)),
        escape(&told)
    );
}

fn counts(tally: Tally, skipped: usize, took: Duration) -> String {
    format!(
        "tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{skipped}\" time=\"{}\"",
        tally.total() + skipped,
        tally.disagreed,
        tally.failed,
        seconds(took)
    )
}

fn seconds(took: Duration) -> String {
    format!("{:.3}", took.as_secs_f64())
}

/// For text and for attributes in double quotes. Characters that XML cannot hold at all are replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&apos;",
            '\n' => escaped.push('\n'),
            '\t' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push(char::REPLACEMENT_CHARACTER);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;

    #[test]
    fn failures_errors_and_what_is_missing() {
        let mut report = fixtures::report();
        report.records.retain(|record| {
            !record.scenario.starts_with("tree") && record.scenario != "deadlock/ring"
        });
        insta::assert_snapshot!(junit(&report, &fixtures::stories()));
    }

    #[test]
    fn what_xml_cannot_hold_is_replaced() {
        assert_eq!(
            escape("a\u{1b}<&>\"'\u{ffff}日"),
            "a\u{fffd}&lt;&amp;&gt;&quot;&apos;\u{fffd}日"
        );
    }

    /// A reader of our own, small as it is: every element that opens is closed, in order, and no text holds
    /// a bare sign.
    #[test]
    fn the_document_is_well_formed() {
        let text = junit(&fixtures::report(), &fixtures::stories());
        let mut open = Vec::new();
        for part in text.split('<').skip(1) {
            let (tag, body) = part.split_once('>').expect("every element has an end");
            assert!(!body.contains('"'), "{body}");
            match tag {
                tag if tag.starts_with('?') || tag.ends_with('/') => {}
                tag if tag.starts_with('/') => assert_eq!(open.pop(), Some(&tag[1..])),
                tag => open.push(tag.split(' ').next().unwrap()),
            }
        }
        assert_eq!(open, [""; 0]);
    }
}
