//! A Galera cluster of MariaDB.

use super::Topology;
use crate::error::{Error, Result};
use crate::launch::{DataSource, Launch, data_template};
use crate::{Engine, Sandbox, free_port};
use std::path::Path;

/// The paths at which packages install the library.
const PROVIDERS: [&str; 3] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/lib/galera-4/libgalera_smm.so",
];

/// The same UUID for every cluster: two clusters never meet, because their ports differ.
const CLUSTER_ID: &str = "8f0c7a52-9d3b-4f1e-a6c4-3be2d5178f60";

/// Switches off replication for the first statements of a server, which run before it joins the cluster.
const LOCAL_SQL: &str = "SET SESSION wsrep_on = OFF;\n";

const MEMBERS_SYNCED: &str = "SELECT CONCAT_WS(' ', MAX(IF(VARIABLE_NAME = 'WSREP_CLUSTER_SIZE', VARIABLE_VALUE, '')), \
     MAX(IF(VARIABLE_NAME = 'WSREP_LOCAL_STATE_COMMENT', VARIABLE_VALUE, ''))) \
     FROM information_schema.GLOBAL_STATUS";

/// Starts the servers one after the other. Each is synced before the next one starts.
///
/// Usually a joining server copies the data of another (SST), with a script that needs further programs and fails with
/// rsync as root. Here all servers start with the same data, and the state file of each contains the number of changes
/// before its own join. Each join is one change.
pub(super) fn start(_: Topology, count: usize) -> Result<Vec<Sandbox>> {
    let provider = PROVIDERS.into_iter().find(|path| Path::new(path).exists());
    let missing = Error::Missing { engine: Engine::Mariadb, missing: "libgalera_smm.so" };
    let provider = provider.ok_or(missing)?;
    let template = data_template(Engine::Mariadb)?;
    let mut addresses = Vec::new();
    let mut servers: Vec<Sandbox> = Vec::new();
    for changes in 0..count {
        let state = template.path().join("data/grastate.dat");
        let text = format!(
            "# GALERA saved state\nversion: 2.1\nuuid: {CLUSTER_ID}\nseqno: {changes}\nsafe_to_bootstrap: 1\n"
        );
        std::fs::write(state, text).map_err(Error::io("write the state of a Galera server"))?;
        let cluster = format!("gcomm://{}", addresses.join(","));
        let address = format!("127.0.0.1:{}", free_port()?);
        let options = options(provider, &cluster, &address)?;
        addresses.push(address);
        let server = Sandbox::launch(&Launch {
            options,
            data: DataSource::CopyOf(template.path().to_owned()),
            init_sql: [LOCAL_SQL, ""],
            ..Launch::new(Engine::Mariadb)
        })?;
        let expected = format!("{} Synced", changes + 1);
        server.wait_until(|| Ok(server.run_sql(MEMBERS_SYNCED)?.trim() == expected))?;
        servers.push(server);
    }
    Ok(servers)
}

fn options(provider: &str, cluster: &str, address: &str) -> Result<Vec<String>> {
    let transfer = free_port()?;
    let provider_options = format!(
        "gmcast.listen_addr=tcp://{address};ist.recv_addr=127.0.0.1:{transfer};gcache.size=8M"
    );
    let options = [
        ("wsrep-on", "ON"),
        ("wsrep-provider", provider),
        ("wsrep-provider-options", &provider_options),
        ("wsrep-cluster-name", "hierlock"),
        ("wsrep-cluster-address", cluster),
        ("wsrep-node-address", "127.0.0.1"),
        ("wsrep-sst-method", "skip"),
        ("binlog-format", "ROW"),
        ("innodb-autoinc-lock-mode", "2"),
    ];
    Ok(options.map(|(name, value)| format!("--{name}={value}")).into())
}
