//! Permissions during a publish: tighten first, publish, loosen last.
//!
//! # Invariants
//!
//! - While a publish, its undoing or a recovery is under way, nobody reaches what he could reach neither
//!   before nor after. Before the first name or byte changes, each inode whose permissions the plan changes
//!   gets those that everybody has *both* before and after ([`Passage`]). The final ones come when
//!   everything else is in place. Undoing goes the same way back: everything is tightened, then the
//!   operations are undone, and at the end each inode gets the permissions it had.
//! - A list goes only when nobody can be looking at it any more with the mode of before ([`sys::let_pass`]).
//! - Content is never written into a file that has a set-id bit; a capability is set after it.
//! - All this follows from the plan alone, so recovery needs nothing else: an inode's mode tells whether it is as
//!   before, meanwhile, or as after.
//!
//! Owner, mode, access control list and capabilities change only here. Where the owner is whoever
//! commits, his old rights are kept and his new ones are given at once: he could otherwise not publish in a
//! directory that he makes read-only.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::inplace::{CAPABILITY, not_ours};
use super::roots::EntryRef;
use crate::changeset::{AttrChange, XattrChange};
use crate::object::{FileId, FileKind};
use crate::plan::{Does, Op, Plan, on_names};
use crate::sys;
use crate::version::{Version, stat_at};

type Sys<T> = Result<T, Errno>;

/// Name of the attribute that holds an access control list.
const ACL: &[u8] = b"system.posix_acl_access";

const SET_ID: u32 = 0o6000;
const STICKY: u32 = 0o1000;

/// Whether an attribute gives rights.
fn gives_rights(name: &[u8]) -> bool {
    name == ACL || name == CAPABILITY
}

/// What of a change gives or takes no rights: the rest is a [`Passage`]'s.
pub(super) fn without_rights(change: &AttrChange) -> AttrChange {
    // What an earlier version has recorded may have a list by its second name as well.
    let has_list = change.xattrs.iter().any(|x| x.name == ACL);
    let is_twin = |x: &XattrChange| has_list && sys::is_second_name(&x.name);
    let others = |x: &&XattrChange| !gives_rights(&x.name) && !is_twin(x);
    let xattrs = change.xattrs.iter().filter(others).cloned().collect();
    AttrChange { mode: None, owner: None, mtime: change.mtime, xattrs }
}

/// Mode and owner of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rights {
    mode: u32,
    owner: (u32, u32),
}

impl Rights {
    fn of(version: &Version) -> Rights {
        Rights { mode: version.mode & 0o7777, owner: (version.uid, version.gid) }
    }
}

/// The permissions of one inode on their way from before a publish to after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    /// Which inode.
    pub id: FileId,
    before: Rights,
    /// The mode with which nobody has more than both before and after.
    meanwhile: u32,
    after: Rights,
    /// Access control list and capabilities.
    xattrs: Vec<XattrChange>,
    /// A symbolic link has an owner, and no mode of its own.
    is_link: bool,
}

impl Passage {
    /// Of an operation in place; `None` if it needs none: it changes no permissions, nor content of a file
    /// that has more than those.
    pub fn of(op: &Op) -> Option<Passage> {
        let base = op.base.as_ref()?;
        let writes = match op.does {
            Does::Data(_) | Does::Patch { .. } => true,
            Does::Attrs { .. } => false,
            on_names!() | Does::DirTime { .. } => return None,
        };
        let before = Rights::of(base);
        let change = op.attrs();
        let after = Rights {
            mode: change.and_then(|c| c.mode).map_or(before.mode, |(_, new)| new & 0o7777),
            owner: change.and_then(|c| c.owner).map_or(before.owner, |(_, new)| new),
        };
        let xattrs = change.map_or(&[][..], |c| &c.xattrs).iter();
        let xattrs: Vec<_> = xattrs.filter(|x| gives_rights(&x.name)).cloned().collect();
        let acl = xattrs.iter().any(|x| x.name == ACL);
        let mut meanwhile = common(before, after, acl);
        if base.kind() != FileKind::Dir && (writes || before.owner != after.owner) {
            meanwhile &= !SET_ID;
        }
        let passage = Passage {
            id: base.id,
            before,
            meanwhile,
            after,
            xattrs,
            is_link: base.kind() == FileKind::Symlink,
        };
        let stays = before == after && meanwhile == before.mode && passage.xattrs.is_empty();
        (!stays).then_some(passage)
    }

