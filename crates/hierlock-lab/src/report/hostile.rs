//! Whatever files and servers say, every report stays what it is: generated texts in every place that takes
//! one, and indices that lead nowhere.

use super::fixtures::{self, Play, blocked, place, rows};
use super::{Anomalies, Look, Stability, Story};
use crate::observation::{FailureKind, LockKind, LockedObject};
use crate::place::Engine;
use crate::record::{Record, Report};
use proptest::prelude::*;

/// Texts that mean something to somebody, and any others.
fn nasty() -> impl Strategy<Value = String> {
    let signs = "[<>&\"'`;#%{}\\\\|\n\r\t\u{0}\u{1b}\u{85}日a-c /:=-]{0,24}";
    let known = prop::sample::select(vec![
        "</script><script>alert(1)</script>",
        "</style></pre></svg>",
        "<!-- ]]> -->",
        "{{ 7 }}{% endif %}",
        "end",
        "%%{init: {}}%%",
        "\u{202e}\u{feff}",
    ]);
    prop_oneof![signs.prop_map(String::from), known.prop_map(str::to_owned), any::<String>()]
}

fn record() -> impl Strategy<Value = Record> {
    (prop::collection::vec(nasty(), 12), any::<u8>()).prop_map(|(texts, index)| {
        let t = |i: usize| texts[i].as_str();
        let thing = LockedObject {
            kind: LockKind::Gap,
            object: texts[0].clone(),
            index: Some(texts[1].clone()),
            record: Some(texts[2].clone()),
            mode: texts[3].clone(),
        };
        let mut record = Play::new(t(4), t(5), place(Engine::Mysql))
            .variant(t(6), t(7))
            .step("A", t(8), rows(&[&[t(9), t(10)], &[]]))
            .step("Batch", &format!("x{}", t(11)), blocked("Batch", &["A"], Some(thing.clone())))
            .locks(&[("A", thing.clone(), true), ("Batch", thing.clone(), false)])
            .step("A", t(9), fixtures::failed(FailureKind::Other, t(1), t(2)))
            .expects(t(3))
            .lets_go(1, fixtures::victim())
            .deadlock("Batch", &[("A", thing.clone(), 0), ("Batch", thing, 1)])
            .differs(t(4))
            .anomaly(index % 2 == 0)
            .over();
        record.server = texts[10].clone();
        record.deadlocks[0].step = usize::from(index);
        record.deadlocks[0].circle[0].blocking[0].statement = Some(usize::from(index));
        if let Some(ended) = &mut record.steps[1].ended {
            ended.during = usize::from(index % 5);
        }
        record
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_report_stays_what_it_is(record in record(), said in nasty(), width in 0usize..200) {
        let story = Story {
            name: record.scenario.clone(),
            why: said.clone(),
            advice: said.clone(),
            anomaly: Some(said.clone()),
            seeds: vec![said.clone()],
            source_text: said,
            ..Story::default()
        };
        let mut again = record.clone();
        again.round = 2;
        let report = Report { records: vec![record, again], missing: vec![], ..Report::default() };
        let stories = [story];

        let page = report.html(&stories);
        prop_assert_eq!(page.matches("<script").count(), 1);
        prop_assert_eq!(page.matches("</style").count(), 1);
        prop_assert_eq!(page.matches("<details").count(), page.matches("</details>").count());

        let obeyed = |text: &str| text.contains(|c: char| c.is_control() && c != '\n');
        let look = Look { width, verbose: true, colour: false };
        prop_assert!(!obeyed(&report.text(&stories, look)));
        prop_assert!(!obeyed(&report.junit(&stories)));
        prop_assert!(!obeyed(&report.records[0].mermaid()));
        prop_assert!(serde_json::from_str::<serde_json::Value>(&report.json(&stories)).is_ok());

        let anomalies = Anomalies::of(&report, &stories);
        prop_assert_eq!(anomalies.markdown().lines().count(), 3);
        prop_assert!(!obeyed(&anomalies.text()));
        prop_assert!(Stability::of(&report).unstable.is_empty());
    }
}
