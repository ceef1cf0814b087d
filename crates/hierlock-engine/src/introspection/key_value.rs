//! Key values, decoded from InnoDB's storage format to readable text. Undecodable values stay hexadecimal. Pure.

use super::key_time::{date_time, time, timestamp};

/// The storage format of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyColumn {
    Signed,
    Unsigned,
    Date,
    Year,
    /// With this number of fractional digits.
    DateTime(usize),
    Timestamp(usize),
    Time(usize),
    /// The number of all digits, and of those after the point.
    Decimal(usize, usize),
    Float,
    Double,
    /// The values.
    Enum(Vec<String>),
    Set(Vec<String>),
    /// The character set.
    Text(String),
    /// Anything else.
    Bytes,
}

impl KeyColumn {
    /// Parses `COLUMN_TYPE` and `CHARACTER_SET_NAME` of `information_schema.COLUMNS`: `decimal(10,2)`, `utf8mb4`.
    pub(super) fn parse(column_type: &str, charset: &str) -> Self {
        let end = column_type.find(['(', ' ']).unwrap_or(column_type.len());
        let (name, rest) = column_type.split_at(end);
        let sizes =
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).unwrap_or_default();
        let mut sizes = sizes.0.split(',').filter_map(|size| size.trim().parse::<usize>().ok());
        let (first, second) = (sizes.next(), sizes.next());
        let digits = first.unwrap_or(0).min(6);
        match name {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => {
                if rest.contains("unsigned") { KeyColumn::Unsigned } else { KeyColumn::Signed }
            }
            "date" => KeyColumn::Date,
            "year" => KeyColumn::Year,
            "datetime" => KeyColumn::DateTime(digits),
            "timestamp" => KeyColumn::Timestamp(digits),
            "time" => KeyColumn::Time(digits),
            "decimal" => KeyColumn::Decimal(first.unwrap_or(10), second.unwrap_or(0)),
            "float" => KeyColumn::Float,
            "double" => KeyColumn::Double,
            "enum" => KeyColumn::Enum(quoted_list(rest)),
            "set" => KeyColumn::Set(quoted_list(rest)),
            _ if charset.is_empty() => KeyColumn::Bytes,
            _ => KeyColumn::Text(charset.to_owned()),
        }
    }

    /// Guesses the key columns of a record from the bytes of its fields.
    pub(super) fn guess_all(fields: &[Option<String>]) -> Vec<Self> {
        let length = |field: Option<&Option<String>>| field?.as_ref().map(|hex| hex.len() / 2);
        // The key of a clustered index is followed by the transaction id (6 bytes) and the roll pointer (7 bytes).
        let is_end = |at: &usize| {
            length(fields.get(*at)) == Some(6) && length(fields.get(at + 1)) == Some(7)
        };
        let end = (1..fields.len()).find(is_end).unwrap_or(fields.len());
        let guess = |field: &Option<String>| Self::guess(field.as_deref().unwrap_or_default());
        fields[..end].iter().map(guess).collect()
    }

    /// Most keys are small numbers, signed or unsigned, or text.
    fn guess(hex: &str) -> Self {
        let digits = hex.trim_end_matches('…');
        let Some(bytes) = bytes(digits) else { return KeyColumn::Bytes };
        let is_text =
            std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains(char::is_control));
        match (bytes.len(), &bytes[..]) {
            (1..=4 | 8, [0x80, rest @ ..]) if rest.first().is_none_or(|byte| *byte < 0x80) => {
                KeyColumn::Signed
            }
            (2..=4 | 8, [0x7f, 0x80..=0xff, ..]) => KeyColumn::Signed,
            (2..=4 | 8, [0, ..]) => KeyColumn::Unsigned,
            _ if is_text => KeyColumn::Text("utf8mb4".to_owned()),
            _ => KeyColumn::Bytes,
        }
    }

    /// Formats a value from its bytes in hexadecimal. An ellipsis at the end marks a truncated value.
    pub(super) fn format(&self, hex: &str) -> String {
        let digits = hex.trim_end_matches('…');
        let is_cut = digits.len() < hex.len();
        let value = bytes(digits).and_then(|bytes| match self {
            KeyColumn::Text(charset) => text(charset, &bytes, is_cut),
            column => column.value(&bytes).filter(|_| !is_cut),
        });
        value.unwrap_or_else(|| format!("0x{}", hex.to_uppercase()))
    }

    /// Formats a value of MySQL's `data_locks`: a number, a quoted text, or hexadecimal bytes.
    pub(super) fn reformat(&self, data: &str) -> String {
        if let Some(hex) = data.strip_prefix("0x") {
            return self.format(hex);
        }
        if let Some(text) = data.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
            return format!("'{}'", text.trim_end_matches(' '));
        }
        let value = data.parse().ok().and_then(|number| self.decode(number));
        value.unwrap_or_else(|| data.to_owned())
    }

    fn value(&self, bytes: &[u8]) -> Option<String> {
        match self {
            KeyColumn::Unsigned => big_endian(bytes).map(|number| number.to_string()),
            // The sign bit is inverted, so that the bytes sort like the numbers.
            KeyColumn::Signed => {
                let number = i128::from(big_endian(bytes)?);
                Some((number - (1i128 << (8 * bytes.len() - 1))).to_string())
            }
            // The first bit is an inverted sign.
            KeyColumn::Date => self.decode(big_endian(bytes)? & 0x7f_ffff),
            KeyColumn::Year | KeyColumn::Enum(_) | KeyColumn::Set(_) => {
                self.decode(big_endian(bytes)?)
            }
            KeyColumn::DateTime(digits) => date_time(bytes, *digits),
            KeyColumn::Timestamp(digits) => timestamp(bytes, *digits),
            KeyColumn::Time(digits) => time(bytes, *digits),
            KeyColumn::Decimal(precision, scale) => decimal(bytes, *precision, *scale),
            KeyColumn::Float => Some(f32::from_le_bytes(bytes.try_into().ok()?).to_string()),
            KeyColumn::Double => Some(f64::from_le_bytes(bytes.try_into().ok()?).to_string()),
            KeyColumn::Text(_) | KeyColumn::Bytes => None,
        }
    }

    /// Formats a value that is stored as a number but is not one. None for other column types.
    fn decode(&self, number: u64) -> Option<String> {
        match self {
            KeyColumn::Date => {
                let (year, month, day) = (number >> 9, number >> 5 & 15, number & 31);
                Some(format!("'{year:04}-{month:02}-{day:02}'"))
            }
            KeyColumn::Year if number == 0 => Some("0000".to_owned()),
            KeyColumn::Year => Some((1900 + number).to_string()),
            KeyColumn::Enum(values) => match number.checked_sub(1) {
                // The empty value of an invalid insert.
                None => Some("''".to_owned()),
                Some(index) => values.get(index as usize).map(|value| format!("'{value}'")),
            },
            KeyColumn::Set(values) => {
                let members = values.iter().enumerate().take(64);
                let members = members.filter(|(index, _)| number >> index & 1 == 1);
                let members: Vec<&str> = members.map(|(_, value)| value.as_str()).collect();
                Some(format!("'{}'", members.join(",")))
            }
            _ => None,
        }
    }
}

