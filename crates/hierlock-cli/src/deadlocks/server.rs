//! Reads the last deadlock of a server.

use crate::exit::CommandError;
use hierlock::ServerUrl;
use hierlock_engine::introspection::{DeadlockDump, Introspection};
use hierlock_engine::{Dialect, ServerAddress, Session, cell, error_message, sqlx};
use std::time::Duration;

/// The time limit for each answer of the server.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What a server reports about deadlocks.
#[derive(Debug)]
pub(super) enum ServerAnswer {
    /// The last deadlock since the server was started, if there was one.
    Last(Option<Box<DeadlockDump>>),
    /// PostgreSQL only logs deadlocks: instructions for finding and reading its log.
    OnlyInLog(String),
}

/// Asks a server for its last deadlock.
pub(super) async fn ask(url: &ServerUrl) -> Result<ServerAnswer, CommandError> {
    let unreadable = || {
        CommandError::usage(format!(
            "`{url}` is not the URL of a server; write mysql://…, mariadb://… or postgres://…, or name a file or `-`"
        ))
    };
    let parsed = url.expose().parse().map_err(|_| unreadable())?;
    let address = ServerAddress::from_url(&parsed).map_err(|_| unreadable())?;
    let mut session =
        Session::connect_alone(&address, ANSWER_LIMIT).await.map_err(CommandError::unavailable)?;
    let answer = match session.dialect {
        Dialect::Postgres => log_of_postgres(&mut session).await.map(ServerAnswer::OnlyInLog),
        Dialect::Mysql | Dialect::Mariadb => {
            let last = Introspection::default().last_deadlock_dump(&mut session.as_ref()).await;
            last.map(|last| ServerAnswer::Last(last.map(Box::new)))
        }
    };
    session.mark_clean();
    session.close();
    answer.map_err(|error| {
        CommandError::unavailable(format!(
            "cannot ask {url} for its last deadlock: {}; on MySQL and MariaDB this needs the privilege PROCESS",
            error_message(&error)
        ))
    })
}

/// Settings that the account may not see are empty.
const LOG_SETTINGS: &str = "SELECT d.deadlocks, d.datname, current_setting('logging_collector'), \
    current_setting('log_destination'), \
    coalesce((SELECT setting FROM pg_settings WHERE name = 'log_directory'), ''), \
    coalesce((SELECT setting FROM pg_settings WHERE name = 'log_filename'), ''), \
    coalesce((SELECT setting FROM pg_settings WHERE name = 'data_directory'), '') \
    FROM pg_stat_database d WHERE d.datname = current_database()";

async fn log_of_postgres(session: &mut Session) -> Result<String, sqlx::Error> {
    let rows = session.as_ref().cells(LOG_SETTINGS).await?;
    let Some(row) = rows.first() else { return Ok(String::new()) };
    let [deadlocks, database, collector, destination, directory, name, data] =
        [0, 1, 2, 3, 4, 5, 6].map(|column| cell(row, column));
    let place = match (collector, directory.starts_with('/'), data.is_empty()) {
        ("on", true, _) => format!("The log is in {directory}/{name}."),
        ("on", false, false) => format!("The log is in {data}/{directory}/{name}."),
        ("on", false, true) => format!(
            "The log is in {directory}/{name} below the data directory, which this account may not see \
             (GRANT pg_read_all_settings)."
        ),
        _ => format!(
            "The server does not collect its log (logging_collector is off, log_destination is {destination}): it is where \
             the standard error of its process goes, such as journalctl, or /var/log/postgresql on Debian."
        ),
    };
    Ok(format!(
        "PostgreSQL keeps no deadlocks, it only writes them to its log.\n\
         Since its statistics were reset there were {deadlocks} in the database {database} (pg_stat_database).\n\
         {place}\n\
         On that machine run:  hierlock deadlocks - < LOGFILE\n"
    ))
}
