//! Sessions that a client has given up. The server may not have heard of it, so it is told by another session.
//!
//! A [`Session`](crate::Session) that is dropped gets here by itself, unless it is known to be clean. One task ends them
//! one after the other: each that cannot be ended costs at most one more connection.

use crate::pool::Pool;
use crate::{Dialect, ServerError, SessionId};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// How soon the server is told again if it could not be reached, at first and at most.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(100);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// A server that has refused connections so often in a row has ended, and its sessions with it. Then nobody waits for
/// their end any longer, but it is still tried: something in between may have refused.
const MAX_REFUSALS: usize = 3;

/// The sessions of a client that are to be ended.
#[derive(Debug, Default)]
pub struct AbandonedSessions(watch::Sender<AbandonedState>);

#[derive(Debug, Default)]
struct AbandonedState {
    sessions: Vec<(Dialect, SessionId)>,
    has_task: bool,
    is_refused: bool,
}

impl AbandonedSessions {
    /// Waits until all have been ended, or cannot be.
    ///
    /// # Cancel safety
    /// Can be dropped and called again.
    pub async fn wait_until_ended(&self) {
        let is_over = |pending: &AbandonedState| {
            pending.sessions.is_empty() || pending.is_refused || !pending.has_task
        };
        // The sender is ours, so it is there.
        let _ = self.0.subscribe().wait_for(is_over).await;
    }

    /// Returns the first of them. Without any, the task that asks is over.
    fn first(&self) -> Option<(Dialect, SessionId)> {
        let mut first = None;
        self.0.send_modify(|pending| {
            first = pending.sessions.first().copied();
            pending.has_task = first.is_some();
        });
        first
    }
}

/// Who a session belongs to, and where its tasks run.
#[derive(Clone, Debug)]
pub(crate) struct SessionOwner {
    pub(crate) pool: Weak<Pool>,
    pub(crate) runtime: Handle,
}

impl SessionOwner {
    /// Has a session ended as soon as the server can be told, for as long as its client lives.
    pub(crate) fn abandon(&self, dialect: Dialect, id: SessionId) {
        // Over a socket the kernel tells the server that its client has gone.
        if id.identity.is_none() {
            return;
        }
        // A client that goes as a whole has only idle sessions left.
        let Some(pool) = self.pool.upgrade() else { return };
        let mut needs_task = false;
        pool.abandoned.0.send_modify(|pending| {
            pending.sessions.push((dialect, id));
            pending.is_refused = false;
            needs_task = !std::mem::replace(&mut pending.has_task, true);
        });
        if needs_task {
            let task = EndTask { pool: self.pool.clone(), is_over: false };
            self.runtime.spawn(task.run(pool));
        }
    }
}

/// Ends the sessions of one client. However it ends, another can begin.
struct EndTask {
    pool: Weak<Pool>,
    /// The list says already that there is no task: the next may have begun.
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
        while let Some((dialect, id)) = pool.abandoned.first() {
            match pool.terminate(dialect, id).await {
                // The server could not be asked, or did not answer.
                Err(error) if error.is_no_connection() || error.is_connection_lost() => {
                    tracing::debug!(%error, pid = id.pid, "a lost session could not be ended yet");
                    refusals = if is_refused(&error) { refusals + 1 } else { 0 };
                }
                // Ended; or the server says that it has ended by itself.
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
            let more = pending.wait_for(|pending| pending.sessions.len() > count);
            (pause, refusals) = if timeout(pause, more).await.is_ok() {
                (FIRST_RETRY_PAUSE, 0)
            } else {
                ((2 * pause).min(MAX_RETRY_PAUSE), refusals)
            };
            let Some(used) = self.pool.upgrade() else { return };
            pool = used;
        }
        self.is_over = true;
    }
}

fn is_refused(error: &ServerError) -> bool {
    let refused = io::ErrorKind::ConnectionRefused;
    matches!(error.source_of_driver(), Some(sqlx::Error::Io(error)) if error.kind() == refused)
}
