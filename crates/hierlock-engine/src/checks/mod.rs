//! The checks of a server. Each has a stable name, a reason, and a rule: pure code from facts to a finding.
//!
//! ```text
//!   ServerFacts::read ────────► CHECKS: name, why, rule(&ServerFacts) ──► Finding: ok, warning, problem, skipped
//!   ServerFacts::at_connect ──► the rules of CONNECT_CHECKS ──► Suitability
//! ```
//!
//! Connecting reads fewer facts than a full check and applies the same rules, so the two never disagree.

mod finding;

#[cfg(feature = "_server")]
mod cluster;
#[cfg(feature = "_server")]
mod connections;
#[cfg(feature = "_server")]
mod facts;
#[cfg(feature = "_server")]
mod product;
#[cfg(feature = "_server")]
mod server_settings;

pub use finding::{Area, Check, Finding, Severity};

#[cfg(feature = "_server")]
pub use {
    cluster::{Cluster, READ_ONLY},
    connections::POOLER,
    facts::{ClockReading, ServerFacts, Values},
    product::PRODUCT,
};

/// A check of a server and its rule. The rule returns None if the check does not apply to the engine.
#[cfg(feature = "_server")]
#[derive(Clone, Copy, Debug)]
pub struct ServerCheck {
    /// The name, area and reason.
    pub check: Check,
    rule: Rule,
}

#[cfg(feature = "_server")]
type Rule = fn(&Check, &ServerFacts) -> Option<Finding>;

#[cfg(feature = "_server")]
impl ServerCheck {
    const fn new(area: Area, name: &'static str, why: &'static str, rule: Rule) -> Self {
        Self { check: Check { name, area, why }, rule }
    }

    /// Returns the finding; None if the check does not apply to the engine.
    pub fn judge(&self, facts: &ServerFacts) -> Option<Finding> {
        (self.rule)(&self.check, facts)
    }
}

/// The checks at connect. A client does not lock after a problem.
#[cfg(feature = "_server")]
pub const CONNECT_CHECKS: [ServerCheck; 5] =
    [PRODUCT, product::VERSION, READ_ONLY, server_settings::ROLLBACK_ON_TIMEOUT, cluster::CLUSTER];

/// All checks of a server, in the order of the report.
#[cfg(feature = "_server")]
pub const CHECKS: [ServerCheck; 19] = [
    PRODUCT,
    product::VERSION,
    READ_ONLY,
    cluster::CLUSTER,
    cluster::REPLICATION,
    server_settings::ISOLATION,
    server_settings::LOCK_WAIT_TIMEOUT,
    server_settings::DEADLOCK_DETECT,
    server_settings::DEADLOCK_TIMEOUT,
    server_settings::ROLLBACK_ON_TIMEOUT,
    server_settings::SNAPSHOT_ISOLATION,
    server_settings::IDLE_TRANSACTION_TIMEOUT,
    server_settings::IDLE_TIMEOUT,
    server_settings::PERFORMANCE_SCHEMA,
    connections::PROBES,
    connections::MAX_CONNECTIONS,
    POOLER,
    connections::ROUND_TRIP,
    connections::CLOCK,
];

#[cfg(all(test, feature = "_server"))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_in_kebab_case() {
        let names: BTreeSet<&str> = CHECKS.iter().map(|check| check.check.name).collect();
        assert_eq!(names.len(), CHECKS.len());
        let is_kebab = |name: &&str| name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        assert!(names.iter().all(is_kebab), "{names:?}");
        assert!(CONNECT_CHECKS.iter().all(|check| names.contains(check.check.name)));
    }

    /// A server that reports nothing causes no problem finding and no panic.
    #[test]
    fn missing_facts_are_not_problems() {
        for dialect in crate::Dialect::ALL {
            let facts = ServerFacts::new(dialect);
            for check in CHECKS.iter().filter(|check| check.check.name != "version") {
                let severity = check.judge(&facts).map(|finding| finding.severity);
                assert_ne!(severity, Some(Severity::Problem), "{}", check.check.name);
            }
        }
    }
}
