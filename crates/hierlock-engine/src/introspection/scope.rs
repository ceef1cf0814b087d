use std::collections::BTreeSet;

/// Which sessions are asked about, and what may be read to name what they lock. By default all sessions, and nothing.
#[derive(Clone, Debug, Default)]
pub struct IntrospectionScope {
    /// The sessions, by the server's number; None for all.
    pub sessions: Option<BTreeSet<i64>>,
    /// PostgreSQL: rows in this schema are named by their primary key and their locks are listed; others by their
    /// place.
    pub schema: Option<String>,
    /// PostgreSQL: the schema of the extension pgrowlocks, which tells who has locked which row, quoted.
    pub row_locks_schema: Option<String>,
    /// PostgreSQL: prepared transactions, as they are called in SQL, with the sessions that stand for them.
    pub prepared: Vec<(String, i64)>,
}

impl IntrospectionScope {
    /// Returns a scope of these sessions.
    pub fn of_sessions(sessions: impl IntoIterator<Item = i64>) -> Self {
        Self { sessions: Some(sessions.into_iter().collect()), ..Self::default() }
    }

    /// Returns whether a session is asked about.
    pub fn has(&self, session: i64) -> bool {
        self.sessions.as_ref().is_none_or(|sessions| sessions.contains(&session))
    }

    /// A condition in SQL: is the session in this column asked about?
    pub(super) fn condition(&self, column: &str) -> String {
        let Some(sessions) = &self.sessions else { return format!("{column} IS NOT NULL") };
        let numbers: Vec<String> = sessions.iter().map(i64::to_string).collect();
        // No session has this number.
        let numbers = if numbers.is_empty() { "-1".to_owned() } else { numbers.join(", ") };
        format!("{column} IN ({numbers})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_sessions_or_all() {
        let (all, some) = (IntrospectionScope::default(), IntrospectionScope::of_sessions([9, 7]));
        assert!(all.has(1) && some.has(7) && !some.has(8));
        assert_eq!(all.condition("pid"), "pid IS NOT NULL");
        assert_eq!(some.condition("pid"), "pid IN (7, 9)");
        assert_eq!(IntrospectionScope::of_sessions([]).condition("pid"), "pid IN (-1)");
    }
}
