//! Which servers of MariaDB are fit.

use super::Suitability;

/// How many nodes its cluster has; no row without one.
pub(super) const WRITERS: &str = "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM \
     information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'wsrep_cluster_size'";

/// Does it roll back a whole transaction in which a lock was refused? NOWAIT is a timeout to it.
pub(super) const ROLLS_BACK: &str = "SELECT @@innodb_rollback_on_timeout";

/// Then it is of no use: a guard would lose its locks, and a caller's transaction everything, without a word.
pub(super) fn rolls_back_on_refusal() -> Suitability {
    Suitability::Unfit(
        "its innodb_rollback_on_timeout is on, so one lock that is refused would cost a transaction all others; start \
         it with that off, which is the default"
            .to_owned(),
    )
}

/// `version` is as the server says it, such as `10.11.19-MariaDB-0+deb12u1`.
pub(super) fn of(version: &str, is_read_only: bool, writers: i64) -> Suitability {
    // Old clients see `5.5.5-` before the true version.
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let mut numbers = version.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let numbers = (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0));
    if numbers < (10, 6) {
        return Suitability::Unfit(format!("it is MariaDB {version}; 10.6 or newer is needed"));
    }
    if is_read_only {
        return Suitability::read_only();
    }
    match writers {
        0 | 1 => Suitability::Fit,
        _ => Suitability::several_writers(&format!("a Galera cluster of {writers} nodes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_known_by_their_version() {
        assert_eq!(of("10.11.19-MariaDB-0+deb12u1", false, 0), Suitability::Fit);
        assert_eq!(of("5.5.5-10.6.1-MariaDB", false, 1), Suitability::Fit);
        assert_eq!(of("11.8.2-MariaDB", false, 0), Suitability::Fit);
        for (suitability, says) in [
            (of("10.5.29-MariaDB", false, 0), "10.5.29"),
            (of("11.4.2-MariaDB", true, 0), "read-only"),
        ] {
            assert!(
                matches!(&suitability, Suitability::Unfit(why) if why.contains(says)),
                "{suitability:?}"
            );
        }
        let several = of("11.4.2-MariaDB", false, 3);
        assert!(matches!(&several, Suitability::Doubtful(why) if why.contains("Galera")));
    }
}
