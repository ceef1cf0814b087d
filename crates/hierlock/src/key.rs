//! From a node to a number: the key text and its hashes. **A public contract** (rule 3): a client in another language that
//! shares a table or a file computes the same values.

use crate::error::{Result, TargetError};
use crate::target::{Target, ids_of};

/// The number of buckets that a level is striped over; by default 10,000,000.
///
/// ```
/// use hierlock::{Buckets, Target};
/// assert_eq!(Target::user("u1")?.bucket(Buckets::default()), 2_652_417);
/// assert!(Buckets::new(0).is_err());
/// # Ok::<(), hierlock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets(u32);

impl Buckets {
    /// Fails if the count is zero, or does not fit into a signed 32-bit column.
    pub fn new(count: u32) -> Result<Self> {
        match count {
            1..=0x7fff_ffff => Ok(Self(count)),
            _ => Err(TargetError::Buckets { count }.into()),
        }
    }

    /// Returns the number of buckets.
    pub fn count(self) -> u32 {
        self.0
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self(10_000_000)
    }
}

impl Target {
    /// Returns the key text: the level, `|`, then every ID from the root as `<byte length>:<id>,`.
    ///
    /// ```
    /// # use hierlock::Target;
    /// assert_eq!(Target::resource("u1", "a1", "r1")?.key(), "2|2:u1,2:a1,2:r1,");
    /// # Ok::<(), hierlock::Error>(())
    /// ```
    pub fn key(&self) -> String {
        let mut key = Vec::with_capacity(2 * self.bytes().len() + 2);
        write_key(self.bytes(), |part| key.extend_from_slice(part));
        String::from_utf8(key).expect("IDs are UTF-8, and numbers and separators are ASCII")
    }

    /// Returns the node of a key text.
    #[cfg(feature = "_server")]
    pub(crate) fn from_key(key: &str) -> Option<Self> {
        let (_, mut rest) = key.split_once('|')?;
        let mut ids = Vec::new();
        while !rest.is_empty() {
            let (length, tail) = rest.split_once(':')?;
            let id = tail.get(..length.parse().ok()?)?;
            rest = tail[id.len()..].strip_prefix(',')?;
            ids.push(id);
        }
        Target::path(ids).ok().filter(|target| target.key() == key)
    }

    /// Returns the bucket of this node: FNV-1a (32 bit) of the key text, modulo the bucket count.
    pub fn bucket(&self, buckets: Buckets) -> u32 {
        bucket_of(self.bytes(), buckets)
    }

    getters! { self:
        /// Returns the FNV-1a hash (64 bit) of the key text: the advisory key on PostgreSQL.
        key_hash -> u64 = key_hash_of(self.bytes());
        /// Returns the byte offset of this node in a lock file: its level in the upper bits, then
        /// [`key_hash`](Self::key_hash) folded to 60 bits. Never negative as a signed offset.
        ///
        /// ```
        /// # use hierlock::Target;
        /// let offset = Target::account("u1", "a1")?.file_offset();
        /// assert_eq!(offset >> 60, 1);
        /// # Ok::<(), hierlock::Error>(())
        /// ```
        file_offset -> u64 = file_offset_of(self.bytes());
    }
}

/// [`Target::bucket`] of the node with these bytes.
pub(crate) fn bucket_of(path: &[u8], buckets: Buckets) -> u32 {
    let mut hash = FNV_32;
    write_key(path, |part| hash = fnv1a_32(hash, part));
    hash % buckets.count()
}

/// [`Target::key_hash`] of the node with these bytes.
pub(crate) fn key_hash_of(path: &[u8]) -> u64 {
    let mut hash = FNV_64;
    write_key(path, |part| hash = fnv1a_64(hash, part));
    hash
}

/// [`Target::file_offset`] of the node with these bytes.
pub(crate) fn file_offset_of(path: &[u8]) -> u64 {
    const LOW: u64 = (1 << 60) - 1;
    let (hash, level) = (key_hash_of(path), ids_of(path).count() as u64 - 1);
    level << 60 | ((hash & LOW) ^ (hash >> 60))
}

