//! The case of a seed. Names are few, so that operations meet, and what is likely to be there is
//! followed, so that most of them have something to do.

use super::{Case, OPERATIONS, Op};
use crate::random::Random;

/// What there is likely to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Link,
    Other,
}

/// What is not generated, because a door has limits for it (docs/limits.md).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Permission bits that keep the owner out.
    pub locked: bool,
    /// Attributes that only root may set.
    pub root: bool,
    /// Objects of others: below them, in a namespace that has no such users, nothing can be copied up.
    pub owners: bool,
}

impl Limits {
    /// None: for root.
    #[must_use]
    pub fn none() -> Limits {
        Limits { locked: true, root: true, owners: true }
    }

    /// What an ordinary user does.
    #[must_use]
    pub fn ordinary() -> Limits {
        Limits { locked: false, root: false, owners: false }
    }
}

const NAMES: &[&str] = &["a", "b", "c", "d", "e", "f"];
const MODES: &[u32] =
    &[0o644, 0o600, 0o755, 0o700, 0o777, 0o4755, 0o2755, 0o1777, 0o2770, 0o444, 0o555, 0, 0o311];
const LENGTHS: &[u64] =
    &[0, 1, 5, 100, 511, 4095, 4096, 4097, 8192, 10_000, 70_000, 131_072, 200_000];
const FLAGS: &[&str] =
    &["r", "r", "w", "+", "+", "+c", "+cx", "wa", "+t", "wct", "rd", "p", "rn", "+s", "+a"];

/// Longest lists: before, in one transaction, and how many of these.
const BEFORE_MAX: u64 = 40;
const PART_MAX: u64 = 30;
const PARTS_MAX: u64 = 3;

/// One in so many is a pattern of several operations.
const PATTERN_EVERY: u64 = 7;

/// How often an operation comes; 1 for those that are not named.
const WEIGHTS: &[(&str, u64)] = &[
    ("write", 6),
    ("append", 3),
    ("patch", 3),
    ("truncate", 2),
    ("mkdir", 5),
    ("symlink", 3),
    ("link", 4),
    ("rename", 9),
    ("rename2", 4),
    ("unlink", 4),
    ("rmdir", 2),
    ("remove", 2),
    ("chmod", 3),
    ("chown", 2),
    ("times", 2),
    ("setxattr", 3),
    ("acl", 2),
    ("dacl", 2),
    ("lstat", 2),
    ("list", 2),
    ("read", 2),
    ("open", 6),
    ("fwrite", 3),
    ("poke", 2),
    ("fmap", 2),
    ("home", 2),
];

/// Before a transaction only what makes something.
const MAKING: &[&str] = &[
    "write",
    "write",
    "write",
    "create",
    "mkdir",
    "mkdir",
    "mkdir",
    "mkdir",
    "symlink",
    "link",
    "link",
    "fifo",
    "socket",
    "device",
    "chmod",
    "lchown",
    "setxattr",
    "acl",
    "dacl",
    "patch",
    "allocate",
    "rename",
    "lsetxattr",
];

/// The case of a seed.
#[must_use]
pub fn of_seed(seed: u64, limits: &Limits) -> Case {
    let mut generator =
        Generator { random: Random::new(seed), limits: *limits, known: Vec::new(), tag: 0 };
    let count = 8 + generator.random.below(BEFORE_MAX - 8);
    let prepare = (0..count).map(|_| generator.making()).collect();
    let parts = 1 + generator.random.below(PARTS_MAX);
    let parts = (0..parts).map(|_| generator.part()).collect();
    Case { comment: vec![format!("seed {seed}")], modes: Vec::new(), prepare, parts }
}

struct Generator {
    random: Random,
    limits: Limits,
    known: Vec<(String, Kind)>,
    tag: u64,
}

impl Generator {
    fn part(&mut self) -> Vec<Op> {
        let count = 1 + self.random.below(PART_MAX);
        let mut part = Vec::new();
        while (part.len() as u64) < count {
            match self.random.below(PATTERN_EVERY) {
                0 => part.extend(self.pattern()),
                _ => part.push(self.any()),
            }
        }
        part
    }

