//! Parses messages of PostgreSQL's CSV and JSON logs. Pure.

use serde::Deserialize;

/// The fields of a log message about one error, with their names in JSON logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct LogMessage {
    #[serde(rename = "timestamp")]
    pub(super) time: Option<String>,
    pub(super) user: Option<String>,
    #[serde(rename = "dbname")]
    pub(super) database: Option<String>,
    #[serde(rename = "remote_host")]
    pub(super) host: Option<String>,
    #[serde(rename = "application_name")]
    pub(super) program: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) context: Option<String>,
    pub(super) statement: Option<String>,
    /// Whether the detail is complete: another part follows it.
    #[serde(skip)]
    pub(super) has_end: bool,
}

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
    (get(12)? == "40P01").then(|| {
        let message = LogMessage {
            time: get(0),
            user: get(1),
            database: get(2),
            // With the port.
            host: get(4).map(|host| host.rsplit_once(':').map_or(&*host, |(host, _)| host).into()),
            program: get(22),
            detail: get(14),
            context: get(18),
            statement: get(19),
            has_end: true,
        };
        (message, &text[end..])
    })
}

/// Parses a line that is the JSON object of a deadlock; its end may be cut off. None for any other line.
pub(super) fn json_object(line: &str) -> Option<LogMessage> {
    let line = line.trim();
    if !line.starts_with('{') || !line.contains("\"40P01\"") {
        return None;
    }
    let parse = |end: &str| serde_json::from_str(&format!("{line}{end}")).ok();
    let message: LogMessage = ["", "\"}"].into_iter().find_map(parse)?;
    Some(LogMessage { has_end: true, ..message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_object_is_parsed_even_if_its_end_is_missing() {
        let line = r#"{"pid":7,"user":null,"state_code":"40P01","detail":"a\"b\n\u0041\\","context":"while"}"#;
        for (line, context) in [(line, "while"), (&line[..line.len() - 4], "whi")] {
            let message = json_object(line).unwrap();
            assert_eq!(message.detail.as_deref(), Some("a\"b\nA\\"));
            assert_eq!((message.context.as_deref(), message.user), (Some(context), None));
        }
    }

    #[test]
    fn records_without_a_deadlock_are_ignored() {
        assert_eq!(csv_record("2026-11-17,a,b,1,,,,,,,,LOG,00000,\"x\"\n"), None);
        assert_eq!(json_object("{\"state_code\":\"00000\"}"), None);
        assert_eq!(json_object("{\"40P01\" x"), None);
    }
}
