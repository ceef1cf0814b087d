//! The deadlock of a session of PostgreSQL, from what the victim is told.

use super::{
    DeadlockReport, DeadlockWait, Introspection, IntrospectionScope, LockKind, LockTarget,
    Question, Result, SessionLock, quoted,
};
use crate::SessionRef;
use crate::row::cell;

impl Introspection {
    /// Returns the deadlock in which a session of PostgreSQL was the victim; None if it cannot be read. `detail` is the
    /// detail of its error, `Process 7 waits for ShareLock on transaction 740; blocked by process 8.`, a line for each, and
    /// its context: `while updating tuple (0,2) in relation "numbers"`.
    pub async fn deadlock_of_victim(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
        victim: i64,
        detail: &str,
    ) -> Result<Option<DeadlockReport>> {
        let mut question = Question { session, scope, memory: self };
        let lines = detail.lines().filter(|line| line.starts_with("Process "));
        let Some(mut waits) = lines.map(read_wait).collect::<Option<Vec<DeadlockWait>>>() else {
            return Ok(None);
        };
        for wait in &mut waits {
            let Some(wanted) = wait.wanted.as_mut() else { continue };
            match wanted.kind {
                LockKind::Row | LockKind::Table => {
                    question.name_table(wanted).await?;
                    if wanted.kind == LockKind::Row {
                        // Only who is queued for a row has a lock on its place.
                        let target = LockTarget { mode: String::new(), ..wanted.clone() };
                        wait.blocking =
                            vec![SessionLock { session: wait.holder, target, granted: false }];
                    }
                }
                LockKind::Transaction if wait.waiter == victim => {
                    if let Some(context) = detail.lines().find_map(ErrorContext::read) {
                        *wanted = question.target_of(&context).await?;
                    }
                }
                _ => {}
            }
        }
        Ok((!waits.is_empty()).then(|| DeadlockReport { id: String::new(), waits }))
    }
}

impl Question<'_, '_> {
    /// Tables are numbers there, and rows places.
    async fn name_table(&mut self, wanted: &mut LockTarget) -> Result<()> {
        let Ok(number) = wanted.object.parse::<u32>() else { return Ok(()) };
        let name = format!(
            "SELECT n.nspname, c.relname FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {number}"
        );
        if let Some(row) = self.session.cells(&name).await?.first() {
            let (schema, table) = (cell(row, 0), cell(row, 1));
            (wanted.schema, wanted.object) = (Some(schema.to_owned()), table.to_owned());
            if let Some(place) = wanted.record.take() {
                wanted.record = Some(self.row_at([schema, table], &place).await?);
            }
        }
        Ok(())
    }

    /// The row, or the key in an index that is to be inserted.
    async fn target_of(&mut self, context: &ErrorContext<'_>) -> Result<LockTarget> {
        let ErrorContext { verb, place, relation } = *context;
        // Without a schema it is not known which table of that name it is.
        let schema = self.scope.schema.as_deref().unwrap_or_default();
        let table = format!(
            "SELECT t.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_class t ON t.oid = i.indrelid \
             WHERE n.nspname = {} AND c.relname = {}",
            quoted(schema, '\''),
            quoted(relation, '\'')
        );
        if let Some(row) = self.session.cells(&table).await?.first() {
            let target = LockTarget::of_table(LockKind::Row, schema, cell(row, 0), verb);
            return Ok(LockTarget { index: Some(relation.to_owned()), ..target });
        }
        let record = Some(self.row_at([schema, relation], place).await?);
        Ok(LockTarget { record, ..LockTarget::of_table(LockKind::Row, schema, relation, verb) })
    }
}

/// Where a statement was when it failed.
struct ErrorContext<'a> {
    /// `updating`, `locking`, `inserting`.
    verb: &'a str,
    place: &'a str,
    /// A table, or an index.
    relation: &'a str,
}