    /// What programs do in several steps, and single operations hardly ever come to.
    fn pattern(&mut self) -> Vec<Op> {
        let name = *self.random.pick(NAMES);
        let (one, other) = (self.known(Some(Kind::File)), self.beside());
        let (dir, dest) = (self.known(Some(Kind::Directory)), self.known(Some(Kind::Directory)));
        let any = self.known(None);
        let last = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let (made, another) = (self.beside(), self.some(2));
        match self.random.below(12) {
            // A file is replaced by its own copy: `cp a t; mv t a`.
            0 => self.steps(&[&["copy", &one, &other], &["rename", &other, &one]]),
            // It is changed by one of its names, which is then lost.
            1 => self.steps(&[
                &["link", &one, &other],
                &["append", &one, "12", "7"],
                &["rename", &another, &one],
            ]),
            2 => self.steps(&[
                &["link", &one, &other],
                &["chmod", &other, "0740"],
                &["unlink", &other],
            ]),
            3 => self.steps(&[
                &["append", &one, "9", "8"],
                &["unlink", &one],
                &["symlink", name, &one],
            ]),
            // Everything into a new directory: linked, as `cp -al` does, or moved.
            4 => {
                let to = format!("{made}/{}", last(&any));
                self.steps(&[&["mkdir", &made, "0755"], &["link", &any, &to], &["list", &made]])
            }
            5 => {
                let to = format!("{made}/{name}");
                let below = format!("{to}/{name}");
                self.steps(&[
                    &["mkdir", &made, "0755"],
                    &["rename", &dir, &to],
                    &["mkdir", &below, "0755"],
                ])
            }
            // Below what was moved: changed, taken away, moved on.
            6 => {
                let below = format!("{made}/{name}");
                self.steps(&[
                    &["rename", &dir, &made],
                    &["list", &made],
                    &["write", &below, "20", "9"],
                ])
            }
            7 => {
                let below = format!("{made}/{name}");
                self.steps(&[&["rename", &dir, &made], &["remove", &below], &["list", &made]])
            }
            8 => {
                let to = format!("{made}/{}", last(&dest));
                self.steps(&[&["rename", &dir, &made], &["rename", &dest, &to]])
            }
            // Out of a directory that is then removed, and perhaps made anew.
            9 => {
                let from = format!("{dir}/{name}");
                self.steps(&[&["rename", &from, &made], &["remove", &dir]])
            }
            10 => {
                let from = format!("{dir}/{name}");
                self.steps(&[
                    &["rename", &from, &made],
                    &["remove", &dir],
                    &["mkdir", &dir, "0755"],
                    &["rename", &made, &from],
                ])
            }
            // Two change places, and something below follows.
            _ => {
                let below = format!("{dir}/{name}");
                self.steps(&[
                    &["rename2", &dir, &dest, "0"],
                    &["rename", &below, &made],
                    &["list", &dest],
                ])
            }
        }
    }

    fn steps(&mut self, steps: &[&[&str]]) -> Vec<Op> {
        let mut ops = Vec::new();
        for words in steps {
            let Some((name, args)) = words.split_first() else { continue };
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            let op = Op { name: (*name).to_owned(), args };
            self.follow(&op);
            ops.push(op);
        }
        ops
    }

    fn making(&mut self) -> Op {
        let name = *self.random.pick(MAKING);
        self.operation(if name == "lchown" && !self.limits.owners { "mkdir" } else { name })
    }

    fn any(&mut self) -> Op {
        let weight =
            |name: &str| WEIGHTS.iter().find(|(other, _)| *other == name).map_or(1, |(_, w)| *w);
        let sum = OPERATIONS.iter().map(|(name, _)| weight(name)).sum();
        let mut at = self.random.below(sum);
        for (name, _) in OPERATIONS {
            match at.checked_sub(weight(name)) {
                Some(rest) => at = rest,
                None => return self.operation(name),
            }
        }
        self.operation("home")
    }

