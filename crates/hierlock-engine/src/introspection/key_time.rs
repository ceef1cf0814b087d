//! Dates and times in keys, decoded from InnoDB's storage format. Pure; tested with the other key values.

use super::key_value::big_endian;
use jiff::Timestamp;

/// Formats the fraction of a second: `.345`.
fn fraction(value: u64, digits: usize) -> String {
    if digits == 0 {
        return String::new();
    }
    let micros = value * 10u64.pow(6u32.saturating_sub(2 * digits.div_ceil(2) as u32));
    format!(".{}", &format!("{micros:06}")[..digits])
}

/// Splits the bytes into those of the seconds and the number of the fraction.
fn split(bytes: &[u8], seconds: usize, digits: usize) -> Option<(&[u8], u64)> {
    let (whole, rest) = bytes.split_at_checked(seconds)?;
    let rest = Some(rest).filter(|rest| rest.len() == digits.div_ceil(2))?;
    Some((whole, big_endian(rest).unwrap_or(0)))
}

pub(super) fn date_time(bytes: &[u8], digits: usize) -> Option<String> {
    let (whole, rest) = split(bytes, 5, digits)?;
    let packed = big_endian(whole)?.checked_sub(1 << 39)?;
    let (date, time) = (packed >> 17, packed & 0x1_ffff);
    let (year, month, day) = ((date >> 5) / 13, (date >> 5) % 13, date & 31);
    let (time, fraction) = (clock(time), fraction(rest, digits));
    Some(format!("'{year:04}-{month:02}-{day:02} {time}{fraction}'"))
}

/// Formats hours, minutes and seconds that are packed in one number.
fn clock(packed: u64) -> String {
    format!("{:02}:{:02}:{:02}", packed >> 12, packed >> 6 & 63, packed & 63)
}

/// Formats a timestamp in UTC, because sessions print it in their own time zones.
pub(super) fn timestamp(bytes: &[u8], digits: usize) -> Option<String> {
    let (whole, rest) = split(bytes, 4, digits)?;
    let time = Timestamp::from_second(big_endian(whole)? as i64).ok()?;
    let (time, fraction) = (time.strftime("%Y-%m-%d %H:%M:%S"), fraction(rest, digits));
    Some(format!("'{time}{fraction} UTC'"))
}

pub(super) fn time(bytes: &[u8], digits: usize) -> Option<String> {
    let fraction_bytes = digits.div_ceil(2);
    (bytes.len() == 3 + fraction_bytes).then_some(())?;
    let signed = big_endian(bytes)? as i64 - (1 << (8 * bytes.len() - 1));
    let (sign, packed) = (if signed < 0 { "-" } else { "" }, signed.unsigned_abs());
    let rest = packed & ((1 << (8 * fraction_bytes)) - 1);
    Some(format!("'{sign}{}{}'", clock(packed >> (8 * fraction_bytes)), fraction(rest, digits)))
}
