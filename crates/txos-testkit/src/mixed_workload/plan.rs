//! Random plans: a few steps each. They are made before the transaction begins, because what it may
//! write is logged first; so what a step is about does not depend on what is found.

use crate::history::Op;
use crate::random::Random;

use super::keys::{self, CELLS, Door, Kind, LISTS, REGISTERS, SETS, TOKENS, key};

/// How something is written, where there are several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The usual way: rewriting a register; appending to a list.
    Plain,
    /// A new file in the place of the old one; of a list after reading it.
    Replace,
    /// Of a list: reading it, and writing behind its end.
    AtEnd,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Finding out all that a key holds.
    Read(u64),
    /// Writing a value: to a register, at the end of a list, as a name in a set, as the name.
    Write(u64, u64, How),
    /// Whether a name is in a set: the set, the name.
    Look(u64, u64),
    /// Removing a name from a set: the set, the name, and a value to know who it was.
    Remove(u64, u64, u64),
    /// Moving a name to another set under another name: both sets, both names, a value as above.
    Move([u64; 2], [u64; 2], u64),
}

/// The key of a name.
#[must_use]
pub fn of_name(value: u64) -> u64 {
    key(Kind::Name, value)
}

impl Step {
    /// What it may write, as it is logged: see [`super::sets`].
    pub fn writes(&self, into: &mut Vec<Op>) {
        match *self {
            Step::Read(_) | Step::Look(..) => {}
            Step::Write(key, value, _) => into.push(match keys::kind(key) {
                Some(Kind::List | Kind::Set) => Op::Append { key, value },
                _ => Op::Write { key, value },
            }),
            Step::Remove(_, name, mark) => into.push(Op::Write { key: of_name(name), value: mark }),
            Step::Move([_, to], [old, new], mark) => {
                into.push(Op::Write { key: of_name(old), value: mark });
                into.push(Op::Append { key: to, value: new });
            }
        }
    }

    /// As text, without spaces.
    #[must_use]
    pub fn encode(&self) -> String {
        match self {
            Step::Read(key) => format!("read:{key}"),
            Step::Write(key, value, How::Plain) => format!("write:{key}:{value}"),
            Step::Write(key, value, How::Replace) => format!("replace:{key}:{value}"),
            Step::Write(key, value, How::AtEnd) => format!("end:{key}:{value}"),
            Step::Look(set, name) => format!("look:{set}:{name}"),
            Step::Remove(set, name, mark) => format!("remove:{set}:{name}:{mark}"),
            Step::Move([from, to], [old, new], mark) => {
                format!("move:{from}:{to}:{old}:{new}:{mark}")
            }
        }
    }

    /// The reverse.
    #[must_use]
    pub fn decode(text: &str) -> Option<Step> {
        let mut parts = text.split(':');
        let what = parts.next()?;
        let numbers: Vec<u64> = parts.map(|n| n.parse().ok()).collect::<Option<_>>()?;
        Some(match (what, numbers.as_slice()) {
            ("read", [key]) => Step::Read(*key),
            ("write", [key, value]) => Step::Write(*key, *value, How::Plain),
            ("replace", [key, value]) => Step::Write(*key, *value, How::Replace),
            ("end", [key, value]) => Step::Write(*key, *value, How::AtEnd),
            ("look", [set, name]) => Step::Look(*set, *name),
            ("remove", [set, name, mark]) => Step::Remove(*set, *name, *mark),
            ("move", [from, to, old, new, mark]) => Step::Move([*from, *to], [*old, *new], *mark),
            _ => return None,
        })
    }
}

/// Makes one participant's plans.
#[derive(Debug)]
pub struct Planner {
    /// The choices.
    pub random: Random,
    door: Door,
    value: u64,
    /// Names that were there when it looked, with their sets: the newest last.
    known: Vec<(u64, u64)>,
}

/// Names that are remembered.
const KNOWN_MAX: usize = 40;

impl Planner {
    /// For a participant.
    #[must_use]
    pub fn new(participant: u32, seed: u64) -> Planner {
        Planner {
            random: Random::new(seed ^ u64::from(participant).wrapping_mul(0x9e37_79b9)),
            door: Door::of(participant.into()),
            value: keys::first_value(participant),
            known: Vec::new(),
        }
    }

    fn value(&mut self) -> u64 {
        self.value += 1;
        self.value - 1
    }

    fn chance(&mut self, of_100: u64) -> bool {
        self.random.below(100) < of_100
    }

    /// The next plan. What grows is exchanged for something new from epoch to epoch.
    pub fn plan(&mut self, epoch: u64) -> Vec<Step> {
        match self.door {
            Door::Outside => vec![self.outside(epoch)],
            Door::Single => vec![self.single()],
            _ => {
                let steps = 1 + self.random.below(5);
                let mut plan = Vec::new();
                for _ in 0..steps {
                    self.step(epoch, &mut plan);
                }
                plan
            }
        }
    }

