//! Which servers of MySQL are fit.

use super::Suitability;

/// How many members of its group accept writes.
pub(super) const WRITERS: &str = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_ROLE = 'PRIMARY'";

/// `version` is as the server says it.
pub(super) fn of(version: &str, is_read_only: bool, writers: i64) -> Suitability {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < 8) {
        return Suitability::Unfit(format!("it is MySQL {version}; 8.0 or newer is needed"));
    }
    if version.contains("TiDB") {
        return Suitability::Unfit(
            "it is TiDB, which takes no shared row locks unless told to".to_owned(),
        );
    }
    if is_read_only {
        return Suitability::read_only();
    }
    match writers {
        0 | 1 => Suitability::Fit,
        _ => Suitability::several_writers(&format!("a group of {writers} primaries")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_version() {
        assert_eq!(of("9.7.4", false, 0), Suitability::Fit);
        assert_eq!(of("8.0.36-0ubuntu0", false, 1), Suitability::Fit);
        for (suitability, says) in [
            (of("5.7.44", false, 0), "5.7.44"),
            (of("8.0.11-TiDB-v8.5.0", false, 0), "TiDB"),
            (of("8.4.0", true, 0), "read-only"),
        ] {
            assert!(
                matches!(&suitability, Suitability::Unfit(why) if why.contains(says)),
                "{suitability:?}"
            );
        }
        let several = of("8.4.0", false, 3);
        assert!(matches!(&several, Suitability::Doubtful(why) if why.contains("3 primaries")));
    }
}
