//! The state machine of one node: its holders and their modes, and its queue. Pure code: it is independent of paths and
//! threads, and a waiter's ticket is an opaque `T`.
//!
//! 1. A newcomer is granted when the queue is empty and its mode is compatible with every holder. So no owner overtakes
//!    another, and neither readers nor writers starve.
//! 2. A *conversion* (an owner that already holds the node and wants a stronger mode) is granted when its mode is
//!    compatible with every **other** holder, whatever the queue: newcomers wait for its owner anyway.
//! 3. Otherwise the owner waits: conversions before newcomers, each in the order of requests.
//! 4. When a holder leaves or weakens its mode, or a waiter leaves, every compatible conversion is granted. Then, if no
//!    conversion waits, newcomers are granted from the front of the queue until one is not compatible.

use crate::mode::{ModeBits, SlotMode};
use std::collections::VecDeque;

/// Identifies a holder or waiter: each acquire is one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Owner(pub(super) u64);

/// An entry in the queue of a node.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    pub(super) owner: Owner,
    pub(super) mode: SlotMode,
    /// For a conversion: the mode in which the owner holds the node now.
    pub(super) held: Option<SlotMode>,
    pub(super) ticket: T,
}

/// The number of modes that several owners can have, since they are compatible with themselves: the first of
/// [`SlotMode::ALL`].
const SHAREABLE_MODES: usize = 3;

/// Holders and queue of one node.
#[derive(Debug)]
pub(super) struct Node<T> {
    /// The number of holders of each mode that several owners can have.
    counts: [u32; SHAREABLE_MODES],
    /// The modes of all holders.
    modes: ModeBits,
    /// The length of the node's path within the target of its entry. Stored here because two bytes are free.
    pub(super) path_end: u16,
    /// `None` until the first wait: most nodes never have a queue.
    #[expect(
        clippy::box_collection,
        reason = "a million nodes without a queue pay 8 bytes, not 32"
    )]
    queue: Option<Box<VecDeque<Waiter<T>>>>,
}

impl<T> Node<T> {
    /// Returns a node with its first holder.
    pub(super) fn held(mode: SlotMode, path_end: u16) -> Self {
        let (counts, modes) = Default::default();
        let mut node = Self { counts, modes, path_end, queue: None };
        node.add(mode);
        node
    }

    fn add(&mut self, mode: SlotMode) {
        if let Some(count) = self.counts.get_mut(mode as usize) {
            *count += 1;
        } else {
            debug_assert!(!self.modes.has(mode), "{mode} can have only one holder");
        }
        self.modes = self.modes.with(mode);
    }

    fn remove(&mut self, mode: SlotMode) {
        debug_assert!(self.modes.has(mode), "{mode} is not held");
        self.modes = self.modes_beside(Some(mode));
        if let Some(count) = self.counts.get_mut(mode as usize) {
            *count -= 1;
        }
    }

    /// Returns the modes of all holders except one that holds the node in `own`.
    fn modes_beside(&self, own: Option<SlotMode>) -> ModeBits {
        match own {
            Some(own) if self.counts.get(own as usize).is_none_or(|count| *count == 1) => {
                self.modes.without(own)
            }
            _ => self.modes,
        }
    }

    /// Returns whether an owner that holds the node in `own` now can hold it in `wanted`.
    pub(super) fn allows(&self, wanted: SlotMode, own: Option<SlotMode>) -> bool {
        self.modes_beside(own).all_compatible_with(wanted)
    }

    /// Takes the node if it is free. `held` is the mode in which the owner holds the node already.
    #[must_use]
    pub(super) fn try_take(&mut self, mode: SlotMode, held: Option<SlotMode>) -> bool {
        let free = match held {
            None => self.queue().len() == 0 && self.allows(mode, None),
            Some(_) => self.allows(mode, held),
        };
        if free {
            self.grant(mode, held);
        }
        self.check();
        free
    }

    /// Adds an owner that could not take the node to the queue.
    pub(super) fn enqueue(&mut self, waiter: Waiter<T>) {
        let queue = self.queue.get_or_insert_default();
        let index = match waiter.held {
            None => queue.len(),
            Some(_) => queue.iter().take_while(|other| other.held.is_some()).count(),
        };
        queue.insert(index, waiter);
        self.check();
    }

