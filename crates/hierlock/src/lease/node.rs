//! A node as the value of a column: the bytes of its ancestors are prefixes of it. Pure code.

use crate::database::Value;
use crate::target::Target;

/// Returns the key text without its level: `<byte length>:<id>,` for each ID from the root.
pub(super) fn node(target: &Target) -> Vec<u8> {
    let key = target.key();
    let (_, ids) = key.split_once('|').expect("a key starts with its level");
    ids.as_bytes().to_vec()
}

/// Returns the range of the node and all nodes below it: the first value, and the first value after. What follows the node
/// is a length, and a colon sorts after all digits. (A byte that is not UTF-8 would work as well, but MySQL's list of
/// running statements fails for all sessions while such a value is bound.)
fn bounds(target: &Target) -> [Vec<u8>; 2] {
    let from = node(target);
    let before = [&from[..], b":"].concat();
    [from, before]
}

/// Returns the values for [`IS_WITHIN`].
pub(super) fn within(target: &Target) -> [Value; 2] {
    bounds(target).map(Value::from)
}

/// Returns the values of all ancestors.
pub(super) fn above(target: &Target) -> Vec<Value> {
    (0..target.level()).map(|level| node(&target.ancestor(level)).into()).collect()
}

/// The condition on the column `node`, with placeholders for [`within`].
pub(super) const IS_WITHIN: &str = "node >= ? AND node < ?";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_contains_exactly_the_node_and_its_descendants() {
        let target = |path: &str| path.parse::<Target>().unwrap();
        let account = target("u1/a");
        let [from, before] = bounds(&account);
        for (path, is_within) in [
            ("u1", false),
            ("u1/a", true),
            ("u1/a/r", true),
            ("u1/a/a%2F", true),
            ("u1/a1", false),
            ("u1/b", false),
            ("u1/a%2F", false),
            ("u1/ユ", false),
            ("u1/a/ユ/1/2/3/4", true),
            (&format!("u1/a/{}", "é".repeat(127)), true),
            (&format!("u1/a/{}", "~".repeat(99)), true),
            ("u10/a/r", false),
        ] {
            let other = node(&target(path));
            assert_eq!(from <= other && other < before, is_within, "{path}");
            assert_eq!(account.contains(&target(path)), is_within, "{path}");
        }
    }

    #[test]
    fn ancestors_are_listed_from_the_root_to_the_parent() {
        let above = above(&"u1/a1/r1".parse().unwrap());
        assert_eq!(above, [Value::from(&b"2:u1,"[..]), Value::from(&b"2:u1,2:a1,"[..])]);
    }
}
