//! Removes secrets from addresses. Everything unrecognized is hidden, which may be more than the password.
//!
//! 1. After `SCHEME://`, everything from the first `:` to the **last** `@` is a password, because users forget to
//!    encode an `@`, `/` or `?` in it. Without an `@`, the text in place of the port is hidden unless it is a number.
//! 2. `file:`, `memory:` and `sqlite:` name files, which are not secret.
//! 3. `USER:PASSWORD@tcp(…)/…` is a DSN of Go.
//! 4. After a `?`, only values of parameters that never contain a secret are shown.
//! 5. Any other text is hidden if it contains a character that may separate a secret.

use super::parameters;
use crate::Dialect;

const HIDDEN_TEXT: &str = "***";

const FILE_SCHEMES: [&str; 3] = ["file", "memory", "sqlite"];

/// Returns the position of the network in a DSN of Go.
fn go_network(text: &str) -> Option<usize> {
    ["@tcp(", "@unix("].into_iter().filter_map(|network| text.rfind(network)).max()
}

pub(super) fn redact(text: &str) -> String {
    if let Some((scheme, rest)) = text.split_once("://")
        && is_scheme(scheme)
    {
        let rest = match scheme {
            scheme if FILE_SCHEMES.contains(&scheme) => query(rest),
            scheme if Dialect::from_scheme(scheme).is_some() => authority(rest),
            // Maybe a user with a password that begins with two slashes.
            _ => HIDDEN_TEXT.to_owned(),
        };
        return format!("{scheme}://{rest}");
    }
    if let Some(at) = go_network(text) {
        let (login, address) = text.split_at(at);
        return format!("{}{}", user(login), query(address));
    }
    if names_file(text) {
        return query(text);
    }
    let may_precede_secret = |c: char| "@=%?#'\"".contains(c) || c.is_whitespace();
    let is_host = text
        .rsplit_once(':')
        .is_none_or(|(_, rest)| is_number(rest.split('/').next().unwrap_or_default()));
    if text.contains(may_precede_secret) || !is_host || text.matches(':').count() > 1 {
        // The first word is a misspelled scheme or a user name.
        let first: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
        let has_colon = text[first.len()..].starts_with(':');
        return if has_colon { format!("{first}:{HIDDEN_TEXT}") } else { HIDDEN_TEXT.to_owned() };
    }
    text.to_owned()
}

/// Returns whether the text is a URL of a file or of memory. A DSN of Go may begin with a user of such a name.
pub(super) fn names_file(text: &str) -> bool {
    let scheme = text.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| FILE_SCHEMES.contains(&scheme)) && go_network(text).is_none()
}

fn is_scheme(scheme: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(plain)
}

/// `USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS`
fn authority(text: &str) -> String {
    let Some((login, address)) = text.rsplit_once('@') else { return query(&port(text)) };
    if login.contains('?') {
        // The `?` belongs to the password or starts the parameters; there is no way to know.
        return HIDDEN_TEXT.to_owned();
    }
    format!("{}@{}", user(login), query(&port(address)))
}

