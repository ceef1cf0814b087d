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
        let file = |name: &str| format!("scenarios/{name}.{}", Scenario::EXTENSION);
        TEXTS.iter().map(|(name, text)| Scenario::parse(name, &file(name), text)).collect()
    }
}
