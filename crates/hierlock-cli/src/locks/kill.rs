//! `hierlock locks kill`: ends a session on a server.
//!
//! ```text
//!   find the session ──► show it ──► confirm ──► is it still the same? ──► end it ──► until it is gone ──► log
//! ```

use super::LockBackend;
use super::args::{KillArgs, LocksArgs};
use super::confirm::confirm;
pub(crate) use super::kill_log::{KillLog, LogEcho, user_name};
use super::text::{Renderer, client_text, lock_text};
use crate::exit::{self, CommandError, CommandResult};
use crate::output::{escape_controls, json_line, print, short_list};
use crate::time::timestamp;
use hierlock::sql::Dialect;
use hierlock::sql::lock_report::{LockInspector, LockSnapshot, SessionLocks};
use hierlock_engine::{ErrorClass, Pool, PoolSettings, ServerError, SessionId};
use serde_json::json;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::time::sleep;

/// The time limit for a session to roll back and end, and the interval of the checks.
const END_LIMIT: Duration = Duration::from_secs(30);
const END_CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// The number of locks in the message about a session that was ended.
const MAX_LOCKS: usize = 4;

pub(super) async fn kill(locks: &LocksArgs, args: &KillArgs) -> CommandResult {
    let backend = LockBackend::of(locks.url.as_ref())?;
    let pending = PendingKill::prepare(&backend, args.id).await?;
    if !args.yes {
        let _ = io::stderr().write_all(pending.description().as_bytes());
        let server = &pending.snapshot.server;
        confirm(&format!("end session {} on {server}?", args.id)).await?;
    }
    // Without a log no session is ended.
    let log = KillLog::open(args.log.as_deref(), LogEcho::StandardError)?;
    let by = args.by.clone().unwrap_or_else(user_name);
    let message = pending.end(&args.reason, &by, log).await?;
    print(format!("{message}\n"))
}

/// A session that was found, and will be ended if the user confirms it.
#[derive(Debug)]
pub(crate) struct PendingKill {
    id: SessionId,
    dialect: Dialect,
    pool: Arc<Pool>,
    snapshot: LockSnapshot,
    session: SessionLocks,
    /// The sessions that wait directly behind it.
    waiting: Vec<i64>,
}

impl PendingKill {
    /// Finds a session. Fails if there is none with this id, or if `backend` is a lock file.
    pub(crate) async fn prepare(backend: &LockBackend, pid: i64) -> Result<Self, CommandError> {
        let url = match backend {
            LockBackend::Server(url) => url,
            LockBackend::File(path) => {
                return Err(CommandError::usage(format!(
                    "`{}` is locked by processes, not by sessions of a server; end one with `kill {pid}`",
                    path.display()
                )));
            }
        };
        let mut inspector = LockInspector::connect(url.expose()).await?;
        let snapshot = inspector.snapshot().await?;
        let session = match snapshot.session(pid) {
            Some(session) => session.clone(),
            // The snapshot has only sessions with locks or waits.
            None => inspector.session(pid).await?.unwrap_or_default(),
        };
        let (dialect, address) = (inspector.dialect(), inspector.address().clone());
        let pool = Pool::new(address, PoolSettings::default());
        let found = pool.find(pid).await.map_err(CommandError::unavailable)?;
        let id = found.ok_or_else(|| {
            let server = &snapshot.server;
            let message =
                format!("{server} has no session {pid}, or none that this account may see");
            CommandError::new(exit::LOST, message)
        })?;
        let waiting = snapshot.wanted_from(pid).map(|(waiter, _)| waiter).collect();
        Ok(Self { id, dialect, pool, snapshot, session, waiting })
    }

    /// Returns lines with the session, its locks, and the sessions that wait for it.
    pub(crate) fn description(&self) -> String {
        let Self { snapshot, session, .. } = self;
        let mut renderer = Renderer::new(snapshot, None, false);
        renderer.session(session, 0, "");
        let mut lines = renderer.lines;
        if !session.has_locks() {
            lines.push("      holds no lock that the server shows".to_owned());
        }
        for pid in &self.waiting {
            let waiter = snapshot.session(*pid).map(client_text).unwrap_or_default();
            lines.push(format!("      waits for it: {pid}  {waiter}"));
        }
        escape_controls(&(lines.join("\n") + "\n"))
    }

