//! Errors in the arguments of a caller: a target, a tree, or a URL.

use super::Error;
use crate::{Buckets, Hierarchy, Target};
use hierlock_engine::ServerUrl;

/// Mirrors `target`, `hierarchy`, `mode`, `key` and `plan`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("the ID at level {level} has {bytes} bytes; an ID has 1 to 255 bytes of UTF-8")]
    Id { level: usize, bytes: usize },
    #[error("a target needs at least one ID")]
    NoId,
    #[error("a target has more than {max} IDs; a tree has at most {max} levels", max = Hierarchy::MAX_LEVELS)]
    TooManyIds,
    #[error("`{path}` is not a path: {error}")]
    Path { path: String, error: Error },
    #[error("`{path}` is not a path: write %2F for a `/` inside an ID and %25 for a `%`")]
    Escape { path: String },
    #[error("`{target}` has {} IDs, but the tree has only {} levels ({levels})", target.level() + 1, levels.len())]
    TooDeep { target: Target, levels: Hierarchy },
    #[error("a tree has 1 to {max} levels, not {given} levels", max = Hierarchy::MAX_LEVELS)]
    LevelCount { given: usize },
    #[error("level {level} is named `{name}`; every level needs a unique name")]
    LevelName { level: usize, name: String },
    #[error("`{text}` is not a mode; a mode is shared, update or exclusive")]
    Mode { text: String },
    #[error("{count} is not a bucket count; a bucket count is 1 to 2147483647 (usually {})", Buckets::default().count())]
    Buckets { count: u32 },
    #[error("no target was given; name at least one node to lock")]
    NoTarget,
}

/// Mirrors `client`: the URL is invalid.
#[cfg_attr(not(feature = "_server"), allow(dead_code, reason = "only servers need it"))]
#[derive(Debug, thiserror::Error)]
pub(crate) enum UrlError {
    #[error(
        "`{url}` is not a lock URL; a lock URL is memory:, memory:NAME, file:PATH, or \
         mysql:, mariadb: or postgres://USER:PASSWORD@HOST:PORT/DATABASE"
    )]
    Scheme { url: ServerUrl },
    #[error(
        "`{url}` is not a database URL; write mysql:, mariadb: or postgres://USER:PASSWORD@HOST:PORT/DATABASE, \
         or sqlite:PATH"
    )]
    Database { url: ServerUrl },
    #[error(
        "`{url}` needs a database driver, and this program was built without one: the features `mysql` and `postgres` of \
         the crate hierlock"
    )]
    #[cfg_attr(feature = "_server", expect(dead_code, reason = "the drivers are there"))]
    NoDriver { url: ServerUrl },
    #[error("the server's URL cannot be read: {why}")]
    Server { why: String },
    #[error("`{name}` is {right}, not `{value}`")]
    Parameter { name: &'static str, value: String, right: &'static str },
    #[error("`{name}` is given by the URL and by the program; remove one of them")]
    GivenTwice { name: &'static str },
    #[error("{dialect} has no advisory locks; its strategies are striped, per-id and on-demand")]
    NoAdvisory { dialect: &'static str },
    #[error(
        "there is nothing to provision for advisory keys, the default of postgres:; name \
         ?strategy=striped or ?strategy=per-id if clients are to lock rows there"
    )]
    NothingToProvision,
    #[error(
        "the strategy {strategy} has rows by ID: it has no buckets, and the needed rows are not known"
    )]
    NotStriped { strategy: &'static str },
    #[error("the strategy {strategy} has rows for all nodes; adding some is for ?strategy=per-id")]
    NotById { strategy: &'static str },
    #[error("`{url}` names no file; write file:PATH, for example file:/run/lock/app.lock")]
    NoPath { url: ServerUrl },
    #[error(
        "`{url}` is in use with the levels {theirs}; all clients must have the same levels, not {ours}"
    )]
    OtherLevels { url: ServerUrl, theirs: Hierarchy, ours: Hierarchy },
    #[error("`{url}` needs Linux: it uses open-file-description locks. memory: works here")]
    #[cfg_attr(target_os = "linux", expect(dead_code, reason = "only for other systems"))]
    NotLinux { url: ServerUrl },
}
