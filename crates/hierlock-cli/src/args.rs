//! Arguments that several commands have.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use hierlock::{Buckets, Hierarchy, Mode, Target};

/// The nodes to lock, and the mode.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// How to lock
    #[arg(long, default_value = "exclusive",
          value_parser = PossibleValuesParser::new(["shared", "update", "exclusive"])
              .try_map(|name| name.parse::<Mode>()))]
    pub(crate) mode: Mode,
    #[command(flatten)]
    pub(crate) tree: TreeArgs,
    /// Nodes of the tree: u1, u1/a1, u1/a1/r1. Inside an ID write / as %2F and % as %25
    #[arg(required = true, value_name = "TARGET", value_parser = target)]
    pub(crate) targets: Vec<Target>,
}

/// The tree that nodes belong to.
#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    /// The levels of the tree, root first
    #[arg(long, value_name = "NAMES", default_value = "user,account,resource",
          value_parser = levels)]
    pub(crate) levels: Hierarchy,
}

/// How much of a list is printed, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print at most so many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Applies an option to a request, if it was given.
pub(crate) fn with<T, V>(request: T, option: Option<V>, apply: impl FnOnce(T, V) -> T) -> T {
    match option {
        Some(value) => apply(request, value),
        None => request,
    }
}

pub(crate) fn target(text: &str) -> Result<Target, hierlock::Error> {
    text.parse()
}

fn levels(text: &str) -> Result<Hierarchy, hierlock::Error> {
    Hierarchy::new(text.split(','))
}

pub(crate) fn buckets(text: &str) -> Result<Buckets, String> {
    let count = text.parse().map_err(|_| format!("`{text}` is not a whole number"))?;
    Buckets::new(count).map_err(|error| error.to_string())
}
