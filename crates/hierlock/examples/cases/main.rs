//! Business cases. Each has a version that looks correct and fails under concurrency, and a version that is correct.
//!
//! ```sh
//! cargo run -p hierlock --example cases                       # all cases, in an SQLite file
//! cargo run -p hierlock --example cases -- transfer seats
//! cargo run -p hierlock --example cases -- --url mysql://root@127.0.0.1:3306/scratch
//! ```
//!
//! The example creates tables named `case_…` in that database, and drops them afterwards.

mod card;
mod case_database;
mod children;
mod online;
mod payment;
mod race;
mod resident;
mod seats;
mod transfer;
mod withdrawal;

use case_database::{CaseDatabase, Result};
use std::process::ExitCode;

const CASES: [&str; 7] =
    ["transfer", "withdrawal", "seats", "payment", "children", "online", "resident"];

#[tokio::main]
async fn main() -> ExitCode {
    match run_cases(std::env::args().skip(1)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run_cases(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let mut url = None;
    let mut selected = Vec::new();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--url" => url = Some(arguments.next().ok_or("--url needs the URL of a database")?),
            "--help" | "-h" => {
                println!("cases [{}]… [--url URL]", CASES.join("|"));
                return Ok(());
            }
            case if CASES.contains(&case) => selected.push(argument),
            other => {
                return Err(format!("there is no case {other}, only: {}", CASES.join(", ")).into());
            }
        }
    }
    if selected.is_empty() {
        selected = CASES.map(str::to_owned).to_vec();
    }
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("cases.db");
    let url = url.unwrap_or_else(|| format!("sqlite:{}", file.display()));
    let db = CaseDatabase::connect(&url).await?;
    for case in selected {
        let results = match case.as_str() {
            "transfer" => transfer::run(&db).await?.to_string(),
            "withdrawal" => withdrawal::run(&db).await?.to_string(),
            "seats" => seats::run(&db).await?.to_string(),
            "payment" => payment::run(&db).await?.to_string(),
            "children" => children::run(&db).await?.to_string(),
            "online" => online::run(&db).await?.to_string(),
            _ => resident::run(&db).await?.to_string(),
        };
        println!("{case}: {}\n", results.replace('\n', "\n  "));
    }
    Ok(())
}
