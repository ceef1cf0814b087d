//! What the clients of one server must agree about, and what follows from it: slots, modes, names of tables. Pure.

use super::{Dialect, LockStatement, Strategy, ValueForm};
use crate::error::UrlError;
use crate::{Buckets, Claim, Hierarchy, ModeSet, Plan, Result, Slots, Step};
use hierlock_engine::LockWaitPolicy;

/// The table of bucket rows.
pub const BUCKET_TABLE: &str = "hier_lock_buckets";
/// The table of rows by ID.
pub const ID_TABLE: &str = "hier_locks";
/// Where a server keeps what its clients have agreed about.
pub const META_TABLE: &str = "hier_lock_meta";
/// The tables that are used unless another is named.
pub(super) const DEFAULT_TABLES: [&str; 2] = [BUCKET_TABLE, ID_TABLE];
/// What a default table is called in the table of agreements. All who name no table must agree with each
/// other, whatever their strategy.
pub(super) const DEFAULT_SPACE: &str = "default";
/// The version of the key text and its hashes (rule 3). Clients of different versions would not exclude each other.
pub(super) const KEY_VERSION: i64 = 1;

/// How a server is locked on: everything that its clients must agree about.
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
    pub(crate) table: Option<String>,
    pub(crate) hierarchy: Hierarchy,
}

impl Scheme {
    /// Returns the default of a server: advisory keys on PostgreSQL, striped rows elsewhere.
    pub fn new(dialect: Dialect) -> Self {
        let strategy = Strategy::default_for(dialect);
        let (buckets, hierarchy) = Default::default();
        Self { dialect, strategy, buckets, table: None, hierarchy }
    }

    /// Sets the strategy.
    ///
    /// # Errors
    /// Advisory keys on another server than PostgreSQL.
    pub fn strategy(mut self, strategy: Strategy) -> Result<Self> {
        if strategy == Strategy::Advisory && self.dialect != Dialect::Postgres {
            return Err(UrlError::NoAdvisory { dialect: self.dialect.name() }.into());
        }
        self.strategy = strategy;
        Ok(self)
    }

    /// Sets the number of buckets.
    pub fn buckets(mut self, buckets: Buckets) -> Self {
        self.buckets = buckets;
        self
    }

    /// Sets the table. Locks in it have nothing to do with those in others.
    ///
    /// # Errors
    /// Not a plain name: a letter or `_`, then letters, digits and `_`, at most 48. Also a name that means
    /// something else here: `default` and [`META_TABLE`].
    pub fn table(mut self, name: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !begins || name.len() > 48 || !name.chars().all(plain) {
            let right = "a letter or _, then letters, digits and _, at most 48";
            return Err(UrlError::Parameter { name: "table", value: name.to_owned(), right }.into());
        }
        // One case, as servers differ in whether it matters.
        let name = name.to_ascii_lowercase();
        if [META_TABLE, DEFAULT_SPACE].contains(&&*name) {
            let right = "a name that hierlock has no other use for";
            return Err(UrlError::Parameter { name: "table", value: name, right }.into());
        }
        self.table = Some(name);
        Ok(self)
    }

    /// Sets the tree.
    pub fn hierarchy(mut self, hierarchy: Hierarchy) -> Self {
        self.hierarchy = hierarchy;
        self
    }

    /// Returns the server that it is for.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Returns how a node becomes a slot.
    pub fn slots(&self) -> Slots {
        match self.strategy {
            Strategy::Striped => Slots::Buckets(self.buckets),
            Strategy::PerId | Strategy::OnDemand => Slots::Paths,
            Strategy::Advisory => Slots::Keys,
        }
    }

    /// Returns the modes that its slots have. PostgreSQL's rows have a true update lock.
    pub fn modes(&self) -> ModeSet {
        match (self.dialect, self.strategy) {
            (Dialect::Postgres, Strategy::Advisory) => ModeSet::SharedExclusive,
            (Dialect::Postgres, _) => ModeSet::SharedUpdateExclusive,
            (Dialect::Mysql | Dialect::Mariadb, _) => ModeSet::SharedExclusive,
        }
    }

    /// Plans an acquire.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self, claims: impl IntoIterator<Item = Claim>) -> Result<Plan> {
        Plan::new(&self.hierarchy, claims, self.slots(), self.modes())
    }

    /// Returns the statement that takes all locks of a plan, in its order. It is to be run in a transaction at READ
    /// COMMITTED, whose end releases them. If a row is missing, fewer come back, and those before it may be locked.
    pub fn lock(&self, plan: &Plan) -> String {
        self.lock_and_rows(plan).0
    }

    /// The same, and how many rows come back if none is missing.
    pub(crate) fn lock_and_rows(&self, plan: &Plan) -> (String, usize) {
        let steps: Vec<Step> = plan.steps().collect();
        let LockStatement { sql, rows, .. } =
            self.take(&steps, LockWaitPolicy::Wait, ValueForm::Text);
        (sql, rows)
    }

    /// Returns the table of its rows.
    pub fn rows_table(&self) -> &str {
        self.table.as_deref().unwrap_or(self.strategy.default_table())
    }

    /// The same as a statement names it. A name that somebody chose may be a reserved word.
    pub(crate) fn quoted_table(&self) -> String {
        let table = self.rows_table();
        if DEFAULT_TABLES.contains(&table) {
            return table.to_owned();
        }
        let quote = if self.dialect == Dialect::Postgres { '"' } else { '`' };
        format!("{quote}{table}{quote}")
    }

    /// The names under which its table may be found in the table of agreements. That of a default table is
    /// under [`DEFAULT_SPACE`], whether the table was named or not; older releases wrote it under the name
    /// of the table, if it was named.
    pub(crate) fn spaces(&self) -> Vec<&str> {
        let table = self.rows_table();
        if self.table.is_none() && self.strategy == Strategy::Advisory {
            // Keys are in no table.
            vec![DEFAULT_SPACE]
        } else if DEFAULT_TABLES.contains(&table) {
            vec![DEFAULT_SPACE, table]
        } else {
            vec![table]
        }
    }

    /// The name under which its agreement is written: the same for all who use one table.
    pub(crate) fn space(&self) -> &str {
        let is_default = self.rows_table() == self.strategy.default_table();
        if is_default { DEFAULT_SPACE } else { self.rows_table() }
    }

    /// A column that is there only for its name, which says how many buckets the rows are striped over.
    /// Whoever counts differently names a column that does not exist, and locks nothing.
    pub(crate) fn fence(&self) -> String {
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
    fn a_table_has_a_plain_name() {
        let scheme = || Scheme::new(Dialect::Mysql);
        assert_eq!(scheme().table("App_locks2").unwrap().rows_table(), "app_locks2");
        let too_long = "x".repeat(49);
        for bad in ["", "2x", "a b", "a;b", "a`b", "ユ", &too_long, META_TABLE, "Default"] {
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
