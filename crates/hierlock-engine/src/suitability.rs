//! Whether hierlock can lock on a server: the rules of [`checks`](crate::checks), applied to the facts read at connect.

use crate::Session;
use crate::checks::{CONNECT_CHECKS, Finding, READ_ONLY, ServerFacts, Severity};

/// Whether hierlock can lock on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// It can. Each warning is a condition that the user has to confirm.
    Usable(Vec<String>),
    /// It cannot, for this reason.
    Unusable(String),
}

impl Session {
    /// Returns the reason why a read-only server (a replica, for example after a failover) must not be locked on.
    pub fn why_read_only(&self) -> Option<String> {
        let finding = self.is_read_only.then(|| READ_ONLY.judge(&ServerFacts::of_session(self)));
        finding.flatten().map(|finding| finding.reason())
    }

    /// Reads the facts of the server and applies the rules. Fails if a fact cannot be read.
    pub async fn suitability(&mut self) -> Result<Suitability, sqlx::Error> {
        let facts = ServerFacts::at_connect(self).await?;
        Ok(Suitability::of(&facts))
    }
}

impl Suitability {
    fn of(facts: &ServerFacts) -> Self {
        let findings: Vec<Finding> =
            CONNECT_CHECKS.iter().filter_map(|check| check.judge(facts)).collect();
        let reasons = |severity| {
            findings.iter().filter(move |finding| finding.severity == severity).map(Finding::reason)
        };
        match reasons(Severity::Problem).next() {
            Some(why) => Suitability::Unusable(why),
            None => Suitability::Usable(reasons(Severity::Warning).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use crate::checks::Cluster;

    fn facts(dialect: Dialect, version: &str) -> ServerFacts {
        let product = "PostgreSQL 15.1 on x86_64".to_owned();
        ServerFacts { version: version.to_owned(), product, ..ServerFacts::new(dialect) }
    }

    #[test]
    fn the_most_severe_finding_decides() {
        let mysql = |version| facts(Dialect::Mysql, version);
        for facts in [mysql("8.4.0"), facts(Dialect::Postgres, "150001")] {
            assert_eq!(Suitability::of(&facts), Suitability::Usable(Vec::new()));
        }
        let cluster =
            Some(Cluster::Group { members: 3, primaries: 3, unreachable: 0, primary: None });
        let several = Suitability::of(&ServerFacts { cluster: cluster.clone(), ..mysql("8.4.0") });
        assert!(
            matches!(&several, Suitability::Usable(why) if why[0].contains("3 primaries")),
            "{several:?}"
        );
        let mut rolls_back = facts(Dialect::Mariadb, "10.11.1-MariaDB");
        rolls_back.settings.set("innodb_rollback_on_timeout", "1");
        for (facts, part) in [
            (mysql("5.7.44"), "8.0 or newer"),
            (mysql("8.0.11-TiDB-v8.5.0"), "TiDB"),
            (
                ServerFacts { is_read_only: true, cluster, ..mysql("8.4.0") },
                "connect to the primary",
            ),
            (facts(Dialect::Postgres, "120001"), "13 or newer"),
            (rolls_back, "innodb_rollback_on_timeout"),
        ] {
            let result = Suitability::of(&facts);
            let is_refused = matches!(&result, Suitability::Unusable(why) if why.contains(part));
            assert!(is_refused, "{result:?}");
        }
    }
}
