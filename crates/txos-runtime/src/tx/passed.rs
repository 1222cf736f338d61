//! Paths of calls that the kernel carries out: mounts, swap, accounting, another program.
//!
//! The kernel would look such a path up in the stable tree, from the working directory of before the
//! transaction. So it gets the stable path of the object that the path leads to in the transaction. What
//! exists only in the transaction is refused by name: the kernel can't be led there.
#![allow(unsafe_code)] // paths of ours in the program's calls

use super::Tx;
use super::attrs::Object;
use super::kernel::{Errno, Sys};
use crate::call::Call;

const CWD: i32 = libc::AT_FDCWD;
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;
/// The C library's bindings do not name it yet.
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// A path among the arguments of a call.
#[derive(Clone, Copy, Debug)]
struct Argument {
    /// Which argument is the directory that it starts from; the working directory if none.
    dir: Option<usize>,
    /// Which argument it is.
    path: usize,
    /// Whether a link at its end is followed.
    follow: bool,
    /// Nothing need be there.
    optional: bool,
}

/// The paths of a call that are looked up.
fn arguments(call: &Call) -> Vec<Argument> {
    let one = |path, follow| Argument { dir: None, path, follow, optional: false };
    let at = |dir, path, follow| Argument { dir: Some(dir), path, follow, optional: false };
    match call.number() {
        libc::SYS_mount => {
            let source = call.word(3) & (libc::MS_BIND | libc::MS_MOVE) != 0;
            let source = source.then(|| one(0, true));
            source.into_iter().chain([one(1, true)]).collect()
        }
        libc::SYS_umount2 => vec![one(0, call.int(1) & libc::UMOUNT_NOFOLLOW == 0)],
        libc::SYS_pivot_root => vec![one(0, true), one(1, true)],
        libc::SYS_swapon | libc::SYS_swapoff => vec![one(0, true)],
        libc::SYS_acct => vec![Argument { optional: true, ..one(0, true) }],
        libc::SYS_quotactl => vec![Argument { optional: true, ..one(1, true) }],
        libc::SYS_move_mount => {
            /// Links at the end are followed: of the first path, and of the second.
            const FOLLOW: [u32; 2] = [0x1, 0x10];
            let flags = call.uint(4);
            vec![at(0, 1, flags & FOLLOW[0] != 0), at(2, 3, flags & FOLLOW[1] != 0)]
        }
        libc::SYS_open_tree | SYS_OPEN_TREE_ATTR | libc::SYS_mount_setattr => {
            vec![at(0, 1, call.int(2) & NOFOLLOW == 0)]
        }
        libc::SYS_fspick => {
            const FSPICK_SYMLINK_NOFOLLOW: u32 = 2;
            vec![at(0, 1, call.uint(2) & FSPICK_SYMLINK_NOFOLLOW == 0)]
        }
        _ => Vec::new(),
    }
}

/// Whether paths are among the arguments of a call that is passed on, or where this does not see them.
pub fn has_paths(call: &Call) -> bool {
    !arguments(call).is_empty() || hides_paths(call)
}

/// Whether a call has a path where this does not see it: in a structure, or for another purpose.
fn hides_paths(call: &Call) -> bool {
    const FSCONFIG_SET_PATHS: [u32; 2] = [3, 4];
    const BPF_OBJ: [u32; 2] = [6, 7];
    match call.number() {
        libc::SYS_fsconfig => FSCONFIG_SET_PATHS.contains(&call.uint(1)),
        libc::SYS_bpf => BPF_OBJ.contains(&call.uint(0)),
        _ => false,
    }
}

impl Tx {
    /// The stable paths of a call that is passed on, for those among its arguments; `keep` holds them.
    ///
    /// # Errors
    /// As path_resolution(7); ENOTSUP for what exists only in the transaction.
    ///
    /// # Safety
    /// `keep` lives, and stays as it is, until the answer.
    pub unsafe fn stable_arguments(&mut self, call: &Call, keep: &mut Vec<Vec<u8>>) -> Sys<Call> {
        let mut call = *call;
        if self.process.moved != (false, false) && hides_paths(&call) {
            // It would start from the directories of before.
            return Err(self.no_stable_path());
        }
        for argument in arguments(&call) {
            if argument.optional && call.word(argument.path) == 0 {
                continue;
            }
            let Ok(path) = call.path(argument.path) else { continue };
            if path.is_empty() {
                continue; // The descriptor itself, or the kernel says what is wrong.
            }
            let dir = argument.dir.map_or(CWD, |index| call.int(index));
            let flags = if argument.follow { 0 } else { NOFOLLOW };
            let mut stable = match self.object(dir, &path, flags) {
                Ok(object) => self.stable_path(&object)?,
                Err(super::acquire::DOOMED) => return Err(super::acquire::DOOMED),
                Err(errno) => {
                    // Who may not make the call at all is told that first.
                    // SAFETY: an empty path, which stays.
                    let without = unsafe { call.with_word(argument.path, c"".as_ptr() as u64) };
                    return match without.answer() {
                        Err(Errno::NOENT) | Ok(_) => Err(errno),
                        Err(before) => Err(before),
                    };
                }
            };
            stable.push(0);
            // SAFETY: the path ends with its zero, and the caller keeps it until the answer.
            call = unsafe { call.with_word(argument.path, stable.as_ptr() as u64) };
            keep.push(stable);
            if let Some(index) = argument.dir {
                call = call.with_descriptor(index, CWD);
            }
        }
        Ok(call)
    }

    /// The path that leads the kernel to an object as it was before the transaction.
    fn stable_path(&mut self, object: &Object) -> Sys<Vec<u8>> {
        match object {
            Object::Node(id) if self.tree.nodes[*id].stable.is_none() => Err(self.no_stable_path()),
            Object::Node(_) => self.tree.kernel_path(object),
            Object::Live(path) => Ok(path.clone()),
            Object::Fd(_) => self.tree.kernel_path(object),
        }
    }

    fn no_stable_path(&mut self) -> Errno {
        let what = "a call of the kernel's on what exists only in the transaction";
        match self.unsupported_errno(what) {
            Ok(_) => Errno::NOTSUP,
            Err(errno) => errno,
        }
    }

    /// The program that `execve(2)` or `execveat(2)` is to run, as the kernel finds it when the
    /// transaction is aborted. `None`: by the arguments as they are.
    ///
    /// # Errors
    /// As path_resolution(7), and EACCES.
    pub fn program(&mut self, call: &Call) -> Sys<Option<Vec<u8>>> {
        self.before_pause();
        if self.doom.is_some() {
            return Err(super::acquire::DOOMED);
        }
        self.start.first = super::single_call::First::Over;
        let (dir, at, flags) = match call.number() {
            libc::SYS_execveat => (call.int(0), 1, call.int(4)),
            _ => (CWD, 0, 0),
        };
        let path = call.path(at)?;
        if path.is_empty() {
            return Ok(None);
        }
        match self.object(dir, &path, flags & NOFOLLOW)? {
            Object::Node(id) => {
                self.may(id, libc::X_OK as u32)?;
                // What was made in the transaction is gone when it is aborted.
                let stable = self.tree.nodes[id].stable.as_ref().ok_or(Errno::NOENT)?;
                // The name that the program gave is seen in its process: it is kept where it leads there.
                let natively = super::kernel::statx(dir, &path, flags & NOFOLLOW);
                let same = natively.is_ok_and(|stat| stat.id == stable.stat.id);
                Ok((!same).then(|| stable.path.clone()))
            }
            Object::Live(found) => Ok(Some(found).filter(|found| *found != path)),
            Object::Fd(_) => Ok(None),
        }
    }
}