/// `USER:PASSWORD`, also with an encoded `:`.
fn user(login: &str) -> String {
    let colon = login.to_ascii_lowercase().find("%3a");
    match [login.find(':'), colon].into_iter().flatten().min() {
        Some(end) => format!("{}:{HIDDEN_TEXT}", &login[..end]),
        None => login.to_owned(),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Hides the text in place of the port, unless it is a number.
fn port(text: &str) -> String {
    let end = text.find(['/', '?', '#']).unwrap_or(text.len());
    let (address, rest) = text.split_at(end);
    // Colons in brackets belong to an IPv6 address.
    let begin = address.find(']').unwrap_or(0);
    match address[begin..].find(':').map(|colon| begin + colon + 1) {
        // The rest is hidden too, because it may belong to the same secret.
        Some(port) if !is_number(&address[port..]) => format!("{}{HIDDEN_TEXT}", &address[..port]),
        _ => format!("{address}{rest}"),
    }
}

/// Hides parameter values that may be secrets, and everything after a `#`.
fn query(text: &str) -> String {
    let (text, fragment) = match text.split_once('#') {
        Some((text, _)) => (text, "#***"),
        None => (text, ""),
    };
    let Some((front, parameters)) = text.split_once('?') else {
        return format!("{text}{fragment}");
    };
    let show = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if parameters::is_harmless(name) && !value.contains(['?', '@']) => {
            parameter.to_owned()
        }
        Some((name, _)) => format!("{name}={HIDDEN_TEXT}"),
        None if parameter.is_empty() => String::new(),
        None => HIDDEN_TEXT.to_owned(),
    };
    let shown: Vec<String> = parameters.split('&').map(show).collect();
    format!("{front}?{}{fragment}", shown.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_secrets_are_hidden() {
        for (text, shown) in [
            ("mysql://u:pw@127.0.0.1:3306/d?table=x", "mysql://u:***@127.0.0.1:3306/d?table=x"),
            ("mysql://root@h/d", "mysql://root@h/d"),
            ("mysql://h:3306/d", "mysql://h:3306/d"),
            ("postgres://u:pw@[::1]:5432/d", "postgres://u:***@[::1]:5432/d"),
            ("postgres://[::1]:5432/d", "postgres://[::1]:5432/d"),
            (
                "postgres://h/d?user=a&password=pw&sslmode=require",
                "postgres://h/d?user=a&password=***&sslmode=require",
            ),
            ("mysql://h/d?sslkey=/etc/key.pem&pw=pw", "mysql://h/d?sslkey=***&pw=***"),
            ("u:pw@tcp(127.0.0.1:3306)/d?parseTime=x", "u:***@tcp(127.0.0.1:3306)/d?parseTime=***"),
            ("root@unix(/run/my.sock)/app", "root@unix(/run/my.sock)/app"),
            ("mysql://u:p/w@x?y#z@h:1/d", "mysql://***"),
            ("root://pw@h/d", "root://***"),
            ("mysql://u:p/w#z@h:1/d", "mysql://u:***@h:1/d"),
            ("mysql://u:p@w@h/d", "mysql://u:***@h/d"),
            ("mysql://u%3Apw@h/d", "mysql://u:***@h/d"),
            ("mysql://root:pw/d", "mysql://root:***"),
            ("mysql://root:pw%40h/d", "mysql://root:***"),
            ("mysql:root:pw@h/d", "mysql:***"),
            ("root:pw@h/d", "root:***"),
            ("root:pw", "root:***"),
            ("localhost:3306", "localhost:3306"),
            ("localhost:3306/d", "localhost:3306/d"),
            ("nothing", "nothing"),
            ("", ""),
            ("host=h password=pw", "***"),
            ("password = 'a b'", "***"),
            ("memory:x", "memory:x"),
            ("file:/tmp/a:b@c", "file:/tmp/a:b@c"),
            ("file:pw@tcp(h)/d", "file:***@tcp(h)/d"),
            ("sqlite:/x.db?mode=rw", "sqlite:/x.db?mode=rw"),
        ] {
            assert_eq!(redact(text), shown, "{text}");
        }
    }

    proptest! {
        /// No four characters in a row of a password are shown, in any form of address.
        #[test]
        fn passwords_are_hidden(
            secret in "[Ss3:/@?#%&= '\"()+]{1,8}SECRET[Ss3:/@?#%&= '\"()+]{0,8}",
            form in 0usize..12,
        ) {
            let encoded: String =
                secret.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let text = match form {
                0 => format!("mysql://root:{secret}@h:3306/d?table=x"),
                1 => format!("postgres://root:{encoded}@h/d"),
                2 => format!("root:{secret}@tcp(127.0.0.1:3306)/d?parseTime=true"),
                3 => format!("root:{secret}@unix(/run/s)/d"),
                4 => format!("root:{secret}@h:3306/d"),
                5 => format!("host=h user=root password='{secret}' dbname=d"),
                6 => format!("postgres://h/d?user=root&password={encoded}"),
                7 => format!("mysql:root:{secret}@h/d"),
                8 => format!("//root:{secret}@h/d"),
                // Other characters would make the rest a host or a database.
                9 => format!("mysql://root:{}", secret.replace(|c| "@/?#3".contains(c), ":")),
                10 => format!("mysql://root%3A{secret}@h/d"),
                _ => format!("mysql://h/d?sslpassword={encoded}&x={encoded}#{secret}"),
            };
            let shown = redact(&text);
            prop_assert!(!shown.contains("SECRET"), "{text}: {shown}");
            prop_assert!(!shown.contains("%53%45%43"), "{text}: {shown}");
        }
    }
}
