//! `hierlock doctor`: checks a server or a lock file.

mod output;

use crate::args::{TreeArgs, lock_url};
use crate::exit::{self, CommandResult};
use crate::output::{has_colour, print};
use crate::signals::block_on;
use hierlock::checks::Severity;
use hierlock::{Diagnosis, ServerUrl};

/// Check whether locks work on a server or a file, and what may go wrong there
///
/// Connects as a client would, reads the settings of the server and the agreement of its clients, and lets two sessions take
/// locks on a spare slot, to show that they wait for each other. Changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Where the locks are: file:PATH, mysql://…, mariadb://… or postgres://…, as for clients [default: the lock file of
    /// `hierlock run`]
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    url: Option<ServerUrl>,
    #[command(flatten)]
    tree: TreeArgs,
    /// How many clients there will be, each with the connections of the URL
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Fail also if there are only warnings
    #[arg(long)]
    strict: bool,
    /// Print why each check matters, also where nothing is wrong
    #[arg(short, long)]
    verbose: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hierlock doctor --url mysql://app@db/app
  hierlock doctor --url postgres://app@db/app --clients 40           # do the connections suffice?
  hierlock doctor --url 'mysql://…?connections=20' --strict          # exit code 65 also for warnings
  hierlock doctor --url mysql://… --json | jq '.findings[] | select(.severity == \"problem\")'
  hierlock doctor                                                    # the lock file of this user";

pub(crate) fn doctor(args: &DoctorArgs) -> CommandResult {
    block_on(args.run())
}

impl DoctorArgs {
    async fn run(&self) -> CommandResult {
        let url = lock_url(self.url.as_ref())?;
        let diagnosis = Diagnosis::of(url.expose(), self.tree.levels.clone(), self.clients).await?;
        print(if self.json {
            output::json_text(&url, &diagnosis)
        } else {
            output::text(&url, &diagnosis, self.verbose, has_colour())
        })?;
        let worst_allowed = if self.strict { Severity::Skipped } else { Severity::Warning };
        let is_allowed = diagnosis.severity() <= worst_allowed;
        Ok(if is_allowed { exit::SUCCESS } else { exit::INCOMPLETE })
    }
}
