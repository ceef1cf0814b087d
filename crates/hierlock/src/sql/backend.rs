//! The backend of `mysql:`, `mariadb:` and `postgres:`.

use super::lock_table::{self, LockTableError, MissingTables};
use super::{AcquireError, Acquirer, LockPool, LockServer, Options, Scheme, SqlHold, exclusion};
use crate::backend::{AcquireRequest, Backend};
use crate::error::SqlError;
use crate::handover::Handover;
use crate::registry::Registry;
use crate::{Error, Hierarchy, Holder, ModeSet, Result, Slots};
use hierlock_engine::checks::Severity;
use parking_lot::RwLock;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The number of times that an acquire, or a client that connects, reads the agreement again while the table changes.
const MAX_READS_BY_ACQUIRE: usize = 100;
const MAX_READS_BY_CONNECT: usize = 40;
const READ_INTERVAL: Duration = Duration::from_millis(50);

/// The backend of `mysql:`, `mariadb:` and `postgres:`.
#[derive(Debug)]
pub struct SqlBackend {
    hierarchy: Hierarchy,
    /// Changes only with the bucket count of the table.
    scheme: RwLock<Arc<Scheme>>,
    pub(super) pool: Arc<LockPool>,
    registry: Arc<Registry>,
    warnings: Vec<String>,
}

impl SqlBackend {
    pub(super) async fn connect(server: LockServer) -> Result<Self> {
        Self::at(server, MissingTables::Create).await
    }

    /// Returns the scheme that a client of this URL would use. Creates and changes nothing.
    pub(crate) async fn preview(url: &str, hierarchy: Hierarchy) -> Result<Scheme> {
        let server = LockServer::parse(url, Options::default(), hierarchy)?;
        let backend = Self::at(server, MissingTables::Ignore).await?;
        // Closes the idle sessions. There are no others to wait for.
        let _ = backend.close(Duration::ZERO).await;
        Ok(Scheme::clone(&backend.scheme()))
    }

    /// Connects, checks the server, and checks that this client's settings agree with those of the other clients.
    async fn at(lock_server: LockServer, missing: MissingTables) -> Result<Self> {
        let pool = LockPool::new(&lock_server);
        let LockServer { address, mut scheme, .. } = lock_server;
        let mut session = pool.connect().await?;
        // A URL may call MariaDB `mysql:`, and the other way round.
        scheme.dialect = session.dialect;
        let checked = async {
            let mut warnings = lock_table::check_server(&mut session, &address).await?;
            lock_table::check_pooler(&mut session, &pool).await?;
            let mut reads = 0;
            while !lock_table::agree(&mut session, &mut scheme, missing).await? {
                // The bucket count may be changing at this moment.
                if reads == MAX_READS_BY_CONNECT {
                    return Err(LockTableError::Unusable(format!(
                        "its clients have agreed on `{}`, which does not exist, or not striped as \
                         agreed; run `hierlock provision` again",
                        scheme.rows_table()
                    )));
                }
                reads += 1;
                sleep(READ_INTERVAL).await;
            }
            session.roll_back().await?;
            if pool.settings.check_exclusion {
                let found = exclusion::check(&pool, &scheme).await?.finding();
                match found.severity {
                    Severity::Ok => {}
                    Severity::Problem => return Err(LockTableError::Unusable(found.reason())),
                    _ => warnings.push(format!("{address}: {}", found.reason())),
                }
            }
            for warning in &warnings {
                tracing::warn!("{warning}");
            }
            Ok(warnings)
        };
        let warnings = match checked.await {
            Ok(warnings) => warnings,
            Err(error) => {
                // The session holds nothing. Ending it by its process id could end another client's behind a pooler.
                if session.leave_transaction().await.is_ok() {
                    session.close();
                }
                return Err(error.at(&address));
            }
        };
        pool.server.give_back(session);
        let hierarchy = scheme.hierarchy.clone();
        let (scheme, registry) = (RwLock::new(Arc::new(scheme)), Arc::default());
        Ok(Self { hierarchy, scheme, pool, registry, warnings })
    }

    pub(super) fn acquirer(
        &self,
        request: AcquireRequest,
        scheme: Arc<Scheme>,
        cancellation: CancellationToken,
    ) -> Result<Acquirer> {
        let AcquireRequest { claims, limit: wait_limit, name } = request;
        let plan = scheme.plan(claims)?;
        let (pool, entry) = (self.pool.clone(), Arc::new(self.registry.enter(name)));
        Ok(Acquirer { pool, scheme, entry, plan, wait_limit, cancellation })
    }

    pub(super) fn scheme(&self) -> Arc<Scheme> {
        self.scheme.read().clone()
    }

    async fn try_acquire(
        &self,
        request: AcquireRequest,
        scheme: Arc<Scheme>,
    ) -> Result<SqlHold, AcquireError> {
        let runtime = Handle::try_current().map_err(|_| {
            let server = self.pool.server.address.to_string();
            Error::from(SqlError::NoRuntime { server })
        })?;
        let of_hold = runtime.clone();
        let acquire = |cancellation| {
            let acquirer = self.acquirer(request, scheme, cancellation);
            async move { acquirer?.acquire(of_hold).await }
        };
        Handover::new(runtime, &self.pool.server.tasks, acquire).await
    }

    /// Reads the agreement until it differs from `failed_with`. Fails with `error` if it does not change.
    async fn agree_again(&self, failed_with: &Scheme, error: sqlx::Error) -> Result<()> {
        for _ in 0..MAX_READS_BY_ACQUIRE {
            if *self.scheme() != *failed_with {
                return Ok(());
            }
            let mut session = self.pool.connect().await?;
            let mut scheme = failed_with.clone();
            lock_table::agree(&mut session, &mut scheme, MissingTables::Create)
                .await
                .map_err(|error| error.at(&self.pool.server.address))?;
            if scheme != *failed_with {
                *self.scheme.write() = Arc::new(scheme);
                return Ok(());
            }
            sleep(READ_INTERVAL).await;
        }
        Err(self.pool.failed(error))
    }
}

impl Backend for SqlBackend {
    type Hold = SqlHold;

    fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    fn slots(&self) -> Slots {
        self.scheme().slots()
    }

    fn modes(&self) -> ModeSet {
        self.scheme().modes()
    }

    async fn acquire(&self, request: AcquireRequest) -> Result<SqlHold> {
        loop {
            let scheme = self.scheme();
            match self.try_acquire(request.clone(), scheme.clone()).await {
                Ok(hold) => return Ok(hold),
                Err(AcquireError::TableChanged(error)) => {
                    match self.agree_again(&scheme, error).await {
                        // The next attempt waits for the server to come back.
                        Err(error) if error.is_no_connection() && request.limit.waits() => {}
                        agreed => agreed?,
                    }
                }
                Err(error) => return Err(error.into_error(&self.pool, &scheme)),
            }
        }
    }

    fn holders(&self) -> Vec<Holder> {
        self.registry.holders()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    async fn close(&self, limit: Duration) -> Result<()> {
        Ok(self.pool.server.close(limit).await?)
    }
}
