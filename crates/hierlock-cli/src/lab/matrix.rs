//! `hierlock lab matrix`.

use super::interrupt::Interrupt;
use super::run::{stop, write};
use super::servers::equip;
use super::show::{Shown, has_colour};
use super::{DISAGREES, args};
use crate::exit::Stop;
use crate::generate::print;
use crate::show::say;
use hierlock_lab::{Engine, MatrixOptions, MatrixProgress, ModePair, Place};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

pub(super) async fn matrix(args: &args::Matrix, interrupt: Interrupt) -> Result<ExitCode, Stop> {
    let wanted = match args.servers.engines.as_slice() {
        [] => Engine::ALL.to_vec(),
        some => some.to_vec(),
    };
    let equipped = match interrupt.or(equip(&args.servers, wanted.iter().copied())).await {
        Ok(equipped) => equipped.map_err(stop)?,
        Err(interrupted) => return Ok(interrupted.exit_code()),
    };
    let there = wanted.into_iter().filter(|engine| equipped.lab.has(*engine));
    let options = MatrixOptions {
        tree: args.size,
        places: Place::all(there),
        modes: if args.modes { ModePair::all() } else { vec![ModePair::EXCLUSIVE] },
        jobs: args.how.jobs,
        buckets: args.buckets,
        ..MatrixOptions::default()
    };
    let shown = Shown::new(0, args.json);
    let pairs = Pairs::default();
    let progress = |progress| {
        let (done, total) = pairs.add(progress);
        shown.count(done, total * options.places.len());
    };
    let interrupted = async { _ = interrupt.came().await };
    let report = equipped.lab.matrix_until(&options, progress, interrupted).await;
    let report = report.map_err(|error| Stop::usage(error.to_string()))?;
    shown.end();
    let written = match &args.svg {
        Some(file) => write(file, &report.svg()),
        None => Ok(()),
    };
    match args.json {
        // Numbers and names always become JSON.
        true => print((serde_json::to_string(&report).unwrap_or_default() + "\n").as_bytes()),
        false => print(report.text(has_colour()).as_bytes()),
    };
    for missing in &equipped.missing {
        say(format!("not on {}: {}", missing.engine, missing.why));
    }
    let lacks = args.servers.strict && !equipped.missing.is_empty();
    interrupt.close(equipped).await;
    written?;
    if let Some(code) = interrupt.exit_code() {
        return Ok(code);
    }
    Ok(match (report.agrees(), lacks) {
        (false, _) => ExitCode::from(DISAGREES),
        (true, true) => crate::exit::UNAVAILABLE.into(),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// How many pairs have been run at each place.
#[derive(Default)]
struct Pairs(Mutex<HashMap<Place, usize>>);

impl Pairs {
    /// How many in all by now, and how many there are at one place.
    fn add(&self, progress: MatrixProgress) -> (usize, usize) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.insert(progress.place, progress.done);
        (pairs.values().sum(), progress.total)
    }
}
