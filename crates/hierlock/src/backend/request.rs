//! What is asked of a backend.

use super::WaitLimit;
use crate::plan::{Claim, Claims};
use crate::target::Target;
use std::sync::Arc;

/// What is asked of a backend: targets and their modes, for how long to wait, and a name for listings.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until a backend has it"]
pub struct AcquireRequest {
    pub(crate) claims: Claims,
    pub(crate) limit: WaitLimit,
    pub(crate) name: Option<Arc<String>>,
}

impl AcquireRequest {
    /// A request as [`Hierlock`](crate::Hierlock) makes them, for a backend that stands on another one.
    pub fn new(claims: impl IntoIterator<Item = Claim>, limit: WaitLimit) -> Self {
        Self { claims: claims.into_iter().collect(), limit, name: None }
    }

    /// Shown in listings.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(Arc::new(name.into()));
        self
    }

    /// What to lock, in the order in which it was asked for; for [`Backend::plan`](super::Backend::plan).
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The targets of the claims, for errors.
    pub fn targets(&self) -> Vec<Target> {
        self.claims.iter().map(|claim| claim.target.clone()).collect()
    }

    /// How long to wait.
    pub fn wait_limit(&self) -> WaitLimit {
        self.limit
    }

    /// The name for listings.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref().map(String::as_str)
    }
}
