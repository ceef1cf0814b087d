//! Optimistic versions: a row is changed only if it is still as it was read.
