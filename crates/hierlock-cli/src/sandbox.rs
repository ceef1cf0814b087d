//! `hierlock sandbox`: a throw-away server for a person.

use crate::args;
use crate::exit;
use crate::show::say;
use crate::signals::Signals;
use hierlock_sandbox::{Engine, Sandbox};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// A start takes some seconds; that is told as it goes on.
const TICK: Duration = Duration::from_secs(1);

pub(crate) fn sandbox(args: &args::Sandbox) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ran = runtime.and_then(|runtime| runtime.block_on(run(args)));
    match ran {
        Ok(code) => code,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    say(error);
    exit::UNAVAILABLE.into()
}

async fn run(args: &args::Sandbox) -> io::Result<ExitCode> {
    // From the start: whoever sees the URL may already want it to end.
    let mut signals = Signals::listen()?;
    let sandbox = tokio::select! {
        started = start(args.engine) => match started? {
            Ok(sandbox) => sandbox,
            Err(error) => return Ok(failed(&error)),
        },
        // What was begun ends with this process.
        signal = signals.next() => return Ok(ExitCode::from(exit::of_signal(signal))),
    };
    let shown = if args.print_url { sandbox.url().to_owned() } else { welcome(&sandbox) };
    // Whoever reads the URL from a pipe waits for it.
    writeln!(io::stdout(), "{shown}").and_then(|()| io::stdout().flush())?;
    if args.keep {
        say(format!("it runs on; end it with: {}", sandbox.keep()));
    } else {
        signals.next().await;
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts it, and lets a person see that something happens.
async fn start(engine: Engine) -> io::Result<hierlock_sandbox::Result<Sandbox>> {
    let mut starting = tokio::task::spawn_blocking(move || Sandbox::start(engine));
    let mut told = false;
    loop {
        tokio::select! {
            started = &mut starting => {
                if told {
                    eprintln!();
                }
                return started.map_err(io::Error::other);
            }
            () = tokio::time::sleep(TICK) => {
                eprint!("{}", if told { "." } else { "hierlock: starting …" });
                told = true;
            }
        }
    }
}

fn welcome(sandbox: &Sandbox) -> String {
    let (url, directory) = (sandbox.url(), sandbox.directory().display());
    let client = match sandbox.engine() {
        Engine::Postgres => format!("psql {url}"),
        Engine::Mysql | Engine::Mariadb => {
            format!("mysql --no-defaults -u root -S {directory}/socket hierlock")
        }
    };
    format!(
        "{url}\n\nconnect:  {client}\nfiles:    {directory}\nend:      Ctrl-C (everything is removed)"
    )
}
