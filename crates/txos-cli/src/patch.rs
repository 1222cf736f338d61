//! Changes as a patch: unified diffs with git's extended headers.
//!
//! What differs from `git diff`: modes are shown in full (`100600`), owners have header lines of
//! their own, and devices, FIFOs and sockets appear with their headers only.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};
use txos_engine::changeset::{Entry, Side, Status, undone};
use txos_engine::object::FileKind;
use txos_engine::show::{quoted, quoted_bytes, visible};

use crate::changes::size;
use crate::style::Paint;

/// Larger files are named, not shown.
const CONTENT_MAX: u64 = 4 << 20;
/// A file with a NUL this early is binary; as git decides it.
const BINARY_LOOK: usize = 8000;
/// Lines around a change.
const CONTEXT: usize = 3;
/// After this long the diff of one file is finished with a coarser one.
const DIFF_TIME_MAX: Duration = Duration::from_secs(2);

/// For whom a patch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A program that applies it: content is written byte by byte.
    Program,
    /// Somebody at a terminal: what would do something to it is written so that it can be seen.
    Person,
}

/// Writes the patch of every change.
pub fn write_patch(
    out: &mut dyn Write,
    entries: &[Entry],
    paint: Paint,
    reader: Reader,
) -> io::Result<()> {
    for entry in entries {
        if let Some(gone) = replaced(entry) {
            write_entry(out, &gone, paint, reader)?;
        }
        write_entry(out, entry, paint, reader)?;
    }
    Ok(())
}

/// What had to make room for what was moved, as a change of its own.
fn replaced(entry: &Entry) -> Option<Entry> {
    Some(Entry {
        status: Status::Deleted,
        path: entry.path.clone(),
        from: None,
        old: Some(entry.replaced?),
        new: None,
        replaced: None,
        replaced_content: None,
        old_content: entry.replaced_content.clone(),
        new_content: None,
        undo: None,
    })
}

fn write_entry(out: &mut dyn Write, entry: &Entry, paint: Paint, reader: Reader) -> io::Result<()> {
    let old_path = entry.from.as_deref().unwrap_or(&entry.path);
    let [a, b] = [("a", old_path), ("b", &*entry.path)].map(|(side, path)| prefixed(side, path));
    let bold = paint.strong();
    let mut header = vec![format!("diff --git {a} {b}")];
    header.extend(attribute_lines(entry));
    for line in header {
        writeln!(out, "{bold}{line}{bold:#}")?;
    }
    let (from, to) = (
        if entry.old.is_some() { &*a } else { "/dev/null" },
        if entry.new.is_some() { &*b } else { "/dev/null" },
    );
    match difference(entry) {
        Difference::None => Ok(()),
        Difference::Binary => writeln!(out, "Binary files {from} and {to} differ"),
        Difference::Text { old, new } => {
            writeln!(out, "{bold}--- {from}{bold:#}\n{bold}+++ {to}{bold:#}")?;
            write_hunks(out, &old, &new, paint, reader)
        }
        Difference::LeftOut(why) => writeln!(out, "Content left out: {why}"),
    }
}

/// What there is to be seen of the contents of a change's two sides.
#[derive(Debug)]
pub enum Difference {
    /// They are the same, or there are none.
    None,
    /// They are no text.
    Binary,
    /// Text.
    Text {
        /// Before.
        old: Vec<u8>,
        /// After.
        new: Vec<u8>,
    },
    /// They can't be shown, and why.
    LeftOut(String),
}

/// Reads the contents of both sides.
pub fn difference(entry: &Entry) -> Difference {
    // A change of attributes alone, or a move, needs no look at the content.
    if let (Some(o), Some(n)) = (entry.old, entry.new)
        && (o.kind, o.size, o.mtime) == (n.kind, n.size, n.mtime)
        && !matches!(entry.status, Status::Modified)
    {
        return Difference::None;
    }
    let new = content(entry.new, entry.new_content.as_deref());
    let old = match (&entry.undo, &new) {
        (Some(undo), Content::Bytes(new)) => match undone(new.clone(), undo) {
            Ok(old) => Content::Bytes(old),
            Err(e) => Content::LeftOut(format!("it can't be read ({e})")),
        },
        _ => content(entry.old, entry.old_content.as_deref()),
    };
    match (old.bytes(), new.bytes()) {
        (Ok(old), Ok(new)) if old == new => Difference::None,
        (Ok(old), Ok(new)) if is_binary(&old) || is_binary(&new) => Difference::Binary,
        (Ok(old), Ok(new)) => Difference::Text { old, new },
        (Err(why), _) | (_, Err(why)) => Difference::LeftOut(why),
    }
}

