//! Every example of `docs/scenarios.md` is a scenario in the standard layout.

use crate::reading::parse;
use hierlock_lab::Scenario;

#[test]
fn every_example_is_valid() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/scenarios.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> =
        text.split("```lab\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() > 5);
    for example in examples {
        parse(example);
        let tidy = Scenario::format("x.lab", example).unwrap();
        // The page leaves out some blank lines.
        let lines = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        assert_eq!(lines(&tidy), lines(example));
    }
}
