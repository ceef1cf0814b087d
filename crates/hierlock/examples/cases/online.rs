//! Online users beside a batch that gives points to all members, and takes an hour for it.
//!
//! 1. Broken: one transaction for all of them. Who saves a member that the batch was done with in the first
//!    minute waits for the rest of the hour. Right: a transaction for each row.
//! 2. Broken: a form that was open meanwhile saves the points that it has shown. Right: it saves only if the version
//!    is still the one that it was filled from.
//! 3. Broken: while the batch has the row, the version is compared by a plain SELECT, which does not wait; the
//!    UPDATE does, and overwrites. Right: lock, then compare; or compare in the UPDATE.
//! 4. Broken: the batch writes what it worked out from a page that it read before a user has spent points.
//!    Right: it reads the row again, under its lock.
//!
//! With sqlx, one row of the batch, and a save:
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

use super::race::{Everyone, again, commit_before, together};
use super::stage::{Result, Scene, Stage, look_in};
use hierlock::database::Transaction;
use std::fmt;

const SCENE: Scene = Scene {
    tables: &["case_members"],
    make: "CREATE TABLE case_members (id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL, \
           points BIGINT NOT NULL, version BIGINT NOT NULL)",
    fill: "INSERT INTO case_members VALUES (1, 'Sato', 100, 1), (2, 'Mori', 100, 1), \
           (3, 'Endo', 100, 1), (4, 'Ueda', 100, 1), (5, 'Kato', 100, 1)",
};
const VERSION: &str = "SELECT version FROM case_members WHERE id = 1";
const MEMBERS: i64 = 5;
/// What the batch gives to each.
const GIFT: i64 = 10;
/// What a user spends in consideration 4.
const SPENT: i64 = 50;

/// Member 1 afterwards. It had 100 points.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Was the user's new name saved?
    pub(crate) renamed: bool,
    pub(crate) points: i64,
}

pub(crate) struct Figures {
    /// How often the user could not have saved member 1, of once after each row of the batch.
    pub(crate) shut_out_broken: i64,
    pub(crate) shut_out_right: i64,
    pub(crate) old_form_broken: Member,
    pub(crate) old_form_right: Member,
    pub(crate) early_check_broken: Member,
    pub(crate) early_check_right: Member,
    pub(crate) old_page_broken: Member,
    pub(crate) old_page_right: Member,
    /// All right ways at once: four users spend 3 points each on every member, while the batch runs.
    pub(crate) crowd_points: i64,
}

pub(crate) async fn run(stage: &Stage) -> Result<Figures> {
    stage.build(&SCENE).await?;
    let figures = Figures {
        shut_out_broken: one_transaction(stage).await?,
        shut_out_right: row_by_row(stage).await?,
        old_form_broken: old_form(stage, Save::Blindly).await?,
        old_form_right: old_form(stage, Save::IfCurrent).await?,
        early_check_broken: beside_the_batch(stage, Check::Early).await?,
        early_check_right: beside_the_batch(stage, Check::Late).await?,
        old_page_broken: old_page(stage, Batch::FromPage).await?,
        old_page_right: old_page(stage, Batch::ReadAgain).await?,
        crowd_points: crowd(stage).await?,
    };
    stage.strike(&SCENE).await?;
    Ok(figures)
}

// 1. How much is locked.

async fn one_transaction(stage: &Stage) -> Result<i64> {
    stage.reset(&SCENE).await?;
    let mut shut_out = 0;
    let mut tx = stage.database.begin().await?;
    for id in 1..=MEMBERS {
        give(stage, &mut tx, id).await?;
        shut_out += i64::from(stage.is_locked("case_members", 1).await?);
    }
    tx.commit().await?;
    Ok(shut_out)
}

async fn row_by_row(stage: &Stage) -> Result<i64> {
    stage.reset(&SCENE).await?;
    let mut shut_out = 0;
    for id in 1..=MEMBERS {
        give_alone(stage, id).await?;
        shut_out += i64::from(stage.is_locked("case_members", 1).await?);
    }
    Ok(shut_out)
}

