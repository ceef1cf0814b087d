//! The URL of a lock or a database, which may contain a password.

mod go_dsn;
mod parameters;
mod redact;

pub use parameters::{LOCK_PARAMETERS, UrlParameterError, UrlUse, check as check_parameters};

use crate::printable;
use std::fmt;

/// A URL, or a text that was meant to be one. `Display` and `Debug` hide everything that may be a password.
///
/// ```
/// use hierlock_engine::ServerUrl;
///
/// let url = ServerUrl::new("mysql://app:secret@db:3306/shop?strategy=per-id");
/// assert_eq!(url.to_string(), "mysql://app:***@db:3306/shop?strategy=per-id");
/// let dsn = ServerUrl::new("app:secret@tcp(db:3306)/shop");
/// assert_eq!(dsn.to_string(), "app:***@tcp(db:3306)/shop");
/// # #[cfg(feature = "mysql")]
/// assert_eq!(url.without_password(), "mysql://app@db:3306/shop?strategy=per-id");
/// assert!(url.expose().contains("secret"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Makes a `ServerUrl` of any text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the whole text, including the password.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the URL without password, for use by another process. A text that is not a URL is returned as `Display`
    /// prints it.
    pub fn without_password(&self) -> String {
        if redact::names_file(&self.0) {
            return self.0.clone();
        }
        #[cfg(feature = "_server")]
        if let Some(url) = self.server_without_password() {
            return url;
        }
        self.to_string()
    }

    #[cfg(feature = "_server")]
    fn server_without_password(&self) -> Option<String> {
        let mut url = url::Url::parse(&self.0).ok()?;
        crate::Dialect::from_scheme(url.scheme())?;
        let is_secret = |name: &str, value: &str| {
            ["password", "sslpassword"].contains(&name) || value.contains("PRIVATE KEY")
        };
        if url.query_pairs().any(|(name, value)| is_secret(&name, &value)) {
            let original = url.clone();
            let mut parameters =
                original.query_pairs().filter(|(name, value)| !is_secret(name, value)).peekable();
            url.set_query(None);
            if parameters.peek().is_some() {
                url.query_pairs_mut().extend_pairs(parameters);
            }
        }
        if url.password().is_some() {
            url.set_password(None).ok()?;
        }
        Some(url.into())
    }
}

/// Prints the URL without its password, on one line.
impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&redact::redact(&self.0)))
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&redact::redact(&self.0), f)
    }
}

impl<T: Into<String>> From<T> for ServerUrl {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
#[cfg(feature = "_server")]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_removed_from_a_url() {
        for (url, without) in [
            ("mysql://a:b@h/d", "mysql://a@h/d"),
            ("mysql://a@h/d?table=x", "mysql://a@h/d?table=x"),
            ("postgres://h/d?user=a&password=b", "postgres://h/d?user=a"),
            ("postgres://h/d?password=b", "postgres://h/d"),
            ("postgres:///d?host=/tmp&port=1", "postgres:///d?host=/tmp&port=1"),
            ("file:/a b/c@d:e", "file:/a b/c@d:e"),
            ("file:///x", "file:///x"),
            // The path is opened again, so it must be the same to the letter.
            ("file:/tmp/a#b?c@d:e", "file:/tmp/a#b?c@d:e"),
            ("memory:a#b", "memory:a#b"),
        ] {
            assert_eq!(ServerUrl::new(url).without_password(), without);
            // The result is stable, so two of them can be compared.
            assert_eq!(ServerUrl::new(without).without_password(), without);
        }
    }
}
