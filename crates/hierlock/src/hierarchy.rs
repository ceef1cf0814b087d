//! The names of a tree's levels. All clients that share locks have the same hierarchy.

use crate::error::{Result, TargetError};
use crate::target::Target;
use std::fmt;
use std::sync::Arc;

/// The named levels of a tree, root first; by default `user → account → resource`.
///
/// ```
/// use hierlock::Hierarchy;
///
/// let tree = Hierarchy::new(["org", "team", "project", "doc"])?;
/// let team = tree.target(["acme", "search"])?;
/// assert_eq!(team.to_string(), "acme/search");
/// assert_eq!(tree.level_name(team.level()), "team");
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    names: Arc<[Box<str>]>,
}

impl Hierarchy {
    /// The maximum number of levels.
    pub const MAX_LEVELS: usize = 8;

    /// Names the levels of a tree, root first. Fails if there are none, or more than [`MAX_LEVELS`](Self::MAX_LEVELS), or
    /// if a name is empty or given twice.
    pub fn new<N: Into<Box<str>>>(names: impl IntoIterator<Item = N>) -> Result<Self> {
        let names: Arc<[Box<str>]> = names.into_iter().map(Into::into).collect();
        if names.is_empty() || names.len() > Self::MAX_LEVELS {
            return Err(TargetError::LevelCount { given: names.len() }.into());
        }
        for (level, name) in names.iter().enumerate() {
            if name.is_empty() || names[..level].contains(name) {
                return Err(TargetError::LevelName { level, name: name.to_string() }.into());
            }
        }
        Ok(Self { names })
    }

    /// Returns the number of levels.
    #[expect(clippy::len_without_is_empty, reason = "a hierarchy is never empty")]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the name of a level; `(no such level)` below the deepest.
    pub fn level_name(&self, level: usize) -> &str {
        self.names.get(level).map_or("(no such level)", |name| name)
    }

    /// Returns whether this is the level of the leaves.
    pub fn is_leaf(&self, level: usize) -> bool {
        level + 1 == self.len()
    }

    /// Returns the node with these IDs from the root. Fails as [`Target::path`], or if the tree has fewer levels.
    pub fn target<I: AsRef<str>>(&self, ids: impl IntoIterator<Item = I>) -> Result<Target> {
        let target = Target::path(ids)?;
        self.check(&target)?;
        Ok(target)
    }

    /// Parses the path text of a node (`acme/search`). Fails as [`target`](Self::target), and on an escape other than
    /// `%2F` and `%25`.
    pub fn parse(&self, path: &str) -> Result<Target> {
        let target = path.parse()?;
        self.check(&target)?;
        Ok(target)
    }

    /// Fails if the target is deeper than this tree.
    pub(crate) fn check(&self, target: &Target) -> Result<()> {
        if target.level() < self.len() {
            return Ok(());
        }
        Err(TargetError::TooDeep { target: target.clone(), levels: self.clone() }.into())
    }
}

impl Default for Hierarchy {
    fn default() -> Self {
        Self { names: ["user", "account", "resource"].map(Box::from).into() }
    }
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_one_to_eight_levels_with_different_names() {
        assert!(Hierarchy::new(["a", "b", "c", "d", "e", "f", "g", "h"]).is_ok());
        for (names, expected) in [
            (vec![], "0 levels"),
            (vec!["a", "b", "c", "d", "e", "f", "g", "h", "i"], "9 levels"),
            (vec!["a", "a"], "`a`"),
            (vec!["a", ""], "level 1"),
        ] {
            let message = Hierarchy::new(names).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn the_error_for_a_too_deep_target_names_the_target_and_the_tree() {
        let tree = Hierarchy::new(["org", "team"]).unwrap();
        assert!(tree.parse("o/t").is_ok());
        let message = tree.parse("o/t/p").unwrap_err().to_string();
        assert!(message.contains("o/t/p") && message.contains("org/team"), "{message}");
    }
}
