//! Choosing a part of a transaction: by patterns, or in an editor, in a list as `git rebase -i` has it.
//!
//! ```text
//! pick /etc/hosts<TAB># M 310 B -> 412 B, +3
//! drop /var/log/**
//! ```
//!
//! The lines are read from the top; the last one that names a path decides about it, and what no line names
//! is not picked. What comes or goes with a directory is one line: it can't be had apart from it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use globset::{GlobBuilder, GlobMatcher};
use txos_engine::TxId;
use txos_engine::changeset::{Entry, Status};
use txos_engine::object::FileKind;
use txos_engine::show::{quoted, unquoted};

use crate::changes::paths;
use crate::overview::Item;
use crate::signals;

/// What is chosen.
#[derive(Debug, PartialEq, Eq)]
pub enum Choice {
    /// Everything.
    All,
    /// Nothing.
    Nothing,
    /// These paths, each with everything below it.
    Part(Vec<PathBuf>),
}

/// What can be chosen by itself.
struct Unit<'a> {
    item: &'a Item<'a>,
    /// What comes or goes with it.
    with: Vec<&'a Item<'a>>,
}

impl Unit<'_> {
    fn path(&self) -> &Path {
        &self.item.entry.path
    }
}

/// What of the changes can be chosen, in order of path.
fn units<'a>(items: &'a [Item<'a>]) -> Vec<Unit<'a>> {
    let mut units: Vec<Unit<'a>> = Vec::new();
    for item in items {
        match units.last_mut().filter(|unit| goes_with(item.entry, unit.item.entry)) {
            Some(unit) => unit.with.push(item),
            None => units.push(Unit { item, with: Vec::new() }),
        }
    }
    units
}

/// Whether a change can't be had without that of a directory above it.
fn goes_with(entry: &Entry, above: &Entry) -> bool {
    let is_dir = |side: Option<txos_engine::changeset::Side>| {
        side.is_some_and(|side| side.kind == FileKind::Dir)
    };
    let whole = match above.status {
        Status::Added => is_dir(above.new),
        Status::Deleted => is_dir(above.old),
        Status::TypeChanged => true,
        Status::Modified | Status::Attributes | Status::Renamed => false,
    };
    whole && entry.path.starts_with(&above.path)
}

/// Paths, as a word on a line or at a question names them.
#[derive(Debug)]
pub struct Pattern {
    exact: PathBuf,
    glob: Option<GlobMatcher>,
}

impl Pattern {
    /// A path, or a pattern as the shell has them; one that does not begin at the root fits in every directory.
    pub fn new(path: &Path) -> Result<Pattern, String> {
        let Some(text) = path.to_str() else {
            return Ok(Pattern { exact: path.to_owned(), glob: None });
        };
        let whole = match text.strip_prefix('/') {
            Some(_) => text.to_owned(),
            None => format!("**/{text}"),
        };
        let glob = GlobBuilder::new(&whole).literal_separator(true).build();
        let glob = glob.map_err(|error| format!("{}: {error}", quoted(path)))?;
        Ok(Pattern { exact: path.to_owned(), glob: Some(glob.compile_matcher()) })
    }

    /// Whether it names a path, or a directory above it.
    pub fn fits(&self, path: &Path) -> bool {
        path.starts_with(&self.exact)
            || self.glob.as_ref().is_some_and(|glob| path.ancestors().any(|p| glob.is_match(p)))
    }

    /// Whether it names a change's path, or where it was.
    pub fn fits_entry(&self, entry: &Entry) -> bool {
        self.fits(&entry.path) || entry.from.as_deref().is_some_and(|from| self.fits(from))
    }
}

/// What is picked so far, by the numbers of the units.
struct Picked<'a> {
    units: Vec<Unit<'a>>,
    picked: BTreeMap<usize, bool>,
}

