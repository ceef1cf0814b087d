//! Escaping of control characters, and suggestions for misspelled words.

use std::borrow::Cow;

/// Returns a text with its control characters escaped, which a terminal would interpret.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.into() };
    text.chars().map(escape).collect::<String>().into()
}

/// Returns the known word with the smallest edit distance to `word`, if it is small.
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word: Vec<char> = word.to_lowercase().chars().take(40).collect();
    let allowed = (word.len() / 3).clamp(1, 3);
    known
        .iter()
        .map(|known| (distance(&word, &known.to_lowercase().chars().collect::<Vec<_>>()), *known))
        .filter(|(distance, known)| *distance <= allowed && *distance < known.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// The edit distance: insertions, deletions, substitutions and swaps of adjacent letters.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_word_is_suggested() {
        let known = ["mysql", "mariadb", "postgres", "memory", "file"];
        for (word, near) in [
            ("postgresql", Some("postgres")),
            ("Mysql", Some("mysql")),
            ("mairadb", Some("mariadb")),
            ("fiel", Some("file")),
            ("oracle", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, &known), near, "{word}");
        }
    }
}
