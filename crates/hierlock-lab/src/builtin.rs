//! The scenarios that come with the lab.

use crate::scenario::{Mistake, Scenario};
use std::sync::Arc;

/// Name and text of each, in the order of their names.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

impl Scenario {
    /// The scenarios that come with the lab, in the order of their names.
    ///
    /// # Errors
    /// Mistakes in one of them; a test sees to it that there are none.
    pub fn builtin() -> Result<Vec<Arc<Scenario>>, Vec<Mistake>> {
        TEXTS.iter().map(|(name, text)| read(name, text)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// As [`builtin`](Self::builtin).
    pub fn builtin_named(name: &str) -> Option<Result<Arc<Scenario>, Vec<Mistake>>> {
        let (name, text) = TEXTS.iter().find(|(known, _)| *known == name)?;
        Some(read(name, text))
    }
}

fn read(name: &str, text: &str) -> Result<Arc<Scenario>, Vec<Mistake>> {
    let file = format!("scenarios/{name}.{}", Scenario::EXTENSION);
    Scenario::parse(name, &file, text).map(Arc::new)
}
