//! A patch that `git apply` takes: `txos diff --relative`.
//!
//! git knows files and symbolic links, and of modes only whether a file can be executed. What else a
//! transaction changes is left out, and told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustix::fs::{AtFlags, CWD};
use sha1::{Digest, Sha1};
use txos_engine::changeset::{Entry, Side, undone};
use txos_engine::object::FileKind;
use txos_engine::show::quoted_bytes;
use txos_engine::version::stat_at;

use crate::patch::{Reader, is_binary, read_whole, write_hunks};
use crate::style::Paint;

/// Larger contents are binary to the patch, as they are to git.
const TEXT_MAX: usize = 4 << 20;
/// Larger files are left out.
const SIZE_MAX: u64 = 512 << 20;

/// What a patch leaves out, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The path.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// A file or a link, as git knows it.
struct Blob {
    name: Vec<u8>,
    mode: &'static str,
    bytes: Vec<u8>,
}

/// One end of a change: an object as it was, or as it is, and where it can be read.
struct End<'a> {
    side: Side,
    content: Option<&'a Path>,
    /// What makes it of that content.
    undo: Option<&'a Path>,
}

/// What was and what is at each name, of all that changes.
#[derive(Default)]
struct Names<'a> {
    at: BTreeMap<PathBuf, [Option<End<'a>>; 2]>,
}

impl<'a> Names<'a> {
    /// Notes what was (0) or is (1) at a path, if git knows such objects.
    fn note(&mut self, which: usize, path: &Path, side: Side, content: Option<&'a Path>) {
        let end = is_blob(&side).then_some(End { side, content, undo: None });
        let place = self.at.entry(path.to_owned()).or_default().get_mut(which);
        if let (Some(place), Some(end)) = (place, end) {
            *place = Some(end);
        }
    }
}

/// A directory that was moved, with what was in it: git knows files only, and so each of them is moved.
struct MovedDir {
    from: PathBuf,
    to: PathBuf,
    /// Files and links, below it; where they can be read.
    files: Vec<(PathBuf, Side, PathBuf)>,
}

/// Files and links below a directory.
fn files_below(dir: &Path) -> Vec<(PathBuf, Side, PathBuf)> {
    let mut files = Vec::new();
    let mut queue = vec![PathBuf::new()];
    while let Some(below) = queue.pop() {
        for found in std::fs::read_dir(dir.join(&below)).into_iter().flatten().flatten() {
            let name = below.join(found.file_name());
            let path = dir.join(&name);
            let look = stat_at(CWD, path.as_os_str().as_bytes(), AtFlags::SYMLINK_NOFOLLOW);
            match look.as_ref().map(Side::of) {
                Ok(Side { kind: FileKind::Dir, .. }) => queue.push(name),
                Ok(side) => files.push((name, side, path)),
                // It has gone just now.
                Err(_) => {}
            }
        }
    }
    files
}

/// Writes what `entries` change below `base`, with names relative to it, and gives what can't be said so.
pub fn write(out: &mut dyn Write, entries: &[Entry], base: &Path) -> io::Result<Vec<LeftOut>> {
    let below = |path: &Path| {
        let name = path.strip_prefix(base).ok().filter(|name| !name.as_os_str().is_empty());
        name.map(Path::to_owned)
    };
    let moved: Vec<MovedDir> = entries.iter().filter_map(moved_dir).collect();
    let mut left_out = Vec::new();
    let mut names = Names::default();
    let renamed: HashMap<&Path, &Path> =
        entries.iter().filter_map(|e| Some((&*e.path, e.from.as_deref()?))).collect();
    // What was moved may be changed as well, which is a change of its own.
    let (moves, others): (Vec<_>, Vec<_>) =
        entries.iter().enumerate().partition(|(_, entry)| entry.from.is_some());
    for (index, entry) in moves.into_iter().chain(others) {
        let was_at = match renamed.get(&*entry.path) {
            Some(from) => from.to_path_buf(),
            None => was_at(entry, &moved),
        };
        // In order of path, what is in a directory follows it.
        let next = entries.get(index + 1);
        let is_empty = next.is_none_or(|next| !next.path.starts_with(&entry.path))
            && !moved.iter().any(|dir| dir.to == entry.path && !dir.files.is_empty());
        let concerns = entry.old.is_some() && below(&was_at).is_some()
            || entry.new.is_some() && below(&entry.path).is_some();
        if let Some(why) = unsaid(entry, is_empty).filter(|_| concerns) {
            left_out.push(LeftOut { path: entry.path.clone(), why: why.to_owned() });
        }
        if let Some(side) = entry.old {
            names.note(0, &was_at, side, entry.old_content.as_deref());
            if let (Some(undo), Some([Some(end), _])) = (&entry.undo, names.at.get_mut(&was_at)) {
                (end.content, end.undo) = (entry.new_content.as_deref(), Some(&**undo));
            }
        }
        if let Some(side) = entry.replaced {
            names.note(0, &entry.path, side, entry.replaced_content.as_deref());
        }
        if let Some(side) = entry.new {
            names.note(1, &entry.path, side, entry.new_content.as_deref());
        }
    }
    let changed: HashSet<&Path> = entries.iter().map(|entry| &*entry.path).collect();
    let taken: HashSet<&Path> = entries.iter().filter_map(|entry| entry.from.as_deref()).collect();
    for dir in &moved {
        for (name, side, content) in &dir.files {
            let (from, to) = (dir.from.join(name), dir.to.join(name));
            // What was changed there, or taken from there, has an entry of its own.
            if !changed.contains(&*to) && !taken.contains(&*from) {
                names.note(0, &from, *side, Some(content));
                names.note(1, &to, *side, Some(content));
            }
        }
    }
    for (path, [was, is]) in &names.at {
        let Some(name) = below(path) else { continue };
        let blob = |end: &Option<End<'_>>| match end {
            Some(end) => self::blob(end, &name).map(Some),
            None => Ok(None),
        };
        match (blob(was), blob(is)) {
            (Ok(was), Ok(is)) => write_change(out, was, is)?,
            (Err(why), _) | (_, Err(why)) => {
                let why = format!("its content is left out: {why}");
                left_out.push(LeftOut { path: path.clone(), why });
            }
        }
    }
    Ok(left_out)
}