    /// Weakens a holder's mode to `keep`, or removes the holder if that is `None`. Passes the waiters that are granted to
    /// `granted`.
    pub(super) fn give_back(
        &mut self,
        mode: SlotMode,
        keep: Option<SlotMode>,
        granted: impl FnMut(Waiter<T>),
    ) {
        self.remove(mode);
        if let Some(keep) = keep {
            self.add(keep);
        }
        self.grant_waiters(granted);
    }

    /// Removes an owner from the queue. Passes the waiters that are granted to `granted`.
    pub(super) fn leave_queue(
        &mut self,
        owner: Owner,
        granted: impl FnMut(Waiter<T>),
    ) -> Option<Waiter<T>> {
        let queue = self.queue.as_mut()?;
        let index = queue.iter().position(|waiter| waiter.owner == owner)?;
        let removed = queue.remove(index);
        self.grant_waiters(granted);
        removed
    }

    /// Returns whether the node has no holder and no waiter, so that it can be removed.
    pub(super) fn is_idle(&self) -> bool {
        self.modes == ModeBits::default() && self.queue().len() == 0
    }

    /// Returns the number of holders in a mode.
    #[cfg(all(test, not(feature = "model")))]
    pub(super) fn holders(&self, mode: SlotMode) -> usize {
        let count = self.counts.get(mode as usize);
        count.map_or(self.modes.has(mode).into(), |count| *count as usize)
    }

    /// Returns the waiters, next first.
    pub(super) fn queue(&self) -> impl ExactSizeIterator<Item = &Waiter<T>> {
        self.queue.as_deref().map(VecDeque::iter).unwrap_or_default()
    }

    /// Grants waiters by rule 4.
    fn grant_waiters(&mut self, mut granted: impl FnMut(Waiter<T>)) {
        let Some(mut queue) = self.queue.take() else { return };
        let mut conversions = queue.iter().take_while(|waiter| waiter.held.is_some()).count();
        let mut index = 0;
        while index < conversions {
            let Waiter { mode, held, .. } = queue[index];
            if self.allows(mode, held) {
                conversions -= 1;
                self.grant(mode, held);
                granted(queue.remove(index).expect("the index is within the queue"));
            } else {
                index += 1;
            }
        }
        // A conversion that still waits is in front, and its mode conflicts with a holder's, so the loop ends at once.
        while let Some(next) = queue.pop_front_if(|next| self.allows(next.mode, None)) {
            self.grant(next.mode, None);
            granted(next);
        }
        self.queue = Some(queue);
        self.check();
    }

    fn grant(&mut self, mode: SlotMode, held: Option<SlotMode>) {
        if let Some(held) = held {
            self.remove(held);
        }
        self.add(mode);
    }

    /// Asserts the invariants after every change; not in release builds.
    fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let held = format_args!("held in {:?}, counts {:?}", self.modes, self.counts);
        for mode in SlotMode::ALL {
            let is_compatible = !self.modes.has(mode) || self.allows(mode, Some(mode));
            assert!(is_compatible, "{mode} conflicts with the mode of another holder: {held}");
            let count = self.counts.get(mode as usize);
            let is_counted = count.is_none_or(|count| (*count > 0) == self.modes.has(mode));
            assert!(is_counted, "the count of {mode} is wrong: {held}");
        }
        let mut queue = self.queue().peekable();
        if let Some(first) = queue.peek().filter(|first| first.held.is_none()) {
            assert!(!self.allows(first.mode, None), "the first waiter has no blocker: {held}");
        }
        for waiter in queue.by_ref().take_while(|waiter| waiter.held.is_some()) {
            assert!(!self.allows(waiter.mode, waiter.held), "a conversion has no blocker: {held}");
        }
        assert!(queue.all(|waiter| waiter.held.is_none()), "a conversion behind a newcomer");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SlotMode::{Exclusive as X, Shared as S};
    use std::collections::HashMap;

