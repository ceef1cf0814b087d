//! How a node becomes a slot on a server: the four strategies, by name.

use super::{BUCKET_TABLE, Dialect, ID_TABLE};
use crate::error::UrlError;
use std::fmt;

/// How a node becomes a slot on a server.
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
    /// A row for each node, made by whoever makes the node.
    PerId,
    /// A row for each node, inserted when it is first locked.
    OnDemand,
    /// A 64-bit advisory key: nothing to provision, nothing written. PostgreSQL only.
    Advisory,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Strategy; 4] =
        [Strategy::Striped, Strategy::PerId, Strategy::OnDemand, Strategy::Advisory];

    /// Returns the strategy that a server is used with by default.
    pub fn default_for(dialect: Dialect) -> Self {
        if dialect == Dialect::Postgres { Strategy::Advisory } else { Strategy::Striped }
    }

    /// Returns its name, as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::Striped => "striped",
            Strategy::PerId => "per-id",
            Strategy::OnDemand => "on-demand",
            Strategy::Advisory => "advisory",
        }
    }

    /// The table of its rows, unless another is named.
    pub(super) fn default_table(self) -> &'static str {
        if self.is_by_id() { ID_TABLE } else { BUCKET_TABLE }
    }

    /// Does a node have a row of its own?
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
        let named = Self::ALL.into_iter().find(|strategy| strategy.name() == text);
        named.ok_or_else(|| {
            let right = "striped, per-id, on-demand or advisory";
            UrlError::Parameter { name: "strategy", value: text.to_owned(), right }.into()
        })
    }
}