/// What of a moved directory stays as it is.
fn moved_dir(entry: &Entry) -> Option<MovedDir> {
    let (from, side) = (entry.from.clone()?, entry.new?);
    if side.kind != FileKind::Dir {
        return None;
    }
    // What is there before, or after: of a transaction that is pending, the copies hold what is changed and no more.
    let content = entry.old_content.as_deref().or(entry.new_content.as_deref());
    let files = content.map(files_below).unwrap_or_default();
    Some(MovedDir { from, to: entry.path.clone(), files })
}

/// Where the object was whose change this is: below a moved directory that is elsewhere.
fn was_at(entry: &Entry, moved: &[MovedDir]) -> PathBuf {
    let around = moved.iter().filter(|dir| entry.path != dir.to);
    let dir = around
        .filter_map(|dir| entry.path.strip_prefix(&dir.to).ok().map(|below| dir.from.join(below)))
        .min_by_key(|path| path.components().count());
    dir.unwrap_or_else(|| entry.path.clone())
}

fn is_blob(side: &Side) -> bool {
    matches!(side.kind, FileKind::File | FileKind::Symlink)
}

/// What of a change git has no words for. `is_empty`: nothing in it changes.
fn unsaid(entry: &Entry, is_empty: bool) -> Option<&'static str> {
    let kind_of = |side: Option<Side>| side.map(|side| side.kind);
    let (old, new) = (kind_of(entry.old), kind_of(entry.new));
    match (entry.old, entry.new) {
        _ if entry.from.is_some() && new == Some(FileKind::Dir) => {
            is_empty.then_some("an empty directory was moved")
        }
        (None, Some(_)) if new == Some(FileKind::Dir) => {
            is_empty.then_some("an empty directory was made")
        }
        (Some(_), None) if old == Some(FileKind::Dir) => {
            is_empty.then_some("an empty directory was removed")
        }
        (Some(was), Some(is)) if old == new && is_blob(&is) => {
            let other = |side: Side| (side.mode & 0o7777 & !0o111, side.uid, side.gid);
            let only = entry.status == txos_engine::changeset::Status::Attributes;
            let executable = |side: Side| side.mode & 0o100 != 0;
            (other(was) != other(is) || only && executable(was) == executable(is))
                .then_some("its attributes were changed")
        }
        (Some(_), Some(_)) if old == new => Some("its attributes were changed"),
        (was, is) => {
            let blob = |side: Option<Side>| side.is_none_or(|side| is_blob(&side));
            (!blob(was) || !blob(is)).then_some("it is, or was, neither a file nor a link")
        }
    }
}

fn blob(end: &End<'_>, name: &Path) -> Result<Blob, String> {
    let End { side, content, undo } = end;
    let at = content.ok_or("it is no longer there to be read")?;
    if side.size > SIZE_MAX {
        return Err(format!("it is larger than {} MiB", SIZE_MAX >> 20));
    }
    let read = read_whole(side.kind, at, SIZE_MAX).and_then(|bytes| match undo {
        Some(undo) => undone(bytes, undo),
        None => Ok(bytes),
    });
    let bytes = read.map_err(|e| format!("it can't be read ({e})"))?;
    let mode = match side.kind {
        FileKind::Symlink => "120000",
        _ if side.mode & 0o100 != 0 => "100755",
        _ => "100644",
    };
    Ok(Blob { name: name.as_os_str().as_bytes().to_vec(), mode, bytes })
}

