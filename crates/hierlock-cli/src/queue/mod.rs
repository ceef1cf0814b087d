//! `hierlock queue`: jobs in a database, and a command for each.
//!
//! ```text
//!   standard input ──► add ──► hier_jobs ──► work: a command for each ──► done
//!                                ▲  stats, dead      │ too often failed
//!                                └──── retry-dead ───┘
//! ```

pub(crate) mod args;
mod show;
mod worker;

use crate::exit::Stop;
use crate::generate::print;
use crate::show::counted;
use args::Command;
use hierlock::database::Database;
use hierlock::queue::{Dead, Enqueued, Job, Queue};
use std::io::{self, Read};
use std::process::ExitCode;

pub(crate) fn queue(args: args::Queue) -> ExitCode {
    let args::Queue { store, command } = args;
    if let Command::Work(args) = command {
        return worker::work(&store, args);
    }
    // Before anything else: while we wait for a person to type, Ctrl-C ends us.
    let jobs = match &command {
        Command::Add(args) => match jobs(args) {
            Ok(jobs) => jobs,
            Err(stop) => return stop.end(),
        },
        _ => Vec::new(),
    };
    store.run(async |database| {
        if store.is_file() && !matches!(command, Command::Provision(_)) {
            table(&database)?.provision().await?;
        }
        Ok(print(go(database, &command, jobs).await?.as_bytes()))
    })
}

async fn go(database: Database, command: &Command, jobs: Vec<Job>) -> Result<String, Stop> {
    Ok(match command {
        Command::Provision(args) if args.print_sql => table(&database)?.script(),
        Command::Provision(_) => {
            table(&database)?.provision().await?;
            "ready\n".to_owned()
        }
        Command::Add(args) => add(&Queue::new(database, &args.queue)?, args, jobs).await?,
        Command::Stats(args) => {
            let stats = match &args.queue {
                Some(name) => vec![Queue::new(database, name)?.stats().await?],
                None => Queue::all_stats(&database).await?,
            };
            match args.json {
                true => show::stats_json(&stats),
                false => show::stats_text(&stats),
            }
        }
        Command::Dead(args) => {
            let dead = Queue::new(database, &args.queue)?.dead(args.show.limit).await?;
            match args.show.json {
                true => show::dead_json(&dead),
                false => show::dead_text(&dead),
            }
        }
        Command::RetryDead(args) => retry_dead(&Queue::new(database, &args.queue)?, args).await?,
        // It has gone its own way.
        Command::Work(_) => String::new(),
    })
}

/// The table is that of all queues, whichever makes it.
fn table(database: &Database) -> Result<Queue, Stop> {
    Ok(Queue::new(database.clone(), "any")?)
}

/// What is to be added, from the command line or standard input.
fn jobs(args: &args::Add) -> Result<Vec<Job>, Stop> {
    let job = |payload: &str| {
        let mut job = Job::new(payload);
        if let Some(priority) = args.priority {
            job = job.priority(priority);
        }
        if let Some(delay) = args.run_in {
            job = job.run_in(delay);
        }
        if let Some(key) = &args.unique {
            job = job.unique(key);
        }
        if let Some(attempts) = args.max_attempts {
            job = job.max_attempts(attempts);
        }
        job
    };
    Ok(match args.payload.as_deref() {
        None => standard_input()?.lines().filter(|line| !line.is_empty()).map(job).collect(),
        Some("-") => vec![job(&standard_input()?)],
        Some(payload) => vec![job(payload)],
    })
}

fn standard_input() -> Result<String, Stop> {
    let mut bytes = Vec::new();
    io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| Stop::unavailable(format!("cannot read standard input: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Stop::usage(format!("standard input is not UTF-8 at byte {at}; a payload is text"))
    })
}

async fn add(queue: &Queue, args: &args::Add, jobs: Vec<Job>) -> Result<String, Stop> {
    let added = queue.enqueue_all(jobs).await?;
    Ok(match (args.json, args.lines, added.as_slice()) {
        (true, false, [one]) => show::added_json(*one),
        (true, ..) => show::all_added_json(&added),
        (_, false, [Enqueued::Added(id)]) => format!("added job {id}\n"),
        (_, false, [Enqueued::Duplicate(id)]) => format!("job {id} is there already\n"),
        (_, _, added) => format!("added {}\n", counted(added.len() as u64, "job")),
    })
}

async fn retry_dead(queue: &Queue, args: &args::RetryDead) -> Result<String, Stop> {
    let mut ids = args.ids.clone();
    ids.sort_unstable();
    ids.dedup();
    let asked = ids.len() as u64;
    let which = if args.all { Dead::All } else { Dead::Ids(ids) };
    let retried = queue.retry_dead(which).await?;
    let others = match args.all || retried == asked {
        true => String::new(),
        false => format!("; {} not dead", counted(asked - retried, "other")),
    };
    Ok(format!("{} to be tried again{others}\n", counted(retried, "job")))
}
