//! Reverts of single paths of a transaction, held against a model of what must be back.
//!
//! The model knows the tree as it was before the transaction, and as it is before a revert of some paths:
//!
//! | where | what must be there |
//! |---|---|
//! | at or below a path that was asked for, or the other end of its move | what was there before the transaction |
//! | at another name of a file that is there | that, or what was there before the revert |
//! | at a directory above | the directory as it is; its time may be another |
//! | at any directory | the time that it had may be back: with the last of its paths a transaction is undone whole |
//! | anywhere else | what was there before the revert |

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;

use txos_testkit::Tree;
use txos_testkit::random::Random;
use txos_testkit::tree::Node;
use txos_testkit::trees::Case;

use super::{Checked, EXACT, Field, RETAINED, ended, same_tree, word_after};

/// A path relative to the tree.
type Path = Vec<u8>;

/// How many reverts a case is good for.
const REVERTS_MAX: usize = 3;

impl Field {
    /// Reverts paths of the first transaction. Then either what is left of it, or those reverts.
    pub(super) fn paths_reverted(&self, case: &Case) -> Checked {
        let mut random = Random::new(hash(&case.parts));
        let before = self.tree();
        let done = self.run(&[], 1).run();
        ended("committing", &done, 0)?;
        let id = word_after(&done.stderr, "txos: committed ");
        if id.is_empty() {
            return Ok(None);
        }
        let changes = self.changes(&id);
        if changes.is_empty() {
            return Ok(None);
        }
        let mut reverts: Vec<(String, Tree)> = Vec::new();
        for _ in 0..REVERTS_MAX {
            let mut asked: BTreeSet<Path> =
                (0..=random.below(2)).map(|_| random.pick(&changes).0.clone()).collect();
            let now = self.tree();
            let mut done = self.revert_paths(&id, &asked);
            if done.code() == 125 {
                same_tree("after a refused revert", &now, &self.tree(), Default::default())?;
                // What belongs together is undone together.
                asked.extend(self.named_with(&done.stderr));
                if !done.stderr.contains("belongs together with") {
                    if is_explained(&done.stderr) {
                        continue;
                    }
                    return Err(("a refusal", done.stderr));
                }
                done = self.revert_paths(&id, &asked);
            }
            let what = format!("reverting {}", shown(&asked));
            if done.code() != 0 {
                let said = done.stderr.trim();
                return Err(("reverting paths", format!("{what}: {}: {said}", done.code())));
            }
            for (path, from) in &changes {
                if let (true, Some(from)) = (is_in(&asked, path), from) {
                    asked.insert(from.clone());
                }
                if from.as_ref().is_some_and(|from| is_in(&asked, from)) {
                    asked.insert(path.clone());
                }
            }
            let then = self.tree();
            expect(&what, &asked, &before, &now, &then)?;
            self.no_traces()?;
            reverts.push((word_after(&done.stderr, " by "), now));
        }
        if random.below(2) == 0 {
            for (id, before) in reverts.iter().rev() {
                ended("reverting the revert", &self.txos(&["revert", id]).run(), 0)?;
                same_tree(
                    "the revert reverted",
                    &timeless(before),
                    &timeless(&self.tree()),
                    EXACT,
                )?;
            }
        } else {
            let done = self.txos(&["revert", &id]).run();
            if !done.stderr.contains("it was undone already") {
                ended("reverting the rest", &done, 0)?;
            }
            same_tree("the rest reverted", &timeless(&before), &timeless(&self.tree()), EXACT)?;
        }
        self.no_traces().map(|()| None)
    }

    /// What a transaction is shown to have changed: each path, and where it was moved from.
    fn changes(&self, id: &str) -> Vec<(Path, Option<Path>)> {
        let shown = self.txos(&["show", "--json", id]).run().expect(0).json();
        let relative = |path: &serde_json::Value| {
            let path = path.as_str()?;
            let rest = std::path::Path::new(path).strip_prefix(self.lab.tree()).ok()?;
            Some(rest.as_os_str().as_bytes().to_vec())
        };
        let changes = shown["changes"].as_array().unwrap().iter();
        changes.filter_map(|c| Some((relative(&c["path"])?, relative(&c["from"])))).collect()
    }

    fn revert_paths(&self, id: &str, asked: &BTreeSet<Path>) -> txos_testkit::Done {
        let path = |path: &Path| self.lab.tree().join(std::ffi::OsStr::from_bytes(path));
        self.txos(&["revert", id]).args(asked.iter().map(path)).run()
    }

    /// The paths without which a revert was refused.
    fn named_with(&self, message: &str) -> Vec<Path> {
        let list = message.split("belongs together with ").nth(1).unwrap_or_default();
        let list = list.split(", and can't be undone").next().unwrap_or_default();
        let top = format!("{}/", self.lab.tree().display());
        list.split(", ").filter_map(|p| Some(p.strip_prefix(&top)?.as_bytes().to_vec())).collect()
    }
}

/// Whether a refusal without another path says why.
fn is_explained(message: &str) -> bool {
    ["came, went or moved as a whole", "was not changed by", "it was undone already"]
        .iter()
        .any(|reason| message.contains(reason))
}

fn hash(value: &impl std::fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{value:?}").hash(&mut hasher);
    hasher.finish()
}