/// Splits a key of MySQL's `data_locks` into fields: `'it''s, here', 5, 0x0A`.
pub(super) fn fields(data: &str) -> Vec<&str> {
    let (mut fields, mut begin, mut is_quoted) = (Vec::new(), 0, false);
    for (at, c) in data.char_indices() {
        if c == '\'' {
            is_quoted = !is_quoted;
        } else if c == ',' && !is_quoted {
            fields.push(data[begin..at].trim());
            begin = at + 1;
        }
    }
    fields.push(data[begin..].trim());
    fields
}

/// Parses `('x','it''s')`.
fn quoted_list(text: &str) -> Vec<String> {
    let inside = text.trim().strip_prefix('(').and_then(|text| text.rsplit_once(')'));
    let inside = inside.map_or("", |(inside, _)| inside);
    let unquoted = |field: &str| Some(field.strip_prefix('\'')?.strip_suffix('\'')?.to_owned());
    fields(inside).into_iter().filter_map(unquoted).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.len().is_multiple_of(2) && !hex.is_empty();
    let byte = |at: usize| u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok();
    pairs.then(|| (0..hex.len() / 2).map(byte).collect())?
}

pub(super) fn big_endian(bytes: &[u8]) -> Option<u64> {
    let fits = !bytes.is_empty() && bytes.len() <= 8;
    fits.then(|| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn text(charset: &str, bytes: &[u8], is_cut: bool) -> Option<String> {
    let decoded: String = match charset {
        "utf8" | "utf8mb3" | "utf8mb4" | "ascii" => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            // The value is truncated within a character.
            Err(error) if is_cut && error.error_len().is_none() => {
                String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
            }
            Err(_) => return None,
        },
        // In this range latin1 of MySQL differs from ISO 8859-1.
        "latin1" if bytes.iter().any(|byte| (0x80..0xa0).contains(byte)) => return None,
        "latin1" => bytes.iter().map(|byte| char::from(*byte)).collect(),
        "utf16" | "ucs2" => {
            let units = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]));
            char::decode_utf16(units).collect::<Result<_, _>>().ok()?
        }
        "utf32" => {
            let units = bytes.chunks_exact(4);
            units.map(|unit| char::from_u32(big_endian(unit)? as u32)).collect::<Option<_>>()?
        }
        _ => return None,
    };
    let decoded = decoded.replace('\'', "''");
    let shown =
        if is_cut { format!("{decoded}…") } else { decoded.trim_end_matches(' ').to_owned() };
    Some(format!("'{shown}'"))
}

