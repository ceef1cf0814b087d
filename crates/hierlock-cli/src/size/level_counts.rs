//! One argument with a number for all levels, or one for each: `5e6`, `1e4,1e5,5e6`.

use crate::args::count;
use crate::exit::CommandError;
use hierlock::Hierarchy;

/// One number, or one for each level, root first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LevelCounts(Vec<u64>);

pub(super) fn parse(text: &str) -> Result<LevelCounts, String> {
    // Prevents that `5,000,000` is read as three levels of 5, 0 and 0 nodes instead of five million.
    let is_group = |part: &str| part.len() == 3 && part.chars().all(|c| c.is_ascii_digit());
    if let Some((first, groups)) = text.split_once(',')
        && (1..=3).contains(&first.len())
        && first.chars().all(|c| c.is_ascii_digit())
        && groups.split(',').all(is_group)
    {
        let without_commas = text.replace(',', "");
        return Err(format!(
            "`{text}` may be one number, or one for each level; for one number write {without_commas}, for several write one of \
             them as {first}e0"
        ));
    }
    text.split(',').map(count).collect::<Result<_, _>>().map(LevelCounts)
}

impl LevelCounts {
    pub(super) fn is_by_level(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns a number for each level. If there is only one number, `expand` makes the others.
    pub(super) fn by_level(
        &self,
        option: &str,
        levels: &Hierarchy,
        expand: impl FnOnce(u64) -> Vec<u64>,
    ) -> Result<Vec<u64>, CommandError> {
        match &*self.0 {
            [count] => Ok(expand(*count)),
            counts if counts.len() == levels.len() => Ok(counts.to_vec()),
            counts => Err(CommandError::usage(format!(
                "{option} has {} numbers, but the tree has {} levels ({levels}); give one number, or one for each level, \
                 root first",
                counts.len(),
                levels.len()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_or_several_are_parsed() {
        assert_eq!(parse("5e6"), Ok(LevelCounts(vec![5_000_000])));
        assert_eq!(parse("1e4,1e5,5M"), Ok(LevelCounts(vec![10_000, 100_000, 5_000_000])));
        assert_eq!(parse("1,5,200"), Ok(LevelCounts(vec![1, 5, 200])));
        assert_eq!(parse("5e0,000,000"), Ok(LevelCounts(vec![5, 0, 0])));
        for text in ["", ",", "1,", "1,,2", "x,1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_with_thousands_separators_is_refused() {
        for text in ["5,000,000", "1,000", "200,000"] {
            assert!(parse(text).unwrap_err().contains("one number"), "{text}");
        }
    }
}
