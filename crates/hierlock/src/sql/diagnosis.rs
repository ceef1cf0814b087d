//! All checks of a server and its lock tables, for [`Diagnosis`](crate::Diagnosis).

use super::exclusion::{self, Exclusion};
use super::lock_table::LockTableError;
use super::options::LockServer;
use super::pool::fail_if_lost;
use super::{LockPool, Options, label_rows, table_checks};
use crate::{Hierarchy, Result};
use hierlock_engine::checks::{CHECKS, Finding, ServerFacts};
use std::time::Duration;

const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Checks the server of a URL. Creates and changes nothing.
pub(crate) async fn diagnose(
    url: &str,
    hierarchy: Hierarchy,
    clients: u32,
) -> Result<Vec<Finding>> {
    let server = LockServer::parse(url, Options::default(), hierarchy)?;
    let pool = LockPool::new(&server);
    let checked = check(server, &pool, clients).await;
    let _ = pool.server.close(CLOSE_LIMIT).await;
    checked.map_err(|error| error.at(&pool.server.address))
}

async fn check(
    server: LockServer,
    pool: &LockPool,
    clients: u32,
) -> Result<Vec<Finding>, LockTableError> {
    let LockServer { mut scheme, settings, .. } = server;
    let mut session = pool.server.connect().await?;
    // A URL may call MariaDB `mysql:`, and the other way round.
    scheme.dialect = session.dialect;
    let mut facts = ServerFacts::read(&mut session, &settings.pool.session).await?;
    if session.dialect.is_innodb() && facts.settings.is_on("performance_schema") != Some(true) {
        facts.label_table = Some(label_rows::check(pool, &mut session).await?);
    }
    // A Galera node without a majority rejects the transaction of this check.
    facts.is_pooled = fail_if_lost(pool.server.is_behind_pooler(&mut session).await)?.ok();
    // A client has a connection for each hold, and the control session.
    let per_client = settings.pool.connections as u64 + 1;
    facts.needed_connections = Some(u64::from(clients).saturating_mul(per_client));
    let mut findings: Vec<Finding> =
        CHECKS.iter().filter_map(|check| check.judge(&facts)).collect();
    let (of_tables, is_lockable) = table_checks::check(&mut session, &mut scheme).await?;
    findings.extend(of_tables);
    session.close();
    let unknown = |reason: &str| Ok(Exclusion::Unknown { reason: reason.to_owned() });
    let exclusion = if facts.is_pooled == Some(true) {
        unknown("a pooler lets several clients use one session")
    } else if !is_lockable {
        unknown("there is nothing to lock yet")
    } else {
        exclusion::check(pool, &scheme).await
    };
    findings.push(match exclusion {
        Ok(exclusion) => exclusion.finding(),
        Err(error) => exclusion::refusal(&error, &scheme).ok_or(error)?,
    });
    Ok(findings)
}
