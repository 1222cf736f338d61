//! What a tree looks like: everything that a program could tell it by, but inode numbers and ctime.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, readlinkat, statat};

/// Longest path handed to the kernel in one piece.
const PIECE_MAX: usize = 3000;

/// How many differences a message shows.
const SHOWN_MAX: usize = 40;

/// One object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its type.
    pub kind: FileType,
    /// Permission bits with setuid and the like.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Links; of a directory, nothing that means anything on every file system.
    pub nlink: u64,
    /// Size; 0 for a directory.
    pub size: u64,
    /// Modification time.
    pub mtime: (i64, i64),
    /// Device number.
    pub rdev: u64,
    /// A link's target.
    pub target: Vec<u8>,
    /// Hash of the content; a hole counts as zeros.
    pub hash: u64,
    /// Extended attributes, sorted.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first path, in order, of the same inode.
    pub first: Vec<u8>,
}

/// A tree: every object in it by its path relative to the root, which is the empty path.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Tree {
    /// The objects.
    pub nodes: BTreeMap<Vec<u8>, Node>,
}

/// What need not be equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// Times from this second on are "now" on both sides, whatever they are.
    pub now_from: Option<i64>,
    /// No times at all.
    pub times: bool,
    /// No link counts: a retained old version of a file with several names may be one of its links
    /// until `gc` (docs/design.md). Which names are the same file is compared all the same.
    pub links: bool,
}

impl Tree {
    /// Looks at a tree. It must not change meanwhile.
    ///
    /// # Panics
    /// If something in it can't be looked at.
    #[must_use]
    #[track_caller]
    pub fn of(root: impl AsRef<Path>) -> Tree {
        match Self::try_of(root.as_ref()) {
            Ok(tree) => tree,
            Err(error) => panic!("looking at {}: {error}", root.as_ref().display()),
        }
    }

    fn try_of(root: &Path) -> std::io::Result<Tree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = openat(CWD, root, flags, Mode::empty())?;
        let mut tree = Tree::default();
        let mut inodes: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
        let stat = statat(&top, c"", AtFlags::EMPTY_PATH)?;
        tree.nodes.insert(Vec::new(), node(&top, b".", &stat, Vec::new())?);
        let mut queue = vec![Vec::new()];
        while let Some(dir) = queue.pop() {
            let fd = descend(&top, &dir)?;
            let readable = openat(
                &fd,
                c".",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            for entry in Dir::new(readable)? {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name == b"." || name == b".." {
                    continue;
                }
                let path = if dir.is_empty() { name.to_vec() } else { [&dir, name].join(&b'/') };
                let stat = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
                tree.nodes.insert(path.clone(), node(&fd, name, &stat, path.clone())?);
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    queue.push(path);
                } else {
                    let first = inodes.entry((stat.st_dev, stat.st_ino)).or_insert(path.clone());
                    if path < *first {
                        *first = path;
                    }
                }
            }
        }
        // Only now is it known which path of an inode is the first.
        let paths: Vec<Vec<u8>> = tree.nodes.keys().cloned().collect();
        for path in paths {
            let (dir, name) = split(&path);
            if path.is_empty() {
                continue;
            }
            let stat = statat(descend(&top, dir)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if let (Some(first), Some(node)) =
                (inodes.get(&(stat.st_dev, stat.st_ino)), tree.nodes.get_mut(&path))
            {
                node.first.clone_from(first);
            }
        }
        Ok(tree)
    }

    /// What differs, for people; empty if nothing does.
    #[must_use]
    pub fn difference(&self, other: &Tree, tolerance: Tolerance) -> String {
        let mut text = String::new();
        let mut count = 0;
        let mut add = |line: std::fmt::Arguments<'_>| {
            count += 1;
            if count <= SHOWN_MAX {
                let _ = writeln!(text, "  {line}");
            }
        };
        for (path, node) in &self.nodes {
            match other.nodes.get(path) {
                None => add(format_args!("- {}: {}", shown(path), node.brief())),
                Some(theirs) => {
                    for line in node.differences(theirs, tolerance) {
                        add(format_args!("! {}: {line}", shown(path)));
                    }
                }
            }
        }
        for (path, node) in other.nodes.iter().filter(|(p, _)| !self.nodes.contains_key(*p)) {
            add(format_args!("+ {}: {}", shown(path), node.brief()));
        }
        if count > SHOWN_MAX {
            let _ = writeln!(text, "  and {} more", count - SHOWN_MAX);
        }
        text
    }

    /// Checks that another tree is equal.
    ///
    /// # Panics
    /// If not, with what differs: `-` only in this, `+` only in the other.
    #[track_caller]
    pub fn expect(&self, other: &Tree, tolerance: Tolerance, what: &str) {
        let difference = self.difference(other, tolerance);
        assert!(difference.is_empty(), "{what}; expected (-), found (+):\n{difference}");
    }

    /// Checks that another tree is this one, bit for bit.
    ///
    /// # Panics
    /// If not.
    #[track_caller]
    pub fn expect_same(&self, other: &Tree) {
        self.expect(other, Tolerance::default(), "the tree is not as it was");
    }

    /// Without what lies at or below a path.
    #[must_use]
    pub fn without(mut self, path: &str) -> Tree {
        let below = format!("{path}/").into_bytes();
        self.nodes.retain(|p, _| p != path.as_bytes() && !p.starts_with(&below));
        self
    }
}

