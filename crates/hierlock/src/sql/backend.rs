//! The backend of `mysql:`, `mariadb:` and `postgres:`.

use super::hold::SqlHold;
use super::lock_table::{self, LockTableError, MissingTables};
use super::{
    AcquireError, Acquirer, InTransaction, LockPool, LockServer, Options, ProgramPool, Scheme,
};
use crate::backend::{AcquireRequest, Backend};
use crate::error::SqlError;
use crate::handover::{CancellationToken, Handover};
use crate::registry::Registry;
use crate::{Error, Hierarchy, Holder, ModeSet, Result, SlotMode, Slots, Target};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::sleep;

/// How often the agreement is read again while the table changes: by an acquire, and by a client that connects.
const MAX_READS_BY_ACQUIRE: usize = 100;
const MAX_READS_BY_CONNECT: usize = 40;
const READ_INTERVAL: Duration = Duration::from_millis(50);

const POOLED: &str = "a pooler in between gives every transaction another connection (pool_mode = \
     transaction), so locks would be cancelled and freed on the wrong one; connect to the server \
     itself, or through pool_mode = session";

/// The backend of `mysql:`, `mariadb:` and `postgres:`.
#[derive(Debug)]
pub struct SqlBackend {
    hierarchy: Hierarchy,
    /// Changes only with the bucket count of the table.
    scheme: RwLock<Arc<Scheme>>,
    /// Is the bucket count to be followed, or was it given?
    follows: bool,
    pool: Arc<LockPool>,
    registry: Arc<Registry>,
    warnings: Vec<String>,
}

impl SqlBackend {
    pub(crate) async fn open(url: &str, options: Options, hierarchy: Hierarchy) -> Result<Self> {
        Self::at(LockServer::parse(url, options, hierarchy)?, MissingTables::Make).await
    }

    pub(crate) async fn beside(
        pool: &impl ProgramPool,
        options: Options,
        hierarchy: Hierarchy,
    ) -> Result<Self> {
        Self::at(options.at(pool.address(), hierarchy)?, MissingTables::Make).await
    }

    /// Returns what a client of this URL would lock by. Makes and changes nothing.
    pub(crate) async fn preview(url: &str, hierarchy: Hierarchy) -> Result<Scheme> {
        let server = LockServer::parse(url, Options::default(), hierarchy)?;
        let backend = Self::at(server, MissingTables::Leave).await?;
        // Closes what is idle; there is nothing else that would have to be waited for.
        let _ = backend.close(Duration::ZERO).await;
        Ok(Scheme::clone(&backend.scheme()))
    }

    /// Makes sure that the server is there and fit, and that this client agrees with the others.
    async fn at(lock_server: LockServer, missing: MissingTables) -> Result<Self> {
        let pool = LockPool::new(&lock_server);
        let LockServer { address, mut scheme, follows, .. } = lock_server;
        let mut session = pool.connect().await?;
        // A URL may call MariaDB `mysql:`, and the other way round.
        scheme.dialect = session.dialect;
        let checked = async {
            let warnings = lock_table::check_server(&mut session, &address).await?;
            for warning in &warnings {
                tracing::warn!("{warning}");
            }
            if pool.server.is_behind_pooler(&mut session).await? {
                return Err(LockTableError::Unfit(POOLED.to_owned()));
            }
            let mut reads = 0;
            while !lock_table::agree(&mut session, &mut scheme, follows, missing).await? {
                // Its bucket count may just be changing.
                if reads == MAX_READS_BY_CONNECT {
                    return Err(LockTableError::Unfit(format!(
                        "its clients have agreed on `{}`, which is not there, or not striped as \
                         agreed; run `hierlock provision` again",
                        scheme.rows_table()
                    )));
                }
                reads += 1;
                sleep(READ_INTERVAL).await;
            }
            session.roll_back().await?;
            Ok(warnings)
        };
        let warnings = checked.await.map_err(|error| error.at(&address))?;
        pool.server.give_back(session);
        let hierarchy = scheme.hierarchy.clone();
        let (scheme, registry) = (RwLock::new(Arc::new(scheme)), Arc::default());
        Ok(Self { hierarchy, scheme, follows, pool, registry, warnings })
    }

    /// Takes all that is asked for inside the caller's transaction. Returns how each slot was taken.
    pub(crate) async fn acquire_in(
        &self,
        transaction: &mut impl InTransaction,
        request: AcquireRequest,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        let acquirer = self.acquirer(request, self.scheme(), CancellationToken::never())?;
        acquirer.acquire_in(transaction).await?;
        Ok(acquirer.plan.steps().map(|step| (step.target, step.mode)).collect())
    }

    fn acquirer(
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

    fn scheme(&self) -> Arc<Scheme> {
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

    /// Reads the agreement until it differs from the one that has just failed.
    async fn agree_again(&self, failed_with: &Scheme, error: sqlx::Error) -> Result<()> {
        for _ in 0..MAX_READS_BY_ACQUIRE {
            if *self.scheme() != *failed_with {
                return Ok(());
            }
            let mut session = self.pool.connect().await?;
            let mut scheme = failed_with.clone();
            lock_table::agree(&mut session, &mut scheme, self.follows, MissingTables::Make)
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
                        // The next try waits for the server to come back.
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
