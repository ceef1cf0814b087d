//! The system's allocator, counting the bytes that are live. Knows nothing of locks.
#![expect(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// Counts only when asked to: a counter that all threads write to would slow down whatever is
/// timed in the same process, and most of all whoever allocates most.
static COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicIsize = AtomicIsize::new(0);

/// To be installed with `#[global_allocator]` by a program that weighs.
#[derive(Debug)]
pub struct Counting;

/// A count under way: what was allocated since its start and not freed since.
///
/// The counter is one for the process, so there must be one of these at a time.
#[derive(Debug)]
#[must_use = "the count ends when this is dropped"]
pub struct Count(());

impl Count {
    /// Counts from zero.
    pub fn start() -> Self {
        LIVE.store(0, Relaxed);
        COUNTING.store(true, Relaxed);
        Count(())
    }

    /// The live bytes, as they were asked for: what the allocator adds to each is not seen.
    pub fn live(&self) -> isize {
        LIVE.load(Relaxed)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        COUNTING.store(false, Relaxed);
    }
}

#[inline]
fn note(bytes: isize) {
    if COUNTING.load(Relaxed) {
        LIVE.fetch_add(bytes, Relaxed);
    }
}

/// A layout has at most `isize::MAX` bytes, so no cast below can wrap.
///
/// SAFETY: every call goes to `System` unchanged; counting touches two atomics and no memory.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as isize - layout.size() as isize);
        // SAFETY: as the caller promised.
        unsafe { System.realloc(block, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}
