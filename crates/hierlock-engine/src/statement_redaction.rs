//! Removes passwords from statements of other sessions before they are shown.

use std::borrow::Cow;

/// Words that may accompany a password, in lower case.
const SENSITIVE_WORDS: [&str; 8] =
    ["identified", "passw", "pwd", "secret", "credential", "encrypt", "decrypt", "://"];

/// The beginnings of a literal or comment, which may contain a password.
const LITERAL_STARTS: [&str; 7] = ["'", "\"", "$", "0x", "/*", "--", "#"];

/// Returns a statement without passwords: if it contains a sensitive word, it is cut before its first literal or
/// comment.
///
/// The rest is dropped, because the end of a literal depends on settings of the other session.
///
/// ```
/// use hierlock_engine::redact_statement;
/// assert_eq!(redact_statement("ALTER USER ada IDENTIFIED BY 'x'"), "ALTER USER ada IDENTIFIED BY …");
/// assert_eq!(redact_statement("SELECT 'x'"), "SELECT 'x'");
/// ```
pub fn redact_statement(sql: &str) -> Cow<'_, str> {
    // ASCII only, so that byte offsets are the same in both.
    let lower = sql.to_ascii_lowercase();
    if !SENSITIVE_WORDS.iter().any(|word| lower.contains(word)) {
        return sql.into();
    }
    let starts = LITERAL_STARTS.iter().filter_map(|start| lower.find(start));
    match starts.min() {
        Some(start) => format!("{}…", &sql[..start]).into(),
        None => sql.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_removed() {
        for (sql, shown) in [
            ("CREATE USER 'ada'@'%' IDENTIFIED BY 'hunter2'", "CREATE USER …"),
            ("set password = 'hunter2", "set password = …"),
            ("SET PASSWORD FOR ada = PASSWORD(\"hunter2\")", "SET PASSWORD FOR ada = PASSWORD(…"),
            ("ALTER ROLE ada PASSWORD $$hunter2$$", "ALTER ROLE ada PASSWORD …"),
            ("ALTER USER ada IDENTIFIED AS 0xAB12", "ALTER USER ada IDENTIFIED AS …"),
            ("SELECT dblink('postgres://ada:hunter2@h')", "SELECT dblink(…"),
            ("UPDATE u SET passwort = 'a\\', x = 'hunter2'", "UPDATE u SET passwort = …"),
            ("DO /* secret hunter2 */ 1", "DO …"),
            ("SELECT ä, passwd FROM u", "SELECT ä, passwd FROM u"),
            ("SELECT 'a' FROM t", "SELECT 'a' FROM t"),
        ] {
            assert_eq!(redact_statement(sql), shown);
        }
    }
}
