//! Kills, stops and disconnects processes at random while they use hierlock, and checks what they recorded.
//! `scripts/soak` builds and runs it; the code is in `hierlock_bench::soak`.

use hierlock_bench::soak::schedule::{self, Progress};
use hierlock_bench::soak::setup::Setup;
use hierlock_bench::soak::setup_run::Outcome;
use hierlock_bench::soak::{Options, Result, USAGE, clock, report, worker};
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.split_first() {
        Some((first, rest)) if first == "--worker" => worker::work(rest),
        Some((first, rest)) if first == "--visit" => worker::visit(rest),
        _ => return run(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("soak worker: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The options of a run.
struct Args {
    seconds: u64,
    seed: u64,
    setups: Vec<Setup>,
    broken: bool,
    keep: Option<PathBuf>,
}

/// The command line: a run, or a text to print.
enum Command {
    Run(Args),
    Print(String),
}

fn parse_args(words: &[String]) -> std::result::Result<Command, String> {
    let mut args =
        Args { seconds: 600, seed: clock::now(), setups: Vec::new(), broken: false, keep: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--help" | "-h" => return Ok(Command::Print(USAGE.to_owned())),
            "--list" => {
                let names: Vec<String> = Setup::all().iter().map(Setup::to_string).collect();
                return Ok(Command::Print(names.join("\n")));
            }
            "--seed" => args.seed = value()?.parse().map_err(|_| "--seed is a number")?,
            "--backend" => {
                let name = value()?;
                let named: Vec<Setup> =
                    Setup::all().into_iter().filter(|setup| setup.matches_name(name)).collect();
                if named.is_empty() {
                    return Err(format!("there is no backend `{name}`; --list prints them"));
                }
                args.setups.extend(named);
            }
            "--break" => args.broken = true,
            "--keep" => args.keep = Some(value()?.into()),
            word => match word.parse() {
                Ok(seconds @ 1..) => args.seconds = seconds,
                _ => return Err(format!("`{word}` is no number of seconds and no option")),
            },
        }
    }
    if args.setups.is_empty() {
        args.setups = Setup::all();
    }
    Ok(Command::Run(args))
}

fn run(words: &[String]) -> ExitCode {
    let args = match parse_args(words) {
        Ok(Command::Run(args)) => args,
        Ok(Command::Print(text)) => {
            println!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("soak: {error}\n\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(soak(args)),
        Err(error) => Err(error.into()),
    };
    result.unwrap_or_else(|error| {
        eprintln!("soak: {error}");
        ExitCode::from(69)
    })
}

async fn soak(args: Args) -> Result<ExitCode> {
    let temporary = tempfile::Builder::new().prefix("hierlock-soak-").tempdir()?;
    let directory = args.keep.clone().unwrap_or_else(|| temporary.path().to_owned());
    let hierlock = std::env::current_exe()?.with_file_name("hierlock");
    if !hierlock.is_file() {
        return Err(format!("{} does not exist; scripts/soak builds it", hierlock.display()).into());
    }
    let (interrupt, interrupted) = watch::channel(false);
    tokio::spawn(wait_for_signal(interrupt)?);
    println!("seed {}, {} setups, {} seconds", args.seed, args.setups.len(), args.seconds);
    let (seed, broken) = (args.seed, args.broken);
    let is_interrupted = interrupted.clone();
    let options = Arc::new(Options { seed, broken, directory, hierlock, interrupted });
    let outcomes = Arc::new(Mutex::new(Vec::<Outcome>::new()));
    let report_outcome = {
        let outcomes = outcomes.clone();
        move |outcome: Outcome| {
            clear_line();
            println!("{}", report::setup_line(&outcome));
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        }
    };
    let progress = Arc::new(Progress::default());
    let progress_task = tokio::spawn(show_progress(progress.clone()));
    let length = Duration::from_secs(args.seconds);
    let result = schedule::run(&args.setups, &options, length, &progress, report_outcome).await;
    progress_task.abort();
    clear_line();
    let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
    let names: Vec<String> = Setup::all().iter().map(Setup::to_string).collect();
    outcomes.sort_by_key(|outcome| names.iter().position(|name| *name == outcome.name));
    print!("\n{}", report::report(&outcomes));
    result?;
    let violations: usize = outcomes.iter().map(|outcome| outcome.violations.len()).sum();
    let (verdict, code) = match (violations, *is_interrupted.borrow()) {
        (0, false) => ("nothing was violated".to_owned(), 0),
        (0, true) => ("interrupted; nothing was violated so far".to_owned(), 130),
        (count, _) => (format!("{count} VIOLATIONS"), 1),
    };
    println!("\nverdict: {verdict} (seed {seed})");
    Ok(ExitCode::from(code))
}

/// Sends true at the first SIGINT or SIGTERM.
fn wait_for_signal(interrupt: watch::Sender<bool>) -> Result<impl Future<Output = ()>> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut terminations = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupts.recv() => {}
            _ = terminations.recv() => {}
        }
        eprintln!("\nsoak: ending all processes");
        interrupt.send_replace(true);
        // Keeps the channel open for receivers that read the value later.
        interrupt.closed().await;
    })
}

/// Shows the running setups: a line that is updated on a terminal, otherwise a new line every 15 seconds.
async fn show_progress(progress: Arc<Progress>) {
    let (started, is_terminal) = (Instant::now(), std::io::stdout().is_terminal());
    let interval = Duration::from_secs(if is_terminal { 1 } else { 15 });
    loop {
        tokio::time::sleep(interval).await;
        let line = format!("{:>4} s  {}", started.elapsed().as_secs(), progress.names().join(", "));
        if is_terminal {
            print!("\r\x1b[K{line}");
            let _ = std::io::stdout().flush();
        } else {
            println!("{line}");
        }
    }
}

fn clear_line() {
    if std::io::stdout().is_terminal() {
        print!("\r\x1b[K");
    }
}