    fn operation(&mut self, name: &str) -> Op {
        self.tag += 1;
        let signature = OPERATIONS.iter().find(|(n, _)| *n == name).map_or("", |(_, s)| s);
        let mut args: Vec<String> = Vec::new();
        for (n, kind) in signature.chars().enumerate() {
            let arg = match kind {
                'p' => self.path(name, n, args.first().cloned()),
                'm' => {
                    let mode = *self.random.pick(MODES);
                    let umask = name == "umask";
                    let mode = if self.limits.locked || umask { mode } else { mode | 0o700 };
                    format!("{:04o}", if umask { mode & 0o77 } else { mode })
                }
                's' => self.random.below(4).to_string(),
                'l' => self.length(),
                't' => self.tag.to_string(),
                'w' if name == "open" => (*self.random.pick(FLAGS)).to_owned(),
                'w' => self.attribute(),
                _ => self.number(name),
            };
            args.push(arg);
        }
        let op = Op { name: name.to_owned(), args };
        self.follow(&op);
        op
    }

    fn length(&mut self) -> String {
        let few = self.random.below(2) == 0;
        let length = if few { self.random.below(300) } else { *self.random.pick(LENGTHS) };
        length.to_string()
    }

    fn attribute(&mut self) -> String {
        let names = ["user.a", "user.b", "user.long-name-of-an-attribute", "trusted.a"];
        let count = if self.limits.root { 4 } else { 3 };
        (*self.random.pick(&names[..count])).to_owned()
    }

    fn number(&mut self, name: &str) -> String {
        match name {
            "chown" | "lchown" | "fchown" => {
                // Numbers that an ordinary user may not give away either way.
                ["-1", "0", "1", "2"][self.random.below(4) as usize].to_owned()
            }
            "times" | "ltimes" | "ftimes" => match self.random.below(6) {
                0 => "-1".to_owned(),
                1 => "-2".to_owned(),
                _ => (1_000_000_100 + self.tag).to_string(),
            },
            "seek" => self.random.below(5000).to_string(),
            // In a namespace that has no other users an access list can't name them.
            "acl" | "dacl" if !self.limits.owners => "0".to_owned(),
            _ => self.random.below(8).to_string(),
        }
    }

    fn path(&mut self, name: &str, n: usize, before: Option<String>) -> String {
        // A link's target leads down from its directory, to a sibling of it, or from the top.
        if name == "symlink" && n == 0 {
            let target = self.some(2);
            return match self.random.below(8) {
                0 => format!("@/{target}"),
                1 => format!("../{target}"),
                2 => ".".to_owned(),
                _ => target,
            };
        }
        let makes = matches!(
            (name, n),
            ("create" | "mkdir" | "fifo" | "socket" | "device", 0)
                | ("symlink" | "link" | "linkf" | "rename" | "tmpfile" | "copy" | "flink", 1)
        );
        let wanted = match name {
            "rmdir" | "list" | "chdir" | "dacl" | "remove" => Some(Kind::Directory),
            "tmpfile" if n == 0 => Some(Kind::Directory),
            // Symbolic links, FIFOs, sockets and devices have several names as well.
            "link" if self.random.below(3) == 0 => {
                Some(*self.random.pick(&[Kind::Link, Kind::Other]))
            }
            "write" | "append" | "patch" | "truncate" | "allocate" | "map" | "read" | "link" => {
                Some(Kind::File)
            }
            "readlink" => Some(Kind::Link),
            "rename" | "rename2" if self.random.below(2) == 0 => Some(Kind::Directory),
            _ => None,
        };
        let way = self.random.below(10);
        let path = if makes && way < 7 {
            self.beside()
        } else if way < 8 {
            self.known(wanted)
        } else {
            self.some(3)
        };
        let same = before.is_some_and(|other| other == path);
        let path = if same { self.some(3) } else { path };
        match self.random.below(60) {
            0 => format!("{path}/"),
            1 => format!("./{path}"),
            2 => format!("@/{path}"),
            3 => ".".to_owned(),
            _ => path,
        }
    }