    /// Before anything is published. `false` if another inode is there by now.
    pub fn tighten(&mut self, end: &EntryRef) -> Sys<bool> {
        let Some((fd, now)) = self.open(end)? else { return Ok(false) };
        self.narrow(&fd, &now)?;
        // Set-id bits of another's file stay until it is written to.
        let mode = stat_at(fd.as_fd(), b"", AtFlags::EMPTY_PATH)?.mode & 0o7777;
        if (mode ^ self.meanwhile) & !SET_ID == 0 {
            self.meanwhile = mode;
        }
        Ok(true)
    }

    /// Whether the list goes when everything is published, or where that is undone.
    pub fn takes_a_list(&self, undone: bool) -> bool {
        let value = |x: &XattrChange| if undone { x.old.is_some() } else { x.new.is_some() };
        self.xattrs.iter().any(|x| x.name == ACL && !value(x))
    }

    /// Tightens what is still as before. Nothing if another inode is there by now.
    pub fn tighten_again(&self, end: &EntryRef) -> Sys<()> {
        match self.open(end)? {
            Some((fd, now)) => self.narrow(&fd, &now),
            None => Ok(()),
        }
    }

    /// When everything is published. `false` if another inode is there by now, or somebody else has changed
    /// its permissions.
    pub fn loosen(&self, end: &EntryRef) -> Sys<bool> {
        let Some((fd, now)) = self.open(end)? else { return Ok(false) };
        let rights = Rights::of(&now);
        let Rights { mode, owner } = rights;
        let ours = self.is_link || mode == self.meanwhile || mode == self.before.mode;
        // Another of its names may have been seen to already.
        if rights != self.after && (owner != self.before.owner || !ours) {
            return Ok(false);
        }
        // Else one call does it.
        if self.before.owner != self.after.owner || !self.xattrs.is_empty() {
            self.narrow(&fd, &now)?;
        }
        // A change of owner clears set-id bits and capabilities, which come after.
        if self.before.owner != self.after.owner {
            let (uid, gid) = self.after.owner;
            sys::chown(fd.as_fd(), uid, gid)?;
        }
        for x in &self.xattrs {
            self.give(&fd, &x.name, x.new.as_deref())?;
        }
        self.set_mode(&fd, self.after.mode)?;
        Ok(true)
    }

    /// Before anything is undone: takes back what [`Passage::loosen`] gave, as far as it has come. What
    /// somebody else has made of the inode since stays.
    pub fn take_back(&self, end: &EntryRef) -> Sys<()> {
        let Some((fd, now)) = self.open(end)? else { return Ok(()) };
        self.narrow(&fd, &now)?;
        for x in self.xattrs.iter().filter(|x| x.name == CAPABILITY && x.new.is_some()) {
            if sys::xattr_of(fd.as_fd(), &x.name)? == x.new {
                set_xattr(&fd, &x.name, None)?;
            }
        }
        if self.before.owner != self.after.owner && (now.uid, now.gid) == self.after.owner {
            let (uid, gid) = self.before.owner;
            sys::chown(fd.as_fd(), uid, gid)?;
        }
        Ok(())
    }

    /// When everything is undone: the permissions of before, unless somebody else has set others.
    pub fn put_back(&self, end: &EntryRef) -> Sys<()> {
        let Some((fd, now)) = self.open(end)? else { return Ok(()) };
        let now = Rights::of(&now);
        if now.owner != self.before.owner || (now.mode != self.meanwhile && !self.is_link) {
            return Ok(());
        }
        for x in &self.xattrs {
            if x.name == ACL || sys::xattr_of(fd.as_fd(), &x.name)?.is_none() {
                self.give(&fd, &x.name, x.old.as_deref())?;
            }
        }
        self.set_mode(&fd, self.before.mode)
    }

    /// Sets an attribute that gives rights. An access control list gives nothing to groups and others until
    /// the mode is set, which has to follow.
    fn give(&self, fd: &OwnedFd, name: &[u8], value: Option<&[u8]>) -> Sys<()> {
        let narrow = value.filter(|_| name == ACL).map(|list| narrow_list(list, self.meanwhile));
        set_xattr(fd, name, narrow.as_deref().or(value))
    }

