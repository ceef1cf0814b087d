//! The chance of false contention over the number of buckets, as one self-contained SVG. Both axes are logarithmic.
//! Positions are computed here; the template draws them.

mod curve;
mod scale;

use super::format::{percent, provisioning_time, short};
use super::report::{SizeReport, TableSize};
use askama::Template;
use curve::Curve;
use indicatif::{HumanBytes, HumanCount};
use scale::{BOTTOM, Scale, TOP, position};

/// The position and the line height of the legend below the chart.
const LEGEND_TOP: usize = 464;
const LEGEND_LINE: usize = 20;

#[derive(Template)]
#[template(path = "chart.svg")]
struct Chart {
    height: usize,
    subtitle: String,
    columns: Vec<ChartColumn>,
    /// The horizontal lines of the grid: position and chance.
    rows: Vec<(String, String)>,
    target: (String, String),
    curves: Vec<Curve>,
    points: Vec<ChartPoint>,
}

/// A power of ten on the axis of buckets, with the size of the table below it.
struct ChartColumn {
    x: String,
    buckets: String,
    bytes: String,
    time: String,
}

/// A marked number of buckets, and its line in the legend.
struct ChartPoint {
    class: &'static str,
    x: String,
    y: String,
    legend_y: usize,
    name: String,
    text: String,
}

impl SizeReport {
    /// Returns the chart.
    pub(super) fn svg(&self) -> String {
        let exponents = self.compared.iter().map(|size| f64::from(size.buckets).log10());
        let first = exponents.clone().fold(f64::INFINITY, f64::min).floor() as i32;
        let last = exponents.fold(0.0, f64::max).ceil() as i32;
        let scale = Scale { buckets: (first, last), low: self.lowest_decade() };
        let decades = self.compared.iter().filter(|size| is_power_of_ten(size.buckets));
        let points = self.points(&scale);
        let chances = (scale.low..=0).map(|exponent| 10_f64.powi(exponent));
        let chart = Chart {
            height: LEGEND_TOP + points.len() * LEGEND_LINE,
            subtitle: format!(
                "The chance that an acquire waits for a lock on another node, with {} locks held at a time ({}).",
                HumanCount(self.held()),
                self.dialect
            ),
            columns: decades.map(|size| column(size, &scale)).collect(),
            rows: chances.map(|chance| (position(scale.y(chance)), percent(chance))).collect(),
            target: (position(scale.y(self.target_chance)), percent(self.target_chance)),
            curves: self.curves(&scale),
            points,
        };
        // Rendering into a String cannot fail: the template uses no filter that can fail.
        chart.render().unwrap_or_default() + "\n"
    }

    /// Returns the points of the reported and of the recommended number of buckets.
    fn points(&self, scale: &Scale) -> Vec<ChartPoint> {
        let recommended = self.recommended_buckets;
        let is_marked = |size: &&TableSize| {
            size.buckets == self.table.buckets || Some(size.buckets) == recommended
        };
        let point = |(i, size): (usize, &TableSize)| {
            let is_recommended = Some(size.buckets) == recommended;
            let buckets = HumanCount(size.buckets.into());
            ChartPoint {
                class: if is_recommended { "recommended" } else { "chosen" },
                x: position(scale.x(size.buckets.into())),
                y: position(scale.y(size.false_contention).clamp(TOP, BOTTOM)),
                legend_y: LEGEND_TOP + i * LEGEND_LINE,
                name: format!(
                    "{buckets} buckets{}",
                    if is_recommended { ", recommended" } else { "" }
                ),
                text: format!(
                    "{} false contention, {} rows, {}, {} to fill",
                    percent(size.false_contention),
                    HumanCount(size.rows),
                    HumanBytes(size.bytes),
                    provisioning_time(size.duration)
                ),
            }
        };
        self.compared.iter().filter(is_marked).enumerate().map(point).collect()
    }
}

fn column(size: &TableSize, scale: &Scale) -> ChartColumn {
    ChartColumn {
        x: position(scale.x(size.buckets.into())),
        buckets: short(size.buckets),
        bytes: HumanBytes(size.bytes).to_string(),
        time: provisioning_time(size.duration),
    }
}

fn is_power_of_ten(count: u32) -> bool {
    10_u32.checked_pow(count.ilog10()) == Some(count)
}