/// Decodes groups of nine digits in four bytes, smaller groups in fewer. The first bit is set for positive numbers.
fn decimal(bytes: &[u8], precision: usize, scale: usize) -> Option<String> {
    const BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
    let before = precision.checked_sub(scale)?;
    let full = std::iter::repeat_n(9, before / 9 + scale / 9);
    let groups = [before % 9].into_iter().chain(full).chain([scale % 9]);
    let (sign, flip) = if bytes.first()? & 0x80 == 0 { ("-", 0xff) } else { ("", 0) };
    let mut bytes: Vec<u8> = bytes.iter().map(|byte| byte ^ flip).collect();
    bytes[0] ^= 0x80;
    let (mut rest, mut text) = (&bytes[..], String::new());
    for digits in groups.filter(|digits| *digits > 0) {
        let (group, next) = rest.split_at_checked(BYTES[digits])?;
        text += &format!("{:0digits$}", big_endian(group)?);
        rest = next;
    }
    let (whole, point) = text.split_at_checked(before).filter(|_| rest.is_empty())?;
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    Some(if point.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{point}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes are from real servers, from a table with a column of each type.
    #[test]
    fn key_values_are_decoded() {
        for (column, charset, hex, expected) in [
            ("int", "", "80000001", "1"),
            ("int(11)", "", "7fffffff", "-1"),
            ("bigint(20)", "", "8000000000000005", "5"),
            ("tinyint", "", "7d", "-3"),
            ("mediumint unsigned", "", "14b8e2", "1358050"),
            ("bigint unsigned", "", "ffffffffffffffff", "18446744073709551615"),
            ("date", "", "8fd571", "'2026-11-17'"),
            ("year", "", "7e", "2026"),
            ("year(4)", "", "00", "0000"),
            ("datetime", "", "99bb62a2cc", "'2026-11-17 10:11:12'"),
            ("datetime(6)", "", "99bb62a2cc01e240", "'2026-11-17 10:11:12.123456'"),
            ("timestamp(3)", "", "6afc28400d7a", "'2026-11-17 10:11:12.345 UTC'"),
            ("time", "", "7f5d34", "'-10:11:12'"),
            ("time(6)", "", "7fef7cf85ee0", "'-01:02:03.500000'"),
            ("decimal(10,2)", "", "7ffffff3dd", "-12.34"),
            ("decimal(8,3)", "", "7ffb2dfdc8", "-1234.567"),
            ("decimal(3,0)", "", "8005", "5"),
            ("double", "", "000000000000f83f", "1.5"),
            ("float", "", "00002040", "2.5"),
            ("enum('x','y')", "utf8mb4", "02", "'y'"),
            ("set('p','q')", "utf8mb4", "03", "'p,q'"),
            ("char(5)", "utf8mb4", "6162202020", "'ab'"),
            ("varchar(10)", "utf8mb4", "68c3a96c6c6f", "'héllo'"),
            ("varchar(10)", "utf8mb4", "69742773", "'it''s'"),
            ("varchar(5)", "latin1", "e9", "'é'"),
            ("varchar(5)", "utf16", "00e9", "'é'"),
            ("varchar(5)", "utf8mb4", "ff", "0xFF"),
            ("varchar(5)", "sjis", "8e8e", "0x8E8E"),
            ("char(36)", "ascii", "3031…", "'01…'"),
            ("binary(3)", "", "0102ff", "0x0102FF"),
            ("bit(5)", "", "15", "0x15"),
            ("uuid", "", "307c", "0x307C"),
            ("int", "", "", "0x"),
            ("int", "", "zz", "0xZZ"),
            ("varchar(5)", "utf8mb4", "é", "0xÉ"),
        ] {
            assert_eq!(KeyColumn::parse(column, charset).format(hex), expected, "{column}");
        }
    }

    #[test]
    fn columns_are_guessed_from_their_bytes() {
        for (hex, expected) in [
            ("8000000a", "10"),
            ("7fffffff", "-1"),
            ("8000000000000005", "5"),
            ("0000000000000014", "20"),
            ("83", "0x83"),
            ("80", "0"),
            ("61646140", "'ada@'"),
            ("e69db1e4baac", "'東京'"),
            ("00112233445566778899aabbccddeeff", "0x00112233445566778899AABBCCDDEEFF"),
            ("", "0x"),
            ("zz", "0xZZ"),
        ] {
            assert_eq!(KeyColumn::guess(hex).format(hex), expected, "{hex}");
        }
        let fields = ["80000001", "000000000628", "8200000120011d", "70616964"];
        let fields = fields.map(|hex| Some(hex.to_owned()));
        assert_eq!(KeyColumn::guess_all(&fields), [KeyColumn::Signed], "only the key columns");
    }

    #[test]
    fn values_of_data_locks_have_the_same_format() {
        for (column, data, expected) in [
            ("date", "1037681", "'2026-11-17'"),
            ("year", "126", "2026"),
            ("enum('x','it''s')", "2", "'it''s'"),
            ("set('p','q')", "3", "'p,q'"),
            ("datetime", "0x99BB62A2CC", "'2026-11-17 10:11:12'"),
            ("decimal(10,2)", "0x7FFFFFF3DD", "-12.34"),
            ("int", "-5", "-5"),
            ("int", "NULL", "NULL"),
            ("char(5)", "'ab   '", "'ab'"),
        ] {
            assert_eq!(KeyColumn::parse(column, "utf8mb4").reformat(data), expected, "{column}");
        }
        assert_eq!(fields("'it''s, here', 5, 0x0A"), ["'it''s, here'", "5", "0x0A"]);
    }

    proptest! {
        #[test]
        fn garbage_does_not_panic(column in "[a-z]{1,9}(\\([0-9]{1,3}(,[0-9]{1,3})?\\))?", hex in "([0-9a-f]{2}){0,20}") {
            for name in ["decimal", "time", "datetime", "timestamp", "enum", "set", "year", "date"] {
                let column = column.replacen(|c: char| c.is_alphabetic(), name, 1);
                for charset in ["", "utf8mb4", "utf16", "utf32"] {
                    KeyColumn::parse(&column, charset).format(&hex);
                    KeyColumn::parse(name, charset).format(&hex);
                }
            }
        }
    }
}
