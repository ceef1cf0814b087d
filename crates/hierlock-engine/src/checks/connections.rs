//! The connections of clients: the privileges of the account, connection limits, poolers and the network.

use super::{Area, Check, Finding, Rule, ServerCheck, ServerFacts};
use crate::Dialect;
use std::time::Duration;

/// A larger offset is not a measurement error: a clock is wrong.
const MAX_CLOCK_OFFSET_MS: u64 = 5_000;
/// An acquire takes one round trip, and a release another.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(100);

const fn connection(name: &'static str, why: &'static str, rule: Rule) -> ServerCheck {
    ServerCheck::new(Area::Connections, name, why, rule)
}

/// The account may query locks and lock waits.
pub(super) const PROBES: ServerCheck = connection(
    "probes",
    "without these privileges a refusal or a timeout cannot name the blocker, and `hierlock locks` \
     and `hierlock deadlocks` show less",
    probes,
);

fn probes(check: &Check, facts: &ServerFacts) -> Option<Finding> {
    let grants = match facts.dialect {
        Dialect::Mysql => {
            "GRANT SELECT ON performance_schema.* and PROCESS ON *.* TO the account of the clients"
        }
        Dialect::Mariadb => {
            "GRANT PROCESS ON *.* and, if that is on, SELECT ON performance_schema.* TO the account of the clients"
        }
        Dialect::Postgres => "GRANT pg_read_all_stats TO the role of the clients",
    };
    Some(match &facts.probes {
        None => check.skipped("not checked"),
        Some(Err(refusal)) => {
            let message = format!("the account may not see everything about locks: {refusal}");
            check.warning(message, grants)
        }
        Some(Ok(())) if facts.dialect != Dialect::Postgres => check.ok("the account may see lock waits"),
        Some(Ok(())) => match facts.state.number("reads_all") {
            None => check.not_reported(),
            Some(1) => check.ok("the account may see all sessions"),
            Some(_) => check.warning(
                "the account sees lock waits, but of sessions of other roles neither name nor statement",
                grants,
            ),
        },
    })
}

/// The limits allow enough connections for all clients.
pub(super) const MAX_CONNECTIONS: ServerCheck = connection(
    "max-connections",
    "each hold has its own connection, and each client has one more; a client that gets no \
     connection cannot lock",
    max_connections,
);

fn max_connections(check: &Check, facts: &ServerFacts) -> Option<Finding> {
    let needed = facts.needed_connections?;
    let (settings, state) = (&facts.settings, &facts.state);
    let Some(maximum) = settings.number("max_connections") else {
        return Some(check.not_reported());
    };
    let reserved = ["superuser_reserved_connections", "reserved_connections"]
        .map(|name| settings.number(name).unwrap_or(0));
    let mut limits = vec![("max_connections", maximum - reserved.iter().sum::<i64>())];
    // No limit is -1 on PostgreSQL and 0 on MySQL and MariaDB.
    let account = facts.session.number("max_user_connections").filter(|limit| *limit > 0);
    limits.extend(account.map(|limit| ("max_user_connections", limit)));
    for (limit, name) in
        [("role_limit", "the limit of the role"), ("database_limit", "the limit of the database")]
    {
        limits.extend(state.number(limit).filter(|limit| *limit >= 0).map(|limit| (name, limit)));
    }
    let used =
        state.number("connections").or_else(|| state.number("threads_connected")).unwrap_or(0);
    let (name, smallest) = *limits.iter().min_by_key(|(_, limit)| *limit)?;
    let message =
        format!("the clients may need {needed} connections, and {name} allows {smallest}");
    let fix = "raise the limit, or lower connections= in the URL of the clients";
    let needed = i64::try_from(needed).unwrap_or(i64::MAX);
    Some(if needed > smallest {
        check.problem(message, fix)
    } else if needed > smallest - used {
        check.warning(format!("{message}, of which {used} are in use now"), fix)
    } else {
        check.ok(format!("{message}, {used} in use now"))
    })
}

/// No pooler assigns a connection per transaction.
pub const POOLER: ServerCheck = connection(
    "pooler",
    "with a pooler that assigns a connection per transaction, locks are cancelled and released on \
     the wrong session",
    |check, facts| {
        Some(match facts.is_pooled {
            None => check.skipped("not checked"),
            Some(false) => check.ok("each connection stays the same on the server"),
            Some(true) => check.problem(
                "a pooler in between assigns a connection per transaction (pool_mode = transaction), so locks would \
                 be cancelled and released on the wrong session",
                "connect to the server itself, or through pool_mode = session",
            ),
        })
    },
);

