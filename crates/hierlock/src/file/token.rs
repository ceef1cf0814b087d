//! Fencing tokens for the processes of one host: a number in a file beside the lock file, incremented under its own lock.

use crate::error::{FileError, Result};
use std::fs::OpenOptions;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

/// Returns the next number, which is greater than all before, even without holding a lock of the lock file.
pub(super) fn next(lock_file: &Path) -> Result<u64> {
    let mut path = lock_file.as_os_str().to_owned();
    path.push(".token");
    let path = Path::new(&path);
    Ok(increment(path).map_err(FileError::io("increment the token in", path))?)
}

fn increment(path: &Path) -> io::Result<u64> {
    use io::{Error, ErrorKind::InvalidData};
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    // Held for microseconds.
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let last: u64 = match text.trim() {
        "" => 0,
        text => text.parse().map_err(|_| Error::new(InvalidData, "it contains no number"))?,
    };
    let next = last + 1;
    file.rewind()?;
    // Always 20 digits: never shorter than the number before, so the file need not be truncated.
    write!(file, "{next:020}")?;
    // Closing does not unlock while a forked child has a copy of the descriptor.
    file.unlock()?;
    Ok(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_increase_across_threads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks");
        let tokens: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..50).map(|_| next(&path).unwrap()).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut sorted = tokens.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.len(), sorted.last()), (200, Some(&200)));
        assert!(tokens.chunks(50).all(|of_one_thread| of_one_thread.is_sorted()));
    }

    #[test]
    fn a_token_file_without_a_number_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("locks");
        std::fs::write(directory.path().join("locks.token"), "a diary").unwrap();
        assert!(next(&path).unwrap_err().to_string().contains("locks.token"));
        let diary = std::fs::read_to_string(directory.path().join("locks.token")).unwrap();
        assert_eq!(diary, "a diary");
    }
}
