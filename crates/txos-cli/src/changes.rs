//! Changes as lists: totals, name-status, stat.

use std::io::{self, Write};

pub use txos_engine::changeset::Counts;
use txos_engine::changeset::{ChangeSet, Entry, Side, Status};
use txos_engine::object::FileKind;
use txos_engine::show::quoted;
use txos_engine::store::{Home, Meta, State};

use crate::style::Paint;

/// `1 path`, `14 paths`.
pub fn paths(n: u64) -> String {
    format!("{n} path{}", if n == 1 { "" } else { "s" })
}

/// The same, of a transaction of which they may not be counted.
pub fn paths_if_counted(n: Option<u64>) -> String {
    n.map_or_else(|| "not counted".to_owned(), paths)
}

/// Counts what a pending transaction changes, if that was not counted since its last command.
pub fn count(home: &Home, meta: &mut Meta) {
    if meta.changes.is_none() && meta.state == State::Pending {
        meta.changes = ChangeSet::count_so_far(home, meta).ok().map(|counts| counts.total());
    }
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

/// A line each with what changed in size, then the totals.
pub fn write_stat(out: &mut dyn Write, entries: &[Entry], paint: Paint) -> io::Result<()> {
    let names: Vec<String> = entries
        .iter()
        .map(|e| match &e.from {
            Some(from) => format!("{} => {}", quoted(from), shown_path(e)),
            None => shown_path(e),
        })
        .collect();
    let width = |name: &str| name.chars().count();
    let column = names.iter().map(|n| width(n)).max().unwrap_or(0).min(WIDTH_MAX);
    for (entry, name) in entries.iter().zip(&names) {
        let style = paint.status(entry.status);
        let padding = " ".repeat(column.saturating_sub(width(name)));
        let letter = entry.status.letter();
        writeln!(out, " {style}{letter}{style:#} {name}{padding} | {}", what_changed(entry))?;
    }
    writeln!(out, " {}", Counts::of(entries))
}

/// Whether something is moved to where something else was.
pub fn replaces(entry: &Entry) -> bool {
    entry.replaced.is_some()
}

/// Sizes and attributes in a few words.
pub fn what_changed(entry: &Entry) -> String {
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
        words.push("replaces what was there".into());
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
        Entry {
            status,
            path: path.into(),
            from,
            old,
            new,
            replaced: None,
            replaced_content: None,
            old_content: None,
            new_content: None,
            undo: None,
        }
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
        write_stat(&mut out, &sample(), Paint::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(" A /opt/new/           | directory\n"), "{text}");
        assert!(text.contains(" M \"/etc/a\\nb\"         | 310 B -> 2.0 KiB\n"), "{text}");
        assert!(text.contains("| mode 0644 -> 0600\n"), "{text}");
        assert!(text.ends_with(
            " 5 paths (1 added, 1 modified, 1 attributes only, 1 renamed, 1 deleted)\n"
        ));
    }
}
