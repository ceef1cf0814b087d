//! MySQL Group Replication.

use super::{Topology, start_all};
use crate::error::{Error, Result};
use crate::launch::{DataSource, Launch, data_template};
use crate::{Engine, Sandbox, free_port};

/// The same UUID for every group: two groups never meet, because their ports differ.
const GROUP_NAME: &str = "5a3e1c6b-2f0d-4f8e-9b57-6d1c0a9e4b21";

/// Sets the account with which a joining member fetches missed transactions: the one of every sandbox.
const RECOVERY_ACCOUNT: &str =
    "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'";

const BOOTSTRAP: &str = "SET GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION; \
     SET GLOBAL group_replication_bootstrap_group = OFF";

const HAS_PLUGIN: &str = "SELECT COUNT(*) FROM information_schema.PLUGINS \
     WHERE PLUGIN_NAME = 'group_replication' AND PLUGIN_STATUS = 'ACTIVE'";

const MEMBERS_ONLINE: &str = "SELECT COUNT(*) FROM performance_schema.replication_group_members \
     WHERE MEMBER_STATE = 'ONLINE'";

pub(super) fn start(topology: Topology, count: usize) -> Result<Vec<Sandbox>> {
    let template = data_template(Engine::Mysql)?;
    let ports = (0..count).map(|_| free_port()).collect::<Result<Vec<u16>>>()?;
    let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let servers = start_all(count, |index| {
        let options = options(topology, index, &addresses[index], &addresses.join(","));
        let data = DataSource::CopyOf(template.path().to_owned());
        Sandbox::launch(&Launch { options, data, ..Launch::new(Engine::Mysql) })
    })?;
    for (index, server) in servers.iter().enumerate() {
        if server.run_sql(HAS_PLUGIN)?.trim() != "1" {
            let missing = "the plugin group_replication.so";
            return Err(Error::Missing { engine: Engine::Mysql, missing });
        }
        let join = if index == 0 { BOOTSTRAP } else { "START GROUP_REPLICATION" };
        server.run_sql(&format!("{RECOVERY_ACCOUNT}; {join}"))?;
    }
    let count = count.to_string();
    for server in &servers {
        server.wait_until(|| Ok(server.run_sql(MEMBERS_ONLINE)?.trim() == count))?;
    }
    Ok(servers)
}

fn options(topology: Topology, index: usize, address: &str, group: &str) -> Vec<String> {
    let is_single = topology == Topology::SinglePrimary;
    let [single, everywhere] = if is_single { ["ON", "OFF"] } else { ["OFF", "ON"] };
    let mut options = vec![
        format!("--server-id={}", index + 1),
        "--gtid-mode=ON".to_owned(),
        "--enforce-gtid-consistency=ON".to_owned(),
        "--log-bin=binlog".to_owned(),
        "--sync-binlog=0".to_owned(),
        "--relay-log=relay".to_owned(),
        // The address that the other members use.
        "--report-host=127.0.0.1".to_owned(),
        "--plugin-load-add=group_replication.so".to_owned(),
    ];
    // `loose`: without the plugin the server starts too, and `HAS_PLUGIN` finds that it is missing.
    options.extend(
        [
            ("group-name", GROUP_NAME),
            ("local-address", address),
            ("group-seeds", group),
            ("start-on-boot", "OFF"),
            ("single-primary-mode", single),
            ("enforce-update-everywhere-checks", everywhere),
            ("recovery-get-public-key", "ON"),
            // The minimum.
            ("message-cache-size", "134217728"),
        ]
        .map(|(name, value)| format!("--loose-group-replication-{name}={value}")),
    );
    options
}
