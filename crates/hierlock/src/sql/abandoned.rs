//! Sessions that a client has given up, and that may still hold something on the server: it has perhaps not
//! heard of it, and would keep their locks until its own network gives up. So it is told on the side.

use super::pool::Pool;
use super::session::{Meaning, SessionId, meaning};
use super::{Dialect, innodb, postgres};
use crate::error::{Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;

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
        let (known_by, terminate) = match dialect {
            Dialect::Postgres => (postgres::known_by(id.pid), postgres::terminate(id.pid)),
            _ => (innodb::known_by(id.pid), innodb::terminate(id.pid)),
        };
        if id.is(&self.ask_on_the_side(&known_by).await?) {
            self.ask_on_the_side(&terminate).await?;
        }
        Ok(())
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
            // Over a socket the kernel tells the server that its client has gone.
            for id in ids.into_iter().filter(|id| id.mark.is_some()) {
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
    use hierlock_sandbox::{Engine, Server, on_each_server};

    const GENEROUS: Duration = Duration::from_secs(30);

    on_each_server!(only_the_session_that_was_meant_is_ended);

    /// A number that somebody else has got since must not cost him his session.
    async fn only_the_session_that_was_meant_is_ended(engine: Engine) {
        let Some(server) = Server::for_tests(engine) else { return };
        let place = Place::parse(server.url(), Hierarchy::default()).unwrap();
        let pool = Pool::new(&place);
        let (mut session, other) = (pool.connect().await.unwrap(), pool.connect().await.unwrap());
        let (dialect, id) = (session.dialect, session.id);
        assert!(id.mark.is_some() && id.mark != other.id.mark);
        pool.terminate(dialect, SessionId { mark: other.id.mark, ..id }).await.unwrap();
        session.ping().await.unwrap();
        pool.terminate(dialect, id).await.unwrap();
        let ends = async { while session.ping().await.is_ok() {} };
        tokio::time::timeout(GENEROUS, ends).await.expect("it lives");
        // There is no such session any more.
        pool.terminate(dialect, id).await.unwrap();
    }
}