    /// Any path, of so many names at most.
    fn some(&mut self, depth: u64) -> String {
        let depth = 1 + self.random.below(depth);
        let names: Vec<&str> = (0..depth).map(|_| *self.random.pick(NAMES)).collect();
        names.join("/")
    }

    /// One that is likely to be there.
    fn known(&mut self, kind: Option<Kind>) -> String {
        let fitting: Vec<&String> = self
            .known
            .iter()
            .filter(|(_, k)| kind.is_none_or(|kind| *k == kind))
            .map(|(p, _)| p)
            .collect();
        if fitting.is_empty() {
            return self.some(2);
        }
        (*self.random.pick(&fitting)).clone()
    }

    /// A name in a directory that is likely to be there.
    fn beside(&mut self) -> String {
        let name = *self.random.pick(NAMES);
        if self.random.below(3) == 0 {
            return name.to_owned();
        }
        let dir = self.known(Some(Kind::Directory));
        if dir.matches('/').count() > 2 { name.to_owned() } else { format!("{dir}/{name}") }
    }

    /// Takes note of what an operation may have done.
    fn follow(&mut self, op: &Op) {
        let arg = |n: usize| op.args.get(n).cloned().unwrap_or_default();
        let (first, second) = (arg(0), arg(1));
        match op.name.as_str() {
            "mkdir" => self.make(&first, Kind::Directory),
            "create" | "write" => self.make(&first, Kind::File),
            "fifo" | "socket" | "device" => self.make(&first, Kind::Other),
            "symlink" => self.make(&second, Kind::Link),
            "link" => {
                let kind = self.known.iter().find(|(path, _)| *path == first);
                let kind = kind.map_or(Kind::File, |(_, kind)| *kind);
                if kind != Kind::Directory {
                    self.make(&second, kind);
                }
            }
            "linkf" | "copy" | "tmpfile" | "flink" => self.make(&second, Kind::File),
            "rename" => {
                let inner = format!("{first}/");
                for (path, _) in &mut self.known {
                    if *path == first {
                        path.clone_from(&second);
                    } else if let Some(rest) = path.strip_prefix(&inner) {
                        *path = format!("{second}/{rest}");
                    }
                }
            }
            "unlink" | "rmdir" | "remove" => {
                let inner = format!("{first}/");
                self.known.retain(|(path, _)| *path != first && !path.starts_with(&inner));
            }
            _ => {}
        }
    }

    fn make(&mut self, path: &str, kind: Kind) {
        if !self.known.iter().any(|(known, _)| known == path) {
            self.known.push((path.to_owned(), kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_is_always_the_same_case() {
        assert_eq!(of_seed(7, &Limits::none()), of_seed(7, &Limits::none()));
        assert_ne!(of_seed(7, &Limits::none()).prepare, of_seed(8, &Limits::none()).prepare);
    }

    #[test]
    fn every_operation_comes() {
        let mut seen = BTreeSet::new();
        for seed in 0..300 {
            let case = of_seed(seed, &Limits::none());
            seen.extend(case.parts.iter().flatten().map(|op| op.name.clone()));
        }
        let missing: Vec<_> = OPERATIONS.iter().filter(|(name, _)| !seen.contains(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn nothing_leads_far_out() {
        for seed in 0..300 {
            for op in of_seed(seed, &Limits::none()).sections().flatten() {
                let paths =
                    op.args.iter().zip(op.signature().chars()).filter(|(_, kind)| *kind == 'p');
                for (n, (path, _)) in paths.enumerate() {
                    let target = op.name == "symlink" && n == 0;
                    assert!(!path.starts_with('/'), "{op}");
                    assert!(path.matches("..").count() <= usize::from(target), "{op}");
                }
            }
        }
    }
}
