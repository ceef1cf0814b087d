//! Clusters. The tests of `hierlock doctor` start the other topologies.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use hierlock_sandbox::{Engine, SandboxCluster, Topology};
use std::path::{Path, PathBuf};

#[test]
fn dropping_a_cluster_ends_all_its_servers() {
    let topology = Topology::Replicas(Engine::Postgres);
    let Some(cluster) = SandboxCluster::for_tests(topology, 2) else { return };
    assert_eq!((cluster.topology(), cluster.servers().len()), (topology, 2));
    let processes: Vec<(u32, PathBuf)> = cluster
        .servers()
        .iter()
        .map(|server| (server.pid().unwrap(), server.directory().to_owned()))
        .collect();
    let exist = |(pid, directory): &(u32, PathBuf)| {
        [Path::new(&format!("/proc/{pid}")).exists(), directory.exists()]
    };
    assert_eq!(processes.iter().map(exist).collect::<Vec<_>>(), [[true; 2]; 2]);
    drop(cluster);
    assert_eq!(processes.iter().map(exist).collect::<Vec<_>>(), [[false; 2]; 2]);
}
