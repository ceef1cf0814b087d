//! Online users edit members while a batch of an hour adds points to all members.
//!
//! 1. Broken: one transaction for all members. Saving a member that the batch changed in its first minute waits
//!    until the batch ends. Right: one transaction per row.
//! 2. Broken: a form that was open meanwhile saves the points that it shows. Right: save only if the version is
//!    still the one that the form was filled from.
//! 3. Broken: the batch holds the row. The user compares the version with a plain SELECT, which does not wait; the
//!    UPDATE waits, and overwrites. Right: lock, then compare; or compare in the UPDATE.
//! 4. Broken: a user holds the row and spends points. The batch waits, and then writes a value computed from an
//!    earlier read. Right: read the row again under the lock.
//!
//! One row of the batch, and a save, with sqlx:
//!
//! ```ignore
//! let mut tx = pool.begin().await?;
//! let sql = "SELECT points FROM members WHERE id = ? FOR UPDATE";
//! let points: i64 = sqlx::query_scalar(sql).bind(id).fetch_one(&mut *tx).await?;
//! let sql = "UPDATE members SET points = ?, version = version + 1 WHERE id = ?";
//! sqlx::query(sql).bind(points + 10).bind(id).execute(&mut *tx).await?;
//! tx.commit().await?;
//!
//! let sql = "UPDATE members SET name = ?, version = version + 1 WHERE id = ? AND version = ?";
//! if sqlx::query(sql).bind(name).bind(id).bind(form.version).execute(&pool).await?.rows_affected() == 0 {
//!     /* show the new values first */
//! }
//! ```

use super::case_database::{CaseDatabase, CaseTables, Result, read_in};
use super::race::{RaceBarrier, commit_while_waiting, retry_transaction, run_tasks};
use hierlock::database::Transaction;
use std::fmt;

const TABLES: CaseTables = CaseTables {
    names: &["case_members"],
    create: "CREATE TABLE case_members (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL, \
           points BIGINT NOT NULL, version BIGINT NOT NULL)",
    insert: "INSERT INTO case_members VALUES (1, 'Sato', 100, 1), (2, 'Mori', 100, 1), \
           (3, 'Endo', 100, 1), (4, 'Ueda', 100, 1), (5, 'Kato', 100, 1)",
};
const SELECT_VERSION: &str = "SELECT version FROM case_members WHERE id = 1";
const MEMBERS: i64 = 5;
/// The points that the batch adds to each member.
const BATCH_POINTS: i64 = 10;
/// The points that a user spends in part 4.
const SPENT_POINTS: i64 = 50;

/// Member 1 afterwards. It starts with 100 points.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// True if the user's new name was saved.
    pub(crate) renamed: bool,
    pub(crate) points: i64,
}

pub(crate) struct OnlineResults {
    /// How often a save of member 1 would have waited. Checked once after each row of the batch.
    pub(crate) blocked_saves_broken: i64,
    pub(crate) blocked_saves_right: i64,
    pub(crate) outdated_form_broken: Member,
    pub(crate) outdated_form_right: Member,
    pub(crate) version_check_broken: Member,
    pub(crate) version_check_right: Member,
    pub(crate) points_source_broken: Member,
    pub(crate) points_source_right: Member,
    /// The points of all members after four users have spent 3 points of every member while the batch ran, with the right
    /// versions.
    pub(crate) points_after_load: i64,
}

pub(crate) async fn run(db: &CaseDatabase) -> Result<OnlineResults> {
    db.create_tables(&TABLES).await?;
    let results = OnlineResults {
        blocked_saves_broken: batch_in_one_transaction(db).await?,
        blocked_saves_right: batch_in_row_transactions(db).await?,
        outdated_form_broken: save_outdated_form(db, SaveCondition::Always).await?,
        outdated_form_right: save_outdated_form(db, SaveCondition::IfVersionMatches).await?,
        version_check_broken: save_during_batch_row(db, VersionCheckTime::BeforeLock).await?,
        version_check_right: save_during_batch_row(db, VersionCheckTime::AfterLock).await?,
        points_source_broken: batch_after_user(db, PointsSource::EarlierRead).await?,
        points_source_right: batch_after_user(db, PointsSource::LockedRow).await?,
        points_after_load: users_and_batch(db).await?,
    };
    db.drop_tables(&TABLES).await?;
    Ok(results)
}

// 1. One transaction, or one per row.

async fn batch_in_one_transaction(db: &CaseDatabase) -> Result<i64> {
    db.reset_tables(&TABLES).await?;
    let mut waits = 0;
    let mut tx = db.begin().await?;
    for id in 1..=MEMBERS {
        add_points_in(db, &mut tx, id).await?;
        waits += i64::from(db.is_locked("case_members", 1).await?);
    }
    tx.commit().await?;
    Ok(waits)
}

