//! The setups: each lock strategy and each part of the toolbox, on each backend that supports it.

use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use std::fmt;

/// The backend that has the locks or tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoakBackend {
    /// The memory of one process.
    Memory,
    /// A file with kernel locks.
    File,
    /// A database file of SQLite.
    Sqlite,
    /// A server.
    Server(Engine),
}

/// A part of hierlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Locks.
    Locks {
        /// The strategy, on a server.
        strategy: Option<Strategy>,
        /// Whether guards share a session (`scope=session`).
        in_session: bool,
    },
    /// Leases.
    Leases,
    /// A queue of jobs.
    Queue,
}

/// A part on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The backend.
    pub backend: SoakBackend,
    /// The part of hierlock.
    pub part: Part,
}

impl Setup {
    /// Returns all setups, grouped by backend.
    pub fn all() -> Vec<Setup> {
        let mut all = Vec::new();
        for backend in SoakBackend::ALL {
            all.extend(backend.parts().into_iter().map(|part| Setup { backend, part }));
        }
        all
    }

    /// Returns whether `name` is the name of this setup, of its backend or of its part.
    pub fn matches_name(self, name: &str) -> bool {
        [self.to_string().as_str(), self.backend.name(), self.part.name()].contains(&name)
    }
}

impl Part {
    /// Returns the name of the part on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Part::Locks { .. } => "locks",
            Part::Leases => "leases",
            Part::Queue => "queue",
        }
    }
}

impl SoakBackend {
    /// All backends.
    pub const ALL: [SoakBackend; 6] = [
        SoakBackend::Memory,
        SoakBackend::File,
        SoakBackend::Sqlite,
        SoakBackend::Server(Engine::Mysql),
        SoakBackend::Server(Engine::Mariadb),
        SoakBackend::Server(Engine::Postgres),
    ];

    /// Returns the name of the backend, as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            SoakBackend::Memory => "memory",
            SoakBackend::File => "file",
            SoakBackend::Sqlite => "sqlite",
            SoakBackend::Server(engine) => engine.name(),
        }
    }

    fn parts(self) -> Vec<Part> {
        let locks = |strategy| Part::Locks { strategy, in_session: false };
        let toolbox = [Part::Leases, Part::Queue];
        let rows = [Strategy::Striped, Strategy::PerId, Strategy::OnDemand];
        let rows = rows.map(|strategy| locks(Some(strategy)));
        let keys = |in_session| Part::Locks { strategy: Some(Strategy::Advisory), in_session };
        match self {
            SoakBackend::Memory | SoakBackend::File => vec![locks(None)],
            SoakBackend::Sqlite => toolbox.to_vec(),
            SoakBackend::Server(Engine::Postgres) => {
                [[keys(false), keys(true)].as_slice(), &rows, &toolbox].concat()
            }
            SoakBackend::Server(_) => [rows.as_slice(), &toolbox].concat(),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = self.backend.name();
        let name = match self.part {
            Part::Locks { strategy: None, .. } => backend.to_owned(),
            Part::Locks { strategy: Some(strategy), in_session: false } => {
                format!("{backend}-{strategy}")
            }
            Part::Locks { strategy: Some(strategy), in_session: true } => {
                format!("{backend}-{strategy}-session")
            }
            Part::Leases => format!("{backend}-leases"),
            Part::Queue => format!("{backend}-queue"),
        };
        f.pad(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_names_are_unique_and_match_place_and_part() {
        let all = Setup::all();
        let mut names: Vec<String> = all.iter().map(Setup::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
        let named = |name: &str| all.iter().filter(|setup| setup.matches_name(name)).count();
        assert_eq!((named("postgres"), named("mysql"), named("file")), (7, 5, 1));
        assert_eq!((named("leases"), named("queue"), named("locks")), (4, 4, 13));
        assert_eq!((named("postgres-advisory-session"), named("oracle")), (1, 0));
    }
}
