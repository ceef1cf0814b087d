//! The nodes of a tree of users, accounts and resources. Without the library, which is checked by them.

use super::MatrixError;
use crate::text::join;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What IDs begin with, level by level: `u1/a1/r1`.
const LETTERS: [char; Node::LEVELS] = ['u', 'a', 'r'];

/// How many users, how many accounts each of them has, and how many resources each of those.
///
/// ```
/// use hierlock_lab::TreeSize;
/// let tree: TreeSize = "2x2x2".parse()?;
/// assert_eq!((tree, tree.len(), tree.pairs()), (TreeSize::default(), 14, 196));
/// # Ok::<(), hierlock_lab::MatrixError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSize {
    /// How many users there are.
    pub users: usize,
    /// How many accounts a user has.
    pub accounts: usize,
    /// How many resources an account has.
    pub resources: usize,
}

impl Default for TreeSize {
    /// The smallest in which every kind of relation occurs: 2×2×2.
    fn default() -> Self {
        Self { users: 2, accounts: 2, resources: 2 }
    }
}

impl TreeSize {
    /// More than this is more pairs than anyone would wait for or look at.
    pub const MOST_NODES: usize = 200;

    /// Itself, if it can be run.
    ///
    /// # Errors
    /// [`MatrixError::TreeSize`].
    pub fn check(self) -> Result<Self, MatrixError> {
        match self.len() {
            1..=Self::MOST_NODES => Ok(self),
            _ => Err(MatrixError::TreeSize(self)),
        }
    }

    /// How many nodes it has.
    #[expect(clippy::len_without_is_empty, reason = "a tree that passes `check` is never empty")]
    pub fn len(self) -> usize {
        let below = self.accounts.saturating_mul(self.resources.saturating_add(1));
        self.users.saturating_mul(below.saturating_add(1))
    }

    /// How many ordered pairs of nodes, those of a node with itself among them.
    pub fn pairs(self) -> usize {
        self.len().saturating_mul(self.len())
    }

    /// All nodes, each before those below it.
    pub(crate) fn nodes(self) -> Vec<Node> {
        let mut nodes = Vec::new();
        for user in 1..=self.users {
            nodes.push(Node(vec![user]));
            for account in 1..=self.accounts {
                nodes.push(Node(vec![user, account]));
                let resources = 1..=self.resources;
                nodes.extend(resources.map(|resource| Node(vec![user, account, resource])));
            }
        }
        nodes
    }
}

impl fmt::Display for TreeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}×{}", self.users, self.accounts, self.resources)
    }
}

impl FromStr for TreeSize {
    type Err = MatrixError;

    fn from_str(text: &str) -> Result<Self, MatrixError> {
        let numbers: Result<Vec<usize>, _> = text.split(['x', '×']).map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[users, accounts, resources]) => TreeSize { users, accounts, resources }.check(),
            _ => Err(MatrixError::Unreadable(text.to_owned())),
        }
    }
}

impl Serialize for TreeSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A node: the numbers of the IDs from the root on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Node(Vec<usize>);

impl Node {
    pub(crate) const LEVELS: usize = 3;

    /// 0 for a user.
    pub(crate) fn level(&self) -> usize {
        self.0.len() - 1
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.0.len() == Self::LEVELS
    }

    /// Its own ID, without those above it: `r1`.
    pub(crate) fn id(&self) -> String {
        format!("{}{}", LETTERS[self.level()], self.0[self.level()])
    }

    /// The upper of two nodes of which one is the other or above it; `None` if they are apart.
    pub(crate) fn upper<'a>(&'a self, other: &'a Node) -> Option<&'a Node> {
        let is_upper = self.0.len() <= other.0.len();
        let (upper, lower) = if is_upper { (self, other) } else { (other, self) };
        lower.0.starts_with(&upper.0).then_some(upper)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = LETTERS.iter().zip(&self.0).map(|(letter, number)| format!("{letter}{number}"));
        f.pad(&join(ids, "/"))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_in_the_order_of_a_tree() {
        let nodes = TreeSize { users: 1, accounts: 2, resources: 1 }.nodes();
        let paths: Vec<String> = nodes.iter().map(Node::to_string).collect();
        assert_eq!(paths, ["u1", "u1/a1", "u1/a1/r1", "u1/a2", "u1/a2/r1"]);
        assert_eq!(nodes[2].id(), "r1");
        assert!(nodes[2].is_leaf() && !nodes[1].is_leaf());
    }

    #[test]
    fn sizes_are_as_they_are_listed() {
        for (users, accounts, resources) in [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 1, 0), (2, 0, 7)]
        {
            let tree = TreeSize { users, accounts, resources };
            assert_eq!(tree.nodes().len(), tree.len(), "{tree}");
        }
        assert_eq!("3×3×3".parse::<TreeSize>().map(TreeSize::pairs), Ok(1521));
    }

    #[test]
    fn a_mistake_is_told() {
        for (text, says) in [
            ("2x2", "`2x2` is no tree"),
            ("2x2xtwo", "such as 2x2x2"),
            ("0x1x1", "1 to 200"),
            ("9x9x9", "819 nodes"),
            ("99999999999x99999999999x9", "1 to 200"),
        ] {
            let error = text.parse::<TreeSize>().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn the_upper_of_two_is_the_same_both_ways_round() {
        let nodes = TreeSize::default().nodes();
        let find = |path: &str| nodes.iter().find(|node| node.to_string() == path).unwrap();
        for (a, b, upper) in [
            ("u1", "u1", Some("u1")),
            ("u1", "u1/a2/r1", Some("u1")),
            ("u1/a2", "u1/a2/r1", Some("u1/a2")),
            ("u1/a1", "u1/a2/r1", None),
            ("u1/a1/r1", "u1/a1/r2", None),
            ("u1", "u2/a1", None),
        ] {
            for (a, b) in [(a, b), (b, a)] {
                let seen = find(a).upper(find(b)).map(Node::to_string);
                assert_eq!(seen.as_deref(), upper, "{a} {b}");
            }
        }
    }
}
