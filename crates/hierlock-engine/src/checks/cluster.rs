//! The role of a server in a cluster. A lock exists only on the server that has granted it.

use super::{Area, Check, Finding, ServerCheck, ServerFacts, Values};
use crate::introspection::{if_allowed, rows_if_allowed};
use crate::{Dialect, Session, number_cell};

/// A cluster that a server is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// A group of MySQL's Group Replication, also as InnoDB Cluster.
    Group {
        /// The number of members.
        members: i64,
        /// The number of members that accept writes.
        primaries: i64,
        /// The number of members that this server does not reach.
        unreachable: i64,
        /// The address of a primary, if that is another server.
        primary: Option<String>,
    },
    /// A group of which the account may see only the settings.
    GroupSettings {
        /// Whether only one member accepts writes.
        is_single_primary: bool,
    },
    /// Galera: MariaDB Galera Cluster, Percona XtraDB Cluster.
    Galera {
        /// The number of nodes that this server sees, including itself.
        nodes: i64,
        /// Whether these nodes are a majority (the Primary component). Without one they execute no statement.
        is_majority: bool,
    },
}

/// The columns: members, primaries, unreachable members, and the address of the primary if it is another server.
const MYSQL_GROUP: &str = "SELECT COUNT(*), COUNT(IF(MEMBER_ROLE = 'PRIMARY', 1, NULL)), \
     COUNT(IF(MEMBER_STATE = 'UNREACHABLE', 1, NULL)), MAX(IF(MEMBER_ROLE = 'PRIMARY' \
     AND MEMBER_ID <> @@server_uuid, CONCAT(MEMBER_HOST, ':', MEMBER_PORT), NULL)) \
     FROM performance_schema.replication_group_members WHERE MEMBER_STATE <> 'OFFLINE'";

/// For an account that may not see the members. Every account may see variables. Without the plugin they do not exist.
const MYSQL_GROUP_SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
     ('group_replication_group_name', 'group_replication_single_primary_mode')";

impl Cluster {
    /// Reads the cluster from the server. Fails if the connection does.
    pub(super) async fn read(session: &mut Session) -> Result<Option<Self>, sqlx::Error> {
        let status_table = match session.dialect {
            Dialect::Mysql => {
                let group = Self::read_group(session).await?;
                if group.is_some() {
                    return Ok(group);
                }
                "performance_schema.global_status"
            }
            Dialect::Mariadb => "information_schema.GLOBAL_STATUS",
            Dialect::Postgres => return Ok(None),
        };
        let mut status = Values::default();
        let galera = format!(
            "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM {status_table} \
             WHERE VARIABLE_NAME IN ('wsrep_cluster_size', 'wsrep_cluster_status')"
        );
        status.add_rows(&rows_if_allowed(&mut session.as_ref(), &galera).await?, 1);
        Ok(Self::of_galera(&status))
    }

    async fn read_group(session: &mut Session) -> Result<Option<Self>, sqlx::Error> {
        if let Some(rows) = if_allowed(session.as_ref().cells(MYSQL_GROUP).await)? {
            return Ok(rows.first().and_then(|row| Self::of_members(row)));
        }
        let rows = rows_if_allowed(&mut session.as_ref(), MYSQL_GROUP_SETTINGS).await?;
        let mut settings = Values::default();
        settings.add_rows(&rows, 1);
        Ok(Self::of_group_settings(&settings))
    }

    fn of_members(row: &[Option<String>]) -> Option<Self> {
        let [members, primaries, unreachable] = [0, 1, 2].map(|column| number_cell(row, column));
        let (members, primary) = (members.filter(|&members| members > 0)?, row.get(3)?.clone());
        Some(Cluster::Group { members, primaries: primaries?, unreachable: unreachable?, primary })
    }

    fn of_group_settings(settings: &Values) -> Option<Self> {
        settings.get("group_replication_group_name").filter(|name| !name.is_empty())?;
        let is_single_primary = settings.is_on("group_replication_single_primary_mode")?;
        Some(Cluster::GroupSettings { is_single_primary })
    }

    fn of_galera(status: &Values) -> Option<Self> {
        let nodes = status.number("wsrep_cluster_size").filter(|&nodes| nodes > 0)?;
        // A server outside of a cluster has another value.
        let is_majority = status.get("wsrep_cluster_status") != Some("non-Primary");
        Some(Cluster::Galera { nodes, is_majority })
    }
}

