//! A primary and its replicas.

use super::{Topology, start_all};
use crate::error::Result;
use crate::launch::{DataSource, Launch, data_template};
use crate::{Engine, Sandbox};

/// The options and statements for the replication of an engine.
struct Protocol {
    options: &'static [&'static str],
    /// Returns the statements that make a server a replica of the server at this port.
    follow: fn(u16) -> String,
    /// A query that returns 1 on a replica that is connected to its source.
    is_following: &'static str,
    /// The statement that makes a replica read-only, each time it starts.
    read_only: &'static str,
}

const MYSQL: Protocol = Protocol {
    options: &["--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--relay-log=relay"],
    follow: |port| {
        format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'root', \
             SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1; START REPLICA"
        )
    },
    is_following: "SELECT COUNT(*) FROM performance_schema.replication_connection_status \
                   WHERE SERVICE_STATE = 'ON'",
    read_only: "SET GLOBAL super_read_only = ON;\n",
};

const MARIADB: Protocol = Protocol {
    options: &["--relay-log=relay"],
    follow: |port| {
        format!(
            "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', \
             MASTER_USE_GTID = slave_pos; START SLAVE"
        )
    },
    is_following: "SELECT COUNT(*) FROM information_schema.GLOBAL_STATUS \
                   WHERE VARIABLE_NAME = 'SLAVE_RUNNING' AND VARIABLE_VALUE = 'ON'",
    read_only: "SET GLOBAL read_only = ON;\n",
};

pub(super) fn start(topology: Topology, count: usize) -> Result<Vec<Sandbox>> {
    match topology.engine() {
        Engine::Postgres => start_standbys(count),
        Engine::Mysql => start_replicas(Engine::Mysql, &MYSQL, count),
        Engine::Mariadb => start_replicas(Engine::Mariadb, &MARIADB, count),
    }
}

fn start_replicas(engine: Engine, protocol: &Protocol, count: usize) -> Result<Vec<Sandbox>> {
    let template = data_template(engine)?;
    let servers = start_all(count, |index| {
        let mut options = vec!["--log-bin=binlog".to_owned(), format!("--server-id={}", index + 1)];
        options.extend(protocol.options.iter().map(|&option| option.to_owned()));
        let read_only = if index == 0 { "" } else { protocol.read_only };
        let data = DataSource::CopyOf(template.path().to_owned());
        Sandbox::launch(&Launch { engine, options, data, init_sql: ["", read_only] })
    })?;
    let Some((source, replicas)) = servers.split_first() else { return Ok(servers) };
    for replica in replicas {
        replica.run_sql(&(protocol.follow)(source.port))?;
    }
    for replica in replicas {
        replica.wait_until(|| Ok(replica.run_sql(protocol.is_following)?.trim() == "1"))?;
    }
    Ok(servers)
}

fn start_standbys(count: usize) -> Result<Vec<Sandbox>> {
    let mut servers = vec![Sandbox::launch(&Launch::new(Engine::Postgres))?];
    let port = servers[0].port;
    let launch = || Launch { data: DataSource::BackupOf(port), ..Launch::new(Engine::Postgres) };
    for _ in 1..count {
        servers.push(Sandbox::launch(&launch())?);
    }
    let following = (servers.len() - 1).to_string();
    let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    servers[0].wait_until(|| Ok(servers[0].run_sql(sql)?.trim() == following))?;
    Ok(servers)
}
