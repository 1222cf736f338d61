//! What a review shows first: all changes on a screen or two, in the order in which they matter.
//!
//! What takes something away or gives rights stands first, each path on a line of its own, however many there
//! are. New directories with much in them are a line each.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use txos_engine::changeset::{Entry, Side, Status};
use txos_engine::object::FileKind;
use txos_engine::show::quoted;

use crate::changes::{Counts, paths, replaces, shown_path, size, what_changed};
use crate::patch::{Difference, difference, lines_changed};
use crate::style::Paint;

/// New directories with more than this below them are one line.
const FOLDED_FROM: usize = 12;
/// Lines are counted for this long; of what is left then, only sizes are shown.
const COUNTING_MAX: Duration = Duration::from_secs(3);
/// Widest column of names.
const WIDTH_MAX: usize = 60;
/// The attribute that gives a program rights without a set-id bit.
const CAPABILITIES: &str = "security.capability";

/// A change, with what a look at its content and its rights has shown.
#[derive(Debug)]
pub struct Item<'a> {
    /// The change.
    pub entry: &'a Entry,
    /// Lines taken away and added, of text that was counted.
    pub lines: Option<(usize, usize)>,
    /// Whether it takes something away, or gives or takes rights.
    pub first: bool,
    /// What of it [`what_changed`] does not say.
    pub note: Option<String>,
}

/// Looks at all changes.
pub fn items(entries: &[Entry]) -> Vec<Item<'_>> {
    let deadline = Instant::now() + COUNTING_MAX;
    let item = |entry| {
        let note = rights(entry);
        let counted = Instant::now() < deadline;
        Item {
            entry,
            lines: counted.then(|| lines(entry)).flatten(),
            first: note.is_some() || takes_away(entry),
            note,
        }
    };
    entries.iter().map(item).collect()
}

impl Item<'_> {
    /// Sizes, attributes, rights and lines in a few words.
    pub fn text(&self) -> String {
        let mut text = what_changed(self.entry);
        for more in self.note.clone().into_iter().chain(self.lines.map(line_counts)) {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str(&more);
        }
        text
    }

    /// The path, and where it was.
    pub fn name(&self) -> String {
        match &self.entry.from {
            Some(from) => format!("{} => {}", quoted(from), shown_path(self.entry)),
            None => shown_path(self.entry),
        }
    }

    fn is_new_directory(&self) -> bool {
        self.entry.status == Status::Added
            && self.entry.new.is_some_and(|side| side.kind == FileKind::Dir)
    }
}

fn lines(entry: &Entry) -> Option<(usize, usize)> {
    match difference(entry) {
        Difference::Text { old, new } => Some(lines_changed(&old, &new)),
        Difference::None | Difference::Binary | Difference::LeftOut(_) => None,
    }
}

/// `+12 -3`.
pub fn line_counts((less, more): (usize, usize)) -> String {
    match (less, more) {
        (0, more) => format!("+{more}"),
        (less, 0) => format!("-{less}"),
        (less, more) => format!("+{more} -{less}"),
    }
}

/// Whether a change takes something away that was there, or gives or takes rights: a decision must not
/// be made without a look at it.
fn takes_away(entry: &Entry) -> bool {
    match (entry.status, entry.old, entry.new) {
        (Status::Deleted | Status::TypeChanged, ..) => true,
        (_, Some(old), Some(new))
            if (old.mode, old.uid, old.gid) != (new.mode, new.uid, new.gid) =>
        {
            true
        }
        (Status::Renamed, ..) => replaces(entry),
        _ => false,
    }
}

/// The rights that a program has after the change, of which its user may have none.
fn rights(entry: &Entry) -> Option<String> {
    let side = entry.new.filter(|side| side.kind == FileKind::File)?;
    let set_id = |bit: u32| side.mode & bit != 0;
    let mut words = Vec::new();
    if set_id(0o4000) {
        words.push(format!("runs as user {}", side.uid));
    }
    if set_id(0o2000) {
        words.push(format!("runs as group {}", side.gid));
    }
    if entry.new_content.as_deref().is_some_and(has_capabilities) {
        words.push("has capabilities".to_owned());
    }
    (!words.is_empty()).then(|| words.join(", "))
}

