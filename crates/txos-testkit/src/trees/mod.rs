//! Random operations on random trees, as text: one generator, one interpreter
//! (`tests/command/trees/c/interpret.c`), and whatever fails is cut down to what a person can read.
//!
//! A case is a list of operations, one a line, in sections:
//!
//! ```text
//! # what it was about
//! mode kept                 only these ways to the end; without, all
//! prepare                   what is there before, made natively
//! mkdir a 0755
//! transaction               what each transaction does
//! rename a b
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`self`] | the text: operations, their arguments, cases |
//! | [`generate`] | the case of a seed |
//! | [`shrink`] | the smallest case that fails in the same way |

pub mod generate;
pub mod shrink;

use std::fmt;

/// Every operation with its arguments, a letter each: `p` a path, `n` a number, `m` an octal mode,
/// `s` a slot for a descriptor, `l` a length, `t` a number that tells written bytes apart, `w` a word.
pub const OPERATIONS: &[(&str, &str)] = &[
    ("create", "pm"),
    ("write", "plt"),
    ("append", "plt"),
    ("patch", "pllt"),
    ("truncate", "pl"),
    ("allocate", "pnll"),
    ("map", "pllt"),
    ("copy", "pp"),
    ("tmpfile", "pplt"),
    ("mkdir", "pm"),
    ("fifo", "pm"),
    ("socket", "pm"),
    ("device", "pn"),
    ("symlink", "pp"),
    ("link", "pp"),
    ("linkf", "pp"),
    ("rename", "pp"),
    ("rename2", "ppn"),
    ("unlink", "p"),
    ("rmdir", "p"),
    ("remove", "p"),
    ("chmod", "pm"),
    ("chown", "pnn"),
    ("lchown", "pnn"),
    ("times", "pnn"),
    ("ltimes", "pnn"),
    ("setxattr", "pwlt"),
    ("lsetxattr", "pwlt"),
    ("removexattr", "pw"),
    ("acl", "pn"),
    ("dacl", "pn"),
    ("stat", "p"),
    ("lstat", "p"),
    ("read", "p"),
    ("list", "p"),
    ("readlink", "p"),
    ("access", "pn"),
    ("attributes", "p"),
    ("open", "spwm"),
    ("fwrite", "slt"),
    ("fpatch", "sllt"),
    ("fread", "sl"),
    ("seek", "snn"),
    ("ftruncate", "sl"),
    ("fallocate", "snll"),
    ("fchmod", "sm"),
    ("fchown", "snn"),
    ("ftimes", "snn"),
    ("fsetxattr", "swlt"),
    ("fstat", "s"),
    ("flist", "s"),
    ("fsync", "s"),
    ("close", "s"),
    ("dup", "ss"),
    ("fmap", "sll"),
    ("poke", "slt"),
    ("unmap", "s"),
    ("flink", "sp"),
    ("chdir", "p"),
    ("fchdir", "s"),
    ("home", ""),
    ("umask", "m"),
];

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Op {
    /// Its name in [`OPERATIONS`].
    pub name: String,
    /// Its arguments, as many as it takes.
    pub args: Vec<String>,
}

impl Op {
    /// What its arguments are; empty if there is no such operation.
    #[must_use]
    pub fn signature(&self) -> &'static str {
        OPERATIONS.iter().find(|(name, _)| *name == self.name).map_or("", |(_, s)| s)
    }

    /// From a line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(line: &str) -> Result<Op, String> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let name = words.next().ok_or("an empty line")?;
        let op = Op { name, args: words.collect() };
        let known = OPERATIONS.iter().find(|(name, _)| *name == op.name);
        match known {
            None => Err(format!("{line}: no such operation")),
            Some((_, signature)) if signature.len() != op.args.len() => {
                Err(format!("{line}: {} arguments, not {}", signature.len(), op.args.len()))
            }
            Some(_) => Ok(op),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.args.iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}

/// What makes a tree, and transactions on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Case {
    /// What it is about, for people.
    pub comment: Vec<String>,
    /// The names of the ways it is to be tried in; all if none is named.
    pub modes: Vec<String>,
    /// Done before, natively.
    pub prepare: Vec<Op>,
    /// Done in one transaction each.
    pub parts: Vec<Vec<Op>>,
}

impl Case {
    /// From its text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Case, String> {
        let mut case = Case::default();
        let mut begun = false;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix('#') {
                case.comment.push(comment.trim().to_owned());
            } else if let Some(mode) = line.strip_prefix("mode ") {
                case.modes.push(mode.trim().to_owned());
            } else if line == "prepare" {
                begun = true;
            } else if line == "transaction" {
                case.parts.push(Vec::new());
            } else if let Some(part) = case.parts.last_mut() {
                part.push(Op::parse(line)?);
            } else if begun {
                case.prepare.push(Op::parse(line)?);
            } else {
                return Err(format!("{line}: before the first section"));
            }
        }
        if case.parts.is_empty() { Err("no transaction".to_owned()) } else { Ok(case) }
    }

    /// How many operations it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prepare.len() + self.parts.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sections(&self) -> impl Iterator<Item = &Vec<Op>> {
        std::iter::once(&self.prepare).chain(&self.parts)
    }

    fn sections_mut(&mut self) -> impl Iterator<Item = &mut Vec<Op>> {
        std::iter::once(&mut self.prepare).chain(&mut self.parts)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.comment.iter().try_for_each(|line| writeln!(f, "# {line}"))?;
        self.modes.iter().try_for_each(|mode| writeln!(f, "mode {mode}"))?;
        for (n, section) in self.sections().enumerate() {
            writeln!(f, "{}", if n == 0 { "prepare" } else { "transaction" })?;
            section.iter().try_for_each(|op| writeln!(f, "{op}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trees::generate::{Limits, of_seed};

    #[test]
    fn text_and_back() {
        for seed in 0..200 {
            let case = of_seed(seed, &Limits::none());
            assert_eq!(Case::parse(&case.to_string()), Ok(case), "seed {seed}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, what) in [
            ("prepare\nmkdir a 0755", "no transaction"),
            ("mkdir a 0755", "before the first section"),
            ("transaction\nmkdir a", "2 arguments, not 1"),
            ("transaction\nfly a", "no such operation"),
        ] {
            let error = Case::parse(text).err().unwrap_or_default();
            assert!(error.contains(what), "{text:?}: {error:?}");
        }
    }
}
