//! A queue of jobs in a table: workers that never take the same row.
