//! `hierlock lab run --bless`: what was observed goes into the files. A file is written only when its new text
//! has been run, and every verdict agreed.

use super::interrupt::Interrupt;
use super::run::{Ran, write};
use super::{args, select};
use crate::exit::Stop;
use crate::show::say;
use hierlock_lab::{Record, RunOptions, Scenario, Verdict};
use std::path::Path;
use std::sync::Arc;

/// RunOptions often a file is blessed and run again. What a step does may depend on what the file said of one
/// before it (a wait that is to time out is waited for), so once is not always enough.
const MAX_PASSES: usize = 4;

/// Blesses the files of these scenarios, and says what became of each that differed.
pub(super) async fn write_back(
    scenarios: &[Arc<Scenario>],
    ran: &Ran,
    servers: &args::Servers,
    how: RunOptions,
    interrupt: &Interrupt,
) -> Result<(), Stop> {
    if ran.report.interruption.is_some() {
        say("interrupted, so no file was changed");
        return Ok(());
    }
    for scenario in scenarios {
        let is_own = |record: &&Record| record.file == scenario.file;
        let own: Vec<Record> = ran.report.records.iter().filter(is_own).cloned().collect();
        if own.iter().all(Record::agrees) {
            continue;
        }
        let file = Path::new(&scenario.file);
        if !file.exists() {
            return Err(Stop::usage(format!("{} is built in; bless a copy of it", scenario.name)));
        }
        match interrupt.or(blessed(scenario, own, ran, servers, how)).await {
            Ok(Ok(text)) => {
                write(file, &text)?;
                say(format!("{} now says what was observed", scenario.file));
            }
            Ok(Err(why)) => say(format!("{} is not changed: {why}", scenario.file)),
            Err(_) => say(format!("interrupted, so {} is not changed", scenario.file)),
        }
    }
    Ok(())
}

/// The text of a file with which every verdict agrees; or why there is none.
async fn blessed(
    scenario: &Arc<Scenario>,
    mut records: Vec<Record>,
    ran: &Ran,
    servers: &args::Servers,
    how: RunOptions,
) -> Result<String, String> {
    let mut scenario = scenario.clone();
    for _ in 0..MAX_PASSES {
        if let Some((record, why)) = records.iter().find_map(|record| match &record.verdict {
            Verdict::Failed { why } => Some((record, why)),
            _ => None,
        }) {
            return Err(format!(
                "it cannot be run to its end, so what to expect of it is not known ({}: {why})",
                record.place
            ));
        }
        let text = scenario.bless(&records);
        let mistaken = |mistakes: &[_]| {
            format!("what was observed cannot be written there:\n{}", super::told(mistakes))
        };
        let parsed = Scenario::parse(&scenario.name, &scenario.file, &text);
        scenario = Arc::new(parsed.map_err(|mistakes| mistaken(&mistakes))?);
        let cases = select::cases(std::slice::from_ref(&scenario), &servers.engines);
        let cases = cases.map_err(|_| "it has no cases any more".to_owned())?;
        records = ran.equipped.lab.run(&cases, RunOptions { rounds: 1, ..how }, |_| ()).await;
        if records.iter().all(Record::agrees) {
            return Ok(text);
        }
    }
    let difference = records.iter().find_map(|record| match &record.verdict {
        Verdict::Disagrees { step, why } => {
            let line = record.steps.get(*step).map_or(0, |step| step.line);
            Some(format!("line {line} on {}: {why}", record.place))
        }
        _ => None,
    });
    Err(format!(
        "it does not go the same way each time, so nothing can be promised of it ({})",
        difference.unwrap_or_default()
    ))
}
