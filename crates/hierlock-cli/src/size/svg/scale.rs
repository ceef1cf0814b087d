//! Maps buckets and chances to positions in the picture.

use hierlock::Buckets;

/// The edges of the chart within the picture.
pub(super) const LEFT: f64 = 124.0;
pub(super) const RIGHT: f64 = 740.0;
pub(super) const TOP: f64 = 92.0;
pub(super) const BOTTOM: f64 = 372.0;
/// The number of points of a curve for each power of ten.
const CURVE_POINTS: i32 = 10;

/// The scales of both axes, in powers of ten.
pub(super) struct Scale {
    /// The exponents of the first and the last number of buckets.
    pub(super) buckets: (i32, i32),
    /// The exponent of the lowest chance; the highest chance is 1.
    pub(super) low: i32,
}

impl Scale {
    pub(super) fn x(&self, buckets: f64) -> f64 {
        let (first, last) = self.buckets;
        let share = (buckets.log10() - f64::from(first)) / f64::from(last - first);
        LEFT + share * (RIGHT - LEFT)
    }

    /// Returns the vertical position of a chance. A chance below the scale is below the chart, by a limited distance.
    pub(super) fn y(&self, chance: f64) -> f64 {
        let share = chance.max(f64::MIN_POSITIVE).log10() / f64::from(self.low);
        (TOP + share * (BOTTOM - TOP)).min(2.0 * BOTTOM)
    }

    /// Returns numbers of buckets from the first to the last, evenly spaced on the scale.
    pub(super) fn samples(&self) -> impl Iterator<Item = Buckets> + use<> {
        let (first, last) = self.buckets;
        let exponents = first * CURVE_POINTS..=last * CURVE_POINTS;
        let counts =
            exponents.map(|exponent| 10_f64.powf(f64::from(exponent) / f64::from(CURVE_POINTS)));
        counts.filter_map(|count| Buckets::new(count.round() as u32).ok())
    }
}

pub(super) fn position(value: f64) -> String {
    format!("{value:.1}")
}