/// The server accepts writes.
pub const READ_ONLY: ServerCheck = ServerCheck::new(
    Area::Server,
    "read-only",
    "a server that follows another has locks of its own, which clients of the primary do not see",
    |check, facts| {
        Some(if !facts.is_read_only {
            check.ok("it accepts writes")
        } else if facts.dialect == Dialect::Postgres {
            let message = "it is a standby, whose locks the primary does not see";
            check.problem(message, "connect to the primary")
        } else {
            let message = "it is read-only, so it follows another whose locks it does not share";
            let address = match &facts.cluster {
                Some(Cluster::Group { primary: Some(address), .. }) => format!(", {address}"),
                _ => String::new(),
            };
            check.problem(message, format!("connect to the primary{address}"))
        })
    },
);

/// Only one member accepts writes.
pub(super) const CLUSTER: ServerCheck = ServerCheck::new(
    Area::Server,
    "cluster",
    "Galera and Group Replication do not share row locks between their servers: two clients on two \
     of them hold the same lock at the same time",
    cluster,
);

fn cluster(check: &Check, facts: &ServerFacts) -> Option<Finding> {
    if facts.dialect == Dialect::Postgres {
        return None;
    }
    let Some(cluster) = &facts.cluster else {
        return Some(
            check.ok("it is in no Galera cluster and no replication group that could be seen"),
        );
    };
    let several = |servers: String| {
        check.warning(
            format!("{servers}, which do not share row locks"),
            "all clients must lock on the same one, or they do not exclude each other",
        )
    };
    Some(match *cluster {
        Cluster::Group { members, unreachable, .. } if unreachable * 2 >= members => {
            let reached = members - unreachable;
            let message = format!(
                "it reaches {reached} of the {members} members of its replication group, which is not a majority: the others \
                 may have elected another primary, whose locks it does not share"
            );
            let fix = "connect to the primary of the majority; with group_replication_unreachable_majority_timeout a \
                       member without a majority becomes read-only";
            check.problem(message, fix)
        }
        Cluster::Group { primaries: 0, .. } => {
            check.ok("it takes no part in its replication group, or not yet")
        }
        Cluster::Group { members, primaries: 1, ref primary, .. } => check.ok(match primary {
            Some(primary) => format!("it is in a replication group whose primary is {primary}"),
            None if members == 1 => "it is the only member of its replication group".to_owned(),
            None => format!(
                "it is the primary of a replication group of {members} members: locks exist only here, and all are \
                 lost when another member takes over"
            ),
        }),
        Cluster::Group { primaries, .. } => {
            several(format!("it is one of a group of {primaries} primaries"))
        }
        Cluster::GroupSettings { is_single_primary: true } => {
            check.ok("by its settings it is in a replication group with one primary")
        }
        Cluster::GroupSettings { is_single_primary: false } => {
            several("by its settings it is in a replication group with several primaries".into())
        }
        Cluster::Galera { nodes, is_majority: false } => check.problem(
            format!(
                "it is in a part of a Galera cluster that has no majority (non-Primary) and executes no statement; it \
                 has {nodes} of the nodes"
            ),
            "connect to a node of the majority",
        ),
        Cluster::Galera { nodes: 1, .. } => check.ok("it is the only node of its Galera cluster"),
        Cluster::Galera { nodes, .. } => {
            several(format!("it is one of a Galera cluster of {nodes} nodes"))
        }
    })
}

/// No writes arrive by replication.
pub(super) const REPLICATION: ServerCheck = ServerCheck::new(
    Area::Server,
    "replication",
    "locks are not replicated: after a failover every hold is lost, and a server that follows \
     another must not be locked on",
    replication,
);

