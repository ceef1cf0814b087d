//! One session that many guards share: keys of the session instead of a transaction each (`scope=session`, with advisory
//! keys).
//!
//! The server does not keep two guards of one session apart, so it is counted here who has what. Nothing waits on it,
//! for all would wait: whoever finds a key taken waits for it on a connection of its own, where the server sees both.

use super::statement::Literal as _;
use super::{Dialect, LockPool, postgres};
use crate::{Error, SlotMode, Step};
use hierlock_engine::{ErrorClass, Session, TextRow};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex, MutexGuard};

type Result<T, E = sqlx::Error> = std::result::Result<T, E>;

/// The session that guards share.
#[derive(Debug, Default)]
pub(super) struct SharedSession {
    state: Mutex<SharedState>,
    /// A guard was dropped without giving back: only the end of the connection frees its keys.
    must_end: AtomicBool,
}

#[derive(Debug, Default)]
struct SharedState {
    session: Option<Session>,
    /// The keys that guards have, each as often as they have it.
    taken: HashMap<AdvisoryKey, u32>,
    /// Which connection it is: counted up whenever one is gone, with all keys on it.
    generation: u64,
    pinged: Option<Instant>,
}

/// A key in a mode; the server has these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AdvisoryKey {
    number: i64,
    is_shared: bool,
}

impl AdvisoryKey {
    fn of_steps(steps: &[Step]) -> Vec<Self> {
        let key = |step: &Step| {
            let is_shared = step.mode == SlotMode::Shared;
            Self { number: step.slot as i64, is_shared }
        };
        steps.iter().map(key).collect()
    }
}

/// The keys of one guard on the shared session.
#[derive(Debug)]
pub(super) struct SharedKeys {
    shared: Arc<SharedSession>,
    keys: Vec<AdvisoryKey>,
    generation: u64,
}

impl SharedSession {
    async fn lock(&self) -> MutexGuard<'_, SharedState> {
        let mut state = self.state.lock().await;
        if self.must_end.swap(false, Ordering::SeqCst) {
            state.end();
        }
        state
    }

    /// Takes steps if nothing is in the way. Otherwise returns the place of the first that is not free.
    pub(super) async fn try_lock(
        self: &Arc<Self>,
        pool: &LockPool,
        steps: &[Step],
    ) -> Result<Result<SharedKeys, usize>, Error> {
        let keys = AdvisoryKey::of_steps(steps);
        let mut state = self.lock().await;
        let blocked_at = loop {
            let was_there = state.session.is_some();
            if !was_there {
                state.session = Some(pool.connect().await?);
            }
            match state.try_lock(&keys, &[]).await {
                // It had died, and whoever had keys on it has lost them; the next is new.
                Err(error) if was_there && ErrorClass::of(&error).is_connection_lost() => {}
                locked => break locked.map_err(|error| pool.failed(error))?,
            }
        };
        let generation = state.generation;
        let taken = || SharedKeys { shared: self.clone(), keys, generation };
        Ok(blocked_at.map_or_else(|| Ok(taken()), Err))
    }
}

impl SharedState {
    /// Gives up the connection, with everything on it.
    fn end(&mut self) {
        self.session = None;
        self.taken.clear();
        self.generation += 1;
    }

    /// Takes keys beside `own` if nothing is in the way. Otherwise returns the place of the first that is not free.
    async fn try_lock(
        &mut self,
        keys: &[AdvisoryKey],
        own: &[AdvisoryKey],
    ) -> Result<Option<usize>> {
        // Among ourselves first: to the server we are one.
        if let Some(place) = keys.iter().position(|key| self.is_in_the_way(key, own)) {
            return Ok(Some(place));
        }
        let got = self.call("pg_try_advisory_lock", keys).await?;
        let blocked_at = got.iter().position(|got| !got);
        if blocked_at.is_none() {
            for key in keys {
                *self.taken.entry(*key).or_default() += 1;
            }
        } else {
            let got = keys.iter().zip(got).filter(|(_, got)| *got);
            let back: Vec<AdvisoryKey> = got.map(|(key, _)| *key).collect();
            self.call("pg_advisory_unlock", &back).await?;
        }
        Ok(blocked_at)
    }

