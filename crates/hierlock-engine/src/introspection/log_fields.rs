//! Parses messages of PostgreSQL's CSV and JSON logs. Pure.

/// The fields of a log message about one error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogMessage {
    pub(super) time: Option<String>,
    pub(super) user: Option<String>,
    pub(super) database: Option<String>,
    pub(super) host: Option<String>,
    pub(super) program: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) context: Option<String>,
    pub(super) statement: Option<String>,
    /// Whether the detail is complete: another part follows it.
    pub(super) has_end: bool,
}

/// The SQLSTATE of a deadlock.
const DEADLOCK: &str = "40P01";

/// Parses a CSV record of a deadlock at the start of a text; it may span several lines. Returns the rest of the text.
/// None if the text does not start with such a record.
pub(super) fn csv_record(text: &str) -> Option<(LogMessage, &str)> {
    let line = text.lines().next()?;
    if !line.contains(",40P01,") {
        return None;
    }
    let (mut fields, mut field, mut is_quoted) = (Vec::new(), String::new(), false);
    let mut characters = text.char_indices().peekable();
    let mut end = text.len();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' if is_quoted && characters.next_if(|(_, next)| *next == '"').is_some() => {
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(std::mem::take(&mut field)),
            '\n' if !is_quoted => {
                end = at + 1;
                break;
            }
            c => field.push(c),
        }
    }
    fields.push(field);
    // The columns of PostgreSQL's CSV log. With a prefix before the first column, the SQLSTATE is not in column 12.
    let get = |column: usize| fields.get(column).filter(|value| !value.is_empty()).cloned();
    let code = fields.iter().position(|value| value == DEADLOCK)?;
    (code == 12).then(|| {
        let message = LogMessage {
            time: get(0),
            user: get(1),
            database: get(2),
            host: get(4).map(|host| {
                host.rsplit_once(':').map_or(host.clone(), |(host, _)| host.to_owned())
            }),
            program: get(22),
            detail: get(14),
            context: get(18),
            statement: get(19),
            has_end: true,
        };
        (message, &text[end..])
    })
}

/// Parses a line that is the JSON object of a deadlock. None for any other line.
pub(super) fn json_object(line: &str) -> Option<LogMessage> {
    let line = line.trim();
    if !line.starts_with('{') || !line.contains("\"40P01\"") {
        return None;
    }
    let mut message = LogMessage { has_end: true, ..LogMessage::default() };
    let mut rest = &line[1..];
    while let Some((key, after)) = json_string(rest) {
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        let (text, after) = match json_string(value) {
            Some((text, after)) => (Some(text), after),
            None => (None, value.trim_start_matches(|c| !",}".contains(c))),
        };
        let field = match key.as_str() {
            "timestamp" => &mut message.time,
            "user" => &mut message.user,
            "dbname" => &mut message.database,
            "remote_host" => &mut message.host,
            "application_name" => &mut message.program,
            "detail" => &mut message.detail,
            "context" => &mut message.context,
            "statement" => &mut message.statement,
            _ => &mut None,
        };
        *field = text;
        rest = after.trim_start().trim_start_matches(',').trim_start();
    }
    Some(message)
}

/// Parses a JSON string at the start of a text. Returns the rest of the text.
fn json_string(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix('"')?;
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'r' => value.push('\r'),
                'u' => {
                    let digits: String = characters.by_ref().take(4).map(|(_, c)| c).collect();
                    let number = u32::from_str_radix(&digits, 16).ok()?;
                    value.push(char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                other => value.push(other),
            },
            c => value.push(c),
        }
    }
    // The text is cut off.
    Some((value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_in_json_strings_are_decoded() {
        assert_eq!(json_string(r#""a\"b\n\u0041\\" x"#), Some(("a\"b\nA\\".to_owned(), " x")));
        assert_eq!(json_string("x"), None);
    }

    #[test]
    fn records_without_a_deadlock_are_ignored() {
        assert_eq!(csv_record("2026-11-17,a,b,1,,,,,,,,LOG,00000,\"x\"\n"), None);
        assert_eq!(json_object("{\"state_code\":\"00000\"}"), None);
    }
}