    /// The inode as it is while everything else is published.
    fn now(&self, version: &Version) -> Version {
        let mut now = *version;
        (now.uid, now.gid) = self.before.owner;
        if !self.is_link {
            now.mode = now.mode & !0o7777 | self.meanwhile;
        }
        now
    }

    fn open(&self, end: &EntryRef) -> Sys<Option<(OwnedFd, Version)>> {
        let fd = match end.open_path() {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            other => other?,
        };
        let now = stat_at(fd.as_fd(), b"", AtFlags::EMPTY_PATH)?;
        Ok((now.id == self.id).then_some((fd, now)))
    }

    /// Gives it the mode of meanwhile, unless somebody else has given it one of his own.
    fn narrow(&self, fd: &OwnedFd, now: &Version) -> Sys<()> {
        let mode = now.mode & 0o7777;
        if mode == self.before.mode || mode == self.after.mode {
            return self.set_mode(fd, self.meanwhile);
        }
        Ok(())
    }

    fn set_mode(&self, fd: &OwnedFd, mode: u32) -> Sys<()> {
        let now = stat_at(fd.as_fd(), b"", AtFlags::EMPTY_PATH)?;
        if self.is_link || now.mode & 0o7777 == mode {
            return Ok(());
        }
        let set = sys::chmod(fd.as_fd(), mode);
        // Whoever may write to another's file may not change its mode. The kernel takes its set-id bits at a
        // write, and nobody but the owner can take them before it or put them back after it.
        let only_set_id = (now.mode & 0o7777 ^ mode) & !SET_ID == 0;
        let stays = self.before == self.after;
        if stays || only_set_id && self.before.owner == self.after.owner {
            not_ours(set)
        } else {
            set
        }
    }
}

/// The mode in which nobody has more than he has both before and after, whoever the owner is.
fn common(before: Rights, after: Rights, acl: bool) -> u32 {
    let class = |mode: u32, shift: u32| mode >> shift & 7;
    let both = |shift| class(before.mode, shift) & class(after.mode, shift);
    let other_uid = before.owner.0 != after.owner.0;
    let other_gid = before.owner.1 != after.owner.1;
    // Who is in one class before may be in another after, and whom a list names may have less than a class.
    let all = both(6) & both(3) & both(0);
    let (mut user, group, other) = match (acl, other_uid, other_gid) {
        (true, true, _) => (0, 0, 0),
        (true, false, _) => (both(6), 0, 0),
        (false, true, _) => (all, all, all),
        (false, false, true) => (both(6), both(3) & both(0), both(3) & both(0)),
        (false, false, false) => (both(6), both(3), both(0)),
    };
    if !other_uid && before.owner.0 == rustix::process::geteuid().as_raw() {
        user = class(before.mode, 6) | class(after.mode, 6);
    }
    // That a directory is sticky takes rights.
    let sticky = (before.mode | after.mode) & STICKY;
    user << 6 | group << 3 | other | before.mode & after.mode & SET_ID | sticky
}

/// An access control list as it is to be, but with the classes of a mode of meanwhile.
///
/// Some file systems (tmpfs) change the mode to the list's own classes before they put the list in place: for an
/// instant, whoever the list is to keep out has what others have. A change of mode comes the other way round: the
/// list stands, and its classes follow. See `acl(5)`; the bytes are those of `posix_acl_xattr_header` in
/// `linux/posix_acl_xattr.h`.
fn narrow_list(list: &[u8], meanwhile: u32) -> Vec<u8> {
    const HEADER: usize = 4;
    const ENTRY: usize = 8;
    const USER_OBJ: u16 = 0x01;
    const GROUP_OBJ: u16 = 0x04;
    const MASK: u16 = 0x10;
    const OTHER: u16 = 0x20;
    let mut list = list.to_vec();
    let entries = || list.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY);
    let tag = |entry: &[u8]| u16::from_le_bytes([entry[0], entry[1]]);
    let group = if entries().any(|entry| tag(entry) == MASK) { MASK } else { GROUP_OBJ };
    let entries = list.get_mut(HEADER..).unwrap_or_default();
    for entry in entries.chunks_exact_mut(ENTRY) {
        let class = match tag(entry) {
            USER_OBJ => meanwhile >> 6 & 7,
            OTHER => meanwhile & 7,
            tag if tag == group => meanwhile >> 3 & 7,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&(class as u16).to_le_bytes());
    }
    list
}

