//! Sequences of transactions, each of whose states is known beforehand: the tree after step *n* follows
//! from the seed, the sequence and *n*. So after a power cut there is no question of what must be there: the
//! tree of the last acknowledged step, or the one of the step that had begun.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use crate::random::Random;

/// How a sequence's steps are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Each by a command under `txos run`, on two file systems at once.
    Commands,
    /// The same, and every third step is `txos revert` of the second.
    Reverts,
    /// Each in a process that stays, through the library, on two file systems at once.
    Library,
    /// The same with small changes of files that stay: light commits, from the log.
    Light,
    /// The same with small files that are made, replaced and removed: light commits of names.
    Names,
    /// As the commands, but without flushes: after a cut steps may be gone, and parts of steps may be there.
    Volatile,
}

impl Kind {
    /// All of them; a sequence's number is its place in here.
    pub const ALL: [Kind; 6] =
        [Kind::Commands, Kind::Reverts, Kind::Library, Kind::Light, Kind::Names, Kind::Volatile];

    /// Whether what was acknowledged must be there.
    #[must_use]
    pub fn is_durable(self) -> bool {
        self != Kind::Volatile
    }
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A directory.
    Dir,
    /// A file and its content.
    File(Vec<u8>),
    /// A symbolic link and where it leads.
    Link(String),
}

/// A tree, by paths whose first component is the file system, `r` (root) or `d` (data).
pub type Model = BTreeMap<String, Node>;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new directory.
    MakeDir(String),
    /// A file as a whole: truncated and written if it is there.
    Write(String, Vec<u8>),
    /// More at the end of a file.
    Append(String, Vec<u8>),
    /// Other bytes in the middle of a file.
    Patch(String, usize, Vec<u8>),
    /// Another name, for a file or a directory with all that is in it.
    Rename(String, String),
    /// A symbolic link, in place of one that is there.
    Link(String, String),
    /// Away, with all that is in it.
    Remove(String),
}

/// A sequence of steps.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// Of the whole run.
    pub seed: u64,
    /// What its steps are.
    pub kind: Kind,
}

/// Files that a light sequence changes.
const LIGHT_FILES: usize = 4;

/// Below this many entries a tree only grows, above the other it only shrinks.
const SIZES: std::ops::Range<usize> = 6..40;

impl Sequence {
    /// Its number.
    #[must_use]
    pub fn number(self) -> usize {
        Kind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0)
    }

    /// Where a path of a model lies.
    #[must_use]
    pub fn place(self, path: &str) -> PathBuf {
        let (top, rest) = path.split_once('/').unwrap_or((path, ""));
        let top = if top == "r" { "/work" } else { "/data" };
        Path::new(top).join(format!("s{}", self.number())).join(rest)
    }

    /// Before the first step.
    #[must_use]
    pub fn start(self) -> Model {
        let mut model = Model::new();
        for top in ["r", "d"] {
            model.insert(top.into(), Node::Dir);
        }
        if self.kind == Kind::Light {
            for n in 0..LIGHT_FILES {
                model.insert(format!("d/f{n}"), Node::File(vec![b'.'; 4096 * (n + 1)]));
            }
        }
        model
    }

    /// The trees after steps `from..=to`.
    #[must_use]
    pub fn states(self, from: u64, to: u64) -> Vec<(u64, Model)> {
        let mut wanted = Vec::new();
        let (mut before, mut now) = (Model::new(), self.start());
        for n in 0..=to {
            if n > 0 {
                let next = if self.is_revert(n) { before } else { self.after(n, &now) };
                before = std::mem::replace(&mut now, next);
            }
            if n >= from {
                wanted.push((n, now.clone()));
            }
        }
        wanted
    }

    /// The tree that step *n*, which is no revert, makes of the one before.
    #[must_use]
    pub fn after(self, n: u64, before: &Model) -> Model {
        let mut model = before.clone();
        for op in self.step(n, before) {
            apply_to_model(&mut model, &op);
        }
        model
    }

    /// Whether a step undoes the one before.
    #[must_use]
    pub fn is_revert(self, n: u64) -> bool {
        self.kind == Kind::Reverts && n.is_multiple_of(3)
    }

    /// What step *n* does to the tree of step *n* - 1.
    #[must_use]
    pub fn step(self, n: u64, before: &Model) -> Vec<Op> {
        let mut random = Random::new(self.seed ^ (self.number() as u64) << 56 ^ n << 20);
        match self.kind {
            Kind::Light => return light_step(n, before, &mut random),
            Kind::Names => return names_step(n, before, &mut random),
            _ => {}
        }
        let mut model = before.clone();
        let mut ops = Vec::new();
        for count in 0..2 + random.below(6) {
            // Both file systems have a part in it.
            let top = *random.pick(if count == 0 {
                &["r"]
            } else if count == 1 {
                &["d"]
            } else {
                &["r", "d"]
            });
            let op = pick_op(n * 10 + count, top, &model, &mut random);
            apply_to_model(&mut model, &op);
            ops.push(op);
        }
        ops
    }
}

