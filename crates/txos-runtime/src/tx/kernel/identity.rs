//! Who the process is to file systems, when it makes calls for others.
//!
//! A process that has the transaction of several makes a call as the one that asks for it: it *wears* that one's
//! identity, so that the kernel decides as it would have decided natively. What belongs to the transaction itself, its private
//! copies above all, it does [as the owner](as_owner) of the transaction: the store is its owner's alone, so what is not
//! done so there fails closed. As the owner it also reaches a stable object that lies below a directory which is closed to
//! whom the call is made for. That makes a descriptor of it and nothing else: the object is then asked, read and
//! opened by that descriptor under the worn identity. What tells nothing of the object to that process is
//! looked at [as the owner](past_closed_directories) itself.
//!
//! Only what counts for files is worn: the file-system user and group (`setfsuid(2)`), the other groups and the effective
//! capabilities (capabilities(7)). The real, effective and saved users stay, so no process of a worn identity may send
//! signals to this one. All of it is the calling thread's.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;

use super::{Errno, Sys, groups, sys};

/// Who somebody is to file systems.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The other groups, in order.
    pub groups: Vec<u32>,
    /// Effective capabilities.
    pub caps: u64,
}

/// What is worn, and what is underneath.
#[derive(Debug)]
struct Worn {
    worn: Identity,
    own: Identity,
}

thread_local! {
    // Nothing of it is left when the thread ends, so it needs no destructor, whose registration could take memory.
    static WORN: RefCell<ManuallyDrop<Option<Worn>>> = const { RefCell::new(ManuallyDrop::new(None)) };
    static IS_WORN: Cell<bool> = const { Cell::new(false) };
}

/// No user, and no group: the calls that set one change nothing, and answer the present one.
const NONE: u32 = u32::MAX;

impl Identity {
    /// That of the calling thread.
    #[must_use]
    pub fn of_thread() -> Identity {
        let mut groups = groups();
        groups.sort_unstable();
        Identity { uid: fs_user(NONE), gid: fs_group(NONE), groups, caps: Sets::now().effective() }
    }

    /// Whether the calling thread can be this.
    #[must_use]
    pub fn can_be_worn(&self) -> bool {
        const CAP_SETGID: u64 = 1 << 6;
        const CAP_SETUID: u64 = 1 << 7;
        let (own, may) = (Identity::of_thread(), Sets::now().permitted());
        self.caps & !may == 0
            && (self.uid == own.uid || may & CAP_SETUID != 0)
            && ((self.gid == own.gid && self.groups == own.groups) || may & CAP_SETGID != 0)
    }

    /// The calling thread becomes this.
    fn put_on(&self) -> Sys<()> {
        let sets = Sets::now();
        // With all that is permitted it can become anything that it can be.
        sets.with_effective(sets.permitted()).put_in_force()?;
        let now = Identity::of_thread();
        if now.groups != self.groups {
            // SAFETY: the kernel reads so many.
            unsafe { sys!(SYS_setgroups, self.groups.len(), self.groups.as_ptr()) }?;
        }
        fs_group(self.gid);
        fs_user(self.uid);
        if (fs_user(NONE), fs_group(NONE)) != (self.uid, self.gid) {
            return Err(Errno::PERM);
        }
        Sets::now().with_effective(self.caps).put_in_force()
    }
}

/// Does something as somebody else.
///
/// # Errors
/// EPERM: the process can't be that; nothing was done.
pub fn as_other<T>(other: &Identity, f: impl FnOnce() -> T) -> Sys<T> {
    let own = Identity::of_thread();
    if let Err(errno) = other.put_on() {
        or_end(own.put_on());
        return Err(errno);
    }
    wear(Some(Worn { worn: other.clone(), own: own.clone() }));
    let done = f();
    wear(None);
    or_end(own.put_on());
    Ok(done)
}

/// Does something that is the transaction's own affair, whose identity ever the process wears.
pub fn as_owner<T>(f: impl FnOnce() -> T) -> T {
    if !is_worn() {
        return f();
    }
    let Some(was) = wear(None) else { return f() };
    or_end(was.own.put_on());
    let done = f();
    or_end(was.worn.put_on());
    wear(Some(was));
    done
}

/// Looks at something by its path from the root, for whom the call is made. If that one may not search a
/// directory on the path, the owner looks: natively the path from the root is not walked for what is below a working directory or a
/// descriptor. The path may lead elsewhere by then, so this is only for what the transaction needs for itself: whether an
/// object is the one that is known, and what is so of a whole file system. What a process is told of an object comes
/// from a descriptor that was compared with it.
///
/// # Errors
/// As `look`.
pub fn past_closed_directories<T>(look: impl Fn() -> Sys<T>) -> Sys<T> {
    match look() {
        Err(Errno::ACCESS) if is_worn() => as_owner(look),
        other => other,
    }
}

/// Whether the calling thread makes a call as somebody else.
#[must_use]
pub fn is_worn() -> bool {
    IS_WORN.get()
}

/// What is worn from here on; gives what was worn.
fn wear(worn: Option<Worn>) -> Option<Worn> {
    IS_WORN.set(worn.is_some());
    WORN.with_borrow_mut(|was| std::mem::replace(&mut **was, worn))
}

/// A process that is not what it should be goes no step further: its transaction is rolled back.
fn or_end(changed: Sys<()>) {
    if changed.is_err() {
        let text =
            b"txos: the process that has the transaction can't change its identity; rolled back\n";
        let _ = super::write(2, text);
        loop {
            // SAFETY: nothing comes after it.
            let _ = unsafe { sys!(SYS_exit_group, 1) };
        }
    }
}

/// The calling thread's user to file systems.
#[must_use]
pub fn file_user() -> u32 {
    fs_user(NONE)
}

/// `setfsuid(2)`: sets the user, and gives the one of before.
fn fs_user(uid: u32) -> u32 {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_setfsuid, uid) }.map_or(NONE, |before| before as u32)
}

/// `setfsgid(2)`, likewise.
fn fs_group(gid: u32) -> u32 {
    // SAFETY: it has no pointers.
    unsafe { sys!(SYS_setfsgid, gid) }.map_or(NONE, |before| before as u32)
}

/// Capabilities of the thread: effective, permitted, inheritable; low halves, then high ones.
#[derive(Clone, Copy, Debug)]
struct Sets([u32; 6]);

/// The version of these sets.
const HEADER: [u32; 2] = [0x2008_0522, 0];

impl Sets {
    fn now() -> Sets {
        let mut sets = [0u32; 6];
        // SAFETY: this version of the header has two sets of three words.
        let _ = unsafe { sys!(SYS_capget, HEADER.as_ptr(), sets.as_mut_ptr()) };
        Sets(sets)
    }

    fn effective(&self) -> u64 {
        u64::from(self.0[0]) | u64::from(self.0[3]) << 32
    }

    fn permitted(&self) -> u64 {
        u64::from(self.0[1]) | u64::from(self.0[4]) << 32
    }

    fn with_effective(mut self, caps: u64) -> Sets {
        (self.0[0], self.0[3]) = (caps as u32, (caps >> 32) as u32);
        self
    }

    fn put_in_force(&self) -> Sys<()> {
        // SAFETY: this version of the header has two sets of three words.
        unsafe { sys!(SYS_capset, HEADER.as_ptr(), self.0.as_ptr()) }.map(drop)
    }
}
