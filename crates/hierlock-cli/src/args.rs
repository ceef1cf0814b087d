//! Arguments that several commands have.

use crate::exit::CommandError;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use hierlock::{Buckets, Hierarchy, Mode, ServerUrl, Target};

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
    #[arg(required = true, value_name = "TARGET")]
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

/// The length and the format of a printed list.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Print at most N entries
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Returns the URL of the locks; by default that of the lock file of `hierlock run`.
pub(crate) fn lock_url(url: Option<&ServerUrl>) -> Result<ServerUrl, CommandError> {
    match url {
        Some(url) => Ok(url.clone()),
        None => Ok(format!("file:{}", hierlock::default_path()?.display()).into()),
    }
}

/// Returns `request` with the option applied to it, if the option was given.
pub(crate) fn with<T, V>(request: T, option: Option<V>, apply: impl FnOnce(T, V) -> T) -> T {
    match option {
        Some(value) => apply(request, value),
        None => request,
    }
}

fn levels(text: &str) -> Result<Hierarchy, hierlock::Error> {
    Hierarchy::new(text.split(','))
}

pub(crate) fn buckets(text: &str) -> Result<Buckets, String> {
    let count = u32::try_from(count(text)?);
    let count = count.map_err(|_| format!("`{text}` is more buckets than a table can have"))?;
    Buckets::new(count).map_err(|error| error.to_string())
}

/// Parses a whole number in any of the usual notations: `5000000`, `5_000_000`, `5e6`, `5M`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    if let Ok(count) = digits.parse() {
        return Ok(count);
    }
    let exponents = [('k', "e3"), ('K', "e3"), ('M', "e6"), ('G', "e9")];
    let number = exponents.iter().find_map(|(unit, exponent)| {
        digits.strip_suffix(*unit).map(|number| format!("{number}{exponent}"))
    });
    let number = number.unwrap_or(digits);
    let is_number = number.starts_with(|c: char| c.is_ascii_digit());
    match number.parse::<f64>() {
        // 2^64 is the smallest float above `u64::MAX`.
        Ok(count)
            if is_number && count.fract() == 0.0 && (0.0..2_f64.powi(64)).contains(&count) =>
        {
            Ok(count as u64)
        }
        _ => Err(format!(
            "`{text}` is not a whole number up to {}; write for example 5000000, 5_000_000, 5e6 or 5M",
            u64::MAX
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_parsed_in_every_notation() {
        for (text, expected) in [
            ("0", 0),
            ("5000000", 5_000_000),
            ("5_000_000", 5_000_000),
            ("5e6", 5_000_000),
            ("1.1M", 1_100_000),
            ("1.5e3", 1500),
            ("200k", 200_000),
            ("2G", 2_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(count(text), Ok(expected), "{text}");
        }
        let too_large = "18446744073709551616";
        for text in [
            "", "_", "M", "e6", ".5M", "0.5", "1.2345k", "-1", "nan", "inf", "infinity", "1e3M",
            "5 M", "5,000", "1e20", too_large, "1e999", "five", "0x10", "5m",
        ] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bucket_counts_fit_into_an_integer_column() {
        assert_eq!(buckets("1e7"), Ok(Buckets::default()));
        for text in ["0", "2147483648", "1e10", "x"] {
            assert!(buckets(text).is_err(), "{text}");
        }
    }
}