fn replication(check: &Check, facts: &ServerFacts) -> Option<Finding> {
    let state = &facts.state;
    let sources = state.number("sources").or_else(|| state.number("slaves_running"));
    let follows = sources.is_some_and(|sources| sources > 0);
    if follows && !facts.is_read_only {
        return Some(check.warning(
            "it follows another server, and accepts writes itself",
            "lock on the server that it follows, and SET GLOBAL read_only = ON here; if this one has taken over, end the \
             replication: RESET REPLICA ALL",
        ));
    }
    let replicas = state.number("replicas").or_else(|| state.number("slaves_connected"));
    Some(match replicas.unwrap_or(0) {
        _ if follows => check.ok("it follows another server, and accepts no writes"),
        0 => check.ok("it follows no other server, and no replica could be seen"),
        replicas => check.ok(format!(
            "connected replicas: {replicas}; locks exist only here, and all are lost when a replica takes over"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Severity::{Ok, Problem, Warning};

    fn judge(dialect: Dialect, cluster: Option<Cluster>) -> Finding {
        CLUSTER.judge(&ServerFacts { cluster, ..ServerFacts::new(dialect) }).unwrap()
    }

    #[test]
    fn several_writers_are_a_warning_and_a_lost_majority_is_a_problem() {
        assert_eq!(CLUSTER.judge(&ServerFacts::new(Dialect::Postgres)), None);
        judge(Dialect::Mysql, None).assert(Ok, "no Galera");
        for (members, primaries, unreachable, primary, severity, message) in [
            ("1", "1", "0", None, Ok, "only member"),
            ("3", "1", "0", None, Ok, "it is the primary of a replication group of 3"),
            ("3", "1", "0", Some("b:3306"), Ok, "whose primary is b:3306"),
            ("3", "1", "1", None, Ok, "it is the primary"),
            ("3", "3", "0", Some("b:3306"), Warning, "3 primaries"),
            ("3", "1", "2", None, Problem, "reaches 1 of the 3 members"),
            ("2", "1", "1", None, Problem, "reaches 1 of the 2 members"),
            ("4", "4", "2", Some("b:3306"), Problem, "reaches 2 of the 4 members"),
            ("1", "0", "0", None, Ok, "takes no part"),
        ] {
            let row = [Some(members), Some(primaries), Some(unreachable), primary];
            let cluster = Cluster::of_members(&row.map(|cell| cell.map(str::to_owned)));
            judge(Dialect::Mysql, cluster).assert(severity, message);
        }
        let none = ["0", "0", "0"].map(|cell| Some(cell.to_owned()));
        assert_eq!(Cluster::of_members(&[&none[..], &[None]].concat()), None);
    }

    fn values(pairs: &[(&str, &str)]) -> Values {
        let mut values = Values::default();
        for (name, value) in pairs {
            values.set(name, *value);
        }
        values
    }

    #[test]
    fn a_group_is_recognized_by_its_settings() {
        let settings = |name, mode| {
            let mode = ("group_replication_single_primary_mode", mode);
            Cluster::of_group_settings(&values(&[("group_replication_group_name", name), mode]))
        };
        assert_eq!(settings("", "ON"), None);
        assert_eq!(Cluster::of_group_settings(&Values::default()), None);
        for (mode, severity, message) in [("ON", Ok, "one primary"), ("OFF", Warning, "several")] {
            judge(Dialect::Mysql, settings("5a3e1c6b", mode)).assert(severity, message);
        }
    }

    #[test]
    fn a_galera_node_without_a_majority_is_a_problem() {
        for (size, status, expected) in [
            ("0", "Disconnected", None),
            ("1", "Primary", Some((Ok, "only node"))),
            ("2", "Primary", Some((Warning, "Galera cluster of 2"))),
            ("1", "non-Primary", Some((Problem, "no majority"))),
        ] {
            let pairs = [("WSREP_CLUSTER_SIZE", size), ("WSREP_CLUSTER_STATUS", status)];
            let cluster = Cluster::of_galera(&values(&pairs));
            assert_eq!(cluster.is_some(), expected.is_some());
            for dialect in [Dialect::Mysql, Dialect::Mariadb] {
                let Some((severity, message)) = expected else { continue };
                judge(dialect, cluster.clone()).assert(severity, message);
            }
        }
    }

    #[test]
    fn replicas_and_their_primaries_are_recognized() {
        for (dialect, message) in [
            (Dialect::Mysql, "read-only"),
            (Dialect::Mariadb, "read-only"),
            (Dialect::Postgres, "standby"),
        ] {
            let facts = ServerFacts { is_read_only: true, ..ServerFacts::new(dialect) };
            READ_ONLY.judge(&facts).unwrap().assert(Problem, message);
        }
        let row = ["3", "1", "0", "b:3306"].map(|cell| Some(cell.to_owned()));
        let cluster = Cluster::of_members(&row);
        let secondary =
            ServerFacts { is_read_only: true, cluster, ..ServerFacts::new(Dialect::Mysql) };
        let fix = READ_ONLY.judge(&secondary).unwrap().fix.unwrap();
        assert_eq!(fix, "connect to the primary, b:3306");
        for (dialect, name, value, severity) in [
            (Dialect::Mysql, "sources", "1", Warning),
            (Dialect::Mysql, "sources", "0", Ok),
            (Dialect::Mysql, "replicas", "2", Ok),
            (Dialect::Mariadb, "slaves_running", "1", Warning),
            (Dialect::Mariadb, "slaves_running", "0", Ok),
            (Dialect::Mariadb, "slaves_connected", "2", Ok),
            (Dialect::Postgres, "replicas", "2", Ok),
        ] {
            let mut facts = ServerFacts::new(dialect);
            facts.state.set(name, value);
            let finding = REPLICATION.judge(&facts).unwrap();
            assert_eq!(finding.severity, severity, "{finding:?}");
            let has_count = finding.message.contains("connected replicas: 2");
            assert_eq!(has_count, value == "2", "{finding:?}");
        }
    }
}
