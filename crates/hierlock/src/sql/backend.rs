//! The backend of `postgres:`.

use super::Dialect;
use super::keeper::{Ask, Keeper, Lines, Take};
use super::pool::Pool;
use super::session::{Address, Session};
use crate::backend::{Backend, Demand, Hold, Patience};
use crate::error::{LockError, Result, SqlError};
use crate::hierarchy::Hierarchy;
use crate::key::Buckets;
use crate::mode::{Mode, SlotMode};
use crate::plan::{Claim, Plan};
use crate::registry::{Entry, Registry};
use crate::snapshot::Holder;
use crate::target::Target;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

#[derive(Debug)]
pub(crate) struct SqlBackend {
    dialect: Dialect,
    hierarchy: Hierarchy,
    pool: Arc<Pool>,
    registry: Arc<Registry>,
}

impl SqlBackend {
    /// Makes sure that the server is there and fit.
    pub(crate) async fn open(url: &str, hierarchy: Hierarchy) -> Result<Self> {
        let pool = Arc::new(Pool::new(Address::parse(url)?));
        pool.give_back(Session::connect(&pool.address).await?);
        Ok(Self { dialect: Dialect::Postgres, hierarchy, pool, registry: Arc::default() })
    }
}

fn plan(dialect: Dialect, hierarchy: &Hierarchy, claims: SmallVec<[Claim; 1]>) -> Result<Plan> {
    Plan::new(hierarchy, claims, dialect.slots(Buckets::default()), dialect.modes())
}

impl Backend for SqlBackend {
    type Hold = SqlHold;

    fn plan(&self, claims: SmallVec<[Claim; 1]>) -> Result<Plan> {
        plan(self.dialect, &self.hierarchy, claims)
    }

    async fn acquire(&self, demand: Demand) -> Result<SqlHold> {
        let Demand { claims, patience, name } = demand;
        let plan = self.plan(claims)?;
        let no_runtime = || SqlError::NoRuntime { server: self.pool.address.to_string() };
        let runtime = Handle::try_current().map_err(|_| no_runtime())?;
        // All connections in use is a wait like any other.
        let first = || {
            let wanted: Vec<Target> = plan.claims().iter().map(|c| c.target.clone()).collect();
            (wanted[0].clone(), wanted)
        };
        let permit = match patience {
            Patience::Never => self.pool.try_permit().ok_or_else(|| {
                let (blocked_on, wanted) = first();
                LockError::WouldBlock { blocked_on, wanted }
            })?,
            _ => patience.limit(self.pool.permit()).await.map_err(|waited| {
                let (blocked_on, wanted) = first();
                LockError::Timeout { blocked_on, wanted, waited }
            })?,
        };
        let entry = Arc::new(self.registry.enter(name));
        let keeper = Keeper { pool: self.pool.clone(), entry: entry.clone(), permit };
        let (reply, answer) = oneshot::channel();
        runtime.spawn(keeper.run(Take { plan, patience }, reply));
        let lines = answer.await.map_err(|_| no_runtime())??;
        let (dialect, hierarchy) = (self.dialect, self.hierarchy.clone());
        Ok(SqlHold { dialect, hierarchy, lines, entry })
    }

    fn holders(&self) -> Vec<Holder> {
        self.registry.holders()
    }
}

/// A transaction on the server that does nothing but hold locks; its keeper has the connection.
pub(crate) struct SqlHold {
    dialect: Dialect,
    hierarchy: Hierarchy,
    lines: Lines,
    entry: Arc<Entry>,
}

impl std::fmt::Debug for SqlHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlHold").field("entry", &self.entry).finish_non_exhaustive()
    }
}

impl Hold for SqlHold {
    async fn extend(&mut self, demand: Demand) -> Result<()> {
        let plan = plan(self.dialect, &self.hierarchy, demand.claims)?;
        let (reply, answer) = oneshot::channel();
        let take = Take { plan, patience: demand.patience };
        if self.lines.asks.send(Ask::Extend(take, reply)).await.is_err() {
            return Err(self.is_lost());
        }
        let confirm = answer.await.unwrap_or_else(|_| Err(self.is_lost()))?;
        // No await from here on: it is confirmed, or this future was dropped before.
        confirm.send(()).map_err(|()| self.is_lost())
    }

    async fn release(self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let lost = self.is_lost();
        if self.lines.asks.send(Ask::Release(reply)).await.is_err() {
            return Err(lost);
        }
        // Ours too, so that nothing is listed when this returns.
        drop(self);
        answer.await.unwrap_or(Err(lost))
    }

    fn claims(&self) -> BTreeMap<Target, Mode> {
        self.entry.claims()
    }

    fn modes(&self) -> BTreeMap<Target, SlotMode> {
        self.entry.modes()
    }

    fn id(&self) -> u64 {
        self.entry.id
    }

    async fn lost(&self) -> crate::Error {
        let mut lost = self.lines.lost.clone();
        // A keeper that ended without a word went with its runtime.
        let _ = lost.wait_for(Option::is_some).await;
        self.is_lost()
    }
}

impl SqlHold {
    fn is_lost(&self) -> crate::Error {
        let why = self.lines.lost.borrow().clone();
        let why = why.unwrap_or_else(|| "its connection to the server has ended".to_owned());
        LockError::Lost { targets: self.claims().into_keys().collect(), why }.into()
    }
}
