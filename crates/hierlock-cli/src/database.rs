//! The database of leases and queues: a URL, or by default a SQLite file of this user.

use crate::exit::{CommandError, CommandResult};
use crate::signals::{Signals, block_on};
use hierlock::ServerUrl;
use hierlock::database::Database;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::timeout;

/// The time limit for running statements to finish and for connections to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The same after a signal. The server may be unreachable, and detects closed connections itself.
const CLOSE_LIMIT_AFTER_SIGNAL: Duration = Duration::from_millis(100);

/// The environment variable is not `HIERLOCK_URL`, because locks may be in a file.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseArgs {
    /// The database: mysql://…, mariadb://…, postgres://… or sqlite:PATH; by default a file in your state
    /// directory
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_DATABASE_URL", hide_env_values = true, global = true)]
    url: Option<ServerUrl>,
}

/// The options of `lease provision` and `queue provision`.
#[derive(Debug, clap::Args)]
pub(crate) struct ProvisionTablesArgs {
    /// Change nothing; print the SQL that does the same
    #[arg(long)]
    pub(crate) print_sql: bool,
}

impl DatabaseArgs {
    async fn connect(&self) -> Result<Database, CommandError> {
        Ok(match &self.url {
            Some(url) if is_in_memory(url.expose()) => {
                return Err(CommandError::usage(format!(
                    "`{url}` cannot be used: a database in memory ends with this command; use sqlite:PATH"
                )));
            }
            Some(url) => Database::connect(url.expose()).await?,
            None => {
                let file = state_directory("the database", "--url")?.join("toolbox.db");
                Database::connect(&sqlite_url(&file)?).await?
            }
        })
    }

    /// Connects and runs `work`. After a signal, open transactions are rolled back before this returns.
    pub(crate) fn run(&self, work: impl AsyncFnOnce(Database) -> CommandResult) -> CommandResult {
        self.run_with_signals(async |database, signals| {
            let result = signals.run_until_signal(work(database.clone())).await;
            if result.is_err() {
                let _ = timeout(CLOSE_LIMIT, database.close()).await;
            }
            result?
        })
    }

    /// Connects and runs `work`, which handles signals itself.
    pub(crate) fn run_with_signals(
        &self,
        work: impl AsyncFnOnce(Database, &mut Signals) -> CommandResult,
    ) -> CommandResult {
        block_on(async {
            let mut signals = Signals::listen()?;
            let database = signals.run_until_signal(self.connect()).await??;
            let result = work(database.clone(), &mut signals).await;
            let limit = if signals.any_received { CLOSE_LIMIT_AFTER_SIGNAL } else { CLOSE_LIMIT };
            let _ = timeout(limit, database.close()).await;
            result
        })
    }

    /// Returns whether the database is SQLite, whose tables are created on first use.
    pub(crate) fn is_sqlite(&self) -> bool {
        self.url.as_ref().is_none_or(|url| url.expose().starts_with("sqlite:"))
    }
}

fn is_in_memory(url: &str) -> bool {
    url.strip_prefix("sqlite:").is_some_and(|file| {
        let file = file.trim_start_matches("//");
        file.is_empty() || file.starts_with(":memory:") || file.contains("mode=memory")
    })
}

/// Returns the directory `hierlock` in the state directory; creates it, with access for this user only. If there is no
/// state directory, the failure names the purpose (`what`) and the option that takes another path.
pub(crate) fn state_directory(what: &str, option: &str) -> Result<PathBuf, CommandError> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    let no_directory = || {
        format!("no directory for {what}: set XDG_STATE_HOME or HOME, or name one with {option}")
    };
    let directory = state.ok_or_else(|| CommandError::usage(no_directory()))?.join("hierlock");
    let created = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    created.map_err(CommandError::cannot(format!("make `{}`", directory.display())))?;
    Ok(directory)
}

fn sqlite_url(file: &Path) -> Result<String, CommandError> {
    let path = file.to_str().ok_or_else(|| {
        let file = file.display();
        CommandError::usage(format!("`{file}` is not UTF-8; name the database with --url"))
    })?;
    // These two characters have a meaning in a URL.
    Ok(format!("sqlite:{}", path.replace('%', "%25").replace('?', "%3F")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_in_memory_is_recognised() {
        for url in ["sqlite:", "sqlite::memory:", "sqlite://:memory:", "sqlite:x?mode=memory"] {
            assert!(is_in_memory(url), "{url}");
        }
        for url in ["sqlite:memory", "sqlite:///tmp/x.db", "postgres://h/mode=memory"] {
            assert!(!is_in_memory(url), "{url}");
        }
    }

    #[test]
    fn special_characters_of_a_path_are_escaped_in_the_url() {
        let url = sqlite_url(Path::new("/home/50%/why?/toolbox.db")).unwrap();
        assert_eq!(url, "sqlite:/home/50%25/why%3F/toolbox.db");
    }
}
