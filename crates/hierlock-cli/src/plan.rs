//! `hierlock plan`: the slots and modes that a lock would take.

use crate::args::{TargetArgs, buckets};
use crate::exit::{CommandError, CommandResult};
use crate::output::{json_list, print, table};
use crate::signals::block_on;
use hierlock::sql::{Dialect, Scheme};
use hierlock::{Buckets, Claim, Plan, Preview, ServerUrl, Slots, Step};
use serde_json::json;

/// Show what a lock would take, without touching anything
///
/// Prints the slots in the order in which they are taken, with their modes. With a URL: those of its clients, and the
/// SQL that its server would be sent. Without one: buckets, and the SQL for each database.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  hierlock plan u1/a1/r1\n  hierlock plan --json u1/a1/r1 u7\n  \
                        hierlock plan --url postgres://… u1/a1/r1            # its advisory keys\n  \
                        hierlock plan --levels org,team,doc acme/search/d1"
)]
pub(crate) struct PlanArgs {
    /// Where the lock would be: file:PATH, mysql://…, mariadb://… or postgres://…; a server is asked how its clients lock
    // The URL may contain a password.
    #[arg(long, env = "HIERLOCK_URL", hide_env_values = true)]
    url: Option<ServerUrl>,
    #[command(flatten)]
    lock: TargetArgs,
    /// How many buckets a level has, if there is no URL [default: 10000000]
    #[arg(long, value_name = "N", value_parser = buckets)]
    buckets: Option<Buckets>,
    /// Print the slots as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn plan(args: &PlanArgs) -> CommandResult {
    block_on(async {
        print(match &args.url {
            Some(url) => args.for_client(url).await?,
            None => args.for_each_dialect()?,
        })
    })
}

impl PlanArgs {
    fn claims(&self) -> impl Iterator<Item = Claim> {
        let mode = self.lock.mode;
        self.lock.targets.iter().map(move |target| Claim { target: target.clone(), mode })
    }

    async fn for_client(&self, url: &ServerUrl) -> Result<String, CommandError> {
        if self.buckets.is_some() {
            return Err(CommandError::usage(
                "--buckets is for a plan without a URL: a server says itself how many buckets it has, and ?buckets=N in \
                 the URL compares; leave --buckets out, or --url (HIERLOCK_URL)",
            ));
        }
        let preview = Preview::of(url.expose(), self.lock.tree.levels.clone()).await?;
        let plan = preview.plan(self.claims())?;
        let scheme = preview.scheme();
        if self.json {
            return Ok(slots_json(&plan, scheme.is_some()));
        }
        let sql = scheme.map(|scheme| sql_text(scheme, &plan)).unwrap_or_default();
        Ok(format!("{url}: {}\n{}{sql}", slot_description(&plan, scheme), self.slot_table(&plan)))
    }

    /// Without a URL: returns buckets, and the SQL of each server with its default strategy.
    fn for_each_dialect(&self) -> Result<String, CommandError> {
        let scheme = |dialect| {
            let buckets = self.buckets.unwrap_or_default();
            Scheme::new(dialect).buckets(buckets).hierarchy(self.lock.tree.levels.clone())
        };
        let plan = scheme(Dialect::Mysql).plan(self.claims())?;
        if self.json {
            return Ok(slots_json(&plan, false));
        }
        let mut text = self.slot_table(&plan);
        for scheme in Dialect::ALL.map(scheme) {
            text += &sql_text(&scheme, &scheme.plan(self.claims())?);
        }
        Ok(text)
    }

    fn slot_table(&self, plan: &Plan) -> String {
        let slots = plan.slots();
        let column = match slots {
            Slots::Buckets(_) => "bucket",
            Slots::Keys => "advisory key",
            Slots::Bytes => "byte",
            _ => "key",
        };
        let rows = plan.steps().map(|Step { level, slot, mode, target, .. }| {
            let slot = match slots {
                Slots::Keys => slot.cast_signed().to_string(),
                Slots::Buckets(_) | Slots::Bytes => slot.to_string(),
                _ => target.key(),
            };
            let level = format!("{level} {}", self.lock.tree.levels.level_name(level));
            [level, target.to_string(), slot, mode.to_string()]
        });
        table(["level", "target", column, "mode"], rows, "")
    }
}

fn sql_text(scheme: &Scheme, plan: &Plan) -> String {
    format!("\n{}:\n{}\n", scheme.dialect(), scheme.lock(plan))
}

fn slot_description(plan: &Plan, scheme: Option<&Scheme>) -> String {
    match (plan.slots(), scheme) {
        (Slots::Buckets(buckets), Some(scheme)) => {
            format!("rows of {}, {} buckets a level", scheme.rows_table(), buckets.count())
        }
        (Slots::Keys, _) => "advisory keys".to_owned(),
        (Slots::Bytes, _) => "bytes of the file".to_owned(),
        (_, Some(scheme)) => format!("rows of {}, by key", scheme.rows_table()),
        (_, None) => "the nodes themselves".to_owned(),
    }
}

fn slots_json(plan: &Plan, is_server: bool) -> String {
    json_list(plan.steps().map(|Step { level, slot, mode, target, .. }| {
        let mut step = json!({ "level": level });
        match plan.slots() {
            Slots::Buckets(buckets) => {
                step["bucket"] = slot.into();
                if is_server {
                    step["buckets"] = buckets.count().into();
                }
            }
            Slots::Keys => step["advisory_key"] = slot.cast_signed().into(),
            Slots::Bytes => step["byte"] = slot.into(),
            _ if is_server => step["row_key"] = target.key().into(),
            _ => {}
        }
        step["mode"] = mode.name().into();
        step["target"] = target.to_string().into();
        step
    }))
}
