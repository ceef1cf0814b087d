//! The form in which Go programs name a MySQL server: `user:pw@tcp(127.0.0.1:3306)/database?options`.

use super::ServerUrl;

impl ServerUrl {
    /// Reads a URL, or a DSN as Go programs write it for MySQL: `user:pw@tcp(db:3306)/shop`. None if it is neither.
    pub fn from_dsn(text: &str) -> Option<Self> {
        if text.contains("://") {
            return Some(Self::new(text));
        }
        // The last slash and the last `@` before it: both may stand in a password.
        let (front, database) = text.rsplit_once('/')?;
        let (login, address) = front.rsplit_once('@').unwrap_or(("", front));
        // What follows is for Go's driver.
        let database = database.split('?').next().unwrap_or_default();
        let login = match login.split_once(':') {
            Some(("", _)) => String::new(),
            Some((user, password)) => format!("{}:{}@", encoded(user), encoded(password)),
            None if login.is_empty() => String::new(),
            None => format!("{}@", encoded(login)),
        };
        let inside = |network: &str| {
            let inside = address.strip_prefix(network)?.strip_prefix('(')?.strip_suffix(')')?;
            Some(inside).filter(|inside| !inside.is_empty())
        };
        if let Some(host) = inside("tcp") {
            return Some(Self(format!("mysql://{login}{host}/{database}")));
        }
        let socket = encoded(inside("unix")?);
        Some(Self(format!("mysql://{login}localhost/{database}?socket={socket}")))
    }
}

fn encoded(text: &str) -> String {
    // A blank is a plus there, which is a plus to others.
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