    /// Runs a line such as `1+S 2+X? 3+S? 1- =2`: an owner and its action, and after `=` the owners that are granted by
    /// it. `+M` is taken, `+M?` has to wait, `^M`, `^M?` the same for a conversion, `-` releases, `-M` weakens to the mode,
    /// `!` leaves the queue.
    fn run(line: &str) {
        let mut node: Option<Node<()>> = None;
        let mut held: HashMap<u64, SlotMode> = HashMap::new();
        let mut granted: Vec<Waiter<()>> = vec![];
        for word in line.split_whitespace() {
            if let Some(expected) = word.strip_prefix('=') {
                let owners: Vec<String> = granted.iter().map(|w| w.owner.0.to_string()).collect();
                assert_eq!(owners.join(","), expected, "{line}: {word}");
                continue;
            }
            let owner: u64 = word[..1].parse().unwrap();
            let (action, name) = word[1..].split_at(1);
            let waits = name.ends_with('?');
            let names = ["IS", "IX", "S", "U", "SIX", "X"];
            let mode = names.iter().position(|n| *n == name.trim_end_matches('?'));
            let mode = mode.map(|index| SlotMode::ALL[index]);
            granted.clear();
            match (action, &mut node) {
                ("+", none @ None) => {
                    *none = Some(Node::held(mode.unwrap(), 0));
                    held.insert(owner, mode.unwrap());
                }
                ("+" | "^", Some(node)) => {
                    let (mode, before) = (mode.unwrap(), (action == "^").then(|| held[&owner]));
                    let taken = node.try_take(mode, before);
                    assert_eq!(taken, !waits, "{line}: {word}");
                    if taken {
                        held.insert(owner, mode);
                    } else {
                        let owner = Owner(owner);
                        node.enqueue(Waiter { owner, mode, held: before, ticket: () });
                    }
                }
                ("-", Some(node)) => {
                    let before = held.remove(&owner).unwrap();
                    held.extend(mode.map(|mode| (owner, mode)));
                    node.give_back(before, mode, |waiter| granted.push(waiter));
                }
                ("!", Some(node)) => {
                    let left = node.leave_queue(Owner(owner), |waiter| granted.push(waiter));
                    assert!(left.is_some(), "{line}: {word}");
                }
                other => panic!("{line}: {other:?}"),
            }
            held.extend(granted.iter().map(|waiter| (waiter.owner.0, waiter.mode)));
            if node.as_ref().is_some_and(Node::is_idle) {
                assert!(held.is_empty(), "{line}: {word}");
                node = None;
            }
        }
        assert!(node.is_none(), "{line}: a holder or waiter is left");
    }

    #[test]
    fn waiters_and_conversions_are_granted_by_the_rules() {
        for line in [
            // Readers share, a writer waits for all of them.
            "1+S 2+S 3+X? 1- = 2- =3 3-",
            // No reader overtakes a waiting writer; the readers behind it are granted together.
            "1+S 2+X? 3+S? 4+S? 1- =2 2- =3,4 3- 4-",
            // Nor does a writer overtake waiting readers.
            "1+X 2+S? 3+S? 4+X? 1- =2,3 2- = 3- =4 4-",
            // Intentions are compatible; a shared lock of the node conflicts with a writer below.
            "1+IX 2+IX 3+IS 4+S? 1- = 2- =4 3- 4-",
            // An update lock lets readers in, one updater at a time.
            "1+U 2+S 3+U? 2- = 1- =3 3-",
            // Leaving the queue grants the waiters behind.
            "1+S 2+X? 3+S? 2! =3 1- 3-",
            "1+S 2+X? 3+X? 2! = 1- =3 3-",
            // A conversion of the only holder: at once, even with a waiter.
            "1+S 2+X? 1^X 1- =2 2-",
            // Beside another reader: waits for that reader, ahead of newcomers.
            "1+U 2+S 3+S 1^X? 4+S? 2- = 3- =1 1- =4 4-",
            // The second conversion is granted though the first still waits.
            "1+IS 2+IX 3+IX 1^X? 2^SIX? 3- =2 2- =1 1-",
            // S and a write below make SIX, which is compatible only with IS.
            "1+S 2+IS 1^SIX 3+IS 4+IX? 1- =4 2- 3- 4-",
            // A conversion that gives up grants the newcomers behind it.
            "1+S 2+S 1^X? 3+S? 1! =3 1- 2- 3-",
            // Weakening a mode grants waiters.
            "1+X 2+S? 1-U =2 1- 2-",
        ] {
            run(line);
        }
    }

    #[test]
    fn a_mode_has_a_count_if_it_is_compatible_with_itself() {
        for mode in SlotMode::ALL {
            let has_count = (mode as usize) < SHAREABLE_MODES;
            assert_eq!(has_count, mode.is_compatible_with(mode), "{mode}");
        }
    }

    #[test]
    #[should_panic(expected = "conflicts")]
    fn the_check_fails_on_conflicting_holders() {
        let mut node: Node<()> = Node::held(X, 0);
        node.add(S);
        node.check();
    }
}
