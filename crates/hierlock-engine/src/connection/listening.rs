//! A connection to PostgreSQL on which LISTEN can run.

use super::ConnectionRef;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::{Acquire as _, ConnectOptions as _};
use std::time::Duration;

/// A connection to PostgreSQL on which LISTEN can run. On a plain connection a notification is an error.
#[derive(Debug)]
pub struct ListeningConnection {
    listener: Box<PgListener>,
    pool: PgPool,
}

impl ListeningConnection {
    pub(crate) async fn connect(options: &PgConnectOptions, limit: Duration) -> sqlx::Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .test_before_acquire(false)
            .acquire_timeout(limit)
            .connect_lazy_with(options.clone());
        match PgListener::connect_with(&pool).await {
            Ok(listener) => Ok(Self { listener: Box::new(listener), pool }),
            // A pool retries until its timeout and reports only the timeout, so the cause is read from a direct
            // connect.
            Err(error) => Err(options.connect().await.err().unwrap_or(error)),
        }
    }

    /// Borrows the connection. Fails if it was lost and cannot be opened again.
    pub async fn as_ref(&mut self) -> sqlx::Result<ConnectionRef<'_>> {
        Ok(ConnectionRef::Postgres(self.listener.acquire().await?))
    }

    /// Discards the notifications that have arrived so far.
    pub fn discard_notifications(&mut self) {
        while self.listener.next_buffered().is_some() {}
    }

    /// Closes the connection.
    pub async fn close(self) {
        // Returns the connection to its pool, which closes it.
        drop(self.listener);
        self.pool.close().await;
    }
}
