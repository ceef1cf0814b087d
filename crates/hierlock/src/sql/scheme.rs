//! The settings that all clients of a lock table must share, and the slots, modes and table names derived from them. Pure
//! code.

use super::{Dialect, LockStatement, Strategy, ValueForm};
use crate::error::UrlError;
use crate::{Buckets, Claim, Hierarchy, ModeSet, Plan, Result, Slots, Step};
use hierlock_engine::LockWaitPolicy;
use hierlock_engine::introspection::LABEL_TABLE;

/// The table of bucket rows.
pub const BUCKET_TABLE: &str = "hier_lock_buckets";
/// The table of rows by ID.
pub const ID_TABLE: &str = "hier_locks";
/// The table of agreements: for each lock table, the settings that its clients share.
pub const META_TABLE: &str = "hier_lock_meta";
/// The lock tables that are used unless another is named.
pub(super) const DEFAULT_TABLES: [&str; 2] = [BUCKET_TABLE, ID_TABLE];
/// The name of the default table in [`META_TABLE`]. All clients that name no table share this agreement, with any
/// strategy.
pub(super) const DEFAULT_SPACE: &str = "default";
/// The version of the key text and its hashes (rule 3). Clients of different versions would not exclude each other.
pub(super) const KEY_VERSION: i64 = 1;

/// The way in which nodes are locked on a server: the settings that all clients of a lock table must share.
///
/// ```
/// use hierlock::sql::{Dialect, Scheme};
/// use hierlock::{Claim, Mode, Target};
///
/// let scheme = Scheme::new(Dialect::Mysql);
/// let plan = scheme.plan([Claim { target: Target::user("u1")?, mode: Mode::Exclusive }])?;
/// assert_eq!(
///     scheme.lock(&plan),
///     "SELECT of_10000000 FROM hier_lock_buckets WHERE level = 0 AND bucket = 2652417 FOR UPDATE"
/// );
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheme {
    pub(crate) dialect: Dialect,
    pub(crate) strategy: Strategy,
    pub(crate) buckets: Buckets,
    /// Whether the bucket count is that of the table, if there is one. False if a count was given, which must then match.
    pub(crate) follows_table: bool,
    pub(crate) table: Option<String>,
    pub(crate) hierarchy: Hierarchy,
}

impl Scheme {
    /// Returns the default of a server: advisory keys on PostgreSQL, striped rows elsewhere.
    pub fn new(dialect: Dialect) -> Self {
        let strategy = Strategy::default_for(dialect);
        let (buckets, hierarchy) = Default::default();
        Self { dialect, strategy, buckets, follows_table: true, table: None, hierarchy }
    }

    /// Sets the strategy. Fails for advisory keys on another server than PostgreSQL.
    pub fn strategy(mut self, strategy: Strategy) -> Result<Self> {
        if strategy == Strategy::Advisory && self.dialect != Dialect::Postgres {
            return Err(UrlError::NoAdvisory { dialect: self.dialect.name() }.into());
        }
        self.strategy = strategy;
        Ok(self)
    }

    /// Sets the lock table. Locks in different tables are independent of each other. Fails unless the name is a letter or
    /// `_`, then letters, digits and `_`, at most 48. Also fails for `default` and the names
    /// of hierlock's other tables.
    pub fn table(mut self, name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !begins || name.len() > 48 || !name.chars().all(plain) {
            let right = "a letter or _, then letters, digits and _, at most 48";
            return Err(UrlError::Parameter { name: "table", value: name.to_owned(), right }.into());
        }
        // Lower case, since servers differ in whether the case matters.
        let name = name.to_ascii_lowercase();
        if [META_TABLE, LABEL_TABLE, DEFAULT_SPACE].contains(&&*name) {
            let right = "a name that hierlock does not reserve";
            return Err(UrlError::Parameter { name: "table", value: name, right }.into());
        }
        self.table = Some(name);
        Ok(self)
    }

    /// Sets the number of buckets.
    pub fn buckets(mut self, buckets: Buckets) -> Self {
        (self.buckets, self.follows_table) = (buckets, false);
        self
    }

    setters! {
        /// Sets the levels of the tree.
        hierarchy: Hierarchy;
    }

