//! Findings of checks.

/// The severity of a finding, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// No problem.
    Ok,
    /// The check could not run.
    Skipped,
    /// Locks work, but something else does not, or only under a condition.
    Warning,
    /// Locks do not work, or do not exclude other clients.
    Problem,
}

impl Severity {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Skipped => "skipped",
            Severity::Warning => "warning",
            Severity::Problem => "problem",
        }
    }
}

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Area {
    /// The product, and its role in a cluster.
    Server,
    /// The settings.
    Settings,
    /// The account and its connections.
    Connections,
    /// The lock tables, and the locks themselves.
    Locks,
}

impl Area {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Area::Server => "server",
            Area::Settings => "settings",
            Area::Connections => "connections",
            Area::Locks => "locks",
        }
    }
}

/// A check of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// The name in kebab-case. It does not change between releases.
    pub name: &'static str,
    /// The subject.
    pub area: Area,
    /// Why the check matters, in a sentence.
    pub why: &'static str,
}

/// The result of a [`Check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// The severity.
    pub severity: Severity,
    /// What was found, with the actual value.
    pub message: String,
    /// How to fix it. None if there is nothing to fix.
    pub fix: Option<String>,
}

impl Check {
    /// Returns a finding without a problem.
    pub fn ok(&self, message: impl Into<String>) -> Finding {
        self.finding(Severity::Ok, message.into(), None)
    }

    /// Returns a finding for a check that could not run.
    pub fn skipped(&self, reason: impl Into<String>) -> Finding {
        self.finding(Severity::Skipped, reason.into(), None)
    }

    /// Returns a finding for a value that the server does not report.
    #[cfg(feature = "_server")]
    pub(super) fn not_reported(&self) -> Finding {
        self.skipped("the server does not report it")
    }

    /// Returns a finding for a place where locks work, but not everything else.
    pub fn warning(&self, message: impl Into<String>, fix: impl Into<String>) -> Finding {
        self.finding(Severity::Warning, message.into(), Some(fix.into()))
    }

    /// Returns a finding for a place where locks do not work or do not exclude other clients.
    pub fn problem(&self, message: impl Into<String>, fix: impl Into<String>) -> Finding {
        self.finding(Severity::Problem, message.into(), Some(fix.into()))
    }

    fn finding(&self, severity: Severity, message: String, fix: Option<String>) -> Finding {
        Finding { check: *self, severity, message, fix }
    }
}

impl Finding {
    /// Returns the finding and its fix, as the end of an error message.
    pub fn reason(&self) -> String {
        match &self.fix {
            Some(fix) => format!("{}; {fix}", self.message),
            None => self.message.clone(),
        }
    }
}

#[cfg(all(test, feature = "_server"))]
impl Finding {
    /// Checks the severity and a part of the message.
    #[track_caller]
    pub(super) fn assert(&self, severity: Severity, part: &str) {
        assert_eq!(self.severity, severity, "{self:?}");
        assert!(self.message.contains(part), "{self:?}");
    }
}
