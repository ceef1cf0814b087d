//! A worker process that runs the jobs of a queue.

use super::{StopSignal, WorkerArgs};
use crate::soak::history::{Event, Recorder, VisitId};
use crate::soak::random::Random;
use crate::soak::{JOB_LEASE_TTL, Result, queue};
use crate::toolbox::write_in_transaction;
use hierlock::database::Database;
use hierlock::queue::ClaimedJob;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

pub(super) async fn work(args: WorkerArgs, mut stop: StopSignal) -> Result<()> {
    let recorder = Arc::new(Recorder::open(&args.history)?);
    let connect = async || Database::connect(&args.url).await;
    let Some(database) = stop.retry_until_stopped(connect).await else { return Ok(()) };
    let queue = queue(&database)?;
    let worker = queue.worker(&format!("w{}", args.worker)).batch(5).concurrency(8);
    let worker = worker.lease(JOB_LEASE_TTL).poll_every(Duration::from_millis(100));
    let handle = worker.handle();
    tokio::spawn(async move {
        stop.wait().await;
        handle.stop();
    });
    let (seed, number, broken) = (args.seed, args.worker, args.broken);
    let run = worker.run(move |job| {
        let (database, recorder) = (database.clone(), recorder.clone());
        let seed_of_run =
            u64::from(number) << 40 ^ job.id().cast_unsigned() << 8 ^ u64::from(job.attempt());
        let random = Random::derive(seed, seed_of_run);
        async move {
            let payload = job.payload().parse().map_err(|_| "not a number".to_owned())?;
            let visit = VisitId { worker: number, task: 0, number: payload };
            recorder.record(visit, Event::Run);
            let result = run(&database, &job, random, broken).await;
            if result.is_err() {
                recorder.record(visit, Event::Fail);
            }
            result
        }
    });
    run.await?;
    Ok(())
}

/// Runs a job. Its effect and its completion are one transaction.
async fn run(
    database: &Database,
    job: &ClaimedJob,
    mut random: Random,
    broken: bool,
) -> std::result::Result<(), String> {
    let pause = if random.chance(3) { random.between(500, 3000) } else { random.below(20) };
    tokio::select! {
        () = sleep(Duration::from_millis(pause)) => {}
        () = job.lost() => return Err("the claim was lost".into()),
    }
    if random.chance(2) {
        return Err("a random failure".into());
    }
    if broken && random.chance(5) {
        return job.complete().await.map_err(|error| error.to_string());
    }
    let number = job.payload().parse::<i64>().map_err(|error| error.to_string())?;
    let effect = "INSERT INTO soak_effects (job) VALUES (?)";
    let done = write_in_transaction(database, effect, &[number.into()], Some(job)).await;
    done.map_err(|error| error.to_string())
}
