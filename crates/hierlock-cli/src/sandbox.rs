//! `hierlock sandbox`: starts a throw-away server.

use crate::exit::{self, CommandError, CommandResult};
use crate::output::{print_message, write};
use crate::progress::spinner;
use crate::signals::{Signals, block_on};
use hierlock_sandbox::{Engine, Sandbox};

/// Start a throw-away database server
///
/// A real server in a temporary directory, on a loopback port, as an administrator without a
/// password. It ends with this command, and everything it wrote is removed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  hierlock sandbox postgres                # until Ctrl-C\n  \
                        URL=$(hierlock sandbox mysql --keep --print-url)\n\n\
                        Servers are installed with ./scripts/install-servers.")]
pub(crate) struct SandboxArgs {
    /// mysql, mariadb or postgres
    engine: Engine,
    /// Leave the server running when this command ends
    #[arg(long)]
    keep: bool,
    /// Print only the URL
    #[arg(long)]
    print_url: bool,
}

pub(crate) fn sandbox(args: &SandboxArgs) -> CommandResult {
    block_on(async {
        // Installed before the URL is printed, because a signal may follow at once.
        let mut signals = Signals::listen()?;
        let engine = args.engine;
        let spinner = spinner(format!("starting {engine}"));
        let start = tokio::task::spawn_blocking(move || Sandbox::start(engine));
        // After a signal, the server ends with this process.
        let started = signals.run_until_signal(start).await?.map_err(CommandError::unavailable)?;
        spinner.finish_and_clear();
        let sandbox = started.map_err(CommandError::unavailable)?;
        let text = if args.print_url { sandbox.url().to_owned() } else { description(&sandbox) };
        write(&format!("{text}\n")).map_err(CommandError::unavailable)?;
        if args.keep {
            print_message(format!("the server keeps running; end it with: {}", sandbox.keep()));
        } else {
            signals.next().await;
        }
        Ok(exit::SUCCESS)
    })
}

/// Returns the URL of a server, how to connect to it, and how to end it.
fn description(sandbox: &Sandbox) -> String {
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