impl<'a> ErrorContext<'a> {
    /// `while updating tuple (0,2) in relation "numbers"`
    fn read(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix("while ")?;
        let (what, relation) = rest.split_once(" in relation \"")?;
        let (begin, end) = (what.find('(')?, what.find(')')?);
        Some(Self {
            verb: what.split(' ').next()?,
            place: what.get(begin..=end)?,
            relation: relation.strip_suffix('"')?,
        })
    }
}

/// One wait; tables are still numbers.
fn read_wait(line: &str) -> Option<DeadlockWait> {
    let (waiter, rest) = line.strip_prefix("Process ")?.split_once(" waits for ")?;
    let (wanted, holder) = rest.split_once("; blocked by process ")?;
    let (mode, object) = wanted.split_once(" on ")?;
    let pid = |pid: &str| pid.trim_end_matches('.').parse().ok();
    // Where it is: "of relation 16385 of database 5".
    let relation = |text: &str| {
        let (_, number) = text.split_once("relation ")?;
        number.split(' ').next().map(str::to_owned)
    };
    let wanted = match object.split_once(' ')? {
        ("transaction", number) => LockTarget::new(LockKind::Transaction, number, mode),
        ("tuple", rest) => {
            let place = rest.split(' ').next().map(str::to_owned);
            LockTarget { record: place, ..LockTarget::new(LockKind::Row, relation(rest)?, mode) }
        }
        ("relation", _) => LockTarget::new(LockKind::Table, relation(object)?, mode),
        ("advisory", rest) => LockTarget::new(LockKind::Advisory, advisory_key(rest)?, mode),
        _ => LockTarget::new(LockKind::Other, object, mode),
    };
    let (waiter, holder) = (pid(waiter)?, pid(holder)?);
    Some(DeadlockWait { waiter, holder, wanted: Some(wanted), blocking: Vec::new() })
}

/// `lock [5,0,7,1]`: database, upper half, lower half, and whether these are one key or two.
fn advisory_key(text: &str) -> Option<String> {
    let numbers = text.strip_prefix("lock [")?.strip_suffix(']')?;
    let numbers: Option<Vec<u64>> = numbers.split(',').map(|n| n.trim().parse().ok()).collect();
    match numbers?[..] {
        [_, upper, lower, 1] => Some(((upper << 32 | lower) as i64).to_string()),
        [_, first, second, _] => Some(format!("{first}, {second}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_victim_was_is_read() {
        for (line, read) in [
            ("updating tuple (0,2) in relation \"t\"", ["updating", "(0,2)", "t"]),
            (
                "locking updated version (3,4) of tuple in relation \"a b\"",
                ["locking", "(3,4)", "a b"],
            ),
            (
                "inserting index tuple (0,3) in relation \"t_pkey\"",
                ["inserting", "(0,3)", "t_pkey"],
            ),
        ] {
            let line = format!("while {line}");
            let context = ErrorContext::read(&line).unwrap();
            assert_eq!([context.verb, context.place, context.relation], read);
        }
        for line in ["while updating", "SQL statement \"select 1\""] {
            assert!(ErrorContext::read(line).is_none(), "{line}");
        }
    }

    #[test]
    fn the_waits_are_read_from_what_the_victim_is_told() {
        let describe = |line: &str| {
            let wait = read_wait(line)?;
            Some(format!("{}→{}: {}", wait.waiter, wait.holder, wait.wanted?))
        };
        for (mode, object, read) in [
            ("ShareLock", "transaction 740", "transaction 740"),
            ("ExclusiveLock", "tuple (0,2) of relation 16385 of database 5", "row (0,2) of 16385"),
            ("AccessExclusiveLock", "relation 16385 of database 5", "table 16385"),
            ("ExclusiveLock", "advisory lock [5,0,7,1]", "advisory 7"),
            ("ExclusiveLock", "advisory lock [5,4294967295,4294967295,1]", "advisory -1"),
            ("ShareLock", "advisory lock [5,1,7,2]", "advisory 1, 7"),
        ] {
            let line = format!("Process 7 waits for {mode} on {object}; blocked by process 8.");
            assert_eq!(describe(&line), Some(format!("7→8: {read}, {mode}")));
            for cut in 0..line.len() {
                describe(&line[..cut]);
            }
        }
    }
}
