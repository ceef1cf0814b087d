//! A global allocator that counts live bytes and forwards every call to the system's allocator.
#![expect(unsafe_code, reason = "a global allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering::Relaxed};

/// Counting is off by default. A counter that all threads write to would slow down timed workloads in the same process,
/// most of all those of the contender that allocates most.
static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

/// The allocator. A program that measures bytes installs it with `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator;

/// Counts the bytes that were allocated after [`start`](Self::start) and not freed yet.
///
/// The process has one counter, so only one of these may exist at a time.
#[derive(Debug)]
#[must_use = "counting ends when this is dropped"]
pub struct LiveByteCounter(());

impl LiveByteCounter {
    /// Starts to count from zero.
    pub fn start() -> Self {
        LIVE_BYTES.store(0, Relaxed);
        IS_COUNTING.store(true, Relaxed);
        LiveByteCounter(())
    }

    /// Returns the live bytes as requested by the program, without the allocator's overhead.
    pub fn bytes(&self) -> isize {
        LIVE_BYTES.load(Relaxed)
    }
}

impl Drop for LiveByteCounter {
    fn drop(&mut self) {
        IS_COUNTING.store(false, Relaxed);
    }
}

#[inline]
fn add_live_bytes(bytes: isize) {
    if IS_COUNTING.load(Relaxed) {
        LIVE_BYTES.fetch_add(bytes, Relaxed);
    }
}

/// A layout has at most `isize::MAX` bytes, so no cast below can wrap.
///
/// SAFETY: every call goes to `System` unchanged; counting touches two atomics and no memory.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add_live_bytes(layout.size() as isize);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add_live_bytes(layout.size() as isize);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add_live_bytes(size as isize - layout.size() as isize);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.realloc(block, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        add_live_bytes(-(layout.size() as isize));
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}