/// How many lines were taken away and how many put in their place.
pub fn lines_changed(old: &[u8], new: &[u8]) -> (usize, usize) {
    let [old, new] = [old, new].map(lines);
    if old.is_empty() || new.is_empty() {
        return (old.len(), new.len());
    }
    ops(&old, &new)
        .iter()
        .filter(|op| op.tag() != DiffTag::Equal)
        .fold((0, 0), |(less, more), op| (less + op.old_range().len(), more + op.new_range().len()))
}

/// `a/etc/hosts`, quoted as a whole if need be.
fn prefixed(side: &str, path: &Path) -> String {
    let mut bytes = side.as_bytes().to_vec();
    if !path.has_root() {
        bytes.push(b'/');
    }
    bytes.extend_from_slice(path.as_os_str().as_bytes());
    quoted_bytes(&bytes)
}

/// git's extended header lines.
fn attribute_lines(entry: &Entry) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(from) = &entry.from {
        let plain = |p: &Path| quoted(p.strip_prefix("/").unwrap_or(p));
        lines.push(format!("rename from {}", plain(from)));
        lines.push(format!("rename to {}", plain(&entry.path)));
    }
    match (entry.old, entry.new) {
        (None, Some(new)) => {
            lines.push(format!("new {} mode {}", noun(&new), mode(&new)));
            if (new.uid, new.gid) != (0, 0) {
                lines.push(format!("new owner {}:{}", new.uid, new.gid));
            }
        }
        (Some(old), None) => lines.push(format!("deleted {} mode {}", noun(&old), mode(&old))),
        (Some(old), Some(new)) => {
            if (old.kind, old.mode) != (new.kind, new.mode) {
                lines.push(format!("old mode {}", mode(&old)));
                lines.push(format!("new mode {}", mode(&new)));
            }
            if (old.uid, old.gid) != (new.uid, new.gid) {
                lines.push(format!("old owner {}:{}", old.uid, old.gid));
                lines.push(format!("new owner {}:{}", new.uid, new.gid));
            }
        }
        (None, None) => {}
    }
    lines
}

/// "file" for what git knows, so that patches apply; the kind for the rest.
fn noun(side: &Side) -> String {
    match side.kind {
        FileKind::File | FileKind::Symlink => "file".into(),
        other => other.to_string(),
    }
}

fn mode(side: &Side) -> String {
    let kind = match side.kind {
        FileKind::File => libc::S_IFREG,
        FileKind::Dir => libc::S_IFDIR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Fifo => libc::S_IFIFO,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::CharDevice => libc::S_IFCHR,
        FileKind::BlockDevice => libc::S_IFBLK,
    };
    // git writes links without permissions.
    let permissions = if side.kind == FileKind::Symlink { 0 } else { side.mode & 0o7777 };
    format!("{:06o}", kind | permissions)
}

/// What one side holds.
enum Content {
    /// It holds no bytes to compare: absent, a directory, a device.
    Nothing,
    Bytes(Vec<u8>),
    LeftOut(String),
}

impl Content {
    fn bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Content::Nothing => Ok(Vec::new()),
            Content::Bytes(bytes) => Ok(bytes),
            Content::LeftOut(why) => Err(why),
        }
    }
}