    getters! { self:
        /// Returns the kind of server.
        dialect -> Dialect = self.dialect;
        /// Returns the name of the lock table.
        rows_table -> &str = self.table.as_deref().unwrap_or(self.strategy.default_table());
    }

    /// Returns the kind of slots that nodes map to.
    pub fn slots(&self) -> Slots {
        match self.strategy {
            Strategy::Striped => Slots::Buckets(self.buckets),
            Strategy::PerId | Strategy::OnDemand => Slots::Paths,
            Strategy::Advisory => Slots::Keys,
        }
    }

    /// Returns the modes of the slots. Only rows of PostgreSQL have a real update lock.
    pub fn modes(&self) -> ModeSet {
        match (self.dialect, self.strategy) {
            (Dialect::Postgres, Strategy::Advisory) => ModeSet::SharedExclusive,
            (Dialect::Postgres, _) => ModeSet::SharedUpdateExclusive,
            (Dialect::Mysql | Dialect::Mariadb, _) => ModeSet::SharedExclusive,
        }
    }

    /// Returns the plan of an acquire. Fails as [`Plan::new`].
    pub fn plan(&self, claims: impl IntoIterator<Item = Claim>) -> Result<Plan> {
        Plan::new(&self.hierarchy, claims, self.slots(), self.modes())
    }

    /// Returns the statement that takes all locks of a plan, in its order. Run it in a transaction at READ COMMITTED; the end
    /// of the transaction releases the locks. If a row is missing, the result has fewer rows, and some rows may be locked.
    pub fn lock(&self, plan: &Plan) -> String {
        self.lock_and_rows(plan).0
    }

    /// Returns the statement of [`lock`](Self::lock), and the number of rows in its result if none is missing.
    pub(crate) fn lock_and_rows(&self, plan: &Plan) -> (String, usize) {
        let steps: Vec<Step> = plan.steps().collect();
        let LockStatement { sql, rows, .. } =
            self.take(&steps, None, LockWaitPolicy::Wait, ValueForm::Text);
        (sql, rows)
    }

    /// Returns the lock table for a statement. A table that is not a default is quoted, since it may be a reserved word.
    pub(crate) fn quoted_table(&self) -> String {
        let table = self.rows_table();
        if DEFAULT_TABLES.contains(&table) {
            return table.to_owned();
        }
        let quote = if self.dialect == Dialect::Postgres { '"' } else { '`' };
        format!("{quote}{table}{quote}")
    }

    /// Returns the names under which [`META_TABLE`] may have the agreement. That of a default table is under
    /// [`DEFAULT_SPACE`]; older releases wrote it under the name of the table if the table was named.
    pub(crate) fn spaces(&self) -> Vec<&str> {
        let table = self.rows_table();
        if self.table.is_none() && self.strategy == Strategy::Advisory {
            // Advisory keys have no table.
            vec![DEFAULT_SPACE]
        } else if DEFAULT_TABLES.contains(&table) {
            vec![DEFAULT_SPACE, table]
        } else {
            vec![table]
        }
    }

    /// Returns the name under which the agreement is written: the same for all clients of one table.
    pub(crate) fn space(&self) -> &str {
        let is_default = self.rows_table() == self.strategy.default_table();
        if is_default { DEFAULT_SPACE } else { self.rows_table() }
    }

    /// Returns the column that every lock statement selects. For striped rows, its name contains the bucket count: a client
    /// with another count selects a column that does not exist, and locks nothing.
    pub(crate) fn selected_column(&self) -> String {
        match self.strategy {
            Strategy::Striped => format!("of_{}", self.buckets.count()),
            _ => "lock_key".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_table_name_is_refused() {
        let scheme = || Scheme::new(Dialect::Mysql);
        assert_eq!(scheme().table("App_locks2").unwrap().rows_table(), "app_locks2");
        let too_long = "x".repeat(49);
        for bad in
            ["", "2x", "a b", "a;b", "a`b", "ユ", &too_long, META_TABLE, LABEL_TABLE, "Default"]
        {
            let error = scheme().table(bad).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("table"), "{error}");
        }
    }

    #[test]
    fn only_postgres_has_advisory_keys() {
        let error = Scheme::new(Dialect::Mysql).strategy(Strategy::Advisory).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("mysql"), "{error}");
        assert!(Scheme::new(Dialect::Postgres).strategy(Strategy::Striped).is_ok());
    }
}
