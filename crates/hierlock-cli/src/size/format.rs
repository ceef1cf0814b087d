//! Formats chances, durations and numbers.

use crate::time::duration_text;
use indicatif::HumanCount;
use std::time::Duration;

/// Returns a chance with two significant digits: `0.002 %`.
pub(super) fn percent(chance: f64) -> String {
    let percent = chance * 100.0;
    let number = match percent {
        100.0.. => return "100 %".to_owned(),
        99.0.. => return ">99 %".to_owned(),
        // Slightly less than 1e-5, because 100 × 1e-7 is rounded down.
        9.9e-6.. => significant(percent),
        0.0 => "0".to_owned(),
        _ => format!("{percent:.1e}").replace(".0e", "e"),
    };
    format!("{number} %")
}

/// Returns a number with two significant digits, without trailing zeros.
pub(super) fn significant(value: f64) -> String {
    let decimals = (1.0 - value.abs().log10().floor()).clamp(0.0, 20.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Returns `1 in 50,000`; `None` for chances above 1 in 20, which are clearer as a percentage.
pub(super) fn one_in(chance: f64) -> Option<String> {
    let acquires = 1.0 / chance;
    let scale = 10_f64.powf((acquires.log10().floor() - 1.0).max(0.0));
    let rounded = (acquires / scale).round() * scale;
    (20.0..1e15).contains(&acquires).then(|| format!("1 in {}", HumanCount(rounded as u64)))
}

/// Returns a mean as a whole number, or with two significant digits if it is below 10.
pub(super) fn mean(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        10.0.. => HumanCount(value.round() as u64).to_string(),
        _ => significant(value),
    }
}

/// Returns a power of ten in the notation of the options: `100k`, `10M`.
pub(super) fn short(count: u32) -> String {
    match count {
        1_000_000_000.. => format!("{}G", count / 1_000_000_000),
        1_000_000.. => format!("{}M", count / 1_000_000),
        1000.. => format!("{}k", count / 1000),
        _ => count.to_string(),
    }
}

/// Returns how long provisioning takes. A prediction below a second is not precise.
pub(super) fn provisioning_time(duration: Duration) -> String {
    if duration < Duration::from_secs(1) { "< 1 s".to_owned() } else { duration_text(duration) }
}

/// Parses `0.1%` or `0.001`.
pub(super) fn parse_chance(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    match number.parse::<f64>().map(|number| number / scale) {
        Ok(chance) if chance > 0.0 && chance <= 1.0 => Ok(chance),
        _ => Err(format!(
            "`{text}` is not a chance above 0 and up to 1; write for example 0.1% or 0.001"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_printed_as_percentages() {
        for (chance, text) in [
            (0.0, "0 %"),
            (1e-7, "0.00001 %"),
            (2e-5, "0.002 %"),
            (1.999_998e-5, "0.002 %"),
            (0.001, "0.1 %"),
            (0.0123, "1.2 %"),
            (0.5, "50 %"),
            (0.995, ">99 %"),
            (1.0, "100 %"),
            (1e-9, "1e-7 %"),
            (1.08e-17, "1.1e-15 %"),
        ] {
            assert_eq!(percent(chance), text);
        }
        assert_eq!(one_in(1.999_998e-5).as_deref(), Some("1 in 50,000"));
        assert_eq!(one_in(0.39), None);
        assert_eq!(one_in(0.0), None);
    }

    #[test]
    fn chances_are_parsed() {
        for (text, chance) in
            [("0.1%", 0.001), ("1 %", 0.01), ("0.5", 0.5), ("1e-6", 1e-6), ("1", 1.0)]
        {
            assert_eq!(parse_chance(text), Ok(chance), "{text}");
        }
        for text in ["", "%", "0", "101%", "-1", "nan", "inf", "often"] {
            assert!(parse_chance(text).is_err(), "{text}");
        }
    }

    #[test]
    fn means_are_rounded() {
        for (value, text) in
            [(0.0, "0"), (0.5, "0.5"), (0.001, "0.001"), (4.96, "5"), (1_250_000.4, "1,250,000")]
        {
            assert_eq!(mean(value), text);
        }
    }
}
