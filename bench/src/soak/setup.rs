//! What is tried: each way to lock, and the parts of the toolbox, on each place where they can be.

use hierlock::sql::Strategy;
use hierlock_sandbox::Engine;
use std::fmt;

/// Where locks or tables are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In one process.
    Memory,
    /// In a file of the host, by the kernel's locks.
    File,
    /// In a file of SQLite.
    Sqlite,
    /// On a server.
    Server(Engine),
}

/// What is used there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Locks.
    Locks {
        /// How a node becomes a slot, on a server.
        strategy: Option<Strategy>,
        /// Do guards share a session?
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
    /// Where.
    pub place: Place,
    /// What.
    pub part: Part,
}

impl Setup {
    /// All there are, those of one place beside each other.
    pub fn all() -> Vec<Setup> {
        let mut all = Vec::new();
        for place in Place::ALL {
            all.extend(place.parts().into_iter().map(|part| Setup { place, part }));
        }
        all
    }

    /// Does it go by this name: its own, that of its place, or that of its part?
    pub fn is_named(self, name: &str) -> bool {
        let part = match self.part {
            Part::Locks { .. } => "locks",
            Part::Leases => "leases",
            Part::Queue => "queue",
        };
        [self.to_string().as_str(), self.place.name(), part].contains(&name)
    }
}

impl Place {
    /// All of them.
    pub const ALL: [Place; 6] = [
        Place::Memory,
        Place::File,
        Place::Sqlite,
        Place::Server(Engine::Mysql),
        Place::Server(Engine::Mariadb),
        Place::Server(Engine::Postgres),
    ];

    /// Its name, as in a URL.
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
    fn every_setup_has_a_name_of_its_own_and_goes_by_those_of_its_place_and_part() {
        let all = Setup::all();
        let mut names: Vec<String> = all.iter().map(Setup::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len());
        let named = |name: &str| all.iter().filter(|setup| setup.is_named(name)).count();
        assert_eq!((named("postgres"), named("mysql"), named("file")), (7, 5, 1));
        assert_eq!((named("leases"), named("queue"), named("locks")), (4, 4, 13));
        assert_eq!((named("postgres-advisory-session"), named("oracle")), (1, 0));
    }
}
