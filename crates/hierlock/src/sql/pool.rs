//! The connections of one backend: a few, each either idle or one hold's own.

use super::postgres;
use super::session::{Address, Session};
use crate::error::Result;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many connections a backend opens, unless told. Each hold has one of its own.
const CONNECTIONS: usize = 10;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) address: Address,
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
    /// For cancelling and asking; opened when first needed.
    side: tokio::sync::Mutex<Option<Session>>,
}

/// The right to one connection.
pub(super) type Permit = OwnedSemaphorePermit;

impl Pool {
    pub(super) fn new(address: Address) -> Self {
        let permits = Arc::new(Semaphore::new(CONNECTIONS));
        Self { address, idle: Mutex::default(), permits, side: tokio::sync::Mutex::default() }
    }

    /// Waits for the right to a connection, first come first served.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue.
    pub(super) async fn permit(&self) -> Permit {
        let permit = self.permits.clone().acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    pub(super) fn try_permit(&self) -> Option<Permit> {
        self.permits.clone().try_acquire_owned().ok()
    }

    /// An idle session, which may have died in its sleep.
    pub(super) fn take_idle(&self) -> Option<Session> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Keeps a session that is known to be in no transaction.
    pub(super) fn give_back(&self, session: Session) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }

    /// Ends the statement that a session runs now.
    pub(super) async fn cancel(&self, pid: i32) -> Result<()> {
        self.ask_on_the_side(&postgres::cancel(pid)).await.map(|_| ())
    }

    /// Ends a session, with all it holds.
    pub(super) async fn terminate(&self, pid: i32) -> Result<()> {
        self.ask_on_the_side(&postgres::terminate(pid)).await.map(|_| ())
    }

    /// The slot that a session waits for, if it does.
    pub(super) async fn waits_for(&self, pid: i32) -> Result<Option<u64>> {
        // Keys are signed on the server.
        Ok(self.ask_on_the_side(&postgres::waits_for(pid)).await?.map(|key| key as u64))
    }

    /// Asks on the side connection; one that has died is replaced, once.
    async fn ask_on_the_side(&self, question: &str) -> Result<Option<i64>> {
        let mut side = self.side.lock().await;
        if let Some(mut session) = side.take()
            && let Ok(answer) = session.ask(question).await
        {
            *side = Some(session);
            return Ok(answer);
        }
        let mut session = Session::connect(&self.address).await?;
        let answer = session.ask(question).await?;
        *side = Some(session);
        Ok(answer)
    }
}