/// Writes the key text part by part. So hashing needs no copy of the text.
fn write_key(path: &[u8], mut write: impl FnMut(&[u8])) {
    // A level and the length of an ID have at most three digits.
    let write_number = |number: usize, write: &mut dyn FnMut(&[u8])| {
        let digits = [100, 10, 1].map(|value| b'0' + (number / value % 10) as u8);
        write(&digits[usize::from(number < 100) + usize::from(number < 10)..]);
    };
    write_number(ids_of(path).count() - 1, &mut write);
    write(b"|");
    for id in ids_of(path) {
        write_number(id.len(), &mut write);
        write(b":");
        write(id);
        write(b",");
    }
}

/// The hash of an empty text, from which hashing starts.
pub(crate) const FNV_32: u32 = 0x811c_9dc5;
const FNV_64: u64 = 0xcbf2_9ce4_8422_2325;

/// Continues a hash with more bytes.
pub(crate) fn fnv1a_32(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn fnv1a_64(hash: u64, bytes: &[u8]) -> u64 {
    let prime = 0x0000_0100_0000_01b3;
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(prime))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_buckets_match_the_published_vectors() {
        for (path, key, bucket) in [
            ("u1", "0|2:u1,", 2_652_417),
            ("u1/a1", "1|2:u1,2:a1,", 4_854_276),
            ("u1/a1/r1", "2|2:u1,2:a1,2:r1,", 1_358_050),
            ("u1/a1/r2", "2|2:u1,2:a1,2:r2,", 7_882_385),
            ("ユーザー", "0|12:ユーザー,", 2_305_613),
            ("u1/a1/r313", "2|2:u1,2:a1,4:r313,", 1_374_946),
            ("u1/a1/r36750", "2|2:u1,2:a1,6:r36750,", 1_374_946),
        ] {
            let target: Target = path.parse().unwrap();
            assert_eq!((&*target.key(), target.bucket(Buckets::default())), (key, bucket));
            #[cfg(feature = "_server")]
            assert_eq!(Target::from_key(key), Some(target));
        }
    }

    #[test]
    fn key_hashes_and_file_offsets_match_the_published_vectors() {
        for (path, key, byte) in [
            ("u1", -4_262_450_565_589_374_431_i64, 349_235_452_838_013_485_u64),
            ("u1/a1", 4_562_596_474_172_320_356_i64, 2_256_753_464_958_626_407_u64),
            ("u1/a1/r1", -8_970_242_809_497_199_454_i64, 2_558_972_236_571_270_314_u64),
            ("u1/a1/r2", -8_971_120_219_776_322_607_i64, 2_558_094_826_292_147_161_u64),
            ("ユーザー", -138_321_284_301_537_043_i64, 1_014_600_220_305_309_922_u64),
        ] {
            let target: Target = path.parse().unwrap();
            assert_eq!((target.key_hash() as i64, target.file_offset()), (key, byte), "{path}");
        }
    }

    /// The reference vectors published with FNV.
    #[test]
    fn hashes_match_the_fnv_reference_vectors() {
        assert_eq!(fnv1a_32(FNV_32, b""), 0x811c_9dc5);
        assert_eq!(fnv1a_32(FNV_32, b"foobar"), 0xbf9c_f968);
        assert_eq!(fnv1a_64(FNV_64, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(FNV_64, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn lengths_are_written_in_decimal() {
        for length in [1, 9, 10, 99, 100, 255] {
            let id = "x".repeat(length);
            assert_eq!(Target::user(&id).unwrap().key(), format!("0|{length}:{id},"));
        }
    }

    #[test]
    fn a_bucket_count_fits_a_signed_column() {
        assert!(Buckets::new(i32::MAX as u32).is_ok());
        assert!(Buckets::new(i32::MAX as u32 + 1).is_err());
    }
}
