//! `hierlock lease`: edit locks that outlive a transaction.
//!
//! ```text
//!   connect ──► (a file of SQLite: make its tables) ──► one call ──► a sentence, a table or JSON
//!                                                          │ held by someone else: who …, 75
//!                                                          │ lost: why, 76
//! ```

pub(crate) mod args;
mod show;

use crate::exit::{self, Stop};
use crate::generate::{print, write};
use crate::show::counted;
use crate::time::{relative, span};
use args::Command;
use hierlock::Error;
use hierlock::database::Database;
use hierlock::lease::{LeaseFilter, LeaseInfo, LeaseRequest, Leases, utc};
use show::{Lost, Outcome, Shown, outcome};
use std::process::ExitCode;

pub(crate) fn lease(args: &args::Lease) -> ExitCode {
    let is_file = args.store.is_file();
    args.store.run(async |database| {
        let call = Call { leases: Leases::new(database.clone()), database };
        if is_file && !matches!(args.command, Command::Provision(_)) {
            call.leases.provision().await?;
        }
        call.go(&args.command).await
    })
}

struct Call {
    database: Database,
    leases: Leases,
}

impl Call {
    async fn go(&self, command: &Command) -> Result<ExitCode, Stop> {
        let leases = &self.leases;
        let said = match command {
            Command::Acquire(args) => return self.acquire(args).await,
            Command::Renew(args) => return self.renew(args).await,
            Command::Provision(args) if args.print_sql => leases.script(),
            Command::Provision(_) => {
                leases.provision().await?;
                "ready\n".to_owned()
            }
            Command::Release(args) => self.release(args).await?,
            Command::List(args) => self.list(args).await?,
            Command::ForceRelease(args) => self.force_release(args).await?,
            Command::Audit(args) => {
                let forced = leases.audit(args.show.limit).await?;
                match args.show.json {
                    true => show::audit_json(&forced),
                    false => show::audit_text(&forced),
                }
            }
            Command::Sweep => {
                format!("{} deleted\n", counted(leases.sweep().await?, "expired lease"))
            }
        };
        Ok(print(said.as_bytes()))
    }

    async fn acquire(&self, args: &args::Acquire) -> Result<ExitCode, Stop> {
        let mut request = LeaseRequest::new(args.target.clone(), &args.owner).ttl(args.ttl);
        if let Some(session) = &args.session {
            request = request.session(session);
        }
        if let Some(reason) = &args.reason {
            request = request.reason(reason);
        }
        if let Some(patience) = args.wait {
            request = request.wait_up_to(patience);
        }
        let leases = self.leases.clone().with_hierarchy(args.levels.clone());
        let lease = match leases.acquire(request).await {
            Ok(lease) => lease,
            Err(error) => return self.held(args, error).await,
        };
        let said = match (args.json, args.print_token) {
            (true, _) => outcome(&Outcome::Acquired(Shown::from(lease.info()))),
            (_, true) => format!("{}\n", lease.token()),
            _ => format!("acquired {}\n", sentence(lease.info(), lease.ttl())),
        };
        if let Err(error) = write(said.as_bytes()) {
            // Nobody was told its token.
            lease.release().await?;
            let why = format!("cannot write to standard output: {error}; the lease was given back");
            return Err(Stop::unavailable(why));
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn held(&self, args: &args::Acquire, error: Error) -> Result<ExitCode, Stop> {
        let Some(holder) = error.lease_holder() else { return Err(error.into()) };
        if args.json {
            let (wanted, holder) = (args.target.to_string(), Shown::from(holder));
            print(outcome(&Outcome::Held { wanted, holder }).as_bytes());
            return Ok(exit::NOT_ACQUIRED.into());
        }
        if holder.is_expired {
            // It only waits for a transaction to end.
            return Err(error.into());
        }
        let left = relative(holder.expires, self.database.now().await?);
        Err(Stop::from(error).and(&format!("it ends {left} unless it is renewed")))
    }

    async fn renew(&self, args: &args::Renew) -> Result<ExitCode, Stop> {
        let renewed = async {
            let mut lease = self.leases.resume(args.token).await?;
            lease.renew().await?;
            Ok::<_, Error>(lease)
        };
        match renewed.await {
            Ok(lease) => Ok(print(
                match args.json {
                    true => outcome(&Outcome::Renewed(Shown::from(lease.info()))),
                    false => format!("renewed {}\n", sentence(lease.info(), lease.ttl())),
                }
                .as_bytes(),
            )),
            Err(error) => match error.lost_lease() {
                Some(lost) if args.json => {
                    print(outcome(&Outcome::Lost(Lost::new(args.token, lost))).as_bytes());
                    Ok(exit::LOST.into())
                }
                _ => Err(error.into()),
            },
        }
    }

    async fn release(&self, args: &args::Release) -> Result<String, Stop> {
        let count = match (args.token, &args.session, &args.owner) {
            (Some(token), ..) => {
                return Ok(match self.leases.release(token).await? {
                    true => format!("released lease {token}\n"),
                    false => format!("lease {token} was not there any more\n"),
                });
            }
            (_, Some(session), _) => self.leases.release_session(session).await?,
            (_, _, Some(owner)) => self.leases.release_owner(owner).await?,
            // clap asks for one of them.
            _ => 0,
        };
        Ok(format!("released {}\n", counted(count, "lease")))
    }

    async fn list(&self, args: &args::List) -> Result<String, Stop> {
        let mut filter = LeaseFilter::default();
        if let Some(target) = &args.target {
            filter = filter.within(target.clone());
        }
        if let Some(owner) = &args.owner {
            filter = filter.owner(owner);
        }
        if let Some(session) = &args.session {
            filter = filter.session(session);
        }
        if args.expired {
            filter = filter.also_expired();
        }
        let leases = self.leases.list(filter).await?;
        Ok(match args.json {
            true => show::list_json(&leases),
            false => show::list_text(&leases, self.database.now().await?),
        })
    }

    async fn force_release(&self, args: &args::ForceRelease) -> Result<String, Stop> {
        match self.leases.force_release(args.token, &args.actor, &args.reason).await? {
            Some(LeaseInfo { token, target, owner, .. }) => {
                Ok(format!("took away lease {token} of `{target}` from {owner}\n"))
            }
            None => Err(Stop::lost(format!("there is no lease {}, or no longer", args.token))),
        }
    }
}

/// `lease 17 of `u1/a1` for ada until 2026-11-16T05:30:00Z (in 5 min)`.
fn sentence(lease: &LeaseInfo, ttl: std::time::Duration) -> String {
    let LeaseInfo { token, target, owner, expires, .. } = lease;
    format!("lease {token} of `{target}` for {owner} until {} (in {})", utc(*expires), span(ttl))
}
