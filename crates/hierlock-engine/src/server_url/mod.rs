//! The address of a lock or a database as a person writes it, which may hold a password.

mod go_dsn;
mod parameters;
mod redact;

pub use parameters::{LOCK_PARAMETERS, UrlParameterError, UrlUse, check as check_parameters};

use crate::printable;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

/// A URL that a person has written, or what was meant to be one. `Display` and `Debug` hide what may be a password.
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
    /// Takes any text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the whole text, with the password.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the URL without password, to be passed on. A text that is no URL comes back as it is shown.
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
            let all = url.clone();
            let mut kept =
                all.query_pairs().filter(|(name, value)| !is_secret(name, value)).peekable();
            url.set_query(None);
            if kept.peek().is_some() {
                url.query_pairs_mut().extend_pairs(kept);
            }
        }
        if url.password().is_some() {
            url.set_password(None).ok()?;
        }
        Some(url.into())
    }

    /// Fails with what was probably meant if a parameter is none of the driver's, which would ignore it.
    pub fn check_parameters(&self) -> Result<(), UrlParameterError> {
        parameters::check(&self.0, UrlUse::Driver)
    }
}

/// Shows it without its password, on one line.
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

impl FromStr for ServerUrl {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self::new(text))
    }
}

impl From<&str> for ServerUrl {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for ServerUrl {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
#[cfg(feature = "_server")]
mod tests {
    use super::*;

    #[test]
    fn a_url_can_be_passed_on_without_its_password() {
        for (url, without) in [
            ("mysql://a:b@h/d", "mysql://a@h/d"),
            ("mysql://a@h/d?table=x", "mysql://a@h/d?table=x"),
            ("postgres://h/d?user=a&password=b", "postgres://h/d?user=a"),
            ("postgres://h/d?password=b", "postgres://h/d"),
            ("postgres:///d?host=/tmp&port=1", "postgres:///d?host=/tmp&port=1"),
            ("file:/a b/c@d:e", "file:/a b/c@d:e"),
            ("file:///x", "file:///x"),
            // It is opened again by whoever gets it: not a letter may differ.
            ("file:/tmp/a#b?c@d:e", "file:/tmp/a#b?c@d:e"),
            ("memory:a#b", "memory:a#b"),
        ] {
            assert_eq!(ServerUrl::new(url).without_password(), without);
            // Whoever compares two of them compares the same text.
            assert_eq!(ServerUrl::new(without).without_password(), without);
        }
    }
}
