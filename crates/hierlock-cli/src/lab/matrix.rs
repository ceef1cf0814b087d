//! `hierlock lab matrix`.

use super::args::MatrixArgs;
use super::exit_code;
use super::interrupt::Interrupt;
use super::run::{print_missing, progress_bar, update_progress};
use super::servers::LabServers;
use crate::exit::{CommandError, CommandResult};
use crate::output::{has_colour, json_line, print, write_file};
use hierlock_lab::{BackendKind, Engine, MatrixOptions, MatrixReport, ModePair};

pub(super) async fn matrix(args: &MatrixArgs, interrupt: Interrupt) -> CommandResult {
    let engines = match args.runner.engines.as_slice() {
        [] => Engine::ALL.to_vec(),
        some => some.to_vec(),
    };
    let connect = LabServers::connect(&args.runner.urls, engines.iter().copied());
    let servers = interrupt.run_until_signal(connect).await??;
    let available = engines.into_iter().filter(|engine| servers.lab.has(*engine));
    let options = MatrixOptions {
        tree: args.size,
        backends: BackendKind::all(available),
        modes: if args.modes { ModePair::all() } else { vec![ModePair::EXCLUSIVE] },
        jobs: args.runner.jobs.into(),
        buckets: args.buckets,
    };
    let mut report = MatrixReport::new(&options).map_err(CommandError::usage)?;
    let bar = progress_bar(args.json);
    let run = servers.lab.matrix(&options, &mut report, |event| update_progress(&bar, event));
    // After a signal, the report has the backends that have finished.
    _ = interrupt.run_until_signal(run).await;
    bar.finish_and_clear();
    let written = write_file(args.svg.as_deref(), || report.svg());
    let printed = print(if args.json { json_line(&report) } else { report.text(has_colour()) });
    print_missing(&servers.missing);
    let is_complete = !args.runner.strict || servers.missing.is_empty();
    servers.close(&interrupt).await;
    written.and(printed)?;
    Ok(interrupt.exit_code().unwrap_or_else(|| exit_code(report.agrees(), is_complete)))
}
