//! `hierlock lab run --bless`: writes the observed results into the scenario files. A file is written only after its new
//! text was run and every verdict agreed.

use super::run::LabRun;
use super::{invalid, select};
use crate::exit::CommandError;
use crate::output::{print_message, write_file};
use hierlock_lab::{Record, Report, RunOptions, Scenario, Verdict};
use std::path::Path;
use std::sync::Arc;

/// The number of times that a file is blessed and run again. The outcome of a step may depend on the expectation of an
/// earlier step (the runner waits for an expected timeout), so one pass may not be enough.
const MAX_PASSES: usize = 4;

/// Blesses the files of a run. Prints which files were changed, and why other files that disagree were not.
pub(super) async fn bless_files(run: &LabRun<'_>) -> Result<(), CommandError> {
    if run.report.interruption.is_some() {
        print_message("interrupted, so no file was changed");
        return Ok(());
    }
    for scenario in run.scenarios {
        let records = run.report.records.iter().filter(|record| record.file == scenario.file);
        let records: Vec<Record> = records.cloned().collect();
        if records.iter().all(Record::agrees) {
            continue;
        }
        let file = Path::new(&scenario.file);
        if !file.exists() {
            let name = &scenario.name;
            return Err(CommandError::usage(format!("{name} is built in; bless a copy of it")));
        }
        let file_name = file.display();
        let bless = blessed_text(run, scenario, records);
        match run.interrupt.run_until_signal(bless).await {
            Ok(Ok(text)) => {
                write_file(Some(file), || text)?;
                print_message(format!("{file_name} now expects what was observed"));
            }
            Ok(Err(why)) => print_message(format!("{file_name} is not changed: {why}")),
            Err(_) => print_message(format!("interrupted, so {file_name} is not changed")),
        }
    }
    Ok(())
}

/// Returns a text of the file with which every verdict agrees; or the reason why there is none.
async fn blessed_text(
    run: &LabRun<'_>,
    scenario: &Arc<Scenario>,
    mut records: Vec<Record>,
) -> Result<String, String> {
    let mut scenario = scenario.clone();
    for _ in 0..MAX_PASSES {
        for record in &records {
            if let Verdict::Failed { why } = &record.verdict {
                return Err(format!(
                    "it cannot be run to its end, so its results are not known ({}: {why})",
                    record.backend
                ));
            }
        }
        let text = scenario.bless(&records);
        let parsed = Scenario::parse(&scenario.name, &scenario.file, &text);
        scenario = parsed.map_err(|diagnostics| {
            let diagnostics = invalid(diagnostics).message;
            format!("the observed results cannot be written as a scenario:\n{diagnostics}")
        })?;
        let cases = select::cases(std::slice::from_ref(&scenario), &run.args.engines);
        let cases = cases.map_err(|_| "it has no cases any more".to_owned())?;
        let once = RunOptions { rounds: 1, ..run.options };
        let mut report = Report::default();
        run.servers.lab.run(&cases, once, &mut report, |_| ()).await;
        records = report.records;
        if records.iter().all(Record::agrees) {
            return Ok(text);
        }
    }
    let difference = records.iter().find_map(|record| match &record.verdict {
        Verdict::Disagrees { step, why } => {
            let line = record.steps.get(*step).map_or(0, |step| step.line);
            Some(format!("line {line} on {}: {why}", record.backend))
        }
        _ => None,
    });
    Err(format!("its results vary from run to run ({})", difference.unwrap_or_default()))
}