/// The round trip is short.
pub(super) const ROUND_TRIP: ServerCheck = connection(
    "round-trip",
    "an acquire takes one round trip, and a release another",
    |check, facts| {
        let trip = facts.clock?.round_trip;
        let took = format!("{:.1} ms", trip.as_secs_f64() * 1000.0);
        Some(if trip > LONG_ROUND_TRIP {
            check.warning(format!("a round trip took {took}"), "run the clients near the server")
        } else {
            check.ok(took)
        })
    },
);

/// The clocks of client and server agree.
pub(super) const CLOCK: ServerCheck = connection(
    "clock",
    "leases and queues go by the server's clock alone, but times in logs cannot be compared; \
     tokens of MySQL and MariaDB ascend only as long as the server's clock is not set back",
    |check, facts| {
        let Some(clock) = facts.clock else {
            return Some(check.skipped("the server does not report its time"));
        };
        let offset = clock.offset_ms;
        let side = if offset < 0 { "behind" } else { "ahead of" };
        let message = format!("the server's clock is {} ms {side} this one", offset.unsigned_abs());
        Some(if offset.unsigned_abs() > MAX_CLOCK_OFFSET_MS + clock.round_trip.as_millis() as u64 {
            check.warning(message, "synchronize both clocks by NTP; never set the server's back")
        } else {
            check.ok(message)
        })
    },
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::ClockReading;
    use crate::checks::Severity::{Ok, Problem, Skipped, Warning};

    #[test]
    fn connection_limits_are_compared_with_the_need() {
        let mut facts = ServerFacts::new(Dialect::Postgres);
        assert_eq!(MAX_CONNECTIONS.judge(&facts), None);
        facts.needed_connections = Some(22);
        assert_eq!(MAX_CONNECTIONS.judge(&facts).unwrap().severity, Skipped);
        facts.settings.set("superuser_reserved_connections", "3");
        for (maximum, used, role, expected, part) in [
            ("100", "5", "-1", Ok, "97"),
            ("100", "80", "-1", Warning, "80 are in use"),
            ("20", "1", "-1", Problem, "17"),
            ("100", "5", "10", Problem, "the role allows 10"),
        ] {
            facts.settings.set("max_connections", maximum);
            facts.state.set("connections", used);
            facts.state.set("role_limit", role);
            MAX_CONNECTIONS.judge(&facts).unwrap().assert(expected, part);
        }
        let mut facts =
            ServerFacts { needed_connections: Some(11), ..ServerFacts::new(Dialect::Mysql) };
        facts.settings.set("max_connections", "151");
        for (account, expected) in [("0", Ok), ("5", Problem)] {
            facts.session.set("max_user_connections", account);
            assert_eq!(MAX_CONNECTIONS.judge(&facts).unwrap().severity, expected, "{account}");
        }
    }

    #[test]
    fn missing_privileges_are_a_warning() {
        let refused = Some(Err("denied".to_owned()));
        for (dialect, probes, reads_all, expected) in [
            (Dialect::Mysql, Some(Result::Ok(())), "", Ok),
            (Dialect::Mysql, refused.clone(), "", Warning),
            (Dialect::Mariadb, refused, "", Warning),
            (Dialect::Mariadb, None, "", Skipped),
            (Dialect::Postgres, Some(Result::Ok(())), "1", Ok),
            (Dialect::Postgres, Some(Result::Ok(())), "0", Warning),
            (Dialect::Postgres, Some(Result::Ok(())), "", Skipped),
        ] {
            let mut facts = ServerFacts { probes, ..ServerFacts::new(dialect) };
            facts.state.set("reads_all", reads_all);
            assert_eq!(PROBES.judge(&facts).unwrap().severity, expected, "{facts:?}");
        }
    }

    #[test]
    fn clock_offset_round_trip_and_pooler_have_limits() {
        for (offset_ms, trip_ms, clock, distance) in [
            (0, 1, Ok, Ok),
            (-4000, 1, Ok, Ok),
            (-6000, 1, Warning, Ok),
            (3_600_000, 1, Warning, Ok),
            (6000, 2000, Ok, Warning),
        ] {
            let reading = ClockReading { offset_ms, round_trip: Duration::from_millis(trip_ms) };
            let facts = ServerFacts { clock: Some(reading), ..ServerFacts::new(Dialect::Mysql) };
            assert_eq!(CLOCK.judge(&facts).unwrap().severity, clock, "{reading:?}");
            assert_eq!(ROUND_TRIP.judge(&facts).unwrap().severity, distance, "{reading:?}");
        }
        for (is_pooled, expected) in [(None, Skipped), (Some(false), Ok), (Some(true), Problem)] {
            let facts = ServerFacts { is_pooled, ..ServerFacts::new(Dialect::Postgres) };
            assert_eq!(POOLER.judge(&facts).unwrap().severity, expected);
        }
    }
}
