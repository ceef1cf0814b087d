//! Locks and work in one transaction: a capability of backends that are databases.

use super::{AcquireRequest, Backend, Hold, SqlBackend, SqlHold};
use crate::error::Result;
use crate::mode::SlotMode;
use crate::sql::{Connection, InTransaction, Work};
use crate::target::Target;
use std::collections::BTreeMap;

/// A backend that can lock in the caller's own transaction. Only [`SqlBackend`] is one: transactions are sqlx's.
pub trait TransactionBackend: Backend<Hold: TransactionHold> + sealed::Sealed {
    /// Takes all that is asked for inside the caller's transaction, which keeps it until it ends. How each slot was taken comes
    /// back.
    ///
    /// # Errors
    /// As [`Backend::acquire`]; [`transaction_state`](crate::Error::transaction_state) tells what has become of the transaction.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait on the server; what was taken stays until the transaction ends.
    fn acquire_in<T: InTransaction>(
        &self,
        transaction: &mut T,
        request: AcquireRequest,
    ) -> impl Future<Output = Result<BTreeMap<Target, SlotMode>>> + Send;
}

/// A hold that is a transaction, in which work can be done. Only [`SqlHold`] is one.
pub trait TransactionHold: Hold + sealed::Sealed {
    /// Lends the transaction that holds the locks.
    ///
    /// # Errors
    /// The connection of another database, a lock with `scope=session`, which has no transaction of its own, or
    /// [`is_lost`](crate::Error::is_lost).
    fn transaction<C: Connection>(&mut self) -> impl Future<Output = Result<Work<'_, C>>> + Send;

    /// Commits the work and frees the locks with it.
    ///
    /// # Errors
    /// As [`transaction`](Self::transaction); also work that failed, and a connection that ends during COMMIT.
    ///
    /// # Cancel safety
    /// Once begun, it commits whether the future is dropped or not.
    fn commit(self) -> impl Future<Output = Result<()>> + Send;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::SqlBackend {}
    impl Sealed for super::SqlHold {}
}

impl TransactionBackend for SqlBackend {
    async fn acquire_in<T: InTransaction>(
        &self,
        transaction: &mut T,
        request: AcquireRequest,
    ) -> Result<BTreeMap<Target, SlotMode>> {
        SqlBackend::acquire_in(self, transaction, request).await
    }
}

impl TransactionHold for SqlHold {
    async fn transaction<C: Connection>(&mut self) -> Result<Work<'_, C>> {
        self.lend().await
    }

    async fn commit(self) -> Result<()> {
        SqlHold::commit(self).await
    }
}
