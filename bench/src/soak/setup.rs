//! The setups: each lock strategy and each part of the toolbox, at each place that supports it.

use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use std::fmt;

/// The backend that has the locks or tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
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

/// A part at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The backend.
    pub place: Place,
    /// The part of hierlock.
    pub part: Part,
}

impl Setup {
    /// Returns all setups, grouped by place.
    pub fn all() -> Vec<Setup> {
        let mut all = Vec::new();
        for place in Place::ALL {
            all.extend(place.parts().into_iter().map(|part| Setup { place, part }));
        }
        all
    }

    /// Returns whether `name` is the name of this setup, of its place or of its part.
    pub fn matches_name(self, name: &str) -> bool {
        [self.to_string().as_str(), self.place.name(), self.part.name()].contains(&name)
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

impl Place {
    /// All places.
    pub const ALL: [Place; 6] = [
        Place::Memory,
        Place::File,
        Place::Sqlite,
        Place::Server(Engine::Mysql),
        Place::Server(Engine::Mariadb),
        Place::Server(Engine::Postgres),
    ];

    /// Returns the name of the place, as in a URL.
    pub fn name(self) -> &'static str {
        match self {
            Place::Memory => "memory",
            Place::File => "file",
            Place::Sqlite => "sqlite",
            Place::Server(engine) => engine.name(),
        }
    }

    fn parts(self) -> Vec<Part> {
        let locks = |strategy| Part::Locks { strategy, in_session: false };
        let toolbox = [Part::Leases, Part::Queue];
        let rows = [Strategy::Striped, Strategy::PerId, Strategy::OnDemand];
        let rows = rows.map(|strategy| locks(Some(strategy)));
        let keys = |in_session| Part::Locks { strategy: Some(Strategy::Advisory), in_session };
        match self {
            Place::Memory | Place::File => vec![locks(None)],
            Place::Sqlite => toolbox.to_vec(),
            Place::Server(Engine::Postgres) => {
                [[keys(false), keys(true)].as_slice(), &rows, &toolbox].concat()
            }
            Place::Server(_) => [rows.as_slice(), &toolbox].concat(),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.place.name();
        let name = match self.part {
            Part::Locks { strategy: None, .. } => place.to_owned(),
            Part::Locks { strategy: Some(strategy), in_session: false } => {
                format!("{place}-{strategy}")
            }
            Part::Locks { strategy: Some(strategy), in_session: true } => {
                format!("{place}-{strategy}-session")
            }
            Part::Leases => format!("{place}-leases"),
            Part::Queue => format!("{place}-queue"),
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