async fn batch_in_row_transactions(db: &CaseDatabase) -> Result<i64> {
    db.reset_tables(&TABLES).await?;
    let mut waits = 0;
    for id in 1..=MEMBERS {
        add_points(db, id).await?;
        waits += i64::from(db.is_locked("case_members", 1).await?);
    }
    Ok(waits)
}

/// Right: reads one row under its lock, and adds the points.
async fn add_points_in(db: &CaseDatabase, tx: &mut Transaction, id: i64) -> Result<()> {
    let for_update = db.for_update();
    let sql = format!("SELECT points FROM case_members WHERE id = {id}{for_update}");
    let [points] = read_in(tx, &sql).await?[0];
    set_points(tx, id, points + BATCH_POINTS).await
}

async fn add_points(db: &CaseDatabase, id: i64) -> Result<()> {
    let mut tx = db.begin().await?;
    add_points_in(db, &mut tx, id).await?;
    Ok(tx.commit().await?)
}

async fn set_points(tx: &mut Transaction, id: i64, points: i64) -> Result<()> {
    let sql = "UPDATE case_members SET points = ?, version = version + 1 WHERE id = ?";
    tx.execute(sql, [points.into(), id.into()]).await?;
    Ok(())
}

// 2. A form that was open while the batch changed the row.

#[derive(Clone, Copy, PartialEq, Eq)]
enum SaveCondition {
    Always,
    IfVersionMatches,
}

/// The fields of a member that a form shows and saves.
struct Form {
    id: i64,
    points: i64,
    version: i64,
}

impl Form {
    async fn open(db: &CaseDatabase, id: i64) -> Result<Self> {
        let sql = format!("SELECT points, version FROM case_members WHERE id = {id}");
        let [points, version] = db.read(&sql).await?[0];
        Ok(Self { id, points, version })
    }

    /// Saves all fields, with a new name. Returns false if the form is outdated.
    async fn save(&self, db: &CaseDatabase, condition: SaveCondition) -> Result<bool> {
        let mut tx = db.begin().await?;
        let saved = self.save_in(&mut tx, condition).await?;
        tx.commit().await?;
        Ok(saved)
    }

    /// Saves if the version has been compared already and `is_current`. Returns `is_current`.
    async fn save_if_current(&self, mut tx: Transaction, is_current: bool) -> Result<bool> {
        if is_current {
            self.save_in(&mut tx, SaveCondition::Always).await?;
        }
        tx.commit().await?;
        Ok(is_current)
    }

    async fn save_in(&self, tx: &mut Transaction, condition: SaveCondition) -> Result<bool> {
        let check = match condition {
            SaveCondition::Always => String::new(),
            SaveCondition::IfVersionMatches => format!(" AND version = {}", self.version),
        };
        let sql = format!(
            "UPDATE case_members SET name = 'Tanaka', points = ?, version = version + 1 \
             WHERE id = ?{check}"
        );
        Ok(tx.execute(&sql, [self.points.into(), self.id.into()]).await? == 1)
    }
}

async fn save_outdated_form(db: &CaseDatabase, condition: SaveCondition) -> Result<Member> {
    db.reset_tables(&TABLES).await?;
    let form = Form::open(db, 1).await?;
    add_points(db, 1).await?;
    if !form.save(db, condition).await? {
        // The user sees the new points, and saves the name again.
        Form::open(db, 1).await?.save(db, condition).await?;
    }
    Member::read(db).await
}

// 3. The batch holds the row, and the user saves.

#[derive(Clone, Copy)]
enum VersionCheckTime {
    /// Broken: the check does not wait for the batch, the write does.
    BeforeLock,
    /// Right: lock the row, then compare.
    AfterLock,
}

async fn save_during_batch_row(db: &CaseDatabase, time: VersionCheckTime) -> Result<Member> {
    db.reset_tables(&TABLES).await?;
    let form = Form::open(db, 1).await?;
    let mut batch = db.begin().await?;
    add_points_in(db, &mut batch, 1).await?;
    let saved = match time {
        VersionCheckTime::BeforeLock => {
            let barrier = RaceBarrier::new(2);
            let batch = async {
                barrier.wait_for_all().await?;
                Ok(batch.commit().await?)
            };
            tokio::try_join!(check_then_save(db, &form, &barrier), batch)?.0
        }
        VersionCheckTime::AfterLock => {
            commit_while_waiting(batch, lock_then_check(db, &form)).await?
        }
    };
    if !saved {
        Form::open(db, 1).await?.save(db, SaveCondition::IfVersionMatches).await?;
    }
    Member::read(db).await
}

