//! The curves of the chart: one for the given number of held locks, one for a tenth of it, and one for ten times as many.

use super::scale::{Scale, position};
use crate::size::report::SizeReport;
use hierlock::Slots;
use hierlock::sizing::Workload;
use indicatif::HumanCount;

/// The chance below which a curve gets its label.
const LABEL_CHANCE: f64 = 0.03;

pub(super) struct Curve {
    pub(super) class: &'static str,
    pub(super) path: String,
    /// `None` for the curve in the middle, which the subtitle describes.
    pub(super) label: Option<CurveLabel>,
}

pub(super) struct CurveLabel {
    pub(super) x: String,
    pub(super) y: String,
    pub(super) anchor: &'static str,
    pub(super) text: String,
}

impl SizeReport {
    /// Returns the curves; none if no lock is held.
    pub(super) fn curves(&self, scale: &Scale) -> Vec<Curve> {
        let held = self.held();
        let curves = [
            (held / 10, "faint", Some(("end", (-6.0, 12.0)))),
            (held.saturating_mul(10), "faint", Some(("start", (6.0, -5.0)))),
            (held, "curve", None),
        ];
        let curve = |(held, class, place): (u64, _, Option<_>)| {
            let points = curve_points(&self.workload_with(held), scale);
            let label = place.and_then(|(anchor, offset)| label(&points, held, anchor, offset));
            Curve { class, path: path(&points), label }
        };
        curves.into_iter().filter(|(held, ..)| *held > 0).map(curve).collect()
    }

    /// Returns the workload with another number of held locks, in the same proportions among the levels.
    fn workload_with(&self, held: u64) -> Workload {
        let mut workload = self.workload.clone();
        for level in &mut workload.levels {
            level.held = (level.held as f64 * (held as f64 / self.held() as f64)).round() as u64;
        }
        workload
    }
}

/// A point of a curve: its position and its chance.
struct CurvePoint {
    x: f64,
    y: f64,
    chance: f64,
}

fn curve_points(workload: &Workload, scale: &Scale) -> Vec<CurvePoint> {
    let point = |buckets| {
        let chance = workload.highest_false_contention(Slots::Buckets(buckets));
        CurvePoint { x: scale.x(buckets.count().into()), y: scale.y(chance), chance }
    };
    scale.samples().map(point).collect()
}

fn path(points: &[CurvePoint]) -> String {
    let positions =
        points.iter().map(|point| format!("{} {}", position(point.x), position(point.y)));
    format!("M{}", positions.collect::<Vec<_>>().join("L"))
}

fn label(
    points: &[CurvePoint],
    held: u64,
    anchor: &'static str,
    (right, down): (f64, f64),
) -> Option<CurveLabel> {
    let point = points.iter().find(|point| point.chance < LABEL_CHANCE)?;
    Some(CurveLabel {
        x: position(point.x + right),
        y: position(point.y + down),
        anchor,
        text: format!("{} held", HumanCount(held)),
    })
}
