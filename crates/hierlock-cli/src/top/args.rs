//! The command line of `hierlock top`.

use crate::exit::CommandError;
use crate::locks::{LockBackend, LockSource};
use hierlock::{ServerUrl, parse_duration};
use std::path::PathBuf;
use std::time::Duration;

/// The minimum time between two snapshots. MariaDB answers from a cache, which is renewed only if it was not queried for
/// 100 ms.
pub(crate) const MIN_INTERVAL: Duration = Duration::from_millis(200);

/// Watch who holds and who waits, in a terminal
///
/// Shows the sessions of `hierlock locks` as they change, with the longest waits, how many begin and end, deadlocks, and the
/// slots that are waited for most. Keys sort, filter, explain a session and end it; ? lists them. It reads only, unless
/// a session is ended. If the server cannot be reached it keeps the last picture and tries again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) backend: BackendArgs,
    /// The time between two snapshots; at least 200ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(super) interval: Duration,
    /// Take two snapshots, print the result as text, and end
    #[arg(long)]
    pub(super) once: bool,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    pub(super) json: bool,
    /// Where to log which sessions were ended [default: hierlock/kills.log in your state directory]
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  hierlock top --url mysql://…
  hierlock top --once --interval 5s                 # for a pipe or a mail
  hierlock top --once --json | jq .figures";

/// The server or the lock file to watch.
#[derive(Debug, clap::Args)]
pub(crate) struct BackendArgs {
    /// Where the locks are: file:PATH, mysql://…, mariadb://… or postgres://…; by default the lock file of `hierlock run`
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    url: Option<ServerUrl>,
}

impl BackendArgs {
    pub(super) fn backend(&self) -> Result<LockBackend, CommandError> {
        LockBackend::of(self.url.as_ref())
    }

    /// Returns the source of the snapshots. It connects at the first snapshot.
    pub(crate) fn source(&self) -> Result<LockSource, CommandError> {
        Ok(LockSource::new(self.backend()?))
    }
}

/// Parses the time between two snapshots.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text).map_err(|error| error.to_string())?;
    if interval < MIN_INTERVAL {
        return Err(format!(
            "`{text}` is too short: the time between two snapshots is at least {} ms",
            MIN_INTERVAL.as_millis()
        ));
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_below_the_minimum_is_refused() {
        assert_eq!(interval("200ms"), Ok(MIN_INTERVAL));
        assert!(interval("199ms").is_err_and(|error| error.contains("200 ms")));
        assert!(interval("often").is_err());
    }
}
