//! Orders and their mails, in a SQLite file: a mail is queued in the transaction of its order, sent by workers, and recorded
//! exactly once, although a worker dies and some attempts fail.
//!
//! `cargo run --example queue`

use hierlock::database::Database;
use hierlock::queue::{ClaimedJob, DeadJobFilter, Job, Queue};
use std::time::Duration;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const ORDERS: i64 = 40;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite:{}", directory.path().join("shop.db").display());
    let database = Database::connect(&url).await?;
    let mut tx = database.begin().await?;
    tx.run("CREATE TABLE orders (id BIGINT PRIMARY KEY); CREATE TABLE sent (job BIGINT)").await?;
    tx.commit().await?;
    let mails = Queue::new(database.clone(), "mails")?;
    let mails = mails.pauses(Duration::from_millis(20), Duration::from_millis(200));
    mails.provision().await?;

    // Every fourth customer changes their mind: no order, no mail.
    for order in 1..=ORDERS {
        let mut tx = database.begin().await?;
        tx.execute("INSERT INTO orders VALUES (?)", [order.into()]).await?;
        let job = Job::new(order.to_string()).unique(format!("order-{order}")).max_attempts(3);
        mails.enqueue_in(&mut tx, job).await?;
        if order % 4 == 0 { tx.rollback().await? } else { tx.commit().await? }
    }
    println!("{} orders, {} mails to send", ORDERS * 3 / 4, mails.stats().await?.ready);

    // A worker claims five jobs, and does not complete them.
    let claimed = mails.claim("unlucky", 5, Duration::from_millis(200)).await?;
    println!("`unlucky` has claimed {} of them, and dies", claimed.len());

    let workers = ["ann", "bob"].map(|name| {
        let worker = mails.worker(name).batch(4).concurrency(2);
        let worker = worker.poll_every(Duration::from_millis(50));
        let (handle, database) = (worker.handle(), database.clone());
        let work = worker.run(move |job| send(database.clone(), job));
        (name, handle, tokio::spawn(work))
    });
    loop {
        let stats = mails.stats().await?;
        if stats.ready + stats.scheduled + stats.claimed == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (name, handle, work) in workers {
        handle.stop();
        let summary = work.await??;
        println!("`{name}` sent {}, and failed {} times", summary.done, summary.failed);
    }
    for dead in mails.dead(10).await? {
        println!("order {}: {}", dead.payload, dead.last_error.unwrap_or_default());
    }
    // A completion after the lease has ended is an error.
    let late = claimed.first().ok_or("no job was claimed")?.complete().await;
    println!("`unlucky` is late: {}", late.err().map_or("done".into(), |error| error.to_string()));

    // An administrator has solved the problem of the dead job.
    mails.retry_dead(DeadJobFilter::All).await?;
    let summary = mails.worker("cat").until_empty().run(move |job| record(database.clone(), job));
    println!("`cat` sent {}", summary.await?.done);
    let sent = Database::connect(&url)
        .await?
        .begin()
        .await?
        .fetch("SELECT COUNT(*), COUNT(DISTINCT job) FROM sent", [])
        .await?;
    let (sent, different) = (sent[0].int(0)?, sent[0].int(1)?);
    println!("{sent} mails were sent, {different} different ones");
    assert_eq!((sent, different), (ORDERS * 3 / 4, ORDERS * 3 / 4));
    Ok(())
}

/// Sends a mail. Fails for order 13, and in the first attempt for each tenth order.
async fn send(database: Database, job: ClaimedJob) -> Result<(), BoxError> {
    let fails_once = job.payload().ends_with('0') && job.attempt() == 1;
    if job.payload() == "13" || fails_once {
        return Err("out of paper".into());
    }
    Ok(record(database, job).await?)
}

/// Records the mail and completes its job, in one transaction.
async fn record(database: Database, job: ClaimedJob) -> hierlock::Result<()> {
    let mut tx = database.begin().await?;
    tx.execute("INSERT INTO sent VALUES (?)", [job.id().into()]).await?;
    job.complete_in(&mut tx).await?;
    tx.commit().await
}
