//! The report as text, at most 80 columns wide, with a bar chart.

use super::format::{mean, one_in, percent, provisioning_time};
use super::report::{LevelReport, OtherStrategies, SizeReport, TableSize};
use crate::output::{cell, table};
use hierlock::sql::Dialect;
use indicatif::{HumanBytes, HumanCount};

const BAR_WIDTH: usize = 28;
/// The last column of a bar, filled by 0 to 7 eighths.
const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const TARGET_MARK: char = '┊';
const MAX_NAME: usize = 16;

impl SizeReport {
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(leaves) = self.leaves() {
            text += &self.summary(leaves);
        }
        if self.is_by_level {
            text += &format!("\n{}", self.level_table());
        }
        text + "\n" + &self.recommendation() + "\n" + &self.chart()
    }

    fn summary(&self, leaves: &LevelReport) -> String {
        let TableSize { buckets, false_contention, rows, bytes, duration } = self.table;
        let one_in = one_in(false_contention).map(|text| format!(" ({text})")).unwrap_or_default();
        let share = percent(leaves.sharing_ids / (leaves.ids.max(1) as f64));
        let OtherStrategies { advisory, file, .. } = self.other_strategies;
        format!(
            "{ids} ids, {held} locks held at a time\n{buckets} buckets a level on {engine}\n\n\
             false contention  {chance} of acquires{one_in} wait because their\n\
             \x20                 bucket is locked for another node\n\
             shared buckets    {sharing} ids ({share}) share theirs with another one,\n\
             \x20                 {pairs} pairs; the fullest bucket has {fullest}\n\
             a long lock       keeps {neighbours} other ids of its level waiting on average\n\
             table             {rows} rows, about {bytes}\n\
             provisioning      {time}\n\
             without buckets   advisory keys {advisory}, lock file {file}, rows by ID 0 %\n",
            ids = HumanCount(leaves.ids),
            held = HumanCount(self.held()),
            buckets = HumanCount(buckets.into()),
            engine = self.dialect,
            chance = percent(false_contention),
            sharing = mean(leaves.sharing_ids),
            pairs = mean(leaves.pairs),
            fullest = HumanCount(leaves.fullest_bucket),
            neighbours = mean(leaves.neighbours),
            rows = HumanCount(rows),
            bytes = HumanBytes(bytes),
            time = match provisioning_time(duration) {
                time if time.starts_with('<') => time,
                time => format!("about {time}"),
            },
            advisory = percent(advisory),
            file = percent(file),
        )
    }

    fn level_table(&self) -> String {
        let header = ["level", "ids", "held", "false contention", "share a bucket", "fullest"];
        let rows = self.levels.iter().map(|level| {
            [
                cell(&level.level, MAX_NAME),
                HumanCount(level.ids).to_string(),
                HumanCount(level.held).to_string(),
                percent(level.false_contention),
                percent(level.sharing_ids / (level.ids.max(1) as f64)),
                HumanCount(level.fullest_bucket).to_string(),
            ]
        });
        table(header, rows, "")
    }

    fn recommendation(&self) -> String {
        let target = percent(self.target_chance);
        match self.recommended_buckets {
            Some(buckets) => format!(
                "choose {}: the smallest power of ten, from 1,000, with which no more\n\
                 than {target} of acquires meet false contention\n\n\
                 \x20 hierlock provision --url {} --buckets {buckets}\n",
                HumanCount(buckets.into()),
                match self.dialect {
                    Dialect::Postgres => "'postgres://…?strategy=striped'".to_owned(),
                    dialect => format!("{dialect}://…"),
                },
            ),
            None => format!(
                "no table has enough buckets for a chance of {target}: use rows by ID\n\
                 (?strategy=per-id), or PostgreSQL, whose advisory keys need no rows\n"
            ),
        }
    }

    fn chart(&self) -> String {
        let low = self.lowest_decade();
        let target = column(self.target_chance, low);
        let mut chart = format!(
            "{:>13}  {:<width$} {:>10} {:>10} {:>11}\n",
            "buckets",
            "false contention",
            "",
            "table",
            "time",
            width = BAR_WIDTH
        );
        for size in &self.compared {
            let mark = if size.buckets == self.table.buckets { '▸' } else { ' ' };
            chart += &format!(
                "{:>13} {mark}{} {:>10} {:>10} {:>11}\n",
                HumanCount(size.buckets.into()).to_string(),
                bar(size.false_contention, low, target as usize),
                percent(size.false_contention),
                HumanBytes(size.bytes).to_string(),
                provisioning_time(size.duration),
            );
        }
        let left = percent(10_f64.powi(low));
        let right = BAR_WIDTH - left.chars().count();
        chart
            + &format!("{:>14} {left}{:>right$}\n", "", "100 %")
            + &format!(
                "{:>14} log scale; {TARGET_MARK} {}; ▸ {} buckets\n",
                "",
                percent(self.target_chance),
                HumanCount(self.table.buckets.into())
            )
    }

    /// Returns the start of the scale: the exponent of the power of ten below every chance, between -12 and -4.
    pub(super) fn lowest_decade(&self) -> i32 {
        let chances = self.compared.iter().map(|size| size.false_contention);
        let lowest = chances.filter(|chance| *chance > 0.0).fold(self.target_chance, f64::min);
        (lowest.log10().floor() as i32).clamp(-12, -4)
    }
}

/// Returns the column of a chance on a logarithmic scale from `10^low` to 1.
fn column(chance: f64, low: i32) -> f64 {
    let share = 1.0 - chance.log10() / f64::from(low);
    share.clamp(0.0, 1.0) * BAR_WIDTH as f64
}

/// Returns a bar, with a mark at the target if the bar does not reach it.
fn bar(chance: f64, low: i32, target: usize) -> String {
    let eighths =
        if chance > 0.0 { (column(chance, low) * 8.0).round().max(1.0) as usize } else { 0 };
    let column = |column: usize| match eighths.saturating_sub(column * 8) {
        8.. => '█',
        0 if column == target => TARGET_MARK,
        part => EIGHTHS[part],
    };
    (0..BAR_WIDTH).map(column).collect()
}
