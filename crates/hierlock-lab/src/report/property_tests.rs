//! Every report is well formed, for any text from files and servers and for any index.

use super::fixtures::{self, backend, blocked, rows};
use super::{AnomalyTable, RoundComparison, ScenarioSummary, TextStyle};
use crate::engine::Engine;
use crate::observation::{FailureKind, LockKind, LockTarget};
use crate::record::{Record, Report};
use proptest::prelude::*;

/// Texts with a meaning for a browser, a terminal or a parser, and any others.
fn untrusted_text() -> impl Strategy<Value = String> {
    let characters = "[<>&\"'`;#%{}\\\\|\n\r\t\u{0}\u{1b}\u{85}日a-c /:=-]{0,24}";
    let known = prop::sample::select(vec![
        "</script><script>alert(1)</script>",
        "</style></pre></svg>",
        "<!-- ]]> -->",
        "{{ 7 }}{% endif %}",
        "end",
        "%%{init: {}}%%",
        "\u{202e}\u{feff}",
    ]);
    prop_oneof![characters.prop_map(String::from), known.prop_map(str::to_owned), any::<String>()]
}

fn record() -> impl Strategy<Value = Record> {
    (prop::collection::vec(untrusted_text(), 12), any::<u8>()).prop_map(|(texts, index)| {
        let t = |i: usize| texts[i].as_str();
        let object = LockTarget {
            index: Some(texts[1].clone()),
            record: Some(texts[2].clone()),
            ..LockTarget::new(LockKind::Gap, &texts[0], &texts[3])
        };
        let mut record = fixtures::record(t(4), t(5), backend(Engine::Mysql))
            .variant(t(6), t(7))
            .step("A", t(8), rows(&[&[t(9), t(10)], &[]]))
            .step("Batch", &format!("x{}", t(11)), blocked("Batch", &["A"], Some(object.clone())))
            .locks(&[("A", object.clone(), true), ("Batch", object.clone(), false)])
            .step("A", t(9), fixtures::failed(FailureKind::Other, t(1), t(2)))
            .expects(t(3))
            .wakes(1, fixtures::victim())
            .deadlock("Batch", &[("A", object.clone(), 0), ("Batch", object, 1)])
            .differs(2, t(4))
            .anomaly(index % 2 == 0);
        record.server = texts[10].clone();
        record.deadlocks[0].step = usize::from(index);
        record.deadlocks[0].cycle[0].blocking[0].statement = Some(usize::from(index));
        if let Some(ended) = &mut record.steps[1].ended {
            ended.during = usize::from(index % 5);
        }
        record
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_report_stays_well_formed(
        record in record(),
        text in untrusted_text(),
        width in 0usize..200,
    ) {
        let scenarios = [ScenarioSummary {
            name: record.scenario.clone(),
            why: text.clone(),
            advice: text.clone(),
            anomaly: Some(text.clone()),
            seeds: vec![text.clone()],
            source_text: text,
            ..ScenarioSummary::default()
        }];
        let second = Record { round: 2, ..record.clone() };
        let report = Report { records: vec![record, second], ..Report::default() };

        let page = report.html(&scenarios);
        prop_assert_eq!(page.matches("<script").count(), 1);
        prop_assert_eq!(page.matches("</style").count(), 1);
        prop_assert_eq!(page.matches("<details").count(), page.matches("</details>").count());

        let has_control_characters = |text: &str| text.contains(|c: char| c.is_control() && c != '\n');
        let style = TextStyle { width, verbose: true, ..TextStyle::default() };
        prop_assert!(!has_control_characters(&report.text(&scenarios, style)));
        prop_assert!(!has_control_characters(&report.junit(&scenarios)));
        prop_assert!(!has_control_characters(&report.records[0].mermaid()));
        prop_assert!(serde_json::from_str::<serde_json::Value>(&report.json(&scenarios)).is_ok());

        let anomalies = AnomalyTable::new(&report, &scenarios);
        prop_assert_eq!(anomalies.markdown().lines().count(), 3);
        prop_assert!(!has_control_characters(&anomalies.text()));
        prop_assert!(RoundComparison::new(&report).unstable.is_empty());
    }
}