fn content(side: Option<Side>, at: Option<&Path>) -> Content {
    let Some(side) = side else { return Content::Nothing };
    if !matches!(side.kind, FileKind::File | FileKind::Symlink) {
        return Content::Nothing;
    }
    let Some(at) = at else {
        return Content::LeftOut("it is no longer there to be read".into());
    };
    if side.kind == FileKind::File && side.size > CONTENT_MAX {
        let (size, max) = (size(side.size), size(CONTENT_MAX));
        return Content::LeftOut(format!("{size} is more than the {max} that are shown"));
    }
    match read_whole(side.kind, at, CONTENT_MAX) {
        Ok(bytes) => Content::Bytes(bytes),
        Err(e) => Content::LeftOut(format!("it can't be read ({e})")),
    }
}

/// Reads a regular file, or a link's target.
pub fn read_whole(kind: FileKind, at: &Path, size_max: u64) -> io::Result<Vec<u8>> {
    if kind == FileKind::Symlink {
        return std::fs::read_link(at).map(|target| target.into_os_string().into_vec());
    }
    read_file(at, size_max)
}

/// Reads a regular file. Whatever may have taken its place meanwhile (a link, a FIFO, a device) is
/// neither followed nor waited for.
fn read_file(path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file any more"));
    }
    let mut bytes = Vec::new();
    file.take(size_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether git takes a content for binary.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(BINARY_LOOK).any(|&b| b == 0)
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|&c| c == b'\n').collect()
}

fn ops(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    let deadline = Some(Instant::now() + DIFF_TIME_MAX);
    capture_diff_slices_deadline(Algorithm::Myers, old, new, deadline)
}

/// The lines that differ, with those around them.
pub fn write_hunks(
    out: &mut dyn Write,
    old: &[u8],
    new: &[u8],
    paint: Paint,
    reader: Reader,
) -> io::Result<()> {
    let [old, new] = [old, new].map(lines);
    for hunk in group_diff_ops(ops(&old, &new), CONTEXT) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let old_range = first.old_range().start..last.old_range().end;
        let new_range = first.new_range().start..last.new_range().end;
        let style = paint.hunk();
        writeln!(out, "{style}@@ -{} +{} @@{style:#}", place(&old_range), place(&new_range))?;
        hunk.iter().try_for_each(|op| write_op(out, op, &old, &new, paint, reader))?;
    }
    Ok(())
}

fn write_op(
    out: &mut dyn Write,
    op: &DiffOp,
    old: &[&[u8]],
    new: &[&[u8]],
    paint: Paint,
    reader: Reader,
) -> io::Result<()> {
    let removed = old.get(op.old_range()).unwrap_or_default();
    let added = new.get(op.new_range()).unwrap_or_default();
    if op.tag() == DiffTag::Equal {
        return write_lines(out, ' ', removed, anstyle::Style::new(), reader);
    }
    write_lines(out, '-', removed, paint.bad(), reader)?;
    write_lines(out, '+', added, paint.good(), reader)
}

fn write_lines(
    out: &mut dyn Write,
    sign: char,
    lines: &[&[u8]],
    style: anstyle::Style,
    reader: Reader,
) -> io::Result<()> {
    for line in lines {
        let text = line.strip_suffix(b"\n");
        write!(out, "{style}{sign}")?;
        match reader {
            Reader::Program => out.write_all(text.unwrap_or(line))?,
            Reader::Person => out.write_all(visible(text.unwrap_or(line)).as_bytes())?,
        }
        writeln!(out, "{style:#}")?;
        if text.is_none() {
            writeln!(out, "\\ No newline at end of file")?;
        }
    }
    Ok(())
}

