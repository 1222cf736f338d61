//! What becomes of each non-directory of an upper: decided here, hard links considered.
//!
//! | stable counterpart | the upper object | published as |
//! |---|---|---|
//! | none | | Install |
//! | another type | | Replace |
//! | same content | same attributes | nothing |
//! | same content | other attributes | Attrs, in place |
//! | several links, and the upper is a copy of it | | Data, in place: every name sees it |
//! | matches `--keep-inode` | | Data, in place |
//! | any other file | | Replace: one exchange |
//!
//! A new name for an object that stays in place is a Link to it; new names among replaced
//! objects are links of each other already, in the upper.

use std::collections::HashMap;

use super::{Action, AttrChange};
use crate::error::Result;
use crate::object::FileKind;
use crate::version::Version;

/// What the decision needs to know about a file.
pub(super) struct FileView<'a> {
    pub upper: Version,
    pub stable: Option<Version>,
    pub path: &'a [u8],
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
    fn is_origin(&self, file: &Self::File) -> bool;
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
                let action = decide(sink, file, stays(sink, file), false)?;
                emit(sink, file, action);
            }
        }
    }
    Ok(())
}

/// Whether a file's stable inode stays and is written in place.
fn stays<S: Sink>(sink: &S, file: &S::File) -> bool {
    let view = sink.view(file);
    let Some(stable) = view.stable else { return false };
    stable.kind() == FileKind::File
        && view.upper.kind() == FileKind::File
        && (sink.keeps_inode(file)
            || (stable.nlink > 1 && view.copied_unmarked)
            || (stable.nlink > 1 && view.copied_up.is_some() && sink.is_origin(file)))
}

/// Several names of one upper object.
fn classify_group<S: Sink>(sink: &mut S, members: &[&S::File]) -> Result<()> {
    let Some(leader) = members.iter().find(|m| stays(sink, m)) else {
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
            sink.emit(file, Action::Link { to: to.clone() });
        }
    }
    Ok(())
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
    let Some(stable) = view.stable else { return Ok(Some(Action::Install)) };
    if stable.kind() != view.upper.kind() {
        return Ok(Some(Action::Replace));
    }
    if !must_replace && !sink.appended_meanwhile(file) && sink.same_content(file)? {
        let change = sink.attrs(file)?;
        return Ok((!change.is_nothing()).then(|| Action::Attrs(Box::new(change))));
    }
    if in_place {
        return Ok(Some(Action::Data(Box::new(sink.attrs(file)?))));
    }
    Ok(Some(Action::Replace))
}
