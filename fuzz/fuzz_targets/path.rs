//! Any text parses as a path or fails with an error. The text of a path parses as the same path.
#![no_main]

use hierlock::{Buckets, Target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(target) = text.parse::<Target>() else { return };
    let printed = target.to_string();
    assert_eq!(printed.parse::<Target>().ok().as_ref(), Some(&target));
    // Only the case of hexadecimal digits in escapes may differ.
    assert!(printed.eq_ignore_ascii_case(text));

    assert!((1..=8).contains(&target.ids().count()));
    assert!(target.ids().all(|id| (1..=255).contains(&id.len())));
    assert!(target.parent().is_none_or(|parent| parent.contains(&target)));
    assert!(target.bucket(Buckets::default()) < 10_000_000);
    assert_eq!(target.file_offset() >> 60, target.level() as u64);
});
