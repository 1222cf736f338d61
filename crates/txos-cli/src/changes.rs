//! Changes as lists: totals, name-status, stat.

use std::io::{self, Write};

pub use txos_engine::changeset::Counts;
use txos_engine::changeset::{Entry, Side, Status};
use txos_engine::object::FileKind;
use txos_engine::show::quoted;

use crate::style::Paint;

/// `1 path`, `14 paths`.
pub fn paths(n: u64) -> String {
    format!("{n} path{}", if n == 1 { "" } else { "s" })
}

/// A number of bytes for people: `310 B`, `1.2 KiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = larger;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// The path as lists show it: directories end in a slash.
pub fn shown_path(entry: &Entry) -> String {
    let mut path = quoted(&entry.path);
    let directory = entry.new.or(entry.old).is_some_and(|s| s.kind == FileKind::Dir);
    if directory && !path.ends_with('/') {
        path.push('/');
    }
    path
}

/// A line each, as `git diff --name-status` writes them.
pub fn write_name_status(out: &mut dyn Write, entries: &[Entry], paint: Paint) -> io::Result<()> {
    for entry in entries {
        let style = paint.status(entry.status);
        write!(out, "{style}{}{style:#}\t", entry.status.letter())?;
        if let Some(from) = &entry.from {
            write!(out, "{}\t", quoted(from))?;
        }
        writeln!(out, "{}", shown_path(entry))?;
    }
    Ok(())
}

/// Widest column of names: one long name must not push everything else off the screen.
const WIDTH_MAX: usize = 60;

/// A line each with what changed in size, then the totals. With `max`, what takes something away comes
/// first, and of the rest no more than makes so many lines in all.
pub fn write_stat(
    out: &mut dyn Write,
    entries: &[Entry],
    paint: Paint,
    max: Option<usize>,
) -> io::Result<()> {
    let (shown, folded) = match max {
        None => (entries.iter().collect(), Vec::new()),
        Some(max) => {
            let (mut first, rest): (Vec<&Entry>, Vec<&Entry>) =
                entries.iter().partition(|entry| takes_away(entry));
            let room = max.saturating_sub(first.len()).min(rest.len());
            let (shown, folded) = rest.split_at(room);
            first.extend(shown);
            (first, folded.to_vec())
        }
    };
    let names: Vec<String> = shown
        .iter()
        .map(|e| match &e.from {
            Some(from) => format!("{} => {}", quoted(from), shown_path(e)),
            None => shown_path(e),
        })
        .collect();
    let width = |name: &str| name.chars().count();
    let column = names.iter().map(|n| width(n)).max().unwrap_or(0).min(WIDTH_MAX);
    for (entry, name) in shown.iter().zip(&names) {
        let style = paint.status(entry.status);
        let padding = " ".repeat(column.saturating_sub(width(name)));
        let letter = entry.status.letter();
        writeln!(out, " {style}{letter}{style:#} {name}{padding} | {}", what_changed(entry))?;
    }
    if !folded.is_empty() {
        writeln!(out, " … and more: {}", Counts::of(folded))?;
    }
    writeln!(out, " {}", Counts::of(entries))
}

/// Whether a change takes something away that was there, or gives or takes rights: a decision must not
/// be made without a look at it.
fn takes_away(entry: &Entry) -> bool {
    let set_id = |side: &Side| side.kind == FileKind::File && side.mode & 0o6000 != 0;
    match (entry.status, entry.old, entry.new) {
        (Status::Deleted | Status::TypeChanged, ..) => true,
        (_, Some(old), Some(new))
            if (old.mode, old.uid, old.gid) != (new.mode, new.uid, new.gid) =>
        {
            true
        }
        (Status::Renamed, ..) => replaces(entry),
        (_, None, Some(new)) => set_id(&new),
        _ => false,
    }
}

/// Whether something is moved to where something else is, before it is published.
fn replaces(entry: &Entry) -> bool {
    entry.status == Status::Renamed && std::fs::symlink_metadata(&entry.path).is_ok()
}

/// Sizes and attributes in a few words.
fn what_changed(entry: &Entry) -> String {
    let (old, new) = match (entry.old, entry.new) {
        (Some(old), Some(new)) => (old, new),
        (Some(one), None) | (None, Some(one)) => return one_side(&one),
        (None, None) => return String::new(),
    };
    let mut words = Vec::new();
    if old.kind != new.kind {
        words.push(format!("{} -> {}", old.kind, new.kind));
    } else if new.kind == FileKind::File && old.size != new.size {
        words.push(format!("{} -> {}", size(old.size), size(new.size)));
    } else if new.kind == FileKind::File && entry.status == Status::Modified {
        words.push(size(new.size));
    }
    if (old.kind, new.kind) == (FileKind::Symlink, FileKind::Symlink)
        && let [Some(before), Some(after)] = [&entry.old_content, &entry.new_content]
            .map(|at| at.as_deref().and_then(|at| std::fs::read_link(at).ok()))
        && before != after
    {
        words.push(format!("{} -> {}", quoted(&before), quoted(&after)));
    }
    if old.mode != new.mode {
        words.push(format!("mode {:04o} -> {:04o}", old.mode & 0o7777, new.mode & 0o7777));
    }
    if (old.uid, old.gid) != (new.uid, new.gid) {
        words.push(format!("owner {}:{} -> {}:{}", old.uid, old.gid, new.uid, new.gid));
    }
    let renamed = entry.status == Status::Renamed;
    if words.is_empty() && !renamed && old.mtime != new.mtime {
        words.push("times".into());
    }
    if words.is_empty() && entry.status == Status::Attributes {
        words.push("extended attributes".into());
    }
    if words.is_empty() && renamed {
        words.push("moved".into());
    }
    if replaces(entry) {
        words.push("replaces what is there".into());
    }
    words.join(", ")
}

