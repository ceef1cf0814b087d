//! Dates and times of keys, from the bytes in which InnoDB stores them. Pure; tested with the other values of keys.

use super::key_value::big_endian;

/// `.345`, of the bytes behind the seconds.
fn fraction(value: u64, digits: usize) -> String {
    if digits == 0 {
        return String::new();
    }
    let micros = value * 10u64.pow(6u32.saturating_sub(2 * digits.div_ceil(2) as u32));
    format!(".{}", &format!("{micros:06}")[..digits])
}

/// The bytes of the seconds, and those behind.
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

/// Hours, minutes and seconds in one number.
fn clock(packed: u64) -> String {
    format!("{:02}:{:02}:{:02}", packed >> 12, packed >> 6 & 63, packed & 63)
}

/// In UTC: how a session writes it depends on its time zone.
pub(super) fn timestamp(bytes: &[u8], digits: usize) -> Option<String> {
    let (whole, rest) = split(bytes, 4, digits)?;
    let seconds = big_endian(whole)?;
    let (year, month, day) = civil((seconds / 86_400) as i64);
    let [hour, minute, second] = [seconds / 3600 % 24, seconds / 60 % 60, seconds % 60];
    let fraction = fraction(rest, digits);
    let date = format!("{year:04}-{month:02}-{day:02}");
    Some(format!("'{date} {hour:02}:{minute:02}:{second:02}{fraction} UTC'"))
}

/// Year, month and day of a day since 1970, by the usual algorithm of eras of 400 years.
fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let (era, of_era) = (z.div_euclid(146_097), z.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

pub(super) fn time(bytes: &[u8], digits: usize) -> Option<String> {
    let behind = digits.div_ceil(2);
    (bytes.len() == 3 + behind).then_some(())?;
    let signed = big_endian(bytes)? as i64 - (1 << (8 * bytes.len() - 1));
    let (sign, packed) = (if signed < 0 { "-" } else { "" }, signed.unsigned_abs());
    let rest = packed & ((1 << (8 * behind)) - 1);
    Some(format!("'{sign}{}{}'", clock(packed >> (8 * behind)), fraction(rest, digits)))
}