impl<'a> Picked<'a> {
    fn none(items: &'a [Item<'a>]) -> Self {
        Picked { units: units(items), picked: BTreeMap::new() }
    }

    /// Picks, or leaves, what a path or a pattern names. A path is meant with all that is below it, but on a list
    /// that has lines for that.
    fn mark(&mut self, path: &Path, pick: bool, alone: bool) -> Result<(), String> {
        // A name that looks like a pattern is that name first.
        let exact = self.units.iter().position(|unit| unit.path() == path);
        if let Some(exact) = exact.filter(|&n| self.nothing_below(n)) {
            self.picked.insert(exact, pick);
            return Ok(());
        }
        let pattern = Pattern::new(path)?;
        let fit: Vec<usize> = (0..self.units.len())
            .filter(|&n| self.units.get(n).is_some_and(|unit| pattern.fits_entry(unit.item.entry)))
            .collect();
        let exact = exact.filter(|_| alone);
        if fit.is_empty() && exact.is_none() {
            return Err(self.why_not(path));
        }
        match exact {
            // A directory of which only the attributes change is a line like others.
            Some(exact) => drop(self.picked.insert(exact, pick)),
            None => self.picked.extend(fit.into_iter().map(|n| (n, pick))),
        }
        Ok(())
    }

    fn nothing_below(&self, n: usize) -> bool {
        let top = self.units.get(n).map(Unit::path).unwrap_or(Path::new(""));
        !self.units.iter().any(|unit| unit.path() != top && unit.path().starts_with(top))
    }

    fn why_not(&self, path: &Path) -> String {
        let within = |unit: &&Unit<'_>| unit.with.iter().any(|item| item.entry.path == path);
        match self.units.iter().find(within) {
            Some(unit) => format!(
                "{} comes or goes with {}, and can't be had without it",
                quoted(path),
                quoted(unit.path())
            ),
            None => format!("{}: nothing that is changed has this name", quoted(path)),
        }
    }

    /// What that comes to.
    fn choice(&self) -> Result<Choice, String> {
        let is_picked = |n: usize| self.picked.get(&n) == Some(&true);
        let (mut chosen, mut left) = (Vec::new(), Vec::new());
        for (n, unit) in self.units.iter().enumerate() {
            if is_picked(n) { &mut chosen } else { &mut left }.push(unit.path());
        }
        if left.is_empty() {
            return Ok(Choice::All);
        }
        if chosen.is_empty() {
            return Ok(Choice::Nothing);
        }
        // A part is a directory with everything that is changed below it.
        for path in &chosen {
            if let Some(below) = left.iter().find(|left| left.starts_with(path)) {
                return Err(format!(
                    "{} can be committed only together with what is changed below it, and {} is to be left",
                    quoted(path),
                    quoted(below)
                ));
            }
        }
        Ok(Choice::Part(chosen.into_iter().map(Path::to_owned).collect()))
    }
}

