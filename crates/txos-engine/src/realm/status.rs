//! The status word of a slot: which transaction it is, and how far it has come.
//!
//! ```text
//!  63                                            5  4   3  0
//! ┌───────────────────────────────────────────────┬───┬──────┐
//! │ generation: counts the slot's transactions     │ w │ state│
//! └───────────────────────────────────────────────┴───┴──────┘
//! w: somebody waits for this generation to end (see `waiters` of the slot)
//! ```
//!
//! Every change is a read-modify-write, so a transaction is doomed, begins to publish or ends
//! exactly once, and whoever ends it sees whether somebody waits.
//!
//! | from | to | by |
//! |---|---|---|
//! | idle | active | the owner, with the next generation |
//! | active | preparing | the owner |
//! | active, preparing | doomed | whoever won a conflict |
//! | active, preparing | publishing, committed | the owner |
//! | active, preparing, doomed, publishing | aborted | the owner |
//! | publishing | committed | the owner |
//! | any | aborted, idle | whoever takes over from a dead owner |
//! | committed, aborted | idle | the owner |

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum State {
    /// No transaction.
    Idle = 0,
    /// Its block runs.
    Active = 1,
    /// It is about to publish: acquires what it writes, validates. Can still be doomed.
    Preparing = 2,
    /// It is being published: can't be doomed any more, and waits for nobody.
    Publishing = 3,
    /// Its changes are there; what it held is being released.
    Committed = 4,
    /// Another one won; it has not noticed yet.
    Doomed = 5,
    /// It has noticed, or aborted by itself; what it held is being released.
    Aborted = 6,
}

impl State {
    fn from_bits(bits: u64) -> State {
        match bits {
            1 => State::Active,
            2 => State::Preparing,
            3 => State::Publishing,
            4 => State::Committed,
            5 => State::Doomed,
            6 => State::Aborted,
            // 0, and what no participant writes: holds nothing.
            _ => State::Idle,
        }
    }

    /// Whether what it holds is still to be respected.
    #[must_use]
    pub fn is_running(self) -> bool {
        matches!(self, State::Active | State::Preparing | State::Publishing)
    }

    /// Whether it can be doomed.
    #[must_use]
    pub fn is_doomable(self) -> bool {
        matches!(self, State::Active | State::Preparing)
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            State::Idle => "idle",
            State::Active => "active",
            State::Preparing => "preparing",
            State::Publishing => "publishing",
            State::Committed => "committed",
            State::Doomed => "doomed",
            State::Aborted => "aborted",
        })
    }
}

const STATE: u64 = 0xf;
const WAITED: u64 = 0x10;
const GENERATION_SHIFT: u32 = 5;

/// A status word's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub u64);

impl Status {
    pub fn new(generation: u64, state: State) -> Status {
        Status(generation << GENERATION_SHIFT | state as u64)
    }

    pub fn state(self) -> State {
        State::from_bits(self.0 & STATE)
    }

    pub fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT
    }

    /// Whether somebody waits for its end.
    pub fn is_waited_for(self) -> bool {
        self.0 & WAITED != 0
    }

    pub fn waited_for(self) -> Status {
        Status(self.0 | WAITED)
    }

    /// The same transaction and the same waiters, in another state.
    pub fn with(self, state: State) -> Status {
        Status(self.0 & !STATE | state as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_mix() {
        let status = Status::new(77, State::Active).waited_for();
        assert_eq!((status.generation(), status.state()), (77, State::Active));
        assert!(status.is_waited_for());
        let doomed = status.with(State::Doomed);
        assert_eq!((doomed.generation(), doomed.state()), (77, State::Doomed));
        assert!(doomed.is_waited_for());
        assert!(!Status::new(78, State::Idle).is_waited_for());
    }

    #[test]
    fn unknown_states_hold_nothing() {
        assert!((7..16).all(|bits| State::from_bits(bits) == State::Idle));
    }
}
