//! What the programs do with their samples: pick one of them, and show how far the run is.

use std::io::{IsTerminal as _, Write as _, stderr};

/// Returns the median. `None` without samples.
pub fn median(samples: Vec<f64>) -> Option<f64> {
    quartile(samples, 2)
}

/// Returns the lower quartile. `None` without samples.
pub fn lower_quartile(samples: Vec<f64>) -> Option<f64> {
    quartile(samples, 1)
}

fn quartile(mut samples: Vec<f64>, number: usize) -> Option<f64> {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * number / 4).copied()
}

/// Shows what is being measured, if stderr is a terminal.
pub fn show_progress(what: &str) {
    let mut terminal = stderr();
    if terminal.is_terminal() {
        let _ = write!(terminal, "\r\x1b[K{what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_samples() {
        let samples: Vec<f64> = (0..8).rev().map(f64::from).collect();
        assert_eq!(median(samples.clone()), Some(4.0));
        assert_eq!(lower_quartile(samples), Some(2.0));
        assert_eq!((median(vec![7.0]), lower_quartile(Vec::new())), (Some(7.0), None));
    }
}