/// What some patterns pick.
pub fn by_patterns(items: &[Item<'_>], patterns: &[&str]) -> Result<Choice, String> {
    let mut picked = Picked::none(items);
    for pattern in patterns {
        let (pattern, pick) = match pattern.strip_prefix('!') {
            Some(pattern) => (pattern, false),
            None => (*pattern, true),
        };
        picked.mark(Path::new(pattern), pick, false)?;
    }
    picked.choice()
}

/// What a user picks in an editor.
pub fn in_editor(id: TxId, items: &[Item<'_>]) -> Result<Choice, String> {
    let list = list(id, items);
    let text = edit(&list)?;
    // Who only looked has not decided.
    if text == list {
        return Err("the list was not changed; `y` commits all of it".into());
    }
    read(items, &text)
}

const HELP: &str = "\
# \"pick\" is committed, \"drop\" stays pending; p and d do as well. A line may name a
# pattern, such as: drop /var/log/**
# The last line that names a path decides. What no line names stays pending. If
# nothing is picked, nothing is committed.
# A directory that is new or gone is one line with everything in it. What belongs
# together otherwise (the names of one file, a moved directory) can be committed
# together only, and txos says so.
";

/// The list, with everything picked.
fn list(id: TxId, items: &[Item<'_>]) -> String {
    let units = units(items);
    let is_first = |unit: &&Unit<'_>| unit.item.first || unit.with.iter().any(|item| item.first);
    let (first, rest): (Vec<&Unit<'_>>, Vec<&Unit<'_>>) = units.iter().partition(is_first);
    let mut text = String::new();
    for (heading, units) in [("Deletions, replacements and rights", first), ("Other changes", rest)]
    {
        if units.is_empty() {
            continue;
        }
        text.push_str(&format!("# {heading}\n"));
        for unit in units {
            let more = match unit.with.len() {
                0 => String::new(),
                n => format!(", with {} in it", paths(n as u64)),
            };
            let letter = unit.item.entry.status.letter();
            let from = unit.item.entry.from.as_deref();
            let from = from.map(|from| format!(" from {},", quoted(from))).unwrap_or_default();
            text.push_str(&format!(
                "pick {}\t# {letter}{from} {}{more}\n",
                quoted(unit.path()),
                unit.item.text()
            ));
            for item in unit.with.iter().filter(|item| item.first && unit.item.entry.old.is_none())
            {
                text.push_str(&format!("#\twith {}: {}\n", quoted(&item.entry.path), item.text()));
            }
        }
        text.push('\n');
    }
    text.push_str(&format!("# What of transaction {id} is to be committed?\n#\n{HELP}"));
    text
}

/// Reads the list.
fn read(items: &[Item<'_>], text: &str) -> Result<Choice, String> {
    let mut picked = Picked::none(items);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = number + 1;
        let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let pick = match word {
            "p" | "pick" => true,
            "d" | "drop" => false,
            _ => return Err(format!("line {number}: \"pick\" or \"drop\" is expected first")),
        };
        let name = rest.split_once("\t#").map_or(rest, |(name, _)| name).trim_matches('\t');
        let name = name.trim_start_matches(' ');
        let path = unquoted(name).filter(|path| !path.is_empty());
        let path = path.ok_or_else(|| format!("line {number}: there is no path"))?;
        let path = Path::new(std::ffi::OsStr::from_bytes(&path));
        picked.mark(path, pick, true).map_err(|why| format!("line {number}: {why}"))?;
    }
    picked.choice()
}

/// Has a text edited, in a directory that only this user can look into.
fn edit(text: &str) -> Result<String, String> {
    let dir =
        std::env::temp_dir().join(format!("txos-choose-{}", TxId::random().map_err(text_of)?));
    fs::DirBuilder::new().mode(0o700).create(&dir).map_err(text_of)?;
    let edited = edit_in(&dir.join("txos-choose"), text);
    let _ = fs::remove_dir_all(&dir);
    edited
}

fn text_of(error: std::io::Error) -> String {
    format!("the list can't be written: {error}")
}

fn edit_in(file: &Path, text: &str) -> Result<String, String> {
    let mut options = fs::OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o600).open(file);
    made.and_then(|mut made| made.write_all(text.as_bytes())).map_err(text_of)?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".into());
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{editor} \"$@\"")).arg(&editor).arg(file);
    // Standard output may be the command's.
    if let Ok(terminal) = std::os::fd::AsFd::as_fd(&std::io::stderr()).try_clone_to_owned() {
        command.stdout(terminal);
    }
    let status = signals::lend_terminal(|| command.status());
    let shown = quoted(Path::new(&editor));
    match status {
        Ok(status) if status.success() => {}
        Ok(_) => {
            return Err(format!(
                "the editor ({shown}, by VISUAL or EDITOR) failed; `c PATTERN...` chooses without one"
            ));
        }
        Err(error) => return Err(format!("the editor ({shown}) can't be started: {error}")),
    }
    fs::read_to_string(file).map_err(|error| format!("the list can't be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::samples::{entry, side};
    use crate::overview::items;
    use txos_engine::changeset::Side;

    fn sample() -> Vec<Entry> {
        let file = || Some(side(1));
        let dir = || Some(Side { kind: FileKind::Dir, mode: 0o755, ..side(0) });
        let mut su = entry(Status::Added, "/opt/new/su", None, file());
        su.new = Some(Side { mode: 0o4755, ..side(1) });
        vec![
            entry(Status::Attributes, "/etc", dir(), Some(Side { mode: 0o700, ..side(0) })),
            entry(Status::Modified, "/etc/a b", file(), Some(side(2))),
            entry(Status::Modified, "/etc/n\n", file(), Some(side(2))),
            entry(Status::Added, "/opt/new", None, dir()),
            entry(Status::Added, "/opt/new/su", None, su.new),
            entry(Status::Added, "/opt/news", None, file()),
            entry(Status::Deleted, "/var/gone", dir(), None),
            entry(Status::Deleted, "/var/gone/x", file(), None),
            entry(Status::Modified, "/var/log/x.log", file(), Some(side(2))),
            entry(Status::Modified, "/var/log/y[1].log", file(), Some(side(2))),
        ]
    }

    fn part(paths: &[&str]) -> Result<Choice, String> {
        Ok(Choice::Part(paths.iter().map(PathBuf::from).collect()))
    }

    #[test]
    fn patterns_pick() {
        let entries = sample();
        let items = items(&entries);
        let picked = |patterns: &[&str]| by_patterns(&items, patterns);
        assert_eq!(picked(&["/opt/new"]), part(&["/opt/new"]));
        assert_eq!(picked(&["*.log"]), part(&["/var/log/x.log", "/var/log/y[1].log"]));
        assert_eq!(picked(&["/var/log", "!x.log"]), part(&["/var/log/y[1].log"]));
        assert_eq!(picked(&["/var/log/y[1].log"]), part(&["/var/log/y[1].log"]));
        assert_eq!(picked(&["/**"]), Ok(Choice::All));
        assert_eq!(picked(&["/**", "!/**"]), Ok(Choice::Nothing));
        let error = |patterns: &[&str]| picked(patterns).unwrap_err();
        assert!(error(&["/nowhere"]).contains("nothing that is changed"));
        assert!(error(&["/opt/new/su"]).contains("comes or goes with /opt/new"));
        assert_eq!(picked(&["/etc"]), part(&["/etc", "/etc/a b", "/etc/n\n"]));
        let apart = error(&["/etc", "!/etc/a*"]);
        assert!(apart.contains("/etc can be committed only together with"), "{apart}");
        assert!(error(&["[x"]).contains("[x"));
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let entries = sample();
        let items = items(&entries);
        let id = TxId::from_bits(1);
        let text = list(id, &items);
        assert_eq!(read(&items, &text), Ok(Choice::All), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "# Deletions, replacements and rights");
        assert!(text.contains("pick /var/gone\t# D directory, with 1 path in it\n"), "{text}");
        assert!(text.contains("#\twith /opt/new/su: 1 B, runs as user 0\n"), "{text}");
        assert!(text.contains("pick \"/etc/n\\n\"\t# M "), "{text}");
        let others = text.split_once("# Other changes\n").unwrap().1;
        assert!(!others.contains("pick /opt/new\t") && others.contains("pick /opt/news\t"));
        // One line dropped, one removed, the directory's as well.
        let changed = text
            .replace("pick /etc/a b\t", "drop /etc/a b\t")
            .replace("pick /etc\t", "d /etc\t")
            .lines()
            .filter(|l| !l.contains("/var/"))
            .collect::<Vec<_>>()
            .join("\n");
        assert_eq!(read(&items, &changed), part(&["/etc/n\n", "/opt/new", "/opt/news"]));
        let later = format!("{text}\nd /var/**\nd /etc*\nd /etc/*\n");
        assert_eq!(read(&items, &later), part(&["/opt/new", "/opt/news"]));
        assert_eq!(read(&items, ""), Ok(Choice::Nothing));
        assert!(read(&items, "squash /etc").unwrap_err().starts_with("line 1: "));
        assert!(read(&items, "\npick ").unwrap_err().starts_with("line 2: there is no path"));
    }
}
