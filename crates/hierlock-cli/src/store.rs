//! Where leases and queues are: a database that was named, or a file of SQLite of this user.

use crate::exit::{self, Stop};
use crate::runtime::on_one_thread;
use crate::signals::Signals;
use hierlock::ServerUrl;
use hierlock::database::Database;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;

/// How long it may take to finish what is under way, and to end connections.
const GRACE: Duration = Duration::from_secs(5);

/// How long it may take after a signal to end connections, which is only polite: the server may be away.
const POLITENESS: Duration = Duration::from_millis(100);

/// Which database. Not `HIERLOCK_URL`: that is a place of locks, which may be no database.
#[derive(Debug, clap::Args)]
pub(crate) struct Store {
    /// The database: mysql://…, mariadb://…, postgres://… or sqlite:PATH; by default a file in your state
    /// directory
    // It may hold a password.
    #[arg(long, env = "HIERLOCK_DATABASE_URL", hide_env_values = true, global = true)]
    url: Option<ServerUrl>,
}

/// How tables are made there.
#[derive(Debug, clap::Args)]
pub(crate) struct Provision {
    /// Change nothing; print the SQL that does the same
    #[arg(long)]
    pub(crate) print_sql: bool,
}

impl Store {
    async fn connect(&self) -> Result<Database, Stop> {
        let url = match &self.url {
            Some(url) if is_in_memory(url.expose()) => {
                return Err(Stop::usage(format!(
                    "`{url}` is of no use here: it ends with this command; use sqlite:PATH"
                )));
            }
            Some(url) => url.clone(),
            None => url_of(&default_file()?)?.into(),
        };
        Ok(Database::connect(url.expose()).await?)
    }

    /// Connects and does the work, unless a signal comes first: then what is under way is undone before
    /// this returns.
    pub(crate) fn run(
        &self,
        work: impl AsyncFnOnce(Database) -> Result<ExitCode, Stop>,
    ) -> ExitCode {
        self.run_with(async |database, signals| {
            let signal = tokio::select! {
                ended = work(database.clone()) => return ended,
                signal = signals.next() => signal,
            };
            let _ = timeout(GRACE, database.close()).await;
            Ok(ExitCode::from(exit::of_signal(signal)))
        })
    }

    /// The same for work that listens to signals itself.
    pub(crate) fn run_with(
        &self,
        work: impl AsyncFnOnce(Database, &mut Signals) -> Result<ExitCode, Stop>,
    ) -> ExitCode {
        let ran = async {
            let mut signals = Signals::listen().map_err(Stop::unavailable)?;
            let database = tokio::select! {
                database = self.connect() => database?,
                signal = signals.next() => return Ok(ExitCode::from(exit::of_signal(signal))),
            };
            let ended = work(database.clone(), &mut signals).await;
            // Who does not want to end keeps nobody here.
            let limit = if signals.came() { POLITENESS } else { GRACE };
            let _ = timeout(limit, database.close()).await;
            ended
        };
        on_one_thread(async { ran.await.unwrap_or_else(Stop::end) })
    }

    /// Is it a file of SQLite, whose tables are made when they are first used?
    pub(crate) fn is_file(&self) -> bool {
        self.url.as_ref().is_none_or(|url| is_sqlite(url.expose()))
    }
}

fn is_sqlite(url: &str) -> bool {
    url.starts_with("sqlite:")
}

fn is_in_memory(url: &str) -> bool {
    let place = url.trim_start_matches("sqlite:").trim_start_matches("//");
    is_sqlite(url)
        && (place.is_empty() || place.starts_with(":memory:") || place.contains("mode=memory"))
}

/// `hierlock/toolbox.db` in the state directory, which is made for this user alone.
fn default_file() -> Result<PathBuf, Stop> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let directory = variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .ok_or_else(|| {
            Stop::usage(
                "no place for the database: set XDG_STATE_HOME or HOME, or name one with --url",
            )
        })?
        .join("hierlock");
    DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(|error| {
        Stop::unavailable(format!("cannot make `{}`: {error}", directory.display()))
    })?;
    Ok(directory.join("toolbox.db"))
}

fn url_of(file: &Path) -> Result<String, Stop> {
    let path = file.to_str().ok_or_else(|| {
        let shown = file.display();
        Stop::usage(format!("`{shown}` is not UTF-8; name the database with --url"))
    })?;
    // These two mean something in a URL.
    Ok(format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_ends_with_the_command_is_recognised() {
        for url in ["sqlite:", "sqlite::memory:", "sqlite://:memory:", "sqlite:x?mode=memory"] {
            assert!(is_in_memory(url), "{url}");
        }
        for url in ["sqlite:memory", "sqlite:///tmp/x.db", "postgres://h/mode=memory"] {
            assert!(!is_in_memory(url), "{url}");
        }
    }

    #[test]
    fn a_path_stays_itself_in_a_url() {
        let url = url_of(Path::new("/home/50%/why?/toolbox.db"));
        assert_eq!(url.ok().as_deref(), Some("sqlite:/home/50%25/why%3F/toolbox.db"));
    }
}
