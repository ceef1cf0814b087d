//! `hierlock lease`: edit locks that outlive a transaction.
//!
//! ```text
//!   connect ──► (SQLite: create the tables) ──► one call ──► a sentence, a table or JSON
//!                                                  │ another owner has it: the holder, 75
//!                                                  │ lost: the reason, 76
//! ```

mod args;
mod output;

pub(crate) use args::LeaseArgs;

use crate::args::with;
use crate::exit::{self, CommandError, CommandResult};
use crate::output::{counted, json_line, print, write};
use crate::time::{duration_text, relative_time};
use args::{AcquireArgs, LeaseCommand, ListLeasesArgs, ReleaseArgs};
use hierlock::Error;
use hierlock::database::Database;
use hierlock::lease::{Lease, LeaseFilter, LeaseInfo, LeaseRequest, Leases, utc};
use output::{LeaseResultJson, lease_json, lost_json};
use serde_json::json;

pub(crate) fn lease(args: &LeaseArgs) -> CommandResult {
    args.database.run(async |database| {
        let leases = Leases::new(database.clone());
        if args.database.is_sqlite() && !matches!(args.command, LeaseCommand::Provision(_)) {
            leases.provision().await?;
        }
        print(match &args.command {
            LeaseCommand::Acquire(args) => return acquire(&leases, &database, args).await,
            LeaseCommand::Renew { token, json } => return renew(&leases, *token, *json).await,
            LeaseCommand::Provision(args) if args.print_sql => leases.script(),
            LeaseCommand::Provision(_) => {
                leases.provision().await?;
                "ready\n".to_owned()
            }
            LeaseCommand::Release(args) => release(&leases, args).await?,
            LeaseCommand::List(args) => list(&leases, &database, args).await?,
            LeaseCommand::ForceRelease { token, actor, reason } => {
                match leases.force_release(*token, actor, reason).await? {
                    Some(LeaseInfo { token, target, owner, .. }) => {
                        format!("took away lease {token} of `{target}` from {owner}\n")
                    }
                    None => {
                        let message = format!("there is no lease {token}, or no longer");
                        return Err(CommandError::new(exit::LOST, message));
                    }
                }
            }
            LeaseCommand::Audit(args) => {
                output::forced_releases(&leases.audit(args.limit).await?, args.json)
            }
            LeaseCommand::Sweep => {
                format!("{} deleted\n", counted(leases.sweep().await?, "expired lease"))
            }
        })
    })
}

async fn acquire(leases: &Leases, database: &Database, args: &AcquireArgs) -> CommandResult {
    let request = LeaseRequest::new(args.target.clone(), &args.owner).ttl(args.ttl);
    let request = with(request, args.session.as_ref(), LeaseRequest::session);
    let request = with(request, args.reason.as_ref(), LeaseRequest::reason);
    let request = with(request, args.wait, LeaseRequest::wait_up_to);
    let leases = leases.clone().with_hierarchy(args.tree.levels.clone());
    let lease = match leases.acquire(request).await {
        Ok(lease) => lease,
        Err(error) => return not_acquired(database, args, error).await,
    };
    let text = match (args.json, args.print_token) {
        (true, _) => json_line(&LeaseResultJson::new("acquired", lease.info())),
        (_, true) => format!("{}\n", lease.token()),
        _ => format!("acquired {}\n", sentence(&lease)),
    };
    if let Err(error) = write(&text) {
        // The caller does not know the token, so it could not release the lease.
        lease.release().await?;
        return Err(CommandError::unavailable(format!(
            "cannot write to standard output: {error}; the lease was given back"
        )));
    }
    Ok(exit::SUCCESS)
}

async fn not_acquired(database: &Database, args: &AcquireArgs, error: Error) -> CommandResult {
    let Some(holder) = error.lease_holder() else { return Err(error.into()) };
    if args.json {
        let (wanted, holder) = (args.target.to_string(), lease_json(holder));
        print(json_line(&json!({ "result": "held", "wanted": wanted, "holder": holder })))?;
        return Ok(exit::NOT_ACQUIRED);
    }
    if holder.is_expired {
        // The lease has expired and cannot be renewed; its row is locked by a transaction.
        return Err(error.into());
    }
    let ends = relative_time(holder.expires, database.now().await?);
    let CommandError { code, message } = error.into();
    Err(CommandError::new(code, format!("{message} (it ends {ends} unless it is renewed)")))
}

async fn renew(leases: &Leases, token: i64, as_json: bool) -> CommandResult {
    let renewed = async {
        let mut lease = leases.resume(token).await?;
        lease.renew().await?;
        Ok::<_, Error>(lease)
    };
    match renewed.await {
        Ok(lease) if as_json => print(json_line(&LeaseResultJson::new("renewed", lease.info()))),
        Ok(lease) => print(format!("renewed {}\n", sentence(&lease))),
        Err(error) => match error.lost_lease() {
            Some(lost) if as_json => {
                print(json_line(&lost_json(token, lost)))?;
                Ok(exit::LOST)
            }
            _ => Err(error.into()),
        },
    }
}

async fn release(leases: &Leases, args: &ReleaseArgs) -> Result<String, CommandError> {
    let count = match (args.token, &args.session, &args.owner) {
        (Some(token), ..) => {
            return Ok(if leases.release(token).await? {
                format!("released lease {token}\n")
            } else {
                format!("lease {token} was not there any more\n")
            });
        }
        (_, Some(session), _) => leases.release_session(session).await?,
        (_, _, Some(owner)) => leases.release_owner(owner).await?,
        // clap requires one of them.
        _ => 0,
    };
    Ok(format!("released {}\n", counted(count, "lease")))
}

async fn list(
    leases: &Leases,
    database: &Database,
    args: &ListLeasesArgs,
) -> Result<String, CommandError> {
    let filter = with(LeaseFilter::default(), args.target.clone(), LeaseFilter::within);
    let filter = with(filter, args.owner.as_ref(), LeaseFilter::owner);
    let filter = with(filter, args.session.as_ref(), LeaseFilter::session);
    let filter = if args.expired { filter.also_expired() } else { filter };
    let leases = leases.list(filter).await?;
    Ok(output::leases(&leases, database.now().await?, args.json))
}

/// Returns `lease 17 of `u1/a1` for ada until 2026-11-16T05:30:00Z (in 5 min)`.
fn sentence(lease: &Lease) -> String {
    let LeaseInfo { token, target, owner, expires, .. } = lease.info();
    let (until, ttl) = (utc(*expires), duration_text(lease.ttl()));
    format!("lease {token} of `{target}` for {owner} until {until} (in {ttl})")
}
