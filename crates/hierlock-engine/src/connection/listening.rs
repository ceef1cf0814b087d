//! A connection to PostgreSQL that survives notifications.

use super::ConnectionRef;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::{Acquire as _, ConnectOptions as _};
use std::time::Duration;

/// A connection to PostgreSQL on which LISTEN may run. A plain one takes a notification for an error.
#[derive(Debug)]
pub struct ListeningConnection {
    listener: Box<PgListener>,
    pool: PgPool,
}

impl ListeningConnection {
    pub(crate) async fn connect(
        options: &PgConnectOptions,
        limit: Duration,
    ) -> Result<Self, sqlx::Error> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .max_lifetime(None)
            .idle_timeout(None)
            .test_before_acquire(false)
            .acquire_timeout(limit)
            .connect_lazy_with(options.clone());
        match PgListener::connect_with(&pool).await {
            Ok(listener) => Ok(Self { listener: Box::new(listener), pool }),
            // A pool tries again and again, and says only that it was in vain.
            Err(error) => Err(options.connect().await.err().unwrap_or(error)),
        }
    }

    /// Lends it for some statements. Fails if the connection was lost, and there is no other to be had.
    pub async fn as_ref(&mut self) -> Result<ConnectionRef<'_>, sqlx::Error> {
        Ok(ConnectionRef::Postgres(self.listener.acquire().await?))
    }

    /// Forgets the notifications that have come so far.
    pub fn discard_notifications(&mut self) {
        while self.listener.next_buffered().is_some() {}
    }

    /// Tells the server that the connection is over.
    pub async fn close(self) {
        // It goes back to its pool, which closes it.
        drop(self.listener);
        self.pool.close().await;
    }
}
