//! The expected collisions and sizes for several numbers of buckets. Serialized, they are the JSON of the command.

use super::SizeArgs;
use hierlock::sizing::{Collisions, Workload};
use hierlock::sql::{Dialect, Prediction, Scheme, Strategy};
use hierlock::{Buckets, Slots};
use serde::{Serialize, Serializer};
use std::time::Duration;

/// The numbers of buckets that are compared, as powers of ten.
const COMPARED_EXPONENTS: std::ops::RangeInclusive<u32> = 2..=9;

/// The report for one number of buckets, compared with others.
#[derive(Serialize)]
pub(super) struct SizeReport {
    #[serde(rename = "engine", serialize_with = "dialect_name")]
    pub(super) dialect: Dialect,
    pub(super) target_chance: f64,
    pub(super) recommended_buckets: Option<u32>,
    #[serde(flatten)]
    pub(super) table: TableSize,
    pub(super) levels: Vec<LevelReport>,
    pub(super) other_strategies: OtherStrategies,
    pub(super) compared: Vec<TableSize>,
    /// For the chart, which needs more points than `compared`.
    #[serde(skip)]
    pub(super) workload: Workload,
    /// Whether `--ids` or `--held` has a number for each level.
    #[serde(skip)]
    pub(super) is_by_level: bool,
}

/// The size of a table with this number of buckets.
#[derive(Clone, Serialize)]
pub(super) struct TableSize {
    pub(super) buckets: u32,
    /// The chance of false contention at the level where it is highest.
    #[serde(serialize_with = "rounded")]
    pub(super) false_contention: f64,
    pub(super) rows: u64,
    pub(super) bytes: u64,
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub(super) duration: Duration,
}

/// The expected collisions at one level.
#[derive(Serialize)]
pub(super) struct LevelReport {
    pub(super) level: String,
    pub(super) ids: u64,
    pub(super) held: u64,
    #[serde(serialize_with = "rounded")]
    pub(super) false_contention: f64,
    #[serde(serialize_with = "rounded")]
    pub(super) sharing_ids: f64,
    #[serde(serialize_with = "rounded")]
    pub(super) pairs: f64,
    #[serde(serialize_with = "rounded")]
    pub(super) neighbours: f64,
    #[serde(serialize_with = "rounded")]
    pub(super) used_buckets: f64,
    pub(super) fullest_bucket: u64,
}

/// The chance of false contention of strategies without buckets.
#[derive(Serialize)]
pub(super) struct OtherStrategies {
    #[serde(serialize_with = "rounded")]
    pub(super) advisory: f64,
    #[serde(serialize_with = "rounded")]
    pub(super) file: f64,
    #[serde(rename = "per-id")]
    pub(super) per_id: f64,
}

impl SizeReport {
    pub(super) fn new(args: &SizeArgs, workload: Workload) -> Self {
        let recommended = workload.smallest_buckets(args.target_chance);
        let buckets = args.buckets.or(recommended).unwrap_or_default();
        let mut compared: Vec<u32> =
            COMPARED_EXPONENTS.map(|exponent| 10_u32.pow(exponent)).collect();
        if let Err(place) = compared.binary_search(&buckets.count()) {
            compared.insert(place, buckets.count());
        }
        let compared = compared.into_iter().filter_map(|count| Buckets::new(count).ok());
        let table = |buckets| TableSize::new(args, &workload, buckets);
        let chance = |slots| workload.highest_false_contention(slots);
        Self {
            dialect: args.engine,
            target_chance: args.target_chance,
            recommended_buckets: recommended.map(Buckets::count),
            table: table(buckets),
            levels: levels(args, &workload, buckets),
            other_strategies: OtherStrategies {
                advisory: chance(Slots::Keys),
                file: chance(Slots::Bytes),
                per_id: chance(Slots::Paths),
            },
            compared: compared.map(table).collect(),
            is_by_level: args.ids.is_by_level() || args.held.is_by_level(),
            workload,
        }
    }

    /// Returns the number of locks held at a time, on all levels together.
    pub(super) fn held(&self) -> u64 {
        self.levels.iter().fold(0, |sum, level| sum.saturating_add(level.held))
    }

    /// Returns the deepest level, which has the most nodes.
    pub(super) fn leaves(&self) -> Option<&LevelReport> {
        self.levels.last()
    }
}

impl TableSize {
    fn new(args: &SizeArgs, workload: &Workload, buckets: Buckets) -> Self {
        let scheme = Scheme::new(args.engine).buckets(buckets).hierarchy(args.tree.levels.clone());
        // Never refused: every server supports striped rows.
        let scheme = scheme.clone().strategy(Strategy::Striped).unwrap_or(scheme);
        let Prediction { rows, bytes, duration, .. } = Prediction::of(&scheme);
        let at_rate = |rate: u64| Duration::from_secs_f64(rows as f64 / rate as f64);
        Self {
            buckets: buckets.count(),
            false_contention: workload.highest_false_contention(Slots::Buckets(buckets)),
            rows,
            bytes,
            duration: args.rows_per_second.map_or(duration, at_rate),
        }
    }
}

fn levels(args: &SizeArgs, workload: &Workload, buckets: Buckets) -> Vec<LevelReport> {
    let report = workload.levels.iter().enumerate().map(|(level, load)| {
        let collisions = Collisions::expected(buckets, load.nodes);
        LevelReport {
            level: args.tree.levels.level_name(level).to_owned(),
            ids: load.nodes,
            held: load.held,
            false_contention: workload.false_contention(Slots::Buckets(buckets), level),
            sharing_ids: collisions.sharing_nodes,
            pairs: collisions.pairs,
            neighbours: collisions.neighbours,
            used_buckets: collisions.used_buckets,
            fullest_bucket: collisions.fullest_bucket,
        }
    });
    report.collect()
}

/// Serializes six significant digits. More digits differ between machines.
fn rounded<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(format!("{value:.5e}").parse().unwrap_or(*value))
}

fn dialect_name<S: Serializer>(dialect: &Dialect, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dialect.name())
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    rounded(&duration.as_secs_f64(), serializer)
}
