//! A patch that `git apply` takes: `txos diff --relative`.
//!
//! git knows files and symbolic links, and of modes only whether a file can be executed. What else a
//! transaction changes is left out, and told.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest, Sha1};
use txos_engine::changeset::{Entry, Side};
use txos_engine::object::FileKind;
use txos_engine::show::quoted_bytes;

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

/// Writes what `entries` change below `base`, with names relative to it, and gives what can't be said so.
pub fn write(out: &mut dyn Write, entries: &[Entry], base: &Path) -> io::Result<Vec<LeftOut>> {
    let mut left_out = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let mut told = |why: &str| {
            let path = entry.path.clone();
            left_out.push(LeftOut { path, why: why.to_owned() });
        };
        let was_at = entry.from.as_deref().unwrap_or(&entry.path);
        let [was, is] = [
            (entry.old, was_at, entry.old_content.as_deref()),
            (entry.new, &*entry.path, entry.new_content.as_deref()),
        ]
        .map(|(side, path, content)| {
            let name = path.strip_prefix(base).ok().filter(|name| !name.as_os_str().is_empty());
            side.zip(name).map(|(side, name)| (side, name, content))
        });
        if was.is_none() && is.is_none() {
            continue;
        }
        // In order of path, what is in a directory follows it.
        let next = entries.get(index + 1);
        let is_empty = next.is_none_or(|next| !next.path.starts_with(&entry.path));
        if let Some(why) = unsaid(entry, is_empty) {
            told(why);
        }
        let blob = |end: Option<(Side, &Path, Option<&Path>)>| match end {
            Some((side, name, content)) if is_blob(&side) => {
                self::blob(&side, name, content).map(Some)
            }
            _ => Ok(None),
        };
        match (blob(was), blob(is)) {
            (Ok(was), Ok(is)) => write_change(out, was, is)?,
            (Err(why), _) | (_, Err(why)) => told(&format!("its content is left out: {why}")),
        }
    }
    Ok(left_out)
}

fn is_blob(side: &Side) -> bool {
    matches!(side.kind, FileKind::File | FileKind::Symlink)
}

/// What of a change git has no words for. `is_empty`: nothing in it changes.
fn unsaid(entry: &Entry, is_empty: bool) -> Option<&'static str> {
    let kind_of = |side: Option<Side>| side.map(|side| side.kind);
    let (old, new) = (kind_of(entry.old), kind_of(entry.new));
    match (entry.old, entry.new) {
        _ if entry.from.is_some() && new == Some(FileKind::Dir) => Some("a directory was moved"),
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

fn blob(side: &Side, name: &Path, content: Option<&Path>) -> Result<Blob, String> {
    let at = content.ok_or("it is no longer there to be read")?;
    if side.size > SIZE_MAX {
        return Err(format!("it is larger than {} MiB", SIZE_MAX >> 20));
    }
    let bytes =
        read_whole(side.kind, at, SIZE_MAX).map_err(|e| format!("it can't be read ({e})"))?;
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
        // git says of a type that changes, and may say of a move, that one goes and another comes.
        (Some(was), Some(is)) if was.name != is.name || was.mode.get(..3) != is.mode.get(..3) => {
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
