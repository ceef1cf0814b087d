use std::collections::BTreeSet;

/// The sessions that a query is about, and the tables that it may read to name their locks. By default all sessions,
/// and no tables.
#[derive(Clone, Debug, Default)]
pub struct IntrospectionScope {
    /// The process ids; None for all sessions.
    pub sessions: Option<BTreeSet<i64>>,
    /// PostgreSQL: the schema whose tables may be read. Its rows are named by their primary key and its row locks are
    /// listed; other rows are named by their ctid.
    pub schema: Option<String>,
    /// PostgreSQL: the quoted name of the schema of the extension pgrowlocks, which lists row locks.
    pub row_locks_schema: Option<String>,
    /// PostgreSQL: the prepared transactions, as SQL literals, each with the session that represents it.
    pub prepared: Vec<(String, i64)>,
    /// MySQL: the maximum number of InnoDB locks in the list; None for all. A transaction may have millions.
    pub max_locks: Option<usize>,
}

impl IntrospectionScope {
    /// Returns a scope with these sessions.
    pub fn of_sessions(sessions: impl IntoIterator<Item = i64>) -> Self {
        Self { sessions: Some(sessions.into_iter().collect()), ..Self::default() }
    }

    /// Returns whether a session is in the scope.
    pub fn has(&self, session: i64) -> bool {
        self.sessions.as_ref().is_none_or(|sessions| sessions.contains(&session))
    }

    /// Returns the SQL condition that the process id in `column` is in the scope.
    pub(super) fn condition(&self, column: &str) -> String {
        let Some(sessions) = &self.sessions else { return format!("{column} IS NOT NULL") };
        let numbers: Vec<String> = sessions.iter().map(i64::to_string).collect();
        // No session has this process id.
        let numbers = if numbers.is_empty() { "-1".to_owned() } else { numbers.join(", ") };
        format!("{column} IN ({numbers})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_has_some_sessions_or_all() {
        let (all, some) = (IntrospectionScope::default(), IntrospectionScope::of_sessions([9, 7]));
        assert!(all.has(1) && some.has(7) && !some.has(8));
        assert_eq!(all.condition("pid"), "pid IS NOT NULL");
        assert_eq!(some.condition("pid"), "pid IN (7, 9)");
        assert_eq!(IntrospectionScope::of_sessions([]).condition("pid"), "pid IN (-1)");
    }
}
