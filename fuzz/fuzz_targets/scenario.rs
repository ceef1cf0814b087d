//! Any text parses as a scenario or fails with diagnostics. A scenario has cases, and can be formatted. Formatting does not
//! change its meaning, and formatting it again changes nothing.
#![no_main]

use hierlock_lab::Scenario;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let scenario = match Scenario::parse("a/b", "b.lab", text) {
        Ok(scenario) => scenario,
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for diagnostic in diagnostics {
                assert!((1..=text.lines().count().max(1)).contains(&diagnostic.line));
                assert!(diagnostic.column >= 1 && !diagnostic.to_string().is_empty());
            }
            return;
        }
    };
    let cases = scenario.cases();
    let formatted = Scenario::format("b.lab", text).expect("a valid scenario can be formatted");
    assert_eq!(Scenario::format("b.lab", &formatted).as_ref(), Ok(&formatted));
    let again = Scenario::parse("a/b", "b.lab", &formatted).expect("a formatted scenario is valid");
    assert_eq!(scenario.advice, again.advice);
    for (case, same) in cases.iter().zip(again.cases()) {
        assert_eq!((&case.setup, &case.teardown), (&same.setup, &same.teardown));
        assert_eq!((&case.variant, &case.sessions), (&same.variant, &same.sessions));
        assert_eq!(case.steps.len(), same.steps.len());
        for (step, same) in case.steps.iter().zip(&same.steps) {
            assert_eq!((&step.session, &step.action), (&same.session, &same.action));
            assert_eq!((&step.expected, &step.anomaly_outcomes), (&same.expected, &same.anomaly_outcomes));
        }
    }
});