    /// Ends the session if it is still the one that was found, waits until it is gone, and logs it. Returns a message.
    pub(crate) async fn end(
        self,
        reason: &str,
        by: &str,
        log: KillLog,
    ) -> Result<String, CommandError> {
        let result = self.end_and_log(reason, by, log).await;
        let _ = self.pool.close(Duration::from_secs(1)).await;
        result
    }

    async fn end_and_log(
        &self,
        reason: &str,
        by: &str,
        log: KillLog,
    ) -> Result<String, CommandError> {
        let Self { snapshot, session, waiting, .. } = self;
        let pid = self.id.pid;
        if self.is_gone().await? {
            let message = format!("session {pid} has ended by itself; nothing was ended");
            return Err(CommandError::new(exit::LOST, message));
        }
        self.terminate().await?;
        let gone = self.wait_until_gone().await?;
        let label = session.label.as_ref();
        log.write(&json_line(&json!({
            "event": "killed",
            "time": timestamp(SystemTime::now()),
            "server": snapshot.server,
            "session": pid,
            "user": session.info.user,
            "client": session.info.client,
            "program": label.map(|it| &it.client.program).or(session.info.program.as_ref()),
            "paths": paths(session),
            "waiting": waiting,
            "reason": reason,
            "by": by,
            "gone": gone,
        })))?;
        if !gone {
            return Err(CommandError::unavailable(format!(
                "session {pid} was killed, but still exists after {} s: it rolls back its changes",
                END_LIMIT.as_secs()
            )));
        }
        Ok(format!("ended session {pid}{}", released_text(session, waiting)))
    }

    async fn is_gone(&self) -> Result<bool, CommandError> {
        let found = self.pool.find(self.id.pid).await;
        Ok(found.map_err(CommandError::unavailable)? != Some(self.id))
    }

    async fn terminate(&self) -> Result<(), CommandError> {
        let Err(error) = self.pool.terminate(self.id).await else { return Ok(()) };
        let class = error.driver_error().map(ErrorClass::of);
        if matches!(error, ServerError::Failed { .. }) && class == Some(ErrorClass::AccessDenied) {
            let privilege = match self.dialect {
                Dialect::Mysql => "CONNECTION_ADMIN ON *.*",
                Dialect::Mariadb => "CONNECTION ADMIN ON *.*",
                Dialect::Postgres => "pg_signal_backend",
            };
            let account = &self.snapshot.account;
            let message = format!("{error}; GRANT {privilege} TO {account}");
            return Err(CommandError::unavailable(message));
        }
        // The session may have ended in the meantime.
        if self.is_gone().await? { Ok(()) } else { Err(CommandError::unavailable(error)) }
    }

    /// Waits until the session is gone; returns false after [`END_LIMIT`].
    async fn wait_until_gone(&self) -> Result<bool, CommandError> {
        let started = Instant::now();
        while !self.is_gone().await? {
            if started.elapsed() > END_LIMIT {
                return Ok(false);
            }
            sleep(END_CHECK_INTERVAL).await;
        }
        Ok(true)
    }
}

/// Returns the nodes that the session held, and those that its label claims.
fn paths(session: &SessionLocks) -> Vec<String> {
    let held = session.held.iter().flat_map(|lock| &lock.nodes);
    let mut paths: Vec<String> =
        held.chain(session.unconfirmed_paths()).map(ToString::to_string).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Returns `, which held u1 exclusive (bucket 0/2652417); waited for by 813, 814`.
fn released_text(session: &SessionLocks, waiting: &[i64]) -> String {
    let held: Vec<String> = session.held.iter().map(|lock| lock_text(lock, None)).collect();
    let mut text = String::new();
    if !held.is_empty() {
        text += &format!(", which held {}", short_list(&held, MAX_LOCKS));
    }
    if !waiting.is_empty() {
        let waiting: Vec<String> = waiting.iter().map(i64::to_string).collect();
        text += &format!("; waited for by {}", waiting.join(", "));
    }
    text
}
