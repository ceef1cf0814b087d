//! One connection that many guards share: keys of the session instead of a transaction each
//! (`scope=session`, with advisory keys).
//!
//! The server does not keep two guards of one session apart, so it is counted here who has what. Nothing
//! waits on it, for all would wait: whoever finds a key taken waits for it on a connection of its own, where
//! the server sees both.

use super::Dialect;
use super::failure::LockFailure;
use super::pool::LockPool;
use super::statement::Value;
use crate::error::Error;
use crate::mode::SlotMode;
use crate::plan::Step;
use hierlock_engine::{ServerError, Session, TextRow};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::{Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Somebody went without giving back: only the end of the connection frees its keys.
    condemned: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    session: Option<Session>,
    taken: HashMap<i64, Count>,
    /// Which connection it is: counted up whenever one is gone, with all keys on it.
    generation: u64,
    pinged: Option<Instant>,
}

/// How many guards have a key, and how.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    shared: u32,
    exclusive: u32,
}

/// A key in a mode; the server has these two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    number: i64,
    is_shared: bool,
}

impl Key {
    fn of(step: &Step) -> Self {
        Self { number: step.slot as i64, is_shared: step.mode == SlotMode::Shared }
    }
}

/// The keys of one guard on the shared connection.
#[derive(Debug)]
pub(super) struct SharedKeys {
    shared: Arc<Shared>,
    keys: Vec<Key>,
    generation: u64,
}

/// How a try went.
pub(super) enum Tried {
    Got(SharedKeys),
    /// The first step that is not free.
    InTheWay(usize),
}

impl Shared {
    async fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().await;
        if self.condemned.swap(false, Ordering::SeqCst) {
            state.end();
        }
        state
    }

    /// Takes steps, if nothing is in the way.
    pub(super) async fn try_take(
        self: &Arc<Self>,
        pool: &LockPool,
        steps: &[Step],
    ) -> Result<Tried, Error> {
        let keys: Vec<Key> = steps.iter().map(Key::of).collect();
        let mut state = self.lock().await;
        let failed =
            |source| ServerError::Failed { server: pool.server.address.to_string(), source };
        let tried = loop {
            let was_there = state.session.is_some();
            if !was_there {
                state.session = Some(pool.connect().await?);
            }
            match state.try_take(&keys, &[]).await {
                // It had died, and whoever had keys on it has lost them; the next is new.
                Err(error)
                    if was_there && LockFailure::of(&error) == LockFailure::ConnectionLost => {}
                tried => break tried,
            }
        };
        Ok(match tried.map_err(failed)? {
            None => {
                let generation = state.generation;
                Tried::Got(SharedKeys { shared: self.clone(), keys, generation })
            }
            Some(place) => Tried::InTheWay(place),
        })
    }
}

impl State {
    /// Gives up the connection, with everything on it.
    fn end(&mut self) {
        self.session = None;
        self.taken.clear();
        self.generation += 1;
    }

    /// Takes keys beside `own`, if nothing is in the way: otherwise the first that is.
    async fn try_take(&mut self, keys: &[Key], own: &[Key]) -> Result<Option<usize>, sqlx::Error> {
        // Among ourselves first: to the server we are one.
        if let Some(place) = keys.iter().position(|key| self.is_in_the_way(key, own)) {
            return Ok(Some(place));
        }
        let got = self.call("pg_try_advisory_lock", keys).await?;
        let in_the_way = got.iter().position(|got| !got);
        if in_the_way.is_none() {
            for key in keys {
                let count = self.taken.entry(key.number).or_default();
                *(if key.is_shared { &mut count.shared } else { &mut count.exclusive }) += 1;
            }
            return Ok(None);
        }
        let back: Vec<Key> =
            keys.iter().zip(&got).filter(|(_, got)| **got).map(|(key, _)| *key).collect();
        self.call("pg_advisory_unlock", &back).await?;
        Ok(in_the_way)
    }

    fn is_in_the_way(&self, key: &Key, own: &[Key]) -> bool {
        let Some(count) = self.taken.get(&key.number) else { return false };
        let ours = |is_shared: bool| {
            let same = |own: &&Key| own.number == key.number && own.is_shared == is_shared;
            own.iter().filter(same).count() as u32
        };
        count.exclusive > ours(false) || (!key.is_shared && count.shared > ours(true))
    }