fn has_capabilities(file: &Path) -> bool {
    rustix::fs::lgetxattr(file, CAPABILITIES, &mut [0u8; 64][..]).is_ok()
}

/// A line of the overview.
struct Row {
    status: Status,
    name: String,
    text: String,
    /// How many changes it stands for.
    of: usize,
}

impl Row {
    fn of(item: &Item<'_>) -> Row {
        Row { status: item.entry.status, name: item.name(), text: item.text(), of: 1 }
    }
}

/// The lines of what needs not be looked at first: new directories are one line if much is in them.
fn folded(rest: &[&Item<'_>]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut at = 0;
    while let Some(item) = rest.get(at) {
        let behind = rest.get(at + 1..).unwrap_or_default();
        let within = behind
            .iter()
            .take_while(|other| {
                item.is_new_directory()
                    && other.entry.status == Status::Added
                    && other.entry.path.starts_with(&item.entry.path)
            })
            .count();
        if within <= FOLDED_FROM {
            rows.push(Row::of(item));
            at += 1;
            continue;
        }
        let all = behind.get(..within).unwrap_or_default();
        let bytes = |side: Side| if side.kind == FileKind::File { side.size } else { 0 };
        let bytes: u64 = all.iter().filter_map(|i| i.entry.new).map(bytes).sum();
        let lines: usize = all.iter().filter_map(|i| i.lines).map(|(_, more)| more).sum();
        let lines = if lines > 0 { format!(", +{lines}") } else { String::new() };
        rows.push(Row {
            status: item.entry.status,
            name: item.name(),
            text: format!("{} in it, {}{lines}", paths(within as u64), size(bytes)),
            of: within + 1,
        });
        at += within + 1;
    }
    rows
}

/// Writes the overview. With `max`, no more than so many lines of what need not be looked at first.
pub fn write(
    out: &mut dyn Write,
    items: &[Item<'_>],
    paint: Paint,
    max: Option<usize>,
) -> io::Result<()> {
    let (first, rest): (Vec<&Item<'_>>, Vec<&Item<'_>>) = items.iter().partition(|i| i.first);
    let first: Vec<Row> = first.into_iter().map(Row::of).collect();
    let mut rest = folded(&rest);
    let left: Vec<Row> = rest.split_off(max.unwrap_or(usize::MAX).min(rest.len()));
    let width = |row: &Row| row.name.chars().count();
    let column = first.iter().chain(&rest).map(width).max().unwrap_or(0).min(WIDTH_MAX);
    let strong = paint.strong();
    if !first.is_empty() {
        writeln!(out, " {strong}Deletions, replacements and rights:{strong:#}")?;
        write_rows(out, &first, column, paint)?;
        if !rest.is_empty() {
            writeln!(out, " {strong}Everything else:{strong:#}")?;
        }
    }
    write_rows(out, &rest, column, paint)?;
    if !left.is_empty() {
        let n: usize = left.iter().map(|row| row.of).sum();
        writeln!(out, " … and {} more", paths(n as u64))?;
    }
    let (less, more) = items
        .iter()
        .filter_map(|item| item.lines)
        .fold((0, 0), |(less, more), (l, m)| (less + l, more + m));
    let lines = match (less, more) {
        (0, 0) => String::new(),
        lines => format!("; lines: {}", line_counts(lines)),
    };
    writeln!(out, " {}{lines}", Counts::of(items.iter().map(|item| item.entry)))
}

/// Writes every change, none of them folded, those that matter first.
pub fn write_all(out: &mut dyn Write, items: &[Item<'_>], paint: Paint) -> io::Result<()> {
    let (first, rest): (Vec<&Item<'_>>, Vec<&Item<'_>>) = items.iter().partition(|i| i.first);
    let rows: Vec<Row> = first.into_iter().chain(rest).map(Row::of).collect();
    let column = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    write_rows(out, &rows, column.min(WIDTH_MAX), paint)
}

fn write_rows(out: &mut dyn Write, rows: &[Row], column: usize, paint: Paint) -> io::Result<()> {
    for row in rows {
        let style = paint.status(row.status);
        let padding = " ".repeat(column.saturating_sub(row.name.chars().count()));
        let letter = row.status.letter();
        writeln!(out, " {style}{letter}{style:#} {}{padding} | {}", row.name, row.text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::samples::{entry, side};

    fn shown(entries: &[Entry], max: Option<usize>) -> String {
        let mut out = Vec::new();
        write(&mut out, &items(entries), Paint::default(), max).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_takes_something_away_is_never_folded() {
        let side = |mode, uid| Some(Side { mode, uid, ..side(1) });
        let mut entries: Vec<Entry> = (0..300)
            .map(|n| entry(Status::Added, &format!("/new/{n:03}"), None, side(0o644, 0)))
            .collect();
        let dir = Side { kind: FileKind::Dir, ..side(0o755, 0).unwrap() };
        entries.insert(0, entry(Status::Added, "/new", None, Some(dir)));
        entries[7].new = side(0o4755, 3);
        entries.extend(
            (0..51)
                .map(|n| entry(Status::Deleted, &format!("/z/gone{n:02}"), side(0o644, 0), None)),
        );
        entries.push(entry(Status::Modified, "/z/mode", side(0o644, 0), side(0o666, 0)));
        entries.push(entry(Status::Modified, "/z/owner", side(0o644, 0), side(0o644, 7)));
        entries.push(entry(Status::Modified, "/z/su", side(0o6755, 0), side(0o6755, 0)));
        entries.push(entry(Status::TypeChanged, "/z/type", side(0o644, 0), side(0o644, 0)));
        entries.push(entry(Status::Added, "/z/set-id", None, side(0o4755, 0)));
        let moved = entry(Status::Renamed, "/z/over", side(0o644, 0), side(0o644, 0));
        entries.push(Entry { replaced: side(0o644, 0), ..moved });
        entries.push(entry(Status::Modified, "/zz", side(0o644, 0), side(0o644, 0)));
        let text = shown(&entries, Some(40));
        let (first, rest) = text.split_once("Everything else:\n").unwrap();
        assert_eq!(first.matches(" D /z/gone").count(), 51, "{text}");
        for line in [
            "M /z/mode ",
            "M /z/owner",
            "T /z/type",
            "A /z/set-id",
            "R /etc/was => /z/over ",
            "A /new/006",
            "M /z/su",
        ] {
            assert!(first.contains(line), "{line} in {text}");
        }
        assert!(first.contains("1 B, runs as user 3\n"), "{text}");
        assert!(first.contains("1 B, runs as user 0, runs as group 0\n"), "{text}");
        assert!(first.contains("replaces what was there"), "{text}");
        let rest: Vec<&str> = rest.lines().collect();
        assert!(rest[0].starts_with(" A /new/ "), "{text}");
        assert!(rest[0].ends_with("| 299 paths in it, 299 B"), "{text}");
        assert!(rest[1].starts_with(" M /zz "), "{text}");
        assert!(rest[2].starts_with(" 359 paths (302 added, "), "{text}");
        assert_eq!(rest.len(), 3, "{text}");
        // Not in a directory, they are many lines.
        entries.remove(0);
        let text = shown(&entries, Some(40));
        assert!(text.contains(" … and 260 paths more\n"), "{text}");
        assert_eq!(text.matches(" A /new/").count(), 41, "{text}");
    }

    #[test]
    fn without_anything_to_look_at_first_there_are_no_headings() {
        let entries = [entry(Status::Modified, "/a", Some(side(3)), Some(side(2048)))];
        let text = shown(&entries, None);
        assert_eq!(text, " M /a | 3 B -> 2.0 KiB\n 1 path (1 modified)\n");
    }

    #[test]
    fn lines_are_counted() {
        let dir = std::env::temp_dir().join(format!("txos-overview-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).unwrap();
            (Some(side(text.len() as u64)), Some(dir.join(name)))
        };
        let (old, old_content) = file("old", "1\n2\n3\n");
        let (new, new_content) = file("new", "1\n2b\n3\n4\n");
        let changed = entry(Status::Modified, "/a", old, new);
        let entries = [
            Entry { old_content: old_content.clone(), new_content, ..changed.clone() },
            Entry { new: None, status: Status::Deleted, old_content, ..changed },
        ];
        let text = shown(&entries, None);
        assert!(text.contains("M /a | 6 B -> 9 B, +2 -1\n"), "{text}");
        assert!(text.contains("D /a | 6 B, -3\n"), "{text}");
        assert!(text.ends_with("; lines: +2 -4\n"), "{text}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
