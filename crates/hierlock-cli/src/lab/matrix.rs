//! `hierlock lab matrix`.

use super::run::{stop, write};
use super::servers::equip;
use super::show::has_colour;
use super::{DISAGREES, Stop, args};
use crate::generate::print;
use hierlock_lab::matrix::{self, MatrixOptions, Tree};
use hierlock_lab::place::Engine;
use std::process::ExitCode;

pub(super) async fn matrix(args: &args::Matrix) -> Result<ExitCode, Stop> {
    let wanted = match args.servers.engines.as_slice() {
        [] => Engine::ALL.to_vec(),
        some => some.to_vec(),
    };
    let equipped = equip(&args.servers, wanted.iter().copied()).await.map_err(stop)?;
    let there = wanted.into_iter().filter(|engine| equipped.lab.has(*engine));
    let (users, accounts, resources) = args.size;
    let options = MatrixOptions {
        tree: Tree { users, accounts, resources },
        places: matrix::places(there),
        ..MatrixOptions::default()
    };
    let report = matrix::run(&options, &equipped.urls(), |_| ())
        .await
        .map_err(|error| Stop::usage(error.to_string()))?;
    if let Some(file) = &args.svg {
        write(file, &matrix::svg(&report))?;
    }
    match args.json {
        // Numbers and names always become JSON.
        true => print((serde_json::to_string(&report).unwrap_or_default() + "\n").as_bytes()),
        false => print(matrix::text(&report, has_colour()).as_bytes()),
    };
    for missing in &equipped.missing {
        eprintln!("hierlock: not on {}: {}", missing.engine, missing.why);
    }
    Ok(match (report.agrees(), args.servers.strict && !equipped.missing.is_empty()) {
        (false, _) => ExitCode::from(DISAGREES),
        (true, true) => crate::exit::UNAVAILABLE.into(),
        (true, false) => ExitCode::SUCCESS,
    })
}
