//! The DSN of Go's MySQL driver: `user:pw@tcp(127.0.0.1:3306)/database?options`.

use super::ServerUrl;

impl ServerUrl {
    /// Parses a URL, or a DSN of Go's MySQL driver: `user:pw@tcp(db:3306)/shop`. Returns None for any other text.
    pub fn from_dsn(text: &str) -> Option<Self> {
        if text.contains("://") {
            return Some(Self::new(text));
        }
        // The last slash and the last `@` before it, because a password may contain both.
        let (front, database) = text.rsplit_once('/')?;
        let (login, address) = front.rsplit_once('@').unwrap_or(("", front));
        // The parameters are for Go's driver.
        let database = database.split('?').next().unwrap_or_default();
        let login = match login.split_once(':') {
            Some(("", _)) => String::new(),
            Some((user, password)) => format!("{}:{}@", encode(user), encode(password)),
            None if login.is_empty() => String::new(),
            None => format!("{}@", encode(login)),
        };
        let in_parentheses = |network: &str| {
            let inside = address.strip_prefix(network)?.strip_prefix('(')?.strip_suffix(')')?;
            Some(inside).filter(|inside| !inside.is_empty())
        };
        if let Some(host) = in_parentheses("tcp") {
            return Some(Self(format!("mysql://{login}{host}/{database}")));
        }
        let socket = encode(in_parentheses("unix")?);
        Some(Self(format!("mysql://{login}localhost/{database}?socket={socket}")))
    }
}

fn encode(text: &str) -> String {
    // This encoder writes a space as `+`, which is a plain plus in a URL.
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
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
            assert_eq!(ServerUrl::from_dsn(dsn).unwrap().expose(), url);
        }
        for dsn in ["", "root", "root@tcp(127.0.0.1:1)", "root@tcp()/x", "root@127.0.0.1:1/x"] {
            assert_eq!(ServerUrl::from_dsn(dsn), None, "{dsn}");
        }
    }
}