fn light_step(n: u64, before: &Model, random: &mut Random) -> Vec<Op> {
    let mark = format!("<{n}>");
    let mut ops = Vec::new();
    for (path, node) in before {
        let Node::File(bytes) = node else { continue };
        let at = usize::try_from(random.below((bytes.len() - mark.len()) as u64)).unwrap_or(0);
        ops.push(match random.below(4) {
            0 if bytes.len() < 20_000 => Op::Append(path.clone(), mark.clone().into_bytes()),
            _ => Op::Patch(path.clone(), at, mark.clone().into_bytes()),
        });
    }
    ops
}

/// A new file on each file system, and some that are replaced or go: never two changes of one name.
fn names_step(n: u64, before: &Model, random: &mut Random) -> Vec<Op> {
    let content = |what: &str, length: u64| {
        format!("{n} {what}\n").bytes().cycle().take(length as usize).collect::<Vec<u8>>()
    };
    let mut ops: Vec<Op> = ["r", "d"]
        .map(|top| Op::Write(format!("{top}/new{n}"), content(top, random.below(3000))))
        .into();
    let mut files: Vec<&String> =
        before.iter().filter(|(_, node)| matches!(node, Node::File(_))).map(|(p, _)| p).collect();
    for _ in 0..random.below(5) {
        if files.is_empty() {
            break;
        }
        let at = random.below(files.len() as u64) as usize;
        let path = files.swap_remove(at).clone();
        if before.len() > 12 || random.below(2) == 0 {
            ops.push(Op::Remove(path));
        } else {
            // Another file in its place.
            ops.push(Op::Remove(path.clone()));
            ops.push(Op::Write(path, content("again", random.below(3000))));
        }
    }
    ops
}

fn pick_op(n: u64, top: &str, model: &Model, random: &mut Random) -> Op {
    let inside: Vec<&String> =
        model.keys().filter(|p| p.starts_with(top) && p.contains('/')).collect();
    let dirs: Vec<&String> = model
        .iter()
        .filter(|(p, node)| p.starts_with(top) && **node == Node::Dir)
        .map(|(p, _)| p)
        .collect();
    let files: Vec<&String> = model
        .iter()
        .filter(|(p, node)| p.starts_with(top) && matches!(node, Node::File(_)))
        .map(|(p, _)| p)
        .collect();
    let dir = random.pick(&dirs).as_str();
    let fresh = |what: &str| format!("{dir}/{what}{n}");
    let mut content = || {
        let length = *random.pick(&[0_usize, 1, 9, 300, 5_000, 20_000]);
        let line = format!("{n} of {top}\n");
        line.bytes().cycle().take(length).collect::<Vec<u8>>()
    };
    let bytes = content();
    let what = random.below(10);
    if inside.len() < SIZES.start || (files.is_empty() && what < 8) {
        return if what < 3 { Op::MakeDir(fresh("d")) } else { Op::Write(fresh("f"), bytes) };
    }
    let any = random.pick(&inside).as_str();
    if inside.len() > SIZES.end {
        return Op::Remove(any.into());
    }
    match what {
        0 => Op::MakeDir(fresh("d")),
        1 | 2 => Op::Write(fresh("f"), bytes),
        3 => Op::Write(random.pick(&files).as_str().into(), bytes),
        4 => Op::Append(random.pick(&files).as_str().into(), bytes),
        5 => Op::Patch(random.pick(&files).as_str().into(), 0, bytes),
        // Not into itself.
        6 | 7 if dir != any && !dir.starts_with(&format!("{any}/")) => {
            Op::Rename(any.into(), fresh("m"))
        }
        8 => Op::Link(fresh("l"), format!("to-{n}")),
        _ => Op::Remove(any.into()),
    }
}

fn below(model: &Model, path: &str) -> Vec<String> {
    let prefix = format!("{path}/");
    model.keys().filter(|p| *p == path || p.starts_with(&prefix)).cloned().collect()
}

fn apply_to_model(model: &mut Model, op: &Op) {
    match op {
        Op::MakeDir(path) => drop(model.insert(path.clone(), Node::Dir)),
        Op::Write(path, bytes) => drop(model.insert(path.clone(), Node::File(bytes.clone()))),
        Op::Append(path, more) => {
            if let Some(Node::File(bytes)) = model.get_mut(path) {
                bytes.extend_from_slice(more);
            }
        }
        Op::Patch(path, at, other) => {
            if let Some(Node::File(bytes)) = model.get_mut(path) {
                let end = at + other.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes.splice(*at..end, other.iter().copied());
            }
        }
        Op::Rename(from, to) => {
            for path in below(model, from) {
                if let Some(node) = model.remove(&path) {
                    let rest = path.get(from.len()..).unwrap_or_default();
                    model.insert(format!("{to}{rest}"), node);
                }
            }
        }
        Op::Link(path, to) => drop(model.insert(path.clone(), Node::Link(to.clone()))),
        Op::Remove(path) => {
            for path in below(model, path) {
                model.remove(&path);
            }
        }
    }
}