    /// Remembers what was found.
    pub fn learn(&mut self, ops: &[Op]) {
        for op in ops {
            match op {
                Op::ReadList { key, values } if keys::kind(*key) == Some(Kind::Set) => {
                    self.known.extend(values.iter().map(|value| (*key, *value)));
                }
                Op::Append { key, value } if keys::kind(*key) == Some(Kind::Set) => {
                    self.known.push((*key, *value));
                }
                _ => {}
            }
        }
        let surplus = self.known.len().saturating_sub(KNOWN_MAX);
        self.known.drain(..surplus);
    }

    fn one(&mut self, kind: Kind, of: u64, epoch: u64) -> u64 {
        // The first ones are used more.
        let n = self.random.below(of).min(self.random.below(of));
        key(kind, epoch * of + n)
    }

    fn known(&mut self) -> Option<(u64, u64)> {
        if self.known.is_empty() {
            return None;
        }
        let n = self.random.below(self.known.len() as u64) as usize;
        Some(self.known[n])
    }

    /// Taken from what is known: it may be gone later on, but by somebody else.
    fn taken(&mut self) -> Option<(u64, u64)> {
        let taken = self.known()?;
        self.known.retain(|known| *known != taken);
        Some(taken)
    }

    fn step(&mut self, epoch: u64, plan: &mut Vec<Step>) {
        let value = self.value();
        match self.random.below(20) {
            0..4 => {
                let register = self.one(Kind::Register, REGISTERS, 0);
                if self.chance(65) {
                    plan.push(Step::Read(register));
                }
                if self.chance(60) {
                    let how = if self.chance(50) { How::Plain } else { How::Replace };
                    plan.push(Step::Write(register, value, how));
                }
            }
            4..9 => {
                let list = self.one(Kind::List, LISTS, epoch);
                if self.chance(45) {
                    plan.push(Step::Read(list));
                }
                if self.chance(65) {
                    let how = match self.random.below(10) {
                        0 => How::Replace,
                        1 | 2 => How::AtEnd,
                        _ => How::Plain,
                    };
                    plan.push(Step::Write(list, value, how));
                }
            }
            9..12 => {
                let cell = self.one(Kind::Cell, CELLS, 0);
                if self.chance(70) {
                    plan.push(Step::Read(cell));
                }
                if self.chance(60) {
                    plan.push(Step::Write(cell, value, How::Plain));
                }
            }
            12..18 => {
                let step = self.in_sets(epoch, value);
                plan.push(step);
            }
            _ => {
                let token = self.one(Kind::Token, TOKENS, 0);
                plan.push(if self.chance(50) {
                    Step::Read(token)
                } else {
                    Step::Write(token, value, How::Plain)
                });
            }
        }
    }

    fn in_sets(&mut self, epoch: u64, value: u64) -> Step {
        let set = self.one(Kind::Set, SETS, epoch);
        let choice = self.random.below(10);
        match choice {
            0..3 => return Step::Write(set, value, How::Plain),
            3..5 => return Step::Read(set),
            5 => {
                if let Some((set, name)) = self.known() {
                    return Step::Look(set, name);
                }
            }
            6..8 => {
                if let Some((set, name)) = self.taken() {
                    return Step::Remove(set, name, value);
                }
            }
            _ => {
                if let Some((from, name)) = self.taken() {
                    return Step::Move([from, set], [name, value], self.value());
                }
            }
        }
        Step::Write(set, value, How::Plain)
    }

    /// What is one system call, on a descriptor from before or by name.
    fn single(&mut self) -> Step {
        let value = self.value();
        match (self.random.below(10), self.random.below(3)) {
            (8.., 0) => {
                if let Some((set, name)) = self.taken() {
                    return Step::Remove(set, name, value);
                }
            }
            (8.., _) => {
                if let Some((set, name)) = self.known() {
                    return Step::Look(set, name);
                }
            }
            _ => {}
        }
        let cell = self.one(Kind::Cell, CELLS, 0);
        if self.chance(50) { Step::Read(cell) } else { Step::Write(cell, value, How::Plain) }
    }

    /// What an outsider can do in such a way that it is one change, or one look at one thing.
    fn outside(&mut self, epoch: u64) -> Step {
        let value = self.value();
        match self.random.below(20) {
            0..3 => Step::Read(self.one(Kind::Register, REGISTERS, 0)),
            3..5 => Step::Write(self.one(Kind::Register, REGISTERS, 0), value, How::Replace),
            5..8 => Step::Read(self.one(Kind::List, LISTS, epoch)),
            8..11 => Step::Write(self.one(Kind::List, LISTS, epoch), value, How::Plain),
            11..13 => Step::Read(self.one(Kind::Cell, CELLS, 0)),
            13 => Step::Read(self.one(Kind::Token, TOKENS, 0)),
            14 => Step::Write(self.one(Kind::Token, TOKENS, 0), value, How::Plain),
            _ => self.in_sets(epoch, value),
        }
    }
}
