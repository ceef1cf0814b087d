//! The report of a run, as text.

use super::driver_log::Counts;
use super::history::Reason;
use super::setup_run::Outcome;
use std::fmt::Write as _;

/// At most this many violations of a setup are printed.
const MAX_PRINTED_VIOLATIONS: usize = 10;

const COLUMNS: [&str; 15] = [
    "setup",
    "seconds",
    "processes",
    "killed",
    "stopped",
    "cut",
    "restarts",
    "visits",
    "killed in one",
    "lost",
    "tokens",
    "dropped",
    "jobs",
    "run again",
    "violations",
];

/// Returns the line of a finished setup.
pub fn setup_line(outcome: &Outcome) -> String {
    let verdict = match outcome.violations.len() {
        0 => "nothing violated".to_owned(),
        count => format!("{count} VIOLATIONS"),
    };
    let done = match outcome.jobs.added {
        0 => format!("{} visits", outcome.findings.visits),
        added => format!("{added} jobs"),
    };
    let (counts, name) = (&outcome.counts, &outcome.name);
    format!(
        "{name}: {done}, {} killed, {} stopped, {} cut, {} restarts: {verdict}",
        counts.kills,
        counts.stops,
        counts.cuts(),
        counts.restarts + counts.crashes
    )
}

fn cells(name: &str, seconds: f64, outcome: &Outcome) -> Vec<String> {
    let Outcome { counts, findings, jobs, violations, .. } = outcome;
    let dropped = findings.not_granted.get(&Reason::Dropped).copied().unwrap_or(0);
    let numbers = [
        counts.processes,
        counts.kills,
        counts.stops,
        counts.cuts(),
        counts.restarts + counts.crashes,
        findings.visits,
        findings.killed_while_holding,
        findings.lost,
        findings.tokens,
        dropped,
        jobs.added,
        jobs.run_again,
        violations.len() as u64,
    ];
    let numbers = numbers.iter().map(u64::to_string);
    [name.to_owned(), format!("{seconds:.0}")].into_iter().chain(numbers).collect()
}

/// Returns the whole report.
pub fn report(outcomes: &[Outcome]) -> String {
    let mut all = Outcome::default();
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    for outcome in outcomes {
        rows.push(cells(&outcome.name, outcome.duration.as_secs_f64(), outcome));
        add(&mut all, outcome);
    }
    rows.push(cells("all", all.duration.as_secs_f64(), &all));
    let mut text = table(&rows);
    details(&mut text, &all);
    for outcome in outcomes.iter().filter(|outcome| !outcome.violations.is_empty()) {
        let _ = writeln!(text, "\n{}: {} violations", outcome.name, outcome.violations.len());
        for violation in outcome.violations.iter().take(MAX_PRINTED_VIOLATIONS) {
            let _ = writeln!(text, "  {violation}");
        }
        if outcome.violations.len() > MAX_PRINTED_VIOLATIONS {
            let _ =
                writeln!(text, "  and {} more", outcome.violations.len() - MAX_PRINTED_VIOLATIONS);
        }
    }
    text
}

fn add(all: &mut Outcome, one: &Outcome) {
    all.duration += one.duration;
    all.counts.add(&one.counts);
    all.jobs.added += one.jobs.added;
    all.jobs.done += one.jobs.done;
    all.jobs.run_again += one.jobs.run_again;
    all.violations.extend(one.violations.iter().cloned());
    let (all, one) = (&mut all.findings, &one.findings);
    all.visits += one.visits;
    all.killed_while_holding += one.killed_while_holding;
    all.lost += one.lost;
    all.lost_without_fault += one.lost_without_fault;
    all.tokens += one.tokens;
    all.writes += one.writes;
    all.freed_after = all.freed_after.max(one.freed_after);
    for (reason, count) in &one.not_granted {
        *all.not_granted.entry(*reason).or_default() += count;
    }
}

fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut text = String::new();
    for row in rows {
        let _ = write!(text, "{:<1$}", row[0], width(0));
        for (column, cell) in row.iter().enumerate().skip(1) {
            let _ = write!(text, "  {cell:>0$}", width(column));
        }
        text.push('\n');
    }
    text
}

fn details(text: &mut String, all: &Outcome) {
    let Counts { resets, stalls, lost_responses, splits, restarts, crashes, exits, .. } =
        &all.counts;
    let findings = &all.findings;
    let exits: Vec<String> = exits.iter().map(|(code, n)| format!("{code}: {n}")).collect();
    let reasons: Vec<String> =
        findings.not_granted.iter().map(|(reason, n)| format!("{n} {}", reason.name())).collect();
    let _ = write!(
        text,
        "\ncuts: {resets} resets, {stalls} stalls, {lost_responses} with responses lost, {splits} with bytes split; \
         servers: {restarts} restarted, {crashes} killed\n\
         not granted: {}\n\
         exit codes of hierlock run: {}\n\
         lost without a cut, stop or restart: {}; writes checked under a lease: {}; jobs done: {}\n\
         longest wait for a lock that a killed process had held: {:.1?}\n",
        reasons.join(", "),
        exits.join(", "),
        findings.lost_without_fault,
        findings.writes,
        all.jobs.done,
        findings.freed_after,
    );
}