fn set_xattr(fd: &OwnedFd, name: &[u8], value: Option<&[u8]>) -> Sys<()> {
    match value {
        Some(value) => sys::set_xattr_of(fd.as_fd(), name, value),
        None => match sys::remove_xattr_of(fd.as_fd(), name) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(e) => Err(e),
        },
    }
}

/// The inodes whose permissions a publish has tightened.
#[derive(Debug, Default)]
pub(super) struct Tightened(HashMap<FileId, Passage>);

impl Tightened {
    pub fn add(&mut self, passage: Passage) {
        self.0.insert(passage.id, passage);
    }

    pub fn has(&self, id: FileId) -> bool {
        self.0.contains_key(&id)
    }

    /// What a version that was planned with looks like by now.
    pub fn now(&self, version: &Version) -> Version {
        self.0.get(&version.id).map_or(*version, |passage| passage.now(version))
    }

    pub fn ids(&self) -> impl Iterator<Item = FileId> + '_ {
        self.0.keys().copied()
    }
}

/// Whether a plan changes nothing but the attributes of one inode: then nothing comes between.
pub(super) fn is_alone(plan: &Plan) -> bool {
    let mut ops = plan.ops.iter().filter(|op| !op.is_dir_time());
    matches!((ops.next(), ops.next()), (Some(Op { does: Does::Attrs { .. }, .. }) | None, None))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What a process may do with an inode, natively.
    fn may(rights: Rights, uid: u32, groups: &[u32]) -> u32 {
        let shift = if uid == rights.owner.0 {
            6
        } else if groups.contains(&rights.owner.1) {
            3
        } else {
            0
        };
        rights.mode >> shift & 7
    }

    /// With a mask it is the mask that the mode of a file gives; without, the entry of the owning group.
    #[test]
    fn a_list_gives_its_classes_with_the_mode() {
        let list = |entries: &[(u16, u16)]| {
            let mut list = 2_u32.to_le_bytes().to_vec();
            for (tag, rights) in entries {
                list.extend(tag.to_le_bytes());
                list.extend(rights.to_le_bytes());
                list.extend(u32::MAX.to_le_bytes());
            }
            list
        };
        assert_eq!(
            narrow_list(&list(&[(1, 7), (2, 0), (4, 5), (8, 4), (0x10, 7), (0x20, 4)]), 0o600),
            list(&[(1, 6), (2, 0), (4, 5), (8, 4), (0x10, 0), (0x20, 0)])
        );
        assert_eq!(
            narrow_list(&list(&[(1, 7), (4, 5), (0x20, 4)]), 0o600),
            list(&[(1, 6), (4, 0), (0x20, 0)])
        );
        let damaged = list(&[(0x20, 7)]);
        for len in 0..damaged.len() {
            assert_eq!(narrow_list(&damaged[..len], 0), damaged[..len]);
        }
    }

    /// Every pair of modes, owners and groups, and everybody there can be: under both owners nobody has more
    /// than both before and after.
    #[test]
    fn nobody_has_more_than_both() {
        let (users, sets) = ([901, 902, 903], [&[][..], &[901], &[902], &[901, 902]]);
        let modes = (0..512).filter(|m| m % 7 == 0 || m % 5 == 2);
        for before_mode in modes.clone() {
            for after_mode in modes.clone() {
                for owner in [(901, 901), (902, 901), (901, 902), (902, 902)] {
                    let before = Rights { mode: before_mode, owner: (901, 901) };
                    let after = Rights { mode: after_mode, owner };
                    let mode = common(before, after, false);
                    for (&uid, groups) in
                        users.iter().flat_map(|u| sets.iter().map(move |g| (u, g)))
                    {
                        let most = may(before, uid, groups) & may(after, uid, groups);
                        for owner in [before.owner, after.owner] {
                            let meanwhile = may(Rights { mode, owner }, uid, groups);
                            assert_eq!(
                                meanwhile & !most,
                                0,
                                "{before:?} {after:?} {mode:o}: {uid} {groups:?}"
                            );
                        }
                    }
                }
            }
        }
        let sticky = Rights { mode: 0o1777, owner: (0, 0) };
        assert_eq!(common(Rights { mode: 0o777, ..sticky }, sticky, false), 0o1777);
    }
}
