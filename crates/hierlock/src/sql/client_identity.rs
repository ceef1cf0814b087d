//! The name of a client in the server's list of sessions: application, program, host and process id.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The characters that are percent-encoded: all but letters, digits, `-`, `_` and `.`. An identity is part of SQL literals,
/// and PostgreSQL accepts only printable ASCII in `application_name`.
pub(super) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The bytes of a program or a host that remain if an identity must be cut.
const CUT_LENGTH: usize = 8;

/// The name of a client in the server's list of sessions: `billing/rebuild-index@web-3:4711`.
///
/// ```
/// use hierlock::sql::ClientIdentity;
///
/// let client: ClientIdentity = "billing/rebuild-index@web-3:4711".parse().unwrap();
/// assert_eq!(client.application.as_deref(), Some("billing"));
/// assert_eq!((&*client.program, &*client.host, client.pid), ("rebuild-index", "web-3", 4711));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The name set with [`Builder::application`](crate::Builder::application).
    pub application: Option<String>,
    /// The file name of the program, or the name set with [`Builder::program`](crate::Builder::program).
    pub program: String,
    /// The name of the client's host.
    pub host: String,
    /// The process id of the client on its host.
    pub pid: u32,
}

impl ClientIdentity {
    /// Returns the identity of this process. By default `program` is the file name of the program.
    pub(super) fn of_process(application: Option<String>, program: Option<String>) -> Self {
        let program = program.unwrap_or_else(|| {
            let file = std::env::args_os().next().unwrap_or_default();
            let name = std::path::Path::new(&file).file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        });
        Self { application, program, host: host_name(), pid: std::process::id() }
    }

    /// Returns the identity as text, shortened to fit into `limit` bytes. Removes the domain of the host first, then the
    /// application; then cuts program and host, which end with `*`. Never removes the process id, so that the result can
    /// be longer than a very small `limit`.
    pub(super) fn within(&self, limit: usize) -> String {
        let cut = |part: &str| {
            let part = encode(part);
            if part.len() <= CUT_LENGTH {
                part.into_owned()
            } else {
                format!("{}*", &part[..CUT_LENGTH])
            }
        };
        let full = self.to_string();
        if full.len() <= limit {
            return full;
        }
        let host = self.host.split('.').next().unwrap_or_default().to_owned();
        let short_host = Self { host, ..self.clone() };
        let no_application = Self { application: None, ..short_host.clone() };
        let Self { program, host, pid, .. } = &no_application;
        let cut_program = format!("{}@{}:{pid}", cut(program), encode(host));
        let shortest = format!("{}@{}:{pid}", cut(program), cut(host));
        let longest_first = [short_host.to_string(), no_application.to_string(), cut_program];
        longest_first.into_iter().find(|text| text.len() <= limit).unwrap_or(shortest)
    }
}

fn encode(part: &str) -> Cow<'_, str> {
    utf8_percent_encode(part, ENCODED).into()
}

#[cfg(target_os = "linux")]
fn host_name() -> String {
    nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(not(target_os = "linux"))]
fn host_name() -> String {
    std::env::var("HOSTNAME").unwrap_or_default()
}

impl fmt::Display for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(application) = &self.application {
            write!(f, "{}/", encode(application))?;
        }
        write!(f, "{}@{}:{}", encode(&self.program), encode(&self.host), self.pid)
    }
}

/// The error for a text that is no client identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not the identity of a client, such as billing/rebuild-index@web-3:4711")]
pub struct InvalidIdentity;

impl FromStr for ClientIdentity {
    type Err = InvalidIdentity;

    fn from_str(text: &str) -> Result<Self, InvalidIdentity> {
        let (names, process) = text.rsplit_once('@').ok_or(InvalidIdentity)?;
        let (host, pid) = process.rsplit_once(':').ok_or(InvalidIdentity)?;
        let (application, program) = match names.split_once('/') {
            Some((application, program)) => (Some(decode(application)?), program),
            None => (None, names),
        };
        let pid = pid.parse().map_err(|_| InvalidIdentity)?;
        Ok(Self { application, program: decode(program)?, host: decode(host)?, pid })
    }
}

fn decode(part: &str) -> Result<String, InvalidIdentity> {
    let is_encoded = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%*".contains(&byte);
    let text = percent_decode_str(part).decode_utf8();
    match text {
        Ok(text) if part.bytes().all(is_encoded) => Ok(text.into_owned()),
        _ => Err(InvalidIdentity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(application: &str, program: &str, host: &str) -> ClientIdentity {
        let application = (!application.is_empty()).then(|| application.to_owned());
        ClientIdentity { application, program: program.into(), host: host.into(), pid: 4711 }
    }

    #[test]
    fn an_identity_survives_formatting_and_parsing() {
        for (identity, text) in [
            (identity("", "cron", "web-3"), "cron@web-3:4711"),
            (identity("billing", "rebuild-index", "web-3"), "billing/rebuild-index@web-3:4711"),
            (identity("a/b", "it's \\ 50%", "host"), "a%2Fb/it%27s%20%5C%2050%25@host:4711"),
            (identity("", "索引", "h@1:2"), "%E7%B4%A2%E5%BC%95@h%401%3A2:4711"),
            (identity("", "", ""), "@:4711"),
        ] {
            assert_eq!(identity.to_string(), text);
            assert_eq!(text.parse(), Ok(identity));
        }
        for text in ["", "psql", "a@b", "a@b:c", "a b@c:1", "DBeaver 24 - Main@x:1", "a@b:-1"] {
            assert_eq!(text.parse::<ClientIdentity>(), Err(InvalidIdentity), "{text}");
        }
    }

    #[test]
    fn a_long_identity_is_shortened_to_the_limit() {
        let long = identity("billing", "rebuild-index", "web-3.eu.example.org");
        for (limit, text) in [
            (60, "billing/rebuild-index@web-3.eu.example.org:4711"),
            (40, "billing/rebuild-index@web-3:4711"),
            (30, "rebuild-index@web-3:4711"),
            (20, "rebuild-*@web-3:4711"),
            (1, "rebuild-*@web-3:4711"),
        ] {
            assert_eq!(long.within(limit), text);
            assert!(text.parse::<ClientIdentity>().is_ok(), "{text}");
        }
        assert_eq!(identity("", "p", "a-rather-long-host").within(18), "p@a-rather*:4711");
    }

    #[test]
    fn this_process_has_an_identity() {
        let identity = ClientIdentity::of_process(None, None);
        assert_eq!(identity.pid, std::process::id());
        assert!(!identity.program.is_empty() && !identity.host.is_empty(), "{identity}");
    }
}
