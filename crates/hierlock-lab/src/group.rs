//! Items grouped by a key, and each item once.

/// Groups items by a key. Groups are in the order of their first items, items in their own.
pub(crate) fn group_by<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        // Items of one group mostly follow each other, so the last group is the likely one.
        match groups.iter_mut().rev().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// Each item once, in the order in which it first comes.
pub(crate) fn distinct<T: PartialEq + Clone>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    group_by(items, T::clone).into_iter().map(|(item, _)| item).collect()
}
