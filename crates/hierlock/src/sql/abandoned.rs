//! Sessions that a client has given up, and that may still hold something on the server: it has perhaps not
//! heard of it, and would keep their locks until its own network gives up. So it is told on the side.

use super::pool::Pool;
use super::session::{Meaning, meaning};
use super::{Dialect, innodb, postgres};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// Who a session is to the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionId {
    /// The server's number for it, by which it can be cancelled.
    pub(super) pid: i64,
    /// It is at least as old as this: another one may have the same number later.
    pub(super) since: Instant,
}

/// Which session a hold was on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    Own(SessionId),
    /// The one that guards share: it is ended once for all of them.
    Shared,
}

/// How soon the server is told again if it could not be reached, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

impl Pool {
    /// Ends a session, with all it holds; not one that has got its number since.
    pub(super) async fn terminate(&self, dialect: Dialect, id: SessionId) -> Result<()> {
        let SessionId { pid, since } = id;
        if dialect == Dialect::Postgres {
            let terminate = postgres::terminate(pid, since.elapsed());
            return self.ask_on_the_side(&terminate).await.map(|_| ());
        }
        // A server that has not been started again gives no number twice.
        let uptime = self.ask_on_the_side(innodb::UPTIME).await?;
        let uptime = uptime.first().and_then(|row| row.last()?.parse().ok()).unwrap_or(0);
        if uptime < since.elapsed().as_secs() {
            return Ok(());
        }
        self.ask_on_the_side(&innodb::terminate(pid)).await.map(|_| ())
    }

    /// Has a session ended as soon as the server can be told, for as long as this client lives.
    pub(super) fn abandon(self: &Arc<Self>, runtime: &Handle, dialect: Dialect, whose: Whose) {
        let pool = self.clone();
        runtime.spawn(async move {
            let ids = match (whose, &pool.shared) {
                (Whose::Own(id), _) => vec![id],
                (Whose::Shared, Some(shared)) => shared.take_ended().await,
                (Whose::Shared, None) => vec![],
            };
            for id in ids {
                tokio::spawn(end_when_it_can_be_told(pool.clone(), dialect, id));
            }
        });
    }
}

async fn end_when_it_can_be_told(mut pool: Arc<Pool>, dialect: Dialect, id: SessionId) {
    let mut pause = FIRST_PAUSE;
    loop {
        match pool.terminate(dialect, id).await {
            Err(error) if is_unheard(&error) => {
                tracing::debug!(%error, pid = id.pid, "a lost session could not be ended yet");
            }
            // Ended; or the server says that it has ended by itself.
            _ => return,
        }
        let still_used = Arc::downgrade(&pool);
        drop(pool);
        sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
        match still_used.upgrade() {
            Some(used) => pool = used,
            None => return,
        }
    }
}

/// Could the server not be asked, or did it not answer?
fn is_unheard(error: &Error) -> bool {
    let is_gone = |source| meaning(source) == Meaning::Gone;
    error.is_no_connection() || error.sql_source().is_some_and(is_gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::Hierarchy;
    use crate::sql::place::Place;
    use hierlock_sandbox::{Engine, Sandbox, on_each_server};

    const GENEROUS: Duration = Duration::from_secs(30);

    on_each_server!(only_the_session_that_was_meant_is_ended);

    /// A number that somebody else has got since must not cost him his session.
    async fn only_the_session_that_was_meant_is_ended(engine: Engine) {
        // Started just now: it cannot be as old as what is asked for.
        let Some(server) = Sandbox::for_tests(engine) else { return };
        let place = Place::parse(server.url(), Hierarchy::default()).unwrap();
        let pool = Pool::new(&place);
        let mut session = pool.connect().await.unwrap();
        let (dialect, id) = (session.dialect, session.id);
        let up_to = GENEROUS + server_is_up(&pool, dialect).await;
        let since = Instant::now().checked_sub(up_to).expect("the machine is older than this");
        pool.terminate(dialect, SessionId { since, ..id }).await.unwrap();
        session.ping().await.unwrap();
        pool.terminate(dialect, id).await.unwrap();
        let ends = async { while session.ping().await.is_ok() {} };
        tokio::time::timeout(GENEROUS, ends).await.expect("it lives");
    }

    async fn server_is_up(pool: &Pool, dialect: Dialect) -> Duration {
        match dialect {
            // It asks how old the session is.
            Dialect::Postgres => Duration::ZERO,
            _ => {
                let uptime = pool.ask_on_the_side(innodb::UPTIME).await.unwrap();
                Duration::from_secs(uptime[0][1].parse().unwrap())
            }
        }
    }
}
