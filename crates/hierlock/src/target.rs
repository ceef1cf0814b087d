//! Targets: nodes of the tree, given as the IDs from the root, and their path text.

use crate::error::{Error, Result, TargetError};
use crate::hierarchy::Hierarchy;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A node of the tree, given as its path from the root.
///
/// IDs are 1 to [255](Self::MAX_ID_BYTES) bytes of UTF-8; every constructor fails otherwise. In path text a `/` or `%`
/// inside an ID is written `%2F`, `%25`.
///
/// ```
/// use hierlock::Target;
///
/// let target = Target::resource("u1", "a1", "50% off/sale")?;
/// assert_eq!(target.to_string(), "u1/a1/50%25 off%2Fsale");
/// assert_eq!(target, "u1/a1/50%25 off%2Fsale".parse()?);
/// assert_eq!(target.parent(), Some(Target::account("u1", "a1")?));
/// assert!(Target::user("").is_err());
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Every ID from the root, each after its length in bytes. So a prefix that ends with an ID is an ancestor, equal bytes
    /// are equal nodes, and a target is one allocation.
    bytes: Arc<[u8]>,
}

impl Target {
    /// The maximum length of an ID, in bytes.
    pub const MAX_ID_BYTES: usize = 255;

    /// Returns a user, the root level of the default tree.
    pub fn user(user: &str) -> Result<Self> {
        Self::path([user])
    }

    /// Returns an account of a user.
    pub fn account(user: &str, account: &str) -> Result<Self> {
        Self::path([user, account])
    }

    /// Returns a resource of an account.
    pub fn resource(user: &str, account: &str, resource: &str) -> Result<Self> {
        Self::path([user, account, resource])
    }

    /// Returns the node with these IDs from the root, of any tree. Fails also if there are no IDs, or more than
    /// [`Hierarchy::MAX_LEVELS`].
    pub fn path<I: AsRef<str>>(ids: impl IntoIterator<Item = I>) -> Result<Self> {
        Self::join(&[], ids)
    }

    /// Returns the node with these IDs below `parent`, which is given as its bytes.
    fn join<I: AsRef<str>>(parent: &[u8], ids: impl IntoIterator<Item = I>) -> Result<Self> {
        let mut level = ends_of(parent).count();
        // Built on the stack, so that a target costs one allocation.
        let mut bytes: SmallVec<[u8; 128]> = SmallVec::from_slice(parent);
        for id in ids {
            let id = id.as_ref();
            if level == Hierarchy::MAX_LEVELS {
                return Err(TargetError::TooManyIds.into());
            }
            match u8::try_from(id.len()) {
                Ok(length @ 1..) => bytes.push(length),
                _ => return Err(TargetError::Id { level, bytes: id.len() }.into()),
            }
            bytes.extend_from_slice(id.as_bytes());
            level += 1;
        }
        if level == 0 {
            return Err(TargetError::NoId.into());
        }
        Ok(Self { bytes: bytes.as_slice().into() })
    }

    /// Returns the child of this node with that ID. Fails as [`path`](Self::path).
    ///
    /// ```
    /// # use hierlock::Target;
    /// let account = Target::account("u1", "a1")?;
    /// assert_eq!(account.child("r1")?, Target::resource("u1", "a1", "r1")?);
    /// # Ok::<(), hierlock::Error>(())
    /// ```
    pub fn child(&self, id: &str) -> Result<Self> {
        Self::join(&self.bytes, [id])
    }

    getters! { self:
        /// Returns the level of the node: 0 at the root.
        level -> usize = self.ends().count() - 1;
        /// Returns the IDs from the root to this node.
        ids -> impl Iterator<Item = &str> = ids_of(&self.bytes)
            .map(|id| std::str::from_utf8(id).expect("an ID is made from text"));
        /// Returns the parent, or `None` for a root.
        parent -> Option<Target> = self.level().checked_sub(1).map(|level| self.ancestor(level));
    }

    /// Returns the ancestor at a level; the node itself at its own level or below.
    pub fn ancestor(&self, level: usize) -> Target {
        self.cut(self.ends().nth(level).unwrap_or(self.bytes.len()))
    }

    /// Returns whether this node is the other node or an ancestor of it.
    ///
    /// ```
    /// # use hierlock::Target;
    /// let account = Target::account("u1", "a1")?;
    /// assert!(account.contains(&Target::resource("u1", "a1", "r1")?));
    /// assert!(!account.contains(&Target::account("u1", "a10")?));
    /// # Ok::<(), hierlock::Error>(())
    /// ```
    pub fn contains(&self, other: &Target) -> bool {
        other.bytes.starts_with(&self.bytes)
    }

