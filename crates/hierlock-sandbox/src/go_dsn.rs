//! The form in which Go programs name a MySQL server: `user:pw@tcp(127.0.0.1:3306)/database?options`.

/// As a URL; what is wrong with it, otherwise. A URL stays as it is.
pub(crate) fn to_url(dsn: &str) -> Result<String, String> {
    if dsn.contains("://") {
        return Ok(dsn.to_owned());
    }
    // It may hold a password, and is not shown.
    let wrong = || {
        "its value is neither a URL nor a DSN; write mysql://user:pw@127.0.0.1:3306/database or \
         user:pw@tcp(127.0.0.1:3306)/database"
            .to_owned()
    };
    // The last slash and the last `@` before it: both may stand in a password.
    let (front, database) = dsn.rsplit_once('/').ok_or_else(wrong)?;
    let (login, address) = front.rsplit_once('@').unwrap_or(("", front));
    // What follows is for Go's driver.
    let database = database.split('?').next().unwrap_or_default();
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    let inside = |kind: &str| address.strip_prefix(kind)?.strip_prefix('(')?.strip_suffix(')');
    let password = password.map(|password| format!(":{}", escape(password))).unwrap_or_default();
    let login = match user {
        "" => String::new(),
        user => format!("{}{password}@", escape(user)),
    };
    match (inside("tcp"), inside("unix")) {
        (Some(host), _) if !host.is_empty() => Ok(format!("mysql://{login}{host}/{database}")),
        (_, Some(socket)) if !socket.is_empty() => {
            Ok(format!("mysql://{login}localhost/{database}?socket={}", escape(socket)))
        }
        _ => Err(wrong()),
    }
}

/// What may not stand plainly in a URL.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dsns_become_urls() {
        for (dsn, url) in [
            ("user:pw@tcp(127.0.0.1:3306)/mgl_test", "mysql://user:pw@127.0.0.1:3306/mgl_test"),
            ("root@tcp(db:3306)/x?parseTime=true&loc=UTC", "mysql://root@db:3306/x"),
            ("root:p@ss/w:rd@tcp(127.0.0.1:1)/x", "mysql://root:p%40ss%2Fw%3Ard@127.0.0.1:1/x"),
            ("tcp(127.0.0.1:1)/", "mysql://127.0.0.1:1/"),
            ("a@unix(/run/my.sock)/x", "mysql://a@localhost/x?socket=%2Frun%2Fmy.sock"),
            ("mysql://a@b/c", "mysql://a@b/c"),
        ] {
            assert_eq!(to_url(dsn).as_deref(), Ok(url));
        }
        for dsn in ["", "root", "root@tcp(127.0.0.1:1)", "root@tcp()/x", "root@127.0.0.1:1/x"] {
            assert!(to_url(dsn).unwrap_err().contains("tcp(127.0.0.1:3306)"), "{dsn}");
        }
    }
}
