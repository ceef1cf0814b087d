//! The deadlock of a PostgreSQL session, from the error of the victim.

use super::deadlock_dump::RowContext;
use super::postgres_wait::{parse_context, parse_wait};
use super::{
    DeadlockReport, DeadlockWait, Introspection, IntrospectionQuery, IntrospectionScope, LockKind,
    LockTarget, Result, SessionLock, quote,
};
use crate::SessionRef;
use crate::row::cell;

impl Introspection {
    /// Returns the deadlock of which a PostgreSQL session was the victim; None if it cannot be parsed. `detail` is the
    /// detail of the error, `Process 7 waits for ShareLock on transaction 740; blocked by process 8.`, one line per
    /// wait, and its context, `while updating tuple (0,2) in relation "numbers"`.
    pub async fn deadlock_of_victim(
        &mut self,
        session: &mut SessionRef<'_>,
        scope: &IntrospectionScope,
        victim: i64,
        detail: &str,
    ) -> Result<Option<DeadlockReport>> {
        let mut query = IntrospectionQuery { session, scope, introspection: self };
        let mut waits: Vec<DeadlockWait> = detail.lines().filter_map(parse_wait).collect();
        for wait in &mut waits {
            let Some(wanted) = wait.wanted.as_mut() else { continue };
            match wanted.kind {
                LockKind::Row | LockKind::Table => {
                    query.name_table(wanted).await?;
                    if wanted.kind == LockKind::Row {
                        // Only a session that is queued for a row holds its tuple lock.
                        let target = LockTarget { mode: String::new(), ..wanted.clone() };
                        wait.blocking =
                            vec![SessionLock { session: wait.holder, target, granted: false }];
                    }
                }
                LockKind::Transaction if wait.waiter == victim => {
                    if let Some(context) = detail.lines().find_map(parse_context) {
                        *wanted = query.target_of(&context).await?;
                    }
                }
                _ => {}
            }
        }
        Ok((!waits.is_empty()).then(|| DeadlockReport { id: String::new(), waits }))
    }
}

impl IntrospectionQuery<'_, '_> {
    /// Replaces the OID of a table by its name, and a ctid by the primary key.
    async fn name_table(&mut self, wanted: &mut LockTarget) -> Result<()> {
        let Ok(number) = wanted.object.parse::<u32>() else { return Ok(()) };
        let name = format!(
            "SELECT n.nspname, c.relname FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = {number}"
        );
        if let Some(row) = self.session.cells(&name).await?.first() {
            let (schema, table) = (cell(row, 0), cell(row, 1));
            (wanted.schema, wanted.object) = (Some(schema.to_owned()), table.to_owned());
            if let Some(ctid) = wanted.record.take() {
                wanted.record = Some(self.row_at([schema, table], &ctid).await?);
            }
        }
        Ok(())
    }

    /// Returns the row, or the index in which a key is inserted.
    async fn target_of(&mut self, context: &RowContext) -> Result<LockTarget> {
        let RowContext { verb, ctid, relation } = context;
        // Without a schema the table of this name is ambiguous.
        let schema = self.scope.schema.as_deref().unwrap_or_default();
        let table = format!(
            "SELECT t.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_index i ON i.indexrelid = c.oid JOIN pg_class t ON t.oid = i.indrelid \
             WHERE n.nspname = {} AND c.relname = {}",
            quote(schema, '\''),
            quote(relation, '\'')
        );
        if let Some(row) = self.session.cells(&table).await?.first() {
            let target = LockTarget::of_table(LockKind::Row, schema, cell(row, 0), verb);
            return Ok(LockTarget { index: Some(relation.clone()), ..target });
        }
        let record = Some(self.row_at([schema, relation], ctid).await?);
        Ok(LockTarget { record, ..LockTarget::of_table(LockKind::Row, schema, relation, verb) })
    }
}