    /// Returns the IDs, each after its length; see the field.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the end of each ancestor within the bytes, the root first, this node last.
    pub(crate) fn ends(&self) -> impl Iterator<Item = usize> {
        ends_of(&self.bytes)
    }

    /// Returns the ancestor whose bytes end at `end`.
    pub(crate) fn cut(&self, end: usize) -> Target {
        match &self.bytes[..end] {
            whole if whole.len() == self.bytes.len() => self.clone(),
            part => Target { bytes: part.into() },
        }
    }

    /// Returns whether both targets have the same ancestor up to `end`.
    pub(crate) fn has_same_ancestor(&self, other: &Target, end: usize) -> bool {
        Arc::ptr_eq(&self.bytes, &other.bytes) || self.bytes[..end] == other.bytes[..end]
    }

    /// Compares by path, so that all nodes below one node are adjacent.
    pub(crate) fn path_cmp(&self, other: &Target) -> Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

/// Returns the end of each ID within the bytes of a target.
fn ends_of(path: &[u8]) -> impl Iterator<Item = usize> {
    let mut end = 0;
    std::iter::from_fn(move || {
        end += 1 + usize::from(*path.get(end)?);
        Some(end)
    })
}

/// Returns the IDs within the bytes of a target.
pub(crate) fn ids_of(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    ends_of(path).map(move |end| {
        let id = &path[start + 1..end];
        start = end;
        id
    })
}

/// Compares by level first, then by the IDs from the root; a shorter ID comes first (`r9`, `r10`).
impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        self.level().cmp(&other.level()).then_with(|| self.path_cmp(other))
    }
}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.ids().map(|id| id.replace('%', "%25").replace('/', "%2F"));
        f.pad(&ids.collect::<Vec<_>>().join("/"))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(path: &str) -> Result<Self> {
        let ids = path
            .split('/')
            .map(|id| unescape(id).ok_or_else(|| TargetError::Escape { path: path.to_owned() }))
            .collect::<Result<Vec<_>, _>>()?;
        Target::path(ids).map_err(|error| TargetError::Path { path: path.to_owned(), error }.into())
    }
}

/// Replaces `%2F` by `/` and `%25` by `%`. Returns `None` for any other escape.
fn unescape(id: &str) -> Option<String> {
    let is_known = |part: &str| ["2F", "2f", "25"].iter().any(|code| part.starts_with(code));
    let is_valid = id.split('%').skip(1).all(is_known);
    // `%25` last, so that the `%` which it leaves begins no escape.
    is_valid.then(|| id.replace("%2F", "/").replace("%2f", "/").replace("%25", "%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ids() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec("[a/%\\PC\u{3042}]{1,60}", 1..=8)
    }

    proptest! {
        #[test]
        fn path_text_parses_back_to_its_target(ids in ids()) {
            let target = Target::path(&ids).unwrap();
            prop_assert_eq!(&target.to_string().parse::<Target>().unwrap(), &target);
            prop_assert!(target.ids().eq(&ids));
            prop_assert_eq!(target.level(), ids.len() - 1);
        }

        #[test]
        fn parsing_any_text_returns_a_target_or_an_error_message(text in ".*") {
            match text.parse::<Target>() {
                Ok(target) => prop_assert_eq!(target.to_string().to_lowercase(), text.to_lowercase()),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn prefixes_are_ancestors(ids in ids(), other in ids()) {
            let (target, other) = (Target::path(&ids).unwrap(), Target::path(&other).unwrap());
            for level in 0..ids.len() {
                prop_assert_eq!(&target.ancestor(level), &Target::path(&ids[..=level]).unwrap());
                prop_assert!(target.ancestor(level).contains(&target));
            }
            prop_assert_eq!(target.contains(&other), other.ids().take(ids.len()).eq(target.ids()));
        }
    }

    #[test]
    fn an_id_is_one_to_255_bytes() {
        assert!(Target::user(&"é".repeat(127)).is_ok());
        assert!(Target::user(&"a".repeat(255)).is_ok());
        for (path, expected) in [
            ("", "level 0"),
            ("u1//r1", "level 1"),
            ("u1/", "level 1"),
            (&"a".repeat(256), "256 bytes"),
            ("1/2/3/4/5/6/7/8/9", "8 levels"),
            ("u1/50%", "%25"),
            ("u1/%41", "%2F"),
        ] {
            let message = path.parse::<Target>().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn targets_with_different_id_boundaries_differ() {
        assert_ne!(Target::account("ab", "c").unwrap(), Target::account("a", "bc").unwrap());
    }

    #[test]
    fn order_is_by_level_then_ids_with_shorter_ids_first() {
        let sorted = ["a", "b", "aa", "a/z", "b/a", "b/b", "b/aa", "aa/b", "a/a/a"]
            .map(|p| p.parse::<Target>().unwrap());
        assert!(sorted.is_sorted());
    }
}