impl Node {
    fn brief(&self) -> String {
        format!("{:?} {:o} {} bytes", self.kind, self.mode, self.size)
    }

    fn differences(&self, other: &Node, tolerance: Tolerance) -> Vec<String> {
        let mut lines = Vec::new();
        let mut compare = |what: &str, mine: String, theirs: String| {
            if mine != theirs {
                lines.push(format!("{what} {mine} -> {theirs}"));
            }
        };
        compare("type", format!("{:?}", self.kind), format!("{:?}", other.kind));
        compare("mode", format!("{:o}", self.mode), format!("{:o}", other.mode));
        compare("uid", self.uid.to_string(), other.uid.to_string());
        compare("gid", self.gid.to_string(), other.gid.to_string());
        if !tolerance.links {
            compare("links", self.nlink.to_string(), other.nlink.to_string());
        }
        compare("size", self.size.to_string(), other.size.to_string());
        compare("device", self.rdev.to_string(), other.rdev.to_string());
        compare("target", shown(&self.target), shown(&other.target));
        compare("content", format!("{:x}", self.hash), format!("{:x}", other.hash));
        compare("xattrs", shown_xattrs(&self.xattrs), shown_xattrs(&other.xattrs));
        compare("is the same file as", shown(&self.first), shown(&other.first));
        let now = |node: &Node| tolerance.now_from.is_some_and(|from| node.mtime.0 >= from);
        // A FIFO's tell of what passed through it, wherever from.
        let fifo = |node: &Node| node.kind == FileType::Fifo;
        let tolerated = tolerance.times || (now(self) && now(other)) || (fifo(self) && fifo(other));
        if !tolerated {
            compare("mtime", shown_time(self.mtime), shown_time(other.mtime));
        }
        lines
    }
}

fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { path.escape_ascii().to_string() }
}

fn shown_time((sec, nsec): (i64, i64)) -> String {
    format!("{sec}.{nsec:09}")
}

fn shown_xattrs(list: &[(Vec<u8>, Vec<u8>)]) -> String {
    let words: Vec<String> = list
        .iter()
        .map(|(name, value)| format!("{}={}", name.escape_ascii(), value.escape_ascii()))
        .collect();
    words.join(" ")
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&b| b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Opens a directory below another, however deep.
fn descend(top: &OwnedFd, path: &[u8]) -> std::io::Result<OwnedFd> {
    let mut at = top.try_clone()?;
    let mut rest = path;
    while !rest.is_empty() {
        let end = if rest.len() <= PIECE_MAX {
            rest.len()
        } else {
            rest[..PIECE_MAX].iter().rposition(|&b| b == b'/').unwrap_or(PIECE_MAX)
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        at = openat(&at, &rest[..end], flags, Mode::empty())?;
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    Ok(at)
}

fn node(
    dir: &OwnedFd,
    name: &[u8],
    stat: &rustix::fs::Stat,
    first: Vec<u8>,
) -> std::io::Result<Node> {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_dir = kind == FileType::Directory;
    let target = match kind {
        FileType::Symlink => readlinkat(dir, name, Vec::new())?.into_bytes(),
        _ => Vec::new(),
    };
    let hash = if kind == FileType::RegularFile { content_hash(dir, name)? } else { 0 };
    Ok(Node {
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: if is_dir { 0 } else { stat.st_nlink },
        size: if is_dir { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) },
        mtime: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        rdev: stat.st_rdev,
        target,
        hash,
        xattrs: xattrs(dir, name)?,
        first,
    })
}

fn content_hash(dir: &OwnedFd, name: &[u8]) -> std::io::Result<u64> {
    let fd = openat(dir, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut file = File::from(fd);
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0u8; 128 * 1024];
    loop {
        // Whole buffers: the hash must not depend on how reads are split.
        let mut filled = 0;
        while filled < buffer.len() {
            let n = file.read(&mut buffer[filled..])?;
            if n == 0 {
                break;
            }
            filled += n;
        }
        hasher.write(&buffer[..filled]);
        if filled < buffer.len() {
            return Ok(hasher.finish());
        }
    }
}

fn xattrs(dir: &OwnedFd, name: &[u8]) -> std::io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    let mut names = vec![0u8; 4096];
    match rustix::fs::llistxattr(&path[..], &mut names[..]) {
        Ok(n) => names.truncate(n),
        Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    }
    let mut all = Vec::new();
    for name in names.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let mut value = vec![0u8; 65536];
        let n = rustix::fs::lgetxattr(&path[..], name, &mut value[..])?;
        value.truncate(n);
        all.push((name.to_vec(), value));
    }
    all.sort();
    Ok(all)
}

/// Whether anything below a path carries traces of overlayfs: its attributes, or whiteouts that
/// nobody made as devices.
///
/// # Panics
/// If something can't be looked at.
#[must_use]
pub fn overlay_traces(root: impl AsRef<Path>) -> Vec<String> {
    let mut found = Vec::new();
    for (path, node) in &Tree::of(root).nodes {
        let overlay = |(name, _): &(Vec<u8>, Vec<u8>)| {
            name.starts_with(b"trusted.overlay.") || name.starts_with(b"user.overlay.")
        };
        if node.xattrs.iter().any(overlay) {
            found.push(format!("{}: {}", shown(path), shown_xattrs(&node.xattrs)));
        }
        if node.kind == FileType::CharacterDevice && node.rdev == 0 {
            found.push(format!("{}: a whiteout", shown(path)));
        }
    }
    found
}

/// A path's bytes.
#[must_use]
pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