fn shown(paths: &BTreeSet<Path>) -> String {
    let each: Vec<String> = paths.iter().map(|path| path.escape_ascii().to_string()).collect();
    each.join(" ")
}

fn is_at_or_below(path: &[u8], top: &[u8]) -> bool {
    let rest = path.strip_prefix(top);
    rest.is_some_and(|rest| rest.is_empty() || top.is_empty() || rest.starts_with(b"/"))
}

fn is_in(asked: &BTreeSet<Path>, path: &[u8]) -> bool {
    asked.iter().any(|top| is_at_or_below(path, top))
}

/// A tree without the times of its directories: what is put back into one moves its time.
fn timeless(tree: &Tree) -> Tree {
    let mut tree = tree.clone();
    let dirs = tree.nodes.values_mut().filter(|node| node.kind.is_dir());
    dirs.for_each(|dir| dir.mtime = (0, 0));
    tree
}

/// Compares with the model.
fn expect(
    what: &str,
    asked: &BTreeSet<Path>,
    before: &Tree,
    now: &Tree,
    then: &Tree,
) -> Result<(), (&'static str, String)> {
    // Files that have a name among what was asked for.
    let files = |tree: &Tree| -> HashSet<Path> {
        let inside =
            tree.nodes.iter().filter(|(path, node)| is_in(asked, path) && !node.kind.is_dir());
        inside.map(|(_, node)| node.first.clone()).collect()
    };
    let (files_before, files_now) = (files(before), files(now));
    let shares = |files: &HashSet<Path>, node: Option<&Node>| {
        node.is_some_and(|node| !node.kind.is_dir() && files.contains(&node.first))
    };
    let is_above = |path: &[u8]| asked.iter().any(|top| top != path && is_at_or_below(top, path));
    let mut model = Tree::default();
    let paths: BTreeSet<&Path> =
        [before, now, then].iter().flat_map(|tree| tree.nodes.keys()).collect();
    for path in paths {
        let (old, is, found) = (before.nodes.get(path), now.nodes.get(path), then.nodes.get(path));
        let mut node = if is_in(asked, path) {
            // (As it is, if it has a name that was not asked for.)
            let other = |is: &&Node| found.is_some_and(|found| alike(is, found));
            kept_elsewhere(now, then, asked, found).find(other).or(old)
        } else if shares(&files_before, old) || shares(&files_now, is) {
            // Another name of a file: as it was, under whatever name, or as it is.
            let was = asked_files(before, now, asked, is).into_iter().chain(old);
            let mut was = was.filter(|was| found.is_some_and(|found| alike(was, found)));
            was.next().or(is)
        } else {
            is
        }
        .cloned();
        if let (Some(node), Some(found)) = (&mut node, found) {
            node.first.clone_from(&found.first);
            // The last revert undoes the times that are left.
            let is_back = old.is_some_and(|old| old.mtime == found.mtime);
            if node.kind.is_dir() && (is_above(path) || is_in(asked, path) || is_back) {
                node.mtime = found.mtime;
            }
        }
        model.nodes.extend(node.map(|node| (path.clone(), node)));
    }
    same_tree(what, &model, then, RETAINED)?;
    // Which names are one file: among those asked for as before, among the others as they are.
    let inside: Vec<&Path> = before.nodes.keys().filter(|path| is_in(asked, path)).collect();
    let outside: Vec<&Path> = now.nodes.keys().filter(|path| !is_in(asked, path)).collect();
    for (names, expected) in [(&inside, before), (&outside, now)] {
        let (mine, theirs) = (links(expected, names), links(then, names));
        if mine != theirs {
            let text = format!("{what}: names of one file: {mine:?} became {theirs:?}");
            return Err(("the links", text));
        }
    }
    Ok(())
}

/// What a file is by those of its names that are not asked for.
fn kept_elsewhere<'a>(
    now: &'a Tree,
    then: &'a Tree,
    asked: &'a BTreeSet<Path>,
    file: Option<&'a Node>,
) -> impl Iterator<Item = &'a Node> {
    let is_same =
        move |node: &Node| file.is_some_and(|file| !file.kind.is_dir() && node.first == file.first);
    let names = then.nodes.iter().filter(move |(path, node)| !is_in(asked, path) && is_same(node));
    names.filter_map(|(path, _)| now.nodes.get(path))
}

/// What a file was before by those of its names that are asked for.
fn asked_files<'a>(
    before: &'a Tree,
    now: &Tree,
    asked: &BTreeSet<Path>,
    file: Option<&Node>,
) -> Vec<&'a Node> {
    let Some(file) = file else { return Vec::new() };
    let names =
        now.nodes.iter().filter(|(path, node)| is_in(asked, path) && node.first == file.first);
    names.filter_map(|(path, _)| before.nodes.get(path)).collect()
}

/// Whether two nodes agree but for the number of links and which name is the first.
fn alike(a: &Node, b: &Node) -> bool {
    let same = Node { nlink: b.nlink, first: b.first.clone(), ..a.clone() };
    same == *b
}

/// The groups of more than one of these names that are one file.
fn links(tree: &Tree, names: &[&Path]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<&Path, Vec<String>> = BTreeMap::new();
    for name in names {
        if let Some(node) = tree.nodes.get(*name).filter(|node| !node.kind.is_dir()) {
            groups.entry(&node.first).or_default().push(name.escape_ascii().to_string());
        }
    }
    let mut groups: Vec<_> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort();
    groups
}