    /// Gives keys back.
    async fn give_back(&mut self, keys: &[Key]) -> Result<(), sqlx::Error> {
        self.call("pg_advisory_unlock", keys).await?;
        for key in keys {
            if let Some(count) = self.taken.get_mut(&key.number) {
                *(if key.is_shared { &mut count.shared } else { &mut count.exclusive }) -= 1;
                if (count.shared, count.exclusive) == (0, 0) {
                    self.taken.remove(&key.number);
                }
            }
        }
        Ok(())
    }

    /// Calls a function for each key, in order; what each says.
    async fn call(&mut self, function: &str, keys: &[Key]) -> Result<Vec<bool>, sqlx::Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let numbers = Value::Numbers(keys.iter().map(|key| key.number).collect());
        let shared = Value::Flags(keys.iter().map(|key| key.is_shared).collect());
        let sql = format!(
            "SELECT CASE WHEN s THEN {function}_shared(k) ELSE {function}(k) END \
             FROM unnest({}::bigint[], {}::boolean[]) v(k, s)",
            numbers.literal(Dialect::Postgres),
            shared.literal(Dialect::Postgres)
        );
        let rows = self.ask(&sql).await?;
        Ok(rows.iter().map(|row| row[0] == "t").collect())
    }

    async fn ask(&mut self, sql: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        let session = self.session.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        let answer = session.rows(sql).await;
        self.look_at(answer)
    }

    /// A failure of any kind ends the connection: keys of a session outlive the statement that failed, and
    /// nobody knows which of them it had got.
    fn look_at<T>(&mut self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        if answer.is_err() {
            self.end();
        }
        answer
    }
}

impl SharedKeys {
    /// The state, if the connection is still the one with our keys.
    async fn state(&self) -> Result<MutexGuard<'_, State>, sqlx::Error> {
        let state = self.shared.lock().await;
        match state.generation == self.generation {
            true => Ok(state),
            false => Err(sqlx::Error::PoolClosed),
        }
    }

    /// Is the server still there? Asked once for all guards.
    pub(super) async fn ping(&self, pool: &LockPool) -> Result<(), sqlx::Error> {
        let mut state = self.state().await?;
        let now = Instant::now();
        let recently = |pinged: Instant| now - pinged < pool.settings.keep_alive / 2;
        if state.pinged.is_some_and(recently) {
            return Ok(());
        }
        state.pinged = Some(now);
        let Some(session) = &mut state.session else { return Err(sqlx::Error::PoolClosed) };
        let pinged = session.ping().await;
        state.look_at(pinged)
    }

    /// Takes more, or the same more strongly, if nothing is in the way: otherwise the first that is.
    pub(super) async fn try_add(&mut self, steps: &[Step]) -> Result<Option<usize>, sqlx::Error> {
        let more: Vec<Key> = steps.iter().map(Key::of).collect();
        let in_the_way = self.state().await?.try_take(&more, &self.keys).await?;
        if in_the_way.is_none() {
            self.keys.extend(more);
        }
        Ok(in_the_way)
    }

    /// Gives back what was added last.
    pub(super) async fn give_back_last(&mut self, count: usize) -> Result<(), sqlx::Error> {
        let last = self.keys.split_off(self.keys.len() - count);
        self.state().await?.give_back(&last).await
    }

    /// Asks on the connection with our keys.
    pub(super) async fn ask(&self, question: &str) -> Result<Vec<TextRow>, sqlx::Error> {
        self.state().await?.ask(question).await
    }

    /// Frees them.
    pub(super) async fn end(mut self) -> Result<(), sqlx::Error> {
        let keys = std::mem::take(&mut self.keys);
        self.state().await?.give_back(&keys).await
    }
}

impl Drop for SharedKeys {
    fn drop(&mut self) {
        // Its runtime has ended, or it is lost anyway.
        if !self.keys.is_empty() {
            match self.shared.state.try_lock() {
                Ok(mut state) if state.generation == self.generation => state.end(),
                Ok(_) => {}
                Err(_) => self.shared.condemned.store(true, Ordering::SeqCst),
            }
        }
    }
}