/// One row of the batch, as it should be.
async fn give(stage: &Stage, tx: &mut Transaction, id: i64) -> Result<()> {
    let for_update = stage.database.for_update();
    let sql = format!("SELECT points FROM case_members WHERE id = {id}{for_update}");
    let [points] = look_in(tx, &sql).await?[0];
    set_points(tx, id, points + GIFT).await
}

async fn give_alone(stage: &Stage, id: i64) -> Result<()> {
    let mut tx = stage.database.begin().await?;
    give(stage, &mut tx, id).await?;
    Ok(tx.commit().await?)
}

async fn set_points(tx: &mut Transaction, id: i64, points: i64) -> Result<()> {
    let sql = "UPDATE case_members SET points = ?, version = version + 1 WHERE id = ?";
    tx.execute(sql, [points.into(), id.into()]).await?;
    Ok(())
}

// 2. A form that was open while the batch came by.

#[derive(Clone, Copy, PartialEq, Eq)]
enum Save {
    Blindly,
    IfCurrent,
}

/// What a form shows of a member, and sends back.
struct Form {
    id: i64,
    points: i64,
    version: i64,
}

impl Form {
    async fn open(stage: &Stage, id: i64) -> Result<Self> {
        let sql = format!("SELECT points, version FROM case_members WHERE id = {id}");
        let [points, version] = stage.look(&sql).await?[0];
        Ok(Self { id, points, version })
    }

    /// All of its fields, with a new name. False if it is told that the form is old.
    async fn save(&self, stage: &Stage, how: Save) -> Result<bool> {
        let mut tx = stage.database.begin().await?;
        let saved = self.save_in(&mut tx, how).await?;
        tx.commit().await?;
        Ok(saved)
    }

    /// The same, where the version has been compared already.
    async fn save_if(&self, mut tx: Transaction, is_current: bool) -> Result<bool> {
        if is_current {
            self.save_in(&mut tx, Save::Blindly).await?;
        }
        tx.commit().await?;
        Ok(is_current)
    }

    async fn save_in(&self, tx: &mut Transaction, how: Save) -> Result<bool> {
        let check = match how {
            Save::Blindly => String::new(),
            Save::IfCurrent => format!(" AND version = {}", self.version),
        };
        let sql = format!(
            "UPDATE case_members SET name = 'Tanaka', points = ?, version = version + 1 \
             WHERE id = ?{check}"
        );
        Ok(tx.execute(&sql, [self.points.into(), self.id.into()]).await? == 1)
    }
}

async fn old_form(stage: &Stage, how: Save) -> Result<Member> {
    stage.reset(&SCENE).await?;
    let form = Form::open(stage, 1).await?;
    give_alone(stage, 1).await?;
    if !form.save(stage, how).await? {
        // The user sees the new points, and still wants the name.
        Form::open(stage, 1).await?.save(stage, how).await?;
    }
    Member::read(stage).await
}

// 3. The batch has the row, and the user comes to save.

#[derive(Clone, Copy)]
enum Check {
    /// Broken: the check does not wait for the batch, the write does.
    Early,
    /// Right: who has the lock compares.
    Late,
}

async fn beside_the_batch(stage: &Stage, check: Check) -> Result<Member> {
    stage.reset(&SCENE).await?;
    let form = Form::open(stage, 1).await?;
    let mut batch = stage.database.begin().await?;
    give(stage, &mut batch, 1).await?;
    let saved = match check {
        Check::Early => {
            let checked = Everyone::new(2);
            let batch = async {
                checked.meet().await?;
                Ok(batch.commit().await?)
            };
            tokio::try_join!(save_checked_early(stage, &form, &checked), batch)?.0
        }
        Check::Late => commit_before(batch, save_checked_late(stage, &form)).await?,
    };
    if !saved {
        Form::open(stage, 1).await?.save(stage, Save::IfCurrent).await?;
    }
    Member::read(stage).await
}

