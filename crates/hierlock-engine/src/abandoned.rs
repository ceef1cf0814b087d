//! Sessions that a client has dropped. The server may not have noticed, so another session ends them there.
//!
//! A [`Session`](crate::Session) that is dropped is added here, unless it is clean. One task ends the sessions one
//! after the other, so sessions that cannot be ended use at most one more connection.

use crate::pool::Pool;
use crate::{ServerError, SessionId};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// The pause before the next attempt to reach the server: the first, and the longest.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(100);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The number of refused connections in a row after which the server counts as down, and its sessions as ended. Then
/// [`AbandonedSessions::wait_until_ended`] returns, but the task keeps trying: a proxy may have refused.
const MAX_REFUSALS: usize = 3;

/// The sessions of a client that must be ended on the server.
#[derive(Debug, Default)]
pub struct AbandonedSessions(watch::Sender<AbandonedState>);

#[derive(Debug, Default)]
struct AbandonedState {
    sessions: Vec<SessionId>,
    has_task: bool,
    is_refused: bool,
}

impl AbandonedSessions {
    /// Waits until all sessions have ended or the server refuses connections.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn wait_until_ended(&self) {
        let is_over = |pending: &AbandonedState| {
            pending.sessions.is_empty() || pending.is_refused || !pending.has_task
        };
        // Cannot fail: `self` owns the sender.
        let _ = self.0.subscribe().wait_for(is_over).await;
    }

    /// Returns the first session. If there is none, marks the task as finished.
    fn first(&self) -> Option<SessionId> {
        let mut first = None;
        self.0.send_modify(|pending| {
            first = pending.sessions.first().copied();
            pending.has_task = first.is_some();
        });
        first
    }
}

/// The pool of a session, and the runtime for its tasks.
#[derive(Clone, Debug)]
pub(crate) struct SessionOwner {
    pub(crate) pool: Weak<Pool>,
    pub(crate) runtime: Handle,
}

impl SessionOwner {
    /// Ends a session on the server as soon as the server can be reached, while the pool exists.
    pub(crate) fn abandon(&self, id: SessionId) {
        // On a Unix socket the kernel closes the connection, and the server notices.
        if id.identity.is_none() {
            return;
        }
        // When the pool is dropped, only idle sessions are left.
        let Some(pool) = self.pool.upgrade() else { return };
        let mut needs_task = false;
        pool.abandoned.0.send_modify(|pending| {
            pending.sessions.push(id);
            pending.is_refused = false;
            needs_task = !std::mem::replace(&mut pending.has_task, true);
        });
        if needs_task {
            let task = EndTask { pool: self.pool.clone(), is_over: false };
            self.runtime.spawn(task.run(pool));
        }
    }
}

/// Ends the abandoned sessions of one pool. After it ends in any way, another task can start.
struct EndTask {
    pool: Weak<Pool>,
    /// Whether `has_task` is already false. Another task may have set it again.
    is_over: bool,
}

impl Drop for EndTask {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(pool) = self.pool.upgrade()
        {
            pool.abandoned.0.send_modify(|pending| pending.has_task = false);
        }
    }
}

impl EndTask {
    async fn run(mut self, mut pool: Arc<Pool>) {
        let (mut pause, mut refusals) = (FIRST_RETRY_PAUSE, 0);
        let mut pending = pool.abandoned.0.subscribe();
        while let Some(id) = pool.abandoned.first() {
            match pool.terminate(id).await {
                // The server was not reached or did not respond.
                Err(error) if error.is_no_connection() || error.is_connection_lost() => {
                    tracing::debug!(%error, pid = id.pid, "a lost session could not be ended yet");
                    refusals = if is_refused(&error) { refusals + 1 } else { 0 };
                }
                // The session has ended, or the server reports that it does not exist.
                _ => {
                    pool.abandoned.0.send_modify(|pending| {
                        pending.sessions.remove(0);
                        pending.is_refused = false;
                    });
                    (pause, refusals) = (FIRST_RETRY_PAUSE, 0);
                    continue;
                }
            }
            if refusals >= MAX_REFUSALS {
                pool.abandoned.0.send_modify(|pending| pending.is_refused = true);
            }
            drop(pool);
            let count = pending.borrow().sessions.len();
            let new_session = pending.wait_for(|pending| pending.sessions.len() > count);
            (pause, refusals) = if timeout(pause, new_session).await.is_ok() {
                (FIRST_RETRY_PAUSE, 0)
            } else {
                ((2 * pause).min(MAX_RETRY_PAUSE), refusals)
            };
            let Some(upgraded) = self.pool.upgrade() else { return };
            pool = upgraded;
        }
        self.is_over = true;
    }
}

fn is_refused(error: &ServerError) -> bool {
    let refused = io::ErrorKind::ConnectionRefused;
    matches!(error.driver_error(), Some(sqlx::Error::Io(error)) if error.kind() == refused)
}
