//! `hierlock queue`: jobs in a database, and a command that runs for each of them.
//!
//! ```text
//!   standard input ──► add ──► hier_jobs ──► work: a command for each ──► done
//!                                ▲  stats, dead      │ failed too often
//!                                └──── retry-dead ───┘
//! ```

mod args;
mod output;
mod worker;

pub(crate) use args::QueueArgs;

use crate::args::with;
use crate::exit::{CommandError, CommandResult};
use crate::output::{counted, json_line, json_list, print};
use args::{AddArgs, QueueCommand};
use hierlock::queue::{DeadJobFilter, EnqueueOutcome, Job, Queue};
use output::added_json;
use std::io::{self, Read};

pub(crate) fn queue(args: QueueArgs) -> CommandResult {
    let QueueArgs { database: database_args, command } = args;
    let jobs = match command {
        QueueCommand::Work(args) => return worker::work(&database_args, args),
        // Standard input is read before signals are handled, so that Ctrl-C ends the command meanwhile.
        QueueCommand::Add(ref args) => jobs(args)?,
        _ => Vec::new(),
    };
    database_args.run(async |database| {
        // All queues share one table, so any name will do.
        let table = Queue::new(database.clone(), "any")?;
        if database_args.is_sqlite() && !matches!(command, QueueCommand::Provision(_)) {
            table.provision().await?;
        }
        let queue = |name: &str| Queue::new(database.clone(), name);
        print(match command {
            QueueCommand::Provision(args) if args.print_sql => table.script(),
            QueueCommand::Provision(_) => {
                table.provision().await?;
                "ready\n".to_owned()
            }
            QueueCommand::Add(args) => add(&queue(&args.queue)?, &args, jobs).await?,
            QueueCommand::Stats { queue: name, json } => {
                let stats = match name {
                    Some(name) => vec![queue(&name)?.stats().await?],
                    None => Queue::all_stats(&database).await?,
                };
                output::stats(&stats, json)
            }
            QueueCommand::Dead { queue: name, list } => {
                output::dead_jobs(&queue(&name)?.dead(list.limit).await?, list.json)
            }
            QueueCommand::RetryDead { queue: name, ids, all } => {
                retry_dead(&queue(&name)?, ids, all).await?
            }
            QueueCommand::Work(_) => unreachable!("`work` has returned above"),
        })
    })
}

fn jobs(args: &AddArgs) -> Result<Vec<Job>, CommandError> {
    let job = |payload: &str| {
        let job = with(Job::new(payload), args.priority, Job::priority);
        let job = with(job, args.run_in, Job::run_in);
        let job = with(job, args.unique.as_ref(), Job::unique);
        with(job, args.max_attempts, Job::max_attempts)
    };
    Ok(match args.payload.as_deref() {
        None => read_stdin()?.lines().filter(|line| !line.is_empty()).map(job).collect(),
        Some("-") => vec![job(&read_stdin()?)],
        Some(payload) => vec![job(payload)],
    })
}

fn read_stdin() -> Result<String, CommandError> {
    let mut bytes = Vec::new();
    let read = io::stdin().read_to_end(&mut bytes);
    read.map_err(CommandError::cannot("read standard input"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CommandError::usage(format!("standard input is not UTF-8 at byte {at}; a payload is text"))
    })
}

async fn add(queue: &Queue, args: &AddArgs, jobs: Vec<Job>) -> Result<String, CommandError> {
    let added = queue.enqueue_all(jobs).await?;
    Ok(match (args.json, args.lines, added.as_slice()) {
        (true, false, [one]) => json_line(&added_json(one)),
        (true, ..) => json_list(added.iter().map(added_json)),
        (_, false, [EnqueueOutcome::Added(id)]) => format!("added job {id}\n"),
        (_, false, [EnqueueOutcome::Duplicate(id)]) => format!("job {id} exists already\n"),
        (_, _, added) => format!("added {}\n", counted(added.len() as u64, "job")),
    })
}

async fn retry_dead(queue: &Queue, mut ids: Vec<i64>, all: bool) -> Result<String, CommandError> {
    ids.sort_unstable();
    ids.dedup();
    let requested = ids.len() as u64;
    let filter = if all { DeadJobFilter::All } else { DeadJobFilter::Ids(ids) };
    let retried = queue.retry_dead(filter).await?;
    let mut text = format!("{} to be tried again", counted(retried, "job"));
    if !all && retried != requested {
        text += &format!("; {} not dead", counted(requested - retried, "other"));
    }
    Ok(text + "\n")
}