async fn check_then_save(db: &CaseDatabase, form: &Form, barrier: &RaceBarrier) -> Result<bool> {
    let (rows, tx) = db.read_then_begin(barrier, SELECT_VERSION).await?;
    form.save_if_current(tx, rows == [[form.version]]).await
}

async fn lock_then_check(db: &CaseDatabase, form: &Form) -> Result<bool> {
    let mut tx = db.begin().await?;
    let sql = format!("{SELECT_VERSION}{}", db.for_update());
    let rows = read_in(&mut tx, &sql).await?;
    form.save_if_current(tx, rows == [[form.version]]).await
}

// 4. The user holds the row, and the batch adds points.

#[derive(Clone, Copy)]
enum PointsSource {
    EarlierRead,
    LockedRow,
}

async fn batch_after_user(db: &CaseDatabase, source: PointsSource) -> Result<Member> {
    db.reset_tables(&TABLES).await?;
    let [points] = db.read("SELECT points FROM case_members WHERE id = 1").await?[0];
    let mut user = db.begin().await?;
    set_points(&mut user, 1, points - SPENT_POINTS).await?;
    let batch = async {
        match source {
            // Broken: the batch waits for the user, and then writes a value from its earlier read.
            PointsSource::EarlierRead => {
                let mut tx = db.begin().await?;
                set_points(&mut tx, 1, points + BATCH_POINTS).await?;
                Ok(tx.commit().await?)
            }
            PointsSource::LockedRow => add_points(db, 1).await,
        }
    };
    commit_while_waiting(user, batch).await?;
    Member::read(db).await
}

// All right versions at the same time.

/// Runs four users and the batch on all members. Returns the points of all members at the end.
async fn users_and_batch(db: &CaseDatabase) -> Result<i64> {
    db.reset_tables(&TABLES).await?;
    run_tasks(5, |number, barrier| {
        let db = db.clone();
        async move {
            barrier.wait_for_all().await?;
            for id in 1..=MEMBERS {
                match number {
                    1 => retry_transaction(|| add_points(&db, id)).await?,
                    _ => spend_three_points(&db, id).await?,
                }
            }
            Ok(())
        }
    })
    .await?;
    let points = db.read("SELECT points FROM case_members").await?;
    Ok(points.iter().map(|[points]| points).sum())
}

/// Spends one point three times, with forms. Opens a form again if it is outdated.
async fn spend_three_points(db: &CaseDatabase, id: i64) -> Result<()> {
    for _ in 0..3 {
        loop {
            let mut form = Form::open(db, id).await?;
            form.points -= 1;
            if retry_transaction(|| form.save(db, SaveCondition::IfVersionMatches)).await? {
                break;
            }
        }
    }
    Ok(())
}

impl Member {
    async fn read(db: &CaseDatabase) -> Result<Self> {
        let sql = "SELECT COUNT(*) FROM case_members WHERE id = 1 AND name = 'Tanaka'";
        let renamed = db.read_number(sql).await? == 1;
        let points = db.read_number("SELECT points FROM case_members WHERE id = 1").await?;
        Ok(Self { renamed, points })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.renamed { "the new name" } else { "the old name" };
        write!(f, "{name} and {} points", self.points)
    }
}

impl fmt::Display for OnlineResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "a batch adds {BATCH_POINTS} points to each of {MEMBERS} members with 100 points"
        )?;
        write!(f, "1 broken, one transaction: a save of the first member would have waited ")?;
        writeln!(f, "{} of {MEMBERS} times", self.blocked_saves_broken)?;
        writeln!(
            f,
            "1 right, one transaction per row: {} of {MEMBERS} times",
            self.blocked_saves_right
        )?;
        writeln!(f, "2 broken, an outdated form is saved: {}", self.outdated_form_broken)?;
        writeln!(f, "2 right, saved only if the version matches: {}", self.outdated_form_right)?;
        writeln!(
            f,
            "3 broken, version compared before the lock wait: {}",
            self.version_check_broken
        )?;
        writeln!(f, "3 right, version compared after the lock wait: {}", self.version_check_right)?;
        writeln!(
            f,
            "4 broken, {SPENT_POINTS} are spent, the batch uses an earlier read: {}",
            self.points_source_broken
        )?;
        writeln!(f, "4 right, the batch reads again under the lock: {}", self.points_source_right)?;
        write!(
            f,
            "right, four users spend 60 in all during the batch: {} points left",
            self.points_after_load
        )
    }
}
