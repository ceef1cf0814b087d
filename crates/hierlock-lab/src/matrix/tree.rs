//! The nodes of a tree of users, accounts and resources. Does not use the library, which the matrix checks.

use super::MatrixError;
use crate::text::{join, serialize_as_text};
use std::fmt;
use std::str::FromStr;

/// The first letter of the IDs of each level: `u1/a1/r1`.
const LETTERS: [char; TreeNode::LEVELS] = ['u', 'a', 'r'];

/// The number of users, of accounts per user, and of resources per account.
///
/// ```
/// use hierlock_lab::TreeSize;
/// let tree: TreeSize = "2x2x2".parse()?;
/// assert_eq!((tree, tree.len(), tree.pairs()), (TreeSize::default(), 14, 196));
/// # Ok::<(), hierlock_lab::MatrixError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeSize {
    /// The number of users.
    pub users: usize,
    /// The number of accounts per user.
    pub accounts: usize,
    /// The number of resources per account.
    pub resources: usize,
}

impl Default for TreeSize {
    /// The smallest tree with every kind of relation: 2×2×2.
    fn default() -> Self {
        Self { users: 2, accounts: 2, resources: 2 }
    }
}

impl TreeSize {
    /// The greatest number of nodes: the number of pairs is its square.
    pub const MAX_NODES: usize = 200;

    /// Returns the size itself, if it is within the limits.
    ///
    /// # Errors
    /// [`MatrixError::TreeSize`].
    pub fn check(self) -> Result<Self, MatrixError> {
        match self.len() {
            1..=Self::MAX_NODES => Ok(self),
            _ => Err(MatrixError::TreeSize(self)),
        }
    }

    /// Returns the number of nodes.
    #[expect(clippy::len_without_is_empty, reason = "a tree that passes `check` is never empty")]
    pub fn len(self) -> usize {
        let below = self.accounts.saturating_mul(self.resources.saturating_add(1));
        self.users.saturating_mul(below.saturating_add(1))
    }

    /// Returns the number of ordered pairs of nodes, including pairs of a node with itself.
    pub fn pairs(self) -> usize {
        self.len().saturating_mul(self.len())
    }

    /// Returns all nodes, each before its descendants.
    pub(crate) fn nodes(self) -> Vec<TreeNode> {
        let mut nodes = Vec::new();
        for user in 1..=self.users {
            nodes.push(TreeNode(vec![user]));
            for account in 1..=self.accounts {
                nodes.push(TreeNode(vec![user, account]));
                let resources = 1..=self.resources;
                nodes.extend(resources.map(|resource| TreeNode(vec![user, account, resource])));
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

/// A node: the numbers of the IDs from the root on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TreeNode(Vec<usize>);

impl TreeNode {
    pub(crate) const LEVELS: usize = 3;

    /// Returns the level; 0 for a user.
    pub(crate) fn level(&self) -> usize {
        self.0.len() - 1
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.0.len() == Self::LEVELS
    }

    /// Returns the node's own ID, without its ancestors: `r1`.
    pub(crate) fn id(&self) -> String {
        format!("{}{}", LETTERS[self.level()], self.0[self.level()])
    }

    /// Returns the upper of two nodes, if they are the same or one is an ancestor of the other.
    pub(crate) fn upper<'a>(&'a self, other: &'a TreeNode) -> Option<&'a TreeNode> {
        let is_upper = self.0.len() <= other.0.len();
        let (upper, lower) = if is_upper { (self, other) } else { (other, self) };
        lower.0.starts_with(&upper.0).then_some(upper)
    }
}

impl fmt::Display for TreeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = LETTERS.iter().zip(&self.0).map(|(letter, number)| format!("{letter}{number}"));
        f.pad(&join(ids, "/"))
    }
}

serialize_as_text!(TreeSize, TreeNode);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_listed_before_their_descendants() {
        let nodes = TreeSize { users: 1, accounts: 2, resources: 1 }.nodes();
        let paths: Vec<String> = nodes.iter().map(TreeNode::to_string).collect();
        assert_eq!(paths, ["u1", "u1/a1", "u1/a1/r1", "u1/a2", "u1/a2/r1"]);
        assert_eq!(nodes[2].id(), "r1");
        assert!(nodes[2].is_leaf() && !nodes[1].is_leaf());
    }

    #[test]
    fn the_length_is_the_number_of_nodes() {
        for (users, accounts, resources) in [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 1, 0), (2, 0, 7)]
        {
            let tree = TreeSize { users, accounts, resources };
            assert_eq!(tree.nodes().len(), tree.len(), "{tree}");
        }
        assert_eq!("3×3×3".parse::<TreeSize>().map(TreeSize::pairs), Ok(1521));
    }

    #[test]
    fn an_invalid_size_is_an_error() {
        for (text, message) in [
            ("2x2", "`2x2` is not a tree"),
            ("2x2xtwo", "such as 2x2x2"),
            ("0x1x1", "1 to 200"),
            ("9x9x9", "819 nodes"),
            ("99999999999x99999999999x9", "1 to 200"),
        ] {
            let error = text.parse::<TreeSize>().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn the_upper_node_does_not_depend_on_the_order() {
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
                let seen = find(a).upper(find(b)).map(TreeNode::to_string);
                assert_eq!(seen.as_deref(), upper, "{a} {b}");
            }
        }
    }
}