fn one_side(side: &Side) -> String {
    if side.kind == FileKind::File { size(side.size) } else { side.kind.to_string() }
}

/// Entries for tests.
#[cfg(test)]
pub mod samples {
    use super::*;
    use txos_engine::version::Stamp;

    /// One side of a regular file.
    pub fn side(bytes: u64) -> Side {
        Side {
            kind: FileKind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            size: bytes,
            mtime: Stamp { sec: 1_700_000_000, nsec: 5 },
        }
    }

    /// A change of this status.
    pub fn entry(status: Status, path: &str, old: Option<Side>, new: Option<Side>) -> Entry {
        let from = (status == Status::Renamed).then(|| "/etc/was".into());
        Entry { status, path: path.into(), from, old, new, old_content: None, new_content: None }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{entry, side};
    use super::*;

    #[test]
    fn totals_in_words() {
        let mut counts = Counts { added: 9, modified: 4, deleted: 1, ..Counts::default() };
        assert_eq!(counts.to_string(), "14 paths (9 added, 4 modified, 1 deleted)");
        counts = Counts { attributes: 1, ..Counts::default() };
        assert_eq!(counts.to_string(), "1 path (1 attributes only)");
        assert_eq!(Counts::default().to_string(), "nothing changed");
    }

    #[test]
    fn sizes() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1024), "1.0 KiB");
        assert_eq!(size(1_300_000), "1.2 MiB");
        assert_eq!(size(5 << 30), "5.0 GiB");
        assert_eq!(size(u64::MAX), "15.9 EiB");
    }

    fn sample() -> Vec<Entry> {
        let dir = Side { kind: FileKind::Dir, ..side(0) };
        vec![
            entry(Status::Added, "/opt/new", None, Some(dir)),
            entry(Status::Modified, "/etc/a\nb", Some(side(310)), Some(side(2048))),
            entry(Status::Renamed, "/etc/is", Some(side(1)), Some(side(1))),
            entry(
                Status::Attributes,
                "/etc/s",
                Some(side(1)),
                Some(Side { mode: 0o600, ..side(1) }),
            ),
            entry(Status::Deleted, "/etc/x", Some(side(40)), None),
        ]
    }

    #[test]
    fn name_status() {
        let mut out = Vec::new();
        write_name_status(&mut out, &sample(), Paint::default()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "A\t/opt/new/\nM\t\"/etc/a\\nb\"\nR\t/etc/was\t/etc/is\nm\t/etc/s\nD\t/etc/x\n"
        );
    }

    #[test]
    fn stat() {
        let mut out = Vec::new();
        write_stat(&mut out, &sample(), Paint::default(), None).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(" A /opt/new/           | directory\n"), "{text}");
        assert!(text.contains(" M \"/etc/a\\nb\"         | 310 B -> 2.0 KiB\n"), "{text}");
        assert!(text.contains("| mode 0644 -> 0600\n"), "{text}");
        assert!(text.ends_with(
            " 5 paths (1 added, 1 modified, 1 attributes only, 1 renamed, 1 deleted)\n"
        ));
        let mut out = Vec::new();
        write_stat(&mut out, &sample(), Paint::default(), Some(3)).unwrap();
        let text = String::from_utf8(out).unwrap();
        let letters: String = text.lines().filter_map(|l| l.chars().nth(1)).collect();
        assert_eq!(letters, "mDA…5", "{text}");
        assert!(text.contains(" … and more: 2 paths (1 modified, 1 renamed)\n"), "{text}");
    }

    #[test]
    fn what_takes_something_away_is_never_folded() {
        let side = |mode, uid| Some(Side { mode, uid, ..side(1) });
        let mut entries: Vec<Entry> = (0..300)
            .map(|n| entry(Status::Added, &format!("/new/{n:03}"), None, side(0o644, 0)))
            .collect();
        entries.extend(
            (0..51)
                .map(|n| entry(Status::Deleted, &format!("/z/gone{n:02}"), side(0o644, 0), None)),
        );
        entries.push(entry(Status::Modified, "/z/mode", side(0o644, 0), side(0o666, 0)));
        entries.push(entry(Status::Modified, "/z/owner", side(0o644, 0), side(0o644, 7)));
        entries.push(entry(Status::TypeChanged, "/z/type", side(0o644, 0), side(0o644, 0)));
        entries.push(entry(Status::Added, "/z/set-id", None, side(0o4755, 0)));
        entries.push(entry(Status::Renamed, "/", side(0o644, 0), side(0o644, 0)));
        let mut out = Vec::new();
        write_stat(&mut out, &entries, Paint::default(), Some(40)).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches(" D /z/gone").count(), 51, "{text}");
        for path in ["/z/mode", "/z/owner", "/z/type", "/z/set-id", "/etc/was => /"] {
            assert!(text.contains(path), "{path}: {text}");
        }
        assert!(text.contains("replaces what is there"), "{text}");
        assert!(text.contains(" … and more: 300 paths (300 added)\n"), "{text}");
    }
}
