//! The four strategies that map nodes to slots on a server.

use super::{BUCKET_TABLE, Dialect, ID_TABLE};
use crate::error::UrlError;
use std::fmt;

/// The mapping of nodes to slots on a server.
///
/// ```
/// use hierlock::sql::Strategy;
/// assert_eq!("per-id".parse::<Strategy>()?, Strategy::PerId);
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// A row of a table of fixed size; two nodes may share one. Provisioned once.
    Striped,
    /// A row for each node, inserted by the program that creates the node.
    PerId,
    /// A row for each node, inserted when the node is first locked.
    OnDemand,
    /// A 64-bit advisory key, which needs no provisioning and writes nothing. PostgreSQL only.
    Advisory,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 4] =
        [Strategy::Striped, Strategy::PerId, Strategy::OnDemand, Strategy::Advisory];

    /// Returns the default strategy of a server.
    pub fn default_for(dialect: Dialect) -> Self {
        if dialect == Dialect::Postgres { Strategy::Advisory } else { Strategy::Striped }
    }

    /// Returns the name in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Striped => "striped",
            Strategy::PerId => "per-id",
            Strategy::OnDemand => "on-demand",
            Strategy::Advisory => "advisory",
        }
    }

    /// Returns the lock table that is used unless another is named.
    pub(super) fn default_table(self) -> &'static str {
        if self.is_by_id() { ID_TABLE } else { BUCKET_TABLE }
    }

    /// Returns whether each node has a row of its own.
    pub(super) fn is_by_id(self) -> bool {
        matches!(self, Strategy::PerId | Strategy::OnDemand)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Strategy {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let strategy = Self::ALL.into_iter().find(|strategy| strategy.name() == text);
        strategy.ok_or_else(|| {
            let right = "striped, per-id, on-demand or advisory";
            UrlError::Parameter { name: "strategy", value: text.to_owned(), right }.into()
        })
    }
}