/// A range of lines as hunk headers write it: counted from 1, `start,length`, an empty one at the
/// line before it.
fn place(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        n => format!("{},{n}", lines.start + 1),
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::changes::samples::{entry, side};

    struct Files(std::path::PathBuf);

    impl Files {
        fn new(tag: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("txos-patch-{tag}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Files(dir)
        }

        fn side(&self, name: &str, bytes: &[u8]) -> (Option<Side>, Option<std::path::PathBuf>) {
            let path = self.0.join(name);
            std::fs::write(&path, bytes).unwrap();
            (Some(side(bytes.len() as u64)), Some(path))
        }

        fn entry(&self, status: Status, old: Option<&[u8]>, new: Option<&[u8]>) -> Entry {
            let old = old.map(|b| self.side("old", b)).unwrap_or_default();
            let new = new.map(|b| self.side("new", b)).unwrap_or_default();
            Entry {
                old_content: old.1,
                new_content: new.1,
                ..entry(status, "/etc/f", old.0, new.0)
            }
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn patch(entry: Entry) -> String {
        let mut out = Vec::new();
        write_patch(&mut out, &[entry], Paint::default(), Reader::Program).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_modified_file() {
        let files = Files::new("modified");
        let old = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = b"1\n2\n3\n4\nfive\n6\n7\n8\n9";
        assert_eq!(
            patch(files.entry(Status::Modified, Some(old), Some(new))),
            "diff --git a/etc/f b/etc/f\n--- a/etc/f\n+++ b/etc/f\n@@ -2,8 +2,8 @@\n 2\n 3\n 4\n\
             -5\n+five\n 6\n 7\n 8\n-9\n+9\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn new_and_deleted_files() {
        let files = Files::new("new");
        assert_eq!(
            patch(files.entry(Status::Added, None, Some(b"x\ny\n"))),
            "diff --git a/etc/f b/etc/f\nnew file mode 100644\n--- /dev/null\n+++ b/etc/f\n\
             @@ -0,0 +1,2 @@\n+x\n+y\n"
        );
        assert_eq!(
            patch(files.entry(Status::Deleted, Some(b"x\n"), None)),
            "diff --git a/etc/f b/etc/f\ndeleted file mode 100644\n--- a/etc/f\n+++ /dev/null\n\
             @@ -1 +0,0 @@\n-x\n"
        );
        let empty = patch(files.entry(Status::Added, None, Some(b"")));
        assert_eq!(empty.lines().count(), 2);
    }

    #[test]
    fn binary_large_and_missing_content() {
        let files = Files::new("binary");
        let text = patch(files.entry(Status::Modified, Some(b"a\0b"), Some(b"text\n")));
        assert!(text.ends_with("Binary files a/etc/f and b/etc/f differ\n"));
        let mut large = files.entry(Status::Added, None, Some(b"x"));
        large.new = Some(side(CONTENT_MAX + 1));
        assert!(patch(large).ends_with("4.0 MiB is more than the 4.0 MiB that are shown\n"));
        let gone = entry(Status::Deleted, "/etc/f", Some(side(1)), None);
        assert!(patch(gone).contains("Content left out: it is no longer there"));
    }

    #[test]
    fn content_does_nothing_to_a_terminal() {
        let files = Files::new("terminal");
        let hostile = b"a\x1b]0;t\x07\r\n\xc2\x9b2J\xff\n";
        let exact = || files.entry(Status::Added, None, Some(hostile));
        let mut out = Vec::new();
        write_patch(&mut out, &[exact()], Paint::default(), Reader::Person).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("+a\\033]0;t\\007\\015\n+\\302\\2332J\\377\n"), "{text}");
        let mut out = Vec::new();
        write_patch(&mut out, &[exact()], Paint::default(), Reader::Program).unwrap();
        assert!(out.windows(hostile.len() - 10).any(|w| w == &hostile[..hostile.len() - 10]));
    }

    #[test]
    fn attributes_types_and_hostile_names() {
        let mut changed = entry(Status::Attributes, "/etc/a\nb", Some(side(1)), Some(side(1)));
        changed.new = Some(Side { mode: 0o4755, uid: 33, ..side(1) });
        assert_eq!(
            patch(changed),
            "diff --git \"a/etc/a\\nb\" \"b/etc/a\\nb\"\nold mode 100644\nnew mode 104755\n\
             old owner 0:0\nnew owner 33:0\n"
        );
        let link = Side { kind: FileKind::Symlink, mode: 0o777, ..side(3) };
        let linked = patch(entry(Status::TypeChanged, "/etc/f", Some(side(0)), Some(link)));
        assert!(linked.contains("old mode 100644\nnew mode 120000\n"), "{linked}");
    }

    #[test]
    fn a_fifo_in_its_place_is_not_waited_for() {
        let files = Files::new("fifo");
        let path = files.0.join("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(read_file(&path, CONTENT_MAX).is_err());
    }
}
