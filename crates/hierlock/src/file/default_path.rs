//! The default path of the lock file.

use crate::error::{FileError, Result};
use std::path::PathBuf;

/// Returns the path of this user's lock file: in the runtime directory (`$XDG_RUNTIME_DIR`, or `/run/user/UID` where that
/// exists), else in the state directory (`$XDG_STATE_HOME`, or `~/.local/state`).
///
/// Two programs share a lock only if they use the same file. If one of them may run without a session (cron, a service),
/// pass a path. Fails if neither directory is known.
pub fn default_path() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    choose(variable, session_directory())
        .map(|directory| directory.join("hierlock").join("locks"))
        .ok_or_else(|| FileError::NoDirectory.into())
}

fn choose(
    variable: impl Fn(&'static str) -> Option<PathBuf>,
    session: Option<PathBuf>,
) -> Option<PathBuf> {
    variable("XDG_RUNTIME_DIR")
        .or(session)
        .or_else(|| variable("XDG_STATE_HOME"))
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
}

/// Returns the usual runtime directory of a session manager, even if `XDG_RUNTIME_DIR` is not set.
fn session_directory() -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    let directory = Some(PathBuf::from(format!("/run/user/{}", nix::unistd::getuid())));
    #[cfg(not(target_os = "linux"))]
    let directory: Option<PathBuf> = None;
    directory.filter(|directory| directory.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_directory_comes_before_the_state_directory_and_home() {
        let all = [("XDG_RUNTIME_DIR", "/r"), ("XDG_STATE_HOME", "/s"), ("HOME", "/h")];
        for (known, session, expected) in [
            (&all[..], Some("/run/user/1"), Some("/r")),
            (&all[1..], Some("/run/user/1"), Some("/run/user/1")),
            (&all[1..], None, Some("/s")),
            (&all[2..], None, Some("/h/.local/state")),
            (&all[3..], None, None),
        ] {
            let variable = |name| {
                known.iter().find(|(known, _)| *known == name).map(|(_, path)| PathBuf::from(path))
            };
            assert_eq!(choose(variable, session.map(PathBuf::from)), expected.map(PathBuf::from));
        }
    }
}
