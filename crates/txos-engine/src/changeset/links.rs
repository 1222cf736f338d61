//! What becomes of each non-directory of an upper: decided here, hard links considered.
//!
//! | stable counterpart | the upper object is | published as |
//! |---|---|---|
//! | none | anything | Install |
//! | of another type | anything | Replace |
//! | anything | a new object | Replace: one exchange, whatever it holds |
//! | anything | a copy with the same content and attributes | nothing |
//! | anything | a copy with the same content | Attrs, in place |
//! | has several links | a copy with other content | Data, in place: every name sees it |
//! | has several links | a copy of which no name is left | the same, in the store |
//! | a file that matches `--keep-inode` | a copy, or a new file | as a copy; Data, in place |
//! | any other file | a copy with other content | Rewrite: one exchange, or in place if it has a writer |
//!
//! A new object never becomes content or attributes of the old inode: somebody else may have that open
//! for writing, or own another name of it, and would have a hand in what the transaction created. That
//! an object is a copy must be known ([`Identity`]); what is not known is a new object.
//!
//! A new name for an object that stays in place is a Link to it; new names among replaced
//! objects are links of each other already, in the upper.

use std::collections::HashMap;

use super::{Action, AttrChange, Change};
use crate::error::Result;
use crate::object::FileKind;
use crate::version::Version;

/// Whether an upper object stands for the inode that is at its name in the stable tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Identity {
    /// It is a changed copy of it: the transaction kept the inode.
    Kept,
    /// The transaction made it, or brought it from elsewhere.
    Fresh,
}

/// What the decision needs to know about a file.
pub(super) struct FileView<'a> {
    pub upper: Version,
    pub stable: Option<Version>,
    pub path: &'a [u8],
    /// It is a copy of its stable counterpart, which has several names.
    pub indexed: bool,
    /// The stored handle of what it is a copy of.
    pub copied_up: Option<&'a [u8]>,
    /// No handle is stored, and could not have been; but the transaction put nothing else in the
    /// object's place, so this must be a changed copy of it.
    pub copied_unmarked: bool,
}

/// Where files come from and decisions go: the scan, or a test.
pub(super) trait Sink {
    type File;
    fn view<'f>(&self, file: &'f Self::File) -> FileView<'f>;
    /// Whether the upper object is a copy of its stable counterpart.
    fn is_origin(&self, file: &Self::File) -> Result<bool>;
    fn keeps_inode(&self, file: &Self::File) -> bool;
    /// Whether the transaction only appended, and the stable file has changed since: however alike
    /// the two are now, both appends count.
    fn appended_meanwhile(&self, file: &Self::File) -> bool;
    fn same_content(&self, file: &Self::File) -> Result<bool>;
    fn attrs(&self, file: &Self::File) -> Result<AttrChange>;
    fn emit(&mut self, file: &Self::File, action: Action);
}

/// Decides about every file.
pub(super) fn classify<S: Sink>(sink: &mut S, files: Vec<S::File>) -> Result<()> {
    let mut groups: HashMap<u64, Vec<usize>> = HashMap::new();
    for (i, file) in files.iter().enumerate() {
        let view = sink.view(file);
        if view.upper.nlink > 1 {
            groups.entry(view.upper.id.ino).or_default().push(i);
        }
    }
    for (i, file) in files.iter().enumerate() {
        let group =
            groups.get(&sink.view(file).upper.id.ino).filter(|_| sink.view(file).upper.nlink > 1);
        match group {
            // A group is decided as a whole, when its first member comes by.
            Some(members) if members.first() == Some(&i) => {
                let members: Vec<&S::File> = members.iter().filter_map(|&m| files.get(m)).collect();
                classify_group(sink, &members)?;
            }
            Some(_) => {}
            None => {
                let action = decide(sink, file, stays(sink, file)?, false)?;
                emit(sink, file, action);
            }
        }
    }
    Ok(())
}

/// Whether the transaction kept the inode that is at a file's name.
fn identity<S: Sink>(sink: &S, file: &S::File) -> Result<Identity> {
    let view = sink.view(file);
    let Some(stable) = view.stable else { return Ok(Identity::Fresh) };
    let same_kind = stable.kind() == view.upper.kind();
    // `--keep-inode` is the user's word that the inode is to stay, whatever the command does.
    let told_to = stable.kind() == FileKind::File && sink.keeps_inode(file);
    let copied = view.indexed
        || view.copied_unmarked
        || (view.copied_up.is_some() && sink.is_origin(file)?);
    Ok(if same_kind && (told_to || copied) { Identity::Kept } else { Identity::Fresh })
}