    /// Does another guard have the key in a mode that conflicts?
    fn is_in_the_way(&self, key: &AdvisoryKey, own: &[AdvisoryKey]) -> bool {
        let has_other = |is_shared: bool| {
            let wanted = AdvisoryKey { is_shared, ..*key };
            let ours = own.iter().filter(|own| **own == wanted).count();
            self.taken.get(&wanted).is_some_and(|all| *all as usize > ours)
        };
        has_other(false) || (!key.is_shared && has_other(true))
    }

    async fn give_back(&mut self, keys: &[AdvisoryKey]) -> Result<()> {
        self.call("pg_advisory_unlock", keys).await?;
        for key in keys {
            if let Some(count) = self.taken.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.taken.remove(key);
                }
            }
        }
        Ok(())
    }

    /// Calls a function for each key, in order; what each says.
    async fn call(&mut self, function: &str, keys: &[AdvisoryKey]) -> Result<Vec<bool>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let (numbers, shared): (Vec<i64>, Vec<bool>) =
            keys.iter().map(|key| (key.number, key.is_shared)).unzip();
        let numbers = numbers.literal(Dialect::Postgres);
        let shared = shared.literal(Dialect::Postgres);
        let rows = self.ask(&postgres::call_each(function, &numbers, &shared)).await?;
        Ok(rows.iter().map(|row| row[0] == "t").collect())
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<TextRow>> {
        let session = self.session.as_mut().ok_or_else(session_ended)?;
        let answer = session.rows(sql).await;
        self.end_if_failed(answer)
    }

    /// A failure of any kind ends the connection: keys of a session outlive the statement that failed, and
    /// nobody knows which of them it had got.
    fn end_if_failed<T>(&mut self, answer: Result<T>) -> Result<T> {
        if answer.is_err() {
            self.end();
        }
        answer
    }
}

/// The session with somebody's keys is no longer there.
fn session_ended() -> sqlx::Error {
    sqlx::Error::Io(ErrorKind::ConnectionAborted.into())
}

impl SharedKeys {
    /// The state, if the connection is still the one with our keys.
    async fn state(&self) -> Result<MutexGuard<'_, SharedState>> {
        let state = self.shared.lock().await;
        if state.generation == self.generation { Ok(state) } else { Err(session_ended()) }
    }

    /// Is the server still there? Asked once for all guards.
    pub(super) async fn ping(&self, pool: &LockPool) -> Result<()> {
        let mut state = self.state().await?;
        let now = Instant::now();
        let recently = |pinged: Instant| now - pinged < pool.settings.keep_alive / 2;
        if state.pinged.is_some_and(recently) {
            return Ok(());
        }
        state.pinged = Some(now);
        let session = state.session.as_mut().ok_or_else(session_ended)?;
        let pinged = session.ping().await;
        state.end_if_failed(pinged)
    }

    /// Takes more, or the same more strongly, if nothing is in the way. Otherwise returns the place of the first that is
    /// not free.
    pub(super) async fn try_add(&mut self, steps: &[Step]) -> Result<Option<usize>> {
        let more = AdvisoryKey::of_steps(steps);
        let blocked_at = self.state().await?.try_lock(&more, &self.keys).await?;
        if blocked_at.is_none() {
            self.keys.extend(more);
        }
        Ok(blocked_at)
    }

    /// Gives back what was added last.
    pub(super) async fn give_back_last(&mut self, count: usize) -> Result<()> {
        let last = self.keys.split_off(self.keys.len() - count);
        self.state().await?.give_back(&last).await
    }

    /// Asks on the connection with our keys.
    pub(super) async fn ask(&self, question: &str) -> Result<Vec<TextRow>> {
        self.state().await?.ask(question).await
    }

    pub(super) async fn end(mut self) -> Result<()> {
        self.give_back_last(self.keys.len()).await
    }
}

impl Drop for SharedKeys {
    fn drop(&mut self) {
        // Its runtime has ended, or it is lost anyway.
        if !self.keys.is_empty() {
            match self.shared.state.try_lock() {
                Ok(mut state) if state.generation == self.generation => state.end(),
                Ok(_) => {}
                Err(_) => self.shared.must_end.store(true, Ordering::SeqCst),
            }
        }
    }
}
