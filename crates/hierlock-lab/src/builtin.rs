//! The scenarios that come with the lab.

use crate::scenario::{Diagnostic, Scenario};
use std::sync::Arc;

/// Name and text of each, in the order of their names.
const TEXTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

impl Scenario {
    /// The scenarios that come with the lab, in the order of their names.
    ///
    /// # Errors
    /// What is wrong with one of them; a test sees to it that nothing is.
    pub fn builtin() -> Result<Vec<Arc<Scenario>>, Vec<Diagnostic>> {
        TEXTS.iter().map(|(name, text)| read(name, text)).collect()
    }

    /// One of them.
    ///
    /// # Errors
    /// As [`builtin`](Self::builtin).
    pub fn builtin_named(name: &str) -> Option<Result<Arc<Scenario>, Vec<Diagnostic>>> {
        let (name, text) = TEXTS.iter().find(|(known, _)| *known == name)?;
        Some(read(name, text))
    }
}

fn read(name: &str, text: &str) -> Result<Arc<Scenario>, Vec<Diagnostic>> {
    Scenario::parse(name, &format!("scenarios/{name}.{}", Scenario::EXTENSION), text)
}