async fn save_checked_early(stage: &Stage, form: &Form, checked: &Everyone) -> Result<bool> {
    let (seen, tx) = stage.look_then_begin(checked, VERSION).await?;
    form.save_if(tx, seen == [[form.version]]).await
}

async fn save_checked_late(stage: &Stage, form: &Form) -> Result<bool> {
    let mut tx = stage.database.begin().await?;
    let sql = format!("{VERSION}{}", stage.database.for_update());
    let seen = look_in(&mut tx, &sql).await?;
    form.save_if(tx, seen == [[form.version]]).await
}

// 4. The user has the row, and the batch comes to it.

#[derive(Clone, Copy)]
enum Batch {
    FromPage,
    ReadAgain,
}

async fn old_page(stage: &Stage, how: Batch) -> Result<Member> {
    stage.reset(&SCENE).await?;
    let [page] = stage.look("SELECT points FROM case_members WHERE id = 1").await?[0];
    let mut user = stage.database.begin().await?;
    set_points(&mut user, 1, page - SPENT).await?;
    let batch = async {
        match how {
            // Broken: it waits for the user, as it should, and writes what it has in memory.
            Batch::FromPage => {
                let mut tx = stage.database.begin().await?;
                set_points(&mut tx, 1, page + GIFT).await?;
                Ok(tx.commit().await?)
            }
            Batch::ReadAgain => give_alone(stage, 1).await,
        }
    };
    commit_before(user, batch).await?;
    Member::read(stage).await
}

// All together.

/// Four users and the batch, on all members. What all members have at the end.
async fn crowd(stage: &Stage) -> Result<i64> {
    stage.reset(&SCENE).await?;
    together(5, |number, everyone| {
        let stage = stage.clone();
        async move {
            everyone.meet().await?;
            for id in 1..=MEMBERS {
                match number {
                    1 => again(|| give_alone(&stage, id)).await?,
                    _ => spend_thrice(&stage, id).await?,
                }
            }
            Ok(())
        }
    })
    .await?;
    let points = stage.look("SELECT points FROM case_members").await?;
    Ok(points.iter().map(|[points]| points).sum())
}

/// By forms, which are opened again when they are old.
async fn spend_thrice(stage: &Stage, id: i64) -> Result<()> {
    for _ in 0..3 {
        loop {
            let mut form = Form::open(stage, id).await?;
            form.points -= 1;
            if again(|| form.save(stage, Save::IfCurrent)).await? {
                break;
            }
        }
    }
    Ok(())
}

impl Member {
    async fn read(stage: &Stage) -> Result<Self> {
        let sql = "SELECT COUNT(*) FROM case_members WHERE id = 1 AND name = 'Tanaka'";
        let renamed = stage.number(sql).await? == 1;
        let points = stage.number("SELECT points FROM case_members WHERE id = 1").await?;
        Ok(Self { renamed, points })
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.renamed { "the new name" } else { "the old name" };
        write!(f, "{name} and {} points", self.points)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a batch gives {GIFT} points to {MEMBERS} members, who have 100 each")?;
        write!(f, "1 broken, one transaction: a save of the first member would have waited ")?;
        writeln!(f, "{} of {MEMBERS} times", self.shut_out_broken)?;
        writeln!(f, "1 right, row by row: {} of {MEMBERS} times", self.shut_out_right)?;
        writeln!(f, "2 broken, an old form is saved: {}", self.old_form_broken)?;
        writeln!(f, "2 right, only if it is current: {}", self.old_form_right)?;
        writeln!(f, "3 broken, checked before the wait: {}", self.early_check_broken)?;
        writeln!(f, "3 right, checked after it: {}", self.early_check_right)?;
        writeln!(
            f,
            "4 broken, {SPENT} are spent, the batch has an old page: {}",
            self.old_page_broken
        )?;
        writeln!(f, "4 right, it reads again: {}", self.old_page_right)?;
        write!(f, "right, four users spend 60 in all beside it: {} points left", self.crowd_points)
    }
}
