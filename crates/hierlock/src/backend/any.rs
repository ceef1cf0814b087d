//! The backend of a URL, which is known only when the program runs.

use super::{
    AcquireRequest, Backend, FencingHold, FileBackend, FileHold, Hold, MemoryBackend, MemoryHold,
};
#[cfg(feature = "_server")]
use super::{SqlBackend, SqlHold};
use crate::{Hierarchy, Holder, Mode, ModeSet, Result, SlotMode, Slots, Statistics, Target};
use std::collections::BTreeMap;
#[cfg(feature = "_server")]
use std::sync::Arc;
use std::time::Duration;

/// The backend that a URL leads to.
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyBackend {
    /// `memory:`
    Memory(MemoryBackend),
    /// `file:`
    File(FileBackend),
    /// `mysql:`, `mariadb:` and `postgres:`
    #[cfg(feature = "_server")]
    Sql(Arc<SqlBackend>),
}

/// The hold of an [`AnyBackend`].
#[derive(Debug)]
#[non_exhaustive]
#[must_use = "dropping the hold releases the lock"]
pub enum AnyHold {
    /// A hold of `memory:`.
    Memory(MemoryHold),
    /// A hold of `file:`.
    File(Box<FileHold>),
    /// A hold of `mysql:`, `mariadb:` or `postgres:`.
    #[cfg(feature = "_server")]
    Sql(Box<SqlHold>),
}

/// Makes the same call on the backend or hold of each variant.
macro_rules! each {
    ($any:ident, $value:expr, $inner:ident => $call:expr) => {
        match $value {
            $any::Memory($inner) => $call,
            $any::File($inner) => $call,
            #[cfg(feature = "_server")]
            $any::Sql($inner) => $call,
        }
    };
}

/// Methods that return the result of the same method of the backend or hold.
macro_rules! forward {
    ($any:ident: $($name:ident -> $returned:ty;)*) => {
        $(fn $name(&self) -> $returned {
            each!($any, self, inner => inner.$name())
        })*
    };
}

impl Backend for AnyBackend {
    type Hold = AnyHold;

    forward! { AnyBackend:
        hierarchy -> &Hierarchy;
        slots -> Slots;
        modes -> ModeSet;
        holders -> Vec<Holder>;
        warnings -> &[String];
    }

    #[inline]
    async fn acquire(&self, request: AcquireRequest) -> Result<AnyHold> {
        match self {
            AnyBackend::Memory(backend) => backend.acquire(request).await.map(AnyHold::Memory),
            AnyBackend::File(backend) => {
                backend.acquire(request).await.map(|hold| AnyHold::File(Box::new(hold)))
            }
            // Boxed, so that the future of an acquire in memory stays small.
            #[cfg(feature = "_server")]
            AnyBackend::Sql(backend) => Box::pin(backend.acquire(request)).await.map(AnyHold::from),
        }
    }

    async fn close(&self, limit: Duration) -> Result<()> {
        each!(AnyBackend, self, backend => backend.close(limit).await)
    }
}

impl Hold for AnyHold {
    async fn extend(&mut self, request: AcquireRequest) -> Result<()> {
        each!(AnyHold, self, hold => hold.extend(request).await)
    }

    async fn release(self) -> Result<()> {
        each!(AnyHold, self, hold => hold.release().await)
    }

    forward! { AnyHold:
        targets -> BTreeMap<Target, Mode>;
        modes -> BTreeMap<Target, SlotMode>;
        id -> u64;
        statistics -> Statistics;
    }

    async fn lost(&self) -> crate::Error {
        each!(AnyHold, self, hold => hold.lost().await)
    }
}

impl FencingHold for AnyHold {
    async fn token(&self) -> Result<u64> {
        each!(AnyHold, self, hold => hold.token().await)
    }
}

#[cfg(feature = "_server")]
impl From<SqlHold> for AnyHold {
    fn from(hold: SqlHold) -> Self {
        AnyHold::Sql(Box::new(hold))
    }
}
