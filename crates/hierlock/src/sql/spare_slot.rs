//! A random slot for test locks. Clients rarely use the same one.

use super::lock_table::Result;
use super::scheme::META_TABLE;
use super::{Dialect, Scheme, Strategy, ValueForm};
use crate::{SlotMode, Step, Target};
use hierlock_engine::{LockWaitPolicy, Session};

/// The number of rows by ID to choose from.
const MAX_CHOICES: usize = 50;

/// A slot for test locks.
#[derive(Clone, Debug)]
pub(super) enum SpareSlot {
    /// A bucket of the lowest level, which clients lock shortest, or a random advisory key.
    Slot(Step),
    /// An existing row by ID, or, if there is none, the row of the agreement, which no client locks.
    Row { table: String, condition: String },
}

impl SpareSlot {
    /// Chooses a slot at random. Returns `None` if there is no row.
    pub(super) async fn choose(session: &mut Session, scheme: &Scheme) -> Result<Option<Self>> {
        if scheme.strategy.is_by_id() {
            return choose_row(session, scheme).await;
        }
        let (level, slot) = match scheme.strategy {
            Strategy::Striped => {
                (scheme.hierarchy.len() - 1, u64::from(fastrand::u32(..scheme.buckets.count())))
            }
            _ => (0, fastrand::u64(..)),
        };
        // Statements for numbered slots do not contain the target.
        let target = Target::user("hierlock doctor")?;
        Ok(Some(SpareSlot::Slot(Step { target, level, slot, mode: SlotMode::Shared })))
    }

    /// Returns the statement that locks the slot, in the form that clients use.
    pub(super) fn lock(&self, scheme: &Scheme, mode: SlotMode, policy: LockWaitPolicy) -> String {
        match self {
            SpareSlot::Slot(step) => {
                let step = Step { mode, ..step.clone() };
                scheme.take(&[step], None, policy, ValueForm::Text).sql
            }
            SpareSlot::Row { table, condition } => {
                let clause = scheme.writer(policy, ValueForm::Text).clause("", mode);
                format!("SELECT 1 FROM {table} WHERE {condition} {clause}")
            }
        }
    }

    /// Returns the name of the slot for messages.
    pub(super) fn name(&self, scheme: &Scheme) -> String {
        match self {
            SpareSlot::Slot(step) if scheme.strategy == Strategy::Advisory => {
                format!("advisory key {}", step.slot.cast_signed())
            }
            SpareSlot::Slot(Step { level, slot, .. }) => {
                format!("bucket {slot} of level {level} in {}", scheme.rows_table())
            }
            SpareSlot::Row { table, .. } => format!("a row of {table}"),
        }
    }
}

async fn choose_row(session: &mut Session, scheme: &Scheme) -> Result<Option<SpareSlot>> {
    let (table, key) = (scheme.quoted_table(), scheme.hex_key());
    let rows = session.rows(&format!("SELECT {key} FROM {table} LIMIT {MAX_CHOICES}")).await?;
    if let Some(row) = rows.get(fastrand::usize(..rows.len().max(1))) {
        let key = match scheme.dialect {
            Dialect::Postgres => format!("decode('{}', 'hex')", row[0]),
            _ => format!("x'{}'", row[0]),
        };
        return Ok(Some(SpareSlot::Row { table, condition: format!("lock_key = {key}") }));
    }
    let agreements = session.rows(&format!("SELECT space FROM {META_TABLE}")).await?;
    let is_ours = |space: &str| scheme.spaces().contains(&space);
    // A space is a plain table name or `default`, so it needs no escaping.
    let space = agreements.iter().map(|row| &*row[0]).find(|space| is_ours(space));
    Ok(space.map(|space| SpareSlot::Row {
        table: META_TABLE.to_owned(),
        condition: format!("space = '{space}'"),
    }))
}