/// Whether a file's stable inode stays and is written in place.
fn stays<S: Sink>(sink: &S, file: &S::File) -> Result<bool> {
    let view = sink.view(file);
    let Some(stable) = view.stable else { return Ok(false) };
    Ok(view.indexed
        || (stable.kind() == FileKind::File
            && (sink.keeps_inode(file) || stable.nlink > 1)
            && identity(sink, file)? == Identity::Kept))
}

fn first_that<'m, F>(
    members: &'m [&F],
    is_it: impl Fn(&F) -> Result<bool>,
) -> Result<Option<&'m &'m F>> {
    for member in members {
        if is_it(member)? {
            return Ok(Some(member));
        }
    }
    Ok(None)
}

/// Several names of one upper object.
fn classify_group<S: Sink>(sink: &mut S, members: &[&S::File]) -> Result<()> {
    // The inode that the transaction kept is the one that its new names are links of.
    let kept = |m: &S::File| {
        Ok(members.len() > 1
            && sink.view(m).upper.kind() == FileKind::File
            && identity(sink, m)? == Identity::Kept)
    };
    let leader = match first_that(members, |m| stays(sink, m))? {
        None => first_that(members, kept)?,
        found => found,
    };
    let Some(leader) = leader else {
        // With more than one name the names must end as links of one object, so none of them
        // may be left as it is, unless nothing but overlayfs's index makes it look like several.
        let several = members.len() > 1;
        for file in members {
            let action = decide(sink, file, false, several)?;
            emit(sink, file, action);
        }
        return Ok(());
    };
    let leading = sink.view(leader);
    let (to, inode) = (leading.path.to_vec(), leading.stable.map(|v| v.id));
    let action = decide(sink, leader, true, false)?;
    emit(sink, leader, action);
    for file in members {
        let view = sink.view(file);
        if view.path != to && view.stable.map(|v| v.id) != inode {
            sink.emit(file, Action::Link { to: to.clone().into() });
        }
    }
    Ok(())
}

/// What becomes of an object that stays the inode it is.
pub(super) fn in_place<S: Sink>(sink: &S, file: &S::File) -> Result<Option<Action>> {
    decide(sink, file, true, false)
}

/// Where whatever takes a stable name away puts what was there, relative to the layer's directory in the
/// store, and the name in the finished tree. `really` tells whether a change takes what is in the stable
/// tree.
pub(super) fn taken_to(
    changes: &[Change],
    layer: usize,
    stable_path: &[u8],
    mut really: impl FnMut(&Change) -> bool,
) -> Option<(Vec<u8>, Vec<u8>)> {
    let below = |top: &[u8]| {
        let rest = stable_path.strip_prefix(top)?;
        (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
    };
    let here = || changes.iter().filter(|c| c.layer == layer && !c.dropped);
    // What was moved out of a directory before that was taken away is elsewhere.
    let moved_out = here().filter_map(|c| match &c.action {
        Action::Move { from, .. } => below(from).map(|_| from.len()),
        _ => None,
    });
    let moved_out = moved_out.max().unwrap_or(0);
    let takes = here().filter(|c| !c.action.is_in_place() && c.base.is_some());
    let (taker, rest) = takes
        .filter_map(|c| Some((c, below(&c.stable_path)?)))
        .filter(|(c, rest)| {
            let is_dir = c.base.is_some_and(|v| v.kind() == FileKind::Dir);
            rest.is_empty() != is_dir && c.stable_path.len() >= moved_out && really(c)
        })
        .max_by_key(|(c, _)| c.stable_path.len())?;
    Some(([&taker.staged[..], rest].concat(), [&taker.path[..], rest].concat()))
}

fn emit<S: Sink>(sink: &mut S, file: &S::File, action: Option<Action>) {
    if let Some(action) = action {
        sink.emit(file, action);
    }
}

/// The table above, for one file.
fn decide<S: Sink>(
    sink: &S,
    file: &S::File,
    in_place: bool,
    must_replace: bool,
) -> Result<Option<Action>> {
    let view = sink.view(file);
    if view.stable.is_none() {
        return Ok(Some(Action::Install));
    }
    if identity(sink, file)? == Identity::Fresh {
        return Ok(Some(Action::Replace));
    }
    if !must_replace && !sink.appended_meanwhile(file) && sink.same_content(file)? {
        let change = sink.attrs(file)?;
        return Ok((!change.is_nothing()).then(|| Action::Attrs(Box::new(change))));
    }
    if in_place && view.upper.kind() == FileKind::File {
        return Ok(Some(Action::Data(Box::new(sink.attrs(file)?))));
    }
    let rewritten = view.upper.kind() == FileKind::File;
    Ok(Some(if rewritten { Action::Rewrite } else { Action::Replace }))
}
