//! What is in the tree, as the checker's keys, and how participants and values are numbered.

/// A key's upper 4 bits say of which kind it is, the others are its number.
const KIND: u32 = 60;

/// Room for a value: a participant's number and a number of its own.
const OWN: u32 = 24;

/// What is read where no whole value is: nobody writes it.
pub const TORN: u64 = u64::MAX;

/// Registers in files of their own.
pub const REGISTERS: u64 = 6;
/// Registers in one file, in place.
pub const CELLS: u64 = 8;
/// Lists at a time.
pub const LISTS: u64 = 4;
/// Directories that are sets, at a time.
pub const SETS: u64 = 2;
/// Directories with one name.
pub const TOKENS: u64 = 2;

/// The kinds of things in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A file with one value.
    Register = 1,
    /// A file with a value a line.
    List = 2,
    /// A place in the file `cells`.
    Cell = 3,
    /// A directory with a name for each value.
    Set = 4,
    /// A name in a set; its number is the value.
    Name = 5,
    /// A directory with one name.
    Token = 6,
}

const KINDS: [Kind; 6] =
    [Kind::Register, Kind::List, Kind::Cell, Kind::Set, Kind::Name, Kind::Token];

/// The key of one of a kind.
#[must_use]
pub fn key(kind: Kind, number: u64) -> u64 {
    (kind as u64) << KIND | number
}

/// The kind of a key, if it is one.
#[must_use]
pub fn kind(key: u64) -> Option<Kind> {
    KINDS.into_iter().find(|kind| *kind as u64 == key >> KIND)
}

/// The number of a key.
#[must_use]
pub fn number(key: u64) -> u64 {
    key & ((1 << KIND) - 1)
}

/// The name in the tree of what a key stands for; that of a name is below its set.
#[must_use]
pub fn path(key: u64) -> String {
    let number = number(key);
    match kind(key) {
        Some(Kind::Register) => format!("register-{number}"),
        Some(Kind::List) => format!("list-{number}"),
        Some(Kind::Set) => format!("set-{number}"),
        Some(Kind::Token) => format!("token-{number}"),
        Some(Kind::Cell) => "cells".to_owned(),
        Some(Kind::Name) | None => name(number),
    }
}

/// The name that a value has in a directory.
#[must_use]
pub fn name(value: u64) -> String {
    format!("{value:014x}")
}

/// The value of a name.
#[must_use]
pub fn value_of(name: &[u8]) -> u64 {
    let text = std::str::from_utf8(name).ok().filter(|text| text.len() == 14);
    text.and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(TORN)
}

/// Who takes part, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Door {
    /// The test itself, before and after.
    Test = 0,
    /// Commands under `txos run`.
    Command = 1,
    /// Threads of programs with the library.
    Inside = 2,
    /// The same, of one system call each.
    Single = 3,
    /// Plain system calls.
    Outside = 4,
    /// Commands under `txos run --view library`.
    Library = 5,
}

const DOORS: [Door; 6] =
    [Door::Test, Door::Command, Door::Inside, Door::Single, Door::Outside, Door::Library];

/// Participants of one door that can be told apart.
const PARTICIPANTS: u32 = 1 << 20;

impl Door {
    /// The number of one of its participants.
    #[must_use]
    pub fn participant(self, number: u32) -> u32 {
        (self as u32) * PARTICIPANTS + number % PARTICIPANTS
    }

    /// By which a participant came.
    #[must_use]
    pub fn of(participant: u64) -> Door {
        let n = participant / u64::from(PARTICIPANTS);
        DOORS.into_iter().find(|door| *door as u64 == n).unwrap_or(Door::Test)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Door::Test => "the test",
            Door::Command => "command",
            Door::Inside => "inside",
            Door::Single => "single call",
            Door::Outside => "outsider",
            Door::Library => "library",
        }
    }

    /// Whether its participants run commands, one after the other.
    #[must_use]
    pub fn runs_commands(self) -> bool {
        matches!(self, Door::Command | Door::Library)
    }
}

/// The first value of a participant; each next one is one more.
#[must_use]
pub fn first_value(participant: u32) -> u64 {
    u64::from(participant) << OWN | 1
}

/// Whose value it is.
#[must_use]
pub fn participant_of(value: u64) -> u64 {
    value >> OWN
}