/// Makes a change, by system calls.
///
/// # Errors
/// What the system says.
pub fn apply(sequence: Sequence, op: &Op) -> io::Result<()> {
    let at = |path: &str| sequence.place(path);
    match op {
        Op::MakeDir(path) => std::fs::create_dir(at(path)),
        Op::Write(path, bytes) => std::fs::write(at(path), bytes),
        Op::Append(path, bytes) => {
            let mut file = std::fs::File::options().append(true).open(at(path))?;
            io::Write::write_all(&mut file, bytes)
        }
        Op::Patch(path, offset, bytes) => {
            let file = std::fs::File::options().write(true).open(at(path))?;
            file.write_all_at(bytes, *offset as u64)
        }
        Op::Rename(from, to) => std::fs::rename(at(from), at(to)),
        Op::Link(path, to) => symlink(to, at(path)),
        Op::Remove(path) => {
            let path = at(path);
            if path.symlink_metadata()?.is_dir() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            }
        }
    }
}

/// What is there.
///
/// # Errors
/// What the system says.
pub fn actual(sequence: Sequence) -> io::Result<Model> {
    let mut model = Model::new();
    for top in ["r", "d"] {
        walk(&sequence.place(top), top, &mut model)?;
    }
    Ok(model)
}

fn walk(path: &Path, name: &str, model: &mut Model) -> io::Result<()> {
    let kind = path.symlink_metadata()?.file_type();
    let node = if kind.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let inner = String::from_utf8_lossy(entry.file_name().as_bytes()).into_owned();
            walk(&entry.path(), &format!("{name}/{inner}"), model)?;
        }
        Node::Dir
    } else if kind.is_symlink() {
        Node::Link(std::fs::read_link(path)?.to_string_lossy().into_owned())
    } else {
        Node::File(std::fs::read(path)?)
    };
    model.insert(name.to_owned(), node);
    Ok(())
}

/// Makes a sequence's tree what the model says, without a transaction.
///
/// # Errors
/// Those of the calls.
pub fn make(sequence: Sequence, model: &Model) -> io::Result<()> {
    for top in ["r", "d"] {
        std::fs::remove_dir_all(sequence.place(top))?;
    }
    for (path, node) in model {
        let at = sequence.place(path);
        match node {
            Node::Dir => std::fs::create_dir(at)?,
            Node::File(bytes) => std::fs::write(at, bytes)?,
            Node::Link(to) => symlink(to, at)?,
        }
    }
    Ok(())
}

/// How two trees differ, in a few words.
#[must_use]
pub fn difference(expected: &Model, found: &Model) -> String {
    let shown = |node: &Node| match node {
        Node::Dir => "a directory".to_owned(),
        Node::Link(to) => format!("a link to {to}"),
        Node::File(bytes) => {
            let start = bytes.get(..bytes.len().min(24)).unwrap_or_default();
            format!("{} bytes {:?}", bytes.len(), String::from_utf8_lossy(start))
        }
    };
    let mut out = Vec::new();
    for (path, node) in expected {
        match found.get(path) {
            None => out.push(format!("-{path} ({})", shown(node))),
            Some(other) if other != node => {
                out.push(format!("!{path} (expected {}, is {})", shown(node), shown(other)));
            }
            Some(_) => {}
        }
    }
    let strays = found.iter().filter(|(path, _)| !expected.contains_key(*path));
    out.extend(strays.map(|(path, node)| format!("+{path} ({})", shown(node))));
    out.truncate(8);
    out.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_every_state() {
        for kind in Kind::ALL {
            let sequence = Sequence { seed: 7, kind };
            let once = sequence.states(0, 60);
            assert!(once == sequence.states(0, 60));
            assert_eq!(once.len(), 61);
            for pair in once.windows(2) {
                // An empty directory is the same twice, no other step leaves all as it is.
                assert!(pair[0].1 != pair[1].1 || pair[1].0 > 0, "{kind:?} {}", pair[1].0);
            }
        }
    }

    #[test]
    fn a_revert_is_the_state_before() {
        let sequence = Sequence { seed: 9, kind: Kind::Reverts };
        let states = sequence.states(0, 12);
        assert!(states[3].1 == states[1].1 && states[12].1 == states[10].1);
    }
}
