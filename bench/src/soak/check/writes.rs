//! Checks that no owner wrote after the end of its lease.

use super::Violation;
use hierlock::Target;
use std::collections::BTreeMap;

/// A write under a lease, as read from the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The node of the lease.
    pub target: Target,
    /// The token of the lease.
    pub token: u64,
}

/// Checks that the tokens of writes ascend in the order of the writes, and that no committed write is missing.
/// `committed` counts the confirmed commits of each token.
pub fn check_writes(writes: &[Write], committed: &BTreeMap<u64, u64>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut greatest: BTreeMap<&Target, u64> = BTreeMap::new();
    let mut found_by_token: BTreeMap<u64, u64> = BTreeMap::new();
    for Write { target, token } in writes {
        *found_by_token.entry(*token).or_default() += 1;
        let before = greatest.iter().filter(|(t, _)| t.contains(target) || target.contains(t));
        if let Some((other, later)) = before.max_by_key(|(_, token)| **token)
            && later > token
        {
            violations.push(Violation::Other(format!(
                "stale write: lease {token} of {target} wrote after lease {later} of {other}"
            )));
        }
        let last = greatest.entry(target).or_default();
        *last = (*last).max(*token);
    }
    for (token, count) in committed {
        let written = found_by_token.get(token).copied().unwrap_or(0);
        if written < *count {
            violations.push(Violation::Other(format!(
                "lost write: {count} of lease {token} were committed, but the table has {written}"
            )));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_and_lost_writes_are_found() {
        let write = |path: &str, token| Write { target: path.parse().unwrap(), token };
        let found = |writes: &[Write], committed: &[(u64, u64)]| {
            let committed = committed.iter().copied().collect();
            let found = check_writes(writes, &committed);
            found.iter().map(Violation::to_string).collect::<Vec<_>>()
        };
        let good = [write("u1/a1", 3), write("u1/a1", 3), write("u1", 5), write("u2", 4)];
        assert_eq!(found(&good, &[(3, 2), (4, 1)]), [""; 0]);
        let stale = [write("u1", 5), write("u1/a1", 3)];
        let expected = "stale write: lease 3 of u1/a1 wrote after lease 5 of u1";
        assert_eq!(found(&stale, &[]), [expected]);
        let expected = "lost write: 3 of lease 3 were committed, but the table has 2";
        assert_eq!(found(&good, &[(3, 3)]), [expected]);
    }
}
