//! Grouping of items by a key.

/// Groups items by a key. The groups are in the order of their first items, and items keep their order.
pub(crate) fn group_by<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        // Items of one group mostly follow each other, so the search starts at the last group.
        match groups.iter_mut().rev().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Returns each item once, in the order of first appearance.
pub(crate) fn distinct<T: PartialEq + Clone>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    group_by(items, T::clone).into_iter().map(|(item, _)| item).collect()
}