fn write_change(out: &mut dyn Write, was: Option<Blob>, is: Option<Blob>) -> io::Result<()> {
    match (was, is) {
        (None, None) => Ok(()),
        // git says of a type that changes that one goes and another comes.
        (Some(was), Some(is)) if was.mode.get(..3) != is.mode.get(..3) => {
            write_one(out, Some(&was), None)?;
            write_one(out, None, Some(&is))
        }
        (was, is) => write_one(out, was.as_ref(), is.as_ref()),
    }
}

fn write_one(out: &mut dyn Write, was: Option<&Blob>, is: Option<&Blob>) -> io::Result<()> {
    let Some(name) = is.or(was).map(|blob| &blob.name) else { return Ok(()) };
    let side = |letter: &[u8]| quoted_bytes(&[letter, name].concat());
    let (a, b) = (side(b"a/"), side(b"b/"));
    let nothing = Vec::new();
    let old = was.map_or(&nothing, |blob| &blob.bytes);
    let new = is.map_or(&nothing, |blob| &blob.bytes);
    let mode = |blob: Option<&Blob>| blob.map(|blob| blob.mode);
    if old == new && mode(was) == mode(is) {
        return Ok(());
    }
    writeln!(out, "diff --git {a} {b}")?;
    match (mode(was), mode(is)) {
        (None, Some(mode)) => writeln!(out, "new file mode {mode}")?,
        (Some(mode), None) => writeln!(out, "deleted file mode {mode}")?,
        (Some(was), Some(is)) if was != is => writeln!(out, "old mode {was}\nnew mode {is}")?,
        _ => {}
    }
    let is_large = |bytes: &[u8]| bytes.len() > TEXT_MAX || is_binary(bytes);
    if is_large(old) || is_large(new) {
        let hash = |blob: Option<&Blob>| blob.map_or("0".repeat(40), |b| object_name(&b.bytes));
        writeln!(out, "index {}..{}\nGIT binary patch", hash(was), hash(is))?;
        write_literal(out, new)?;
        return write_literal(out, old);
    }
    if old == new {
        return Ok(());
    }
    // A name with a blank ends with a tab, or patch(1) takes the rest for a date.
    let tab = if name.contains(&b' ') { "\t" } else { "" };
    let end =
        |there: bool, name: &str| if there { format!("{name}{tab}") } else { "/dev/null".into() };
    writeln!(out, "--- {}\n+++ {}", end(was.is_some(), &a), end(is.is_some(), &b))?;
    write_hunks(out, old, new, Paint::default(), Reader::Program)
}

/// The name that git gives a content.
fn object_name(bytes: &[u8]) -> String {
    let mut hash = Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A whole content, deflated, as lines of git's base 85.
fn write_literal(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::default());
    deflate.write_all(bytes)?;
    writeln!(out, "literal {}", bytes.len())?;
    for line in deflate.finish()?.chunks(LINE_MAX) {
        writeln!(out, "{}{}", length_letter(line.len()), base85(line))?;
    }
    writeln!(out)
}

/// How many bytes a line of base 85 stands for at most.
const LINE_MAX: usize = 52;

const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";

/// A to Z stand for 1 to 26, a to z for 27 to 52.
fn length_letter(length: usize) -> char {
    let first = if length <= 26 { b'A' } else { b'a' };
    char::from(first + u8::try_from((length - 1) % 26).unwrap_or(0))
}

/// Four bytes as five digits, the last ones filled up with zeros.
fn base85(bytes: &[u8]) -> String {
    let mut text = String::new();
    for four in bytes.chunks(4) {
        let mut word = [0; 4];
        word.iter_mut().zip(four).for_each(|(to, from)| *to = *from);
        let word = u32::from_be_bytes(word);
        for power in [85_u32.pow(4), 85_u32.pow(3), 85_u32.pow(2), 85, 1] {
            let digit = usize::try_from(word / power % 85).unwrap_or(0);
            text.push(char::from(DIGITS.get(digit).copied().unwrap_or(b'0')));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_have_the_names_that_git_gives_them() {
        assert_eq!(object_name(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(object_name(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn lines_are_written_as_git_writes_them() {
        // What git prints of an empty content, deflated.
        let deflated = [0x78, 0x01, 3, 0, 0, 0, 0, 1];
        let line = format!("{}{}", length_letter(deflated.len()), base85(&deflated));
        assert_eq!(line, "HcmV?d00001");
        assert_eq!((length_letter(1), length_letter(26)), ('A', 'Z'));
        assert_eq!((length_letter(27), length_letter(52)), ('a', 'z'));
    }
}
