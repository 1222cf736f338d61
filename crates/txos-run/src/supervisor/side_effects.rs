//! What can't be rolled back: changes where changes are live, devices, the running system.
//!
//! A call that is going to fail anyway should cause no warning, where that is cheap to know: the
//! live paths are the same objects inside and outside, so the monitor can look.

use std::os::fd::AsFd;

use rustix::fs::{Access, AtFlags, CWD, FileType, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use super::path_class::PathClass;
use super::record::{arg, int};
use super::{Supervisor, Verdict};
use crate::session::tree;
use crate::sys::memory;
use crate::sys::seccomp::Call;
use crate::warning::WarningKind;
use txos_calls::Ids;
use txos_engine::show::quoted_bytes;

/// How a path is going to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Opened for writing; made if it is not there.
    OpenOrMake,
    /// Opened for writing, if it is there.
    Open,
    /// Made; fails if it is there.
    Make,
    /// Removed, moved or altered, if it is there.
    Alter,
}

/// Devices that hold nothing and move nothing: (major, minor), any minor if `None`.
const HARMLESS_DEVICES: [(u32, Option<u32>); 12] = [
    (1, Some(3)),    // null
    (1, Some(5)),    // zero
    (1, Some(7)),    // full
    (1, Some(8)),    // random: mixing in is harmless
    (1, Some(9)),    // urandom
    (4, None),       // tty0…, ttyS0…
    (5, None),       // tty, console, ptmx
    (10, Some(229)), // fuse: the mount is what counts
    (136, None),     // pts
    (204, None),     // serial consoles
    (226, None),     // graphics
    (229, None),     // hypervisor consoles
];

/// How many symbolic links at the end of a path are followed, as in the kernel.
const LINKS_MAX: u32 = 40;

/// How many directories are remembered.
const DIRS_MAX: usize = 1024;

const ATTACH: i32 = libc::PTRACE_ATTACH as i32;
const SEIZE: i32 = 0x4206;

impl Supervisor {
    /// What changing a path of the view means for the world outside. With `follow`, a symbolic link at
    /// its end is followed.
    pub(super) fn effect(
        &mut self,
        call: &Call,
        path: &[u8],
        intent: Intent,
        follow: bool,
    ) -> Verdict {
        let (class, path) = self.class_of(call, path, follow);
        match class {
            PathClass::Versioned => Verdict::Through,
            PathClass::Live => {
                let why = self.path_classes.why_open(&path).map(|why| format!(", because {why}"));
                self.live(call, WarningKind::Live, &path, intent, &why.unwrap_or_default())
            }
            PathClass::OutOfScope => {
                let why = ", because it is not in the scope";
                self.live(call, WarningKind::OutOfScope, &path, intent, why)
            }
            PathClass::Excluded => {
                let why = ", because it is excluded";
                self.live(call, WarningKind::Excluded, &path, intent, why)
            }
            PathClass::Sys => self.kernel_setting(call, &path, intent),
            PathClass::Proc => self.proc_file(call, &path, intent),
            PathClass::Device => self.device(call, &path, intent),
        }
    }

    /// Where a path leads in the view, and what is there. By the letter, where it leads to nothing, and
    /// for a caller on whose behalf nothing is looked at.
    fn class_of(&mut self, call: &Call, path: &[u8], follow: bool) -> (PathClass, Vec<u8>) {
        let by_letter = self.path_classes.find(path);
        // The running system's trees look different to each process, and have no links out but /proc's.
        let behind;
        let path = match by_letter.0 {
            PathClass::Proc => match self.behind_proc(call, path) {
                Some(real) => {
                    behind = real;
                    &behind[..]
                }
                None => return by_letter,
            },
            PathClass::Sys | PathClass::Device => return by_letter,
            _ => path,
        };
        if follow && let Some(real) = self.real_path(call, path, OFlags::empty()) {
            return self.path_classes.find(&real);
        }
        let real = if follow { self.end_of_links(call, path) } else { self.real_entry(call, path) };
        real.map_or(by_letter, |real| self.path_classes.find(&real))
    }

    /// Where the name is to which a path leads that leads to nothing, over every symbolic link at its end:
    /// what is opened there is made there. `None`: it can't be looked at, or there are more links than the
    /// kernel follows.
    pub(super) fn end_of_links(&mut self, call: &Call, path: &[u8]) -> Option<Vec<u8>> {
        let mut at = self.real_entry(call, path)?;
        for _ in 0..LINKS_MAX {
            if self.is_of_the_running_system(&at) {
                return Some(at); // A link there means something else to each process.
            }
            let caller = self.opener(call)?;
            let found = match caller.find(&at, OFlags::NOFOLLOW, ResolveFlags::empty()) {
                Ok(found) => found,
                Err(_) => return Some(at),
            };
            let target = match rustix::fs::readlinkat(found, c"", Vec::with_capacity(256)) {
                Ok(target) => target.into_bytes(),
                Err(_) => return Some(at), // It is no link: somebody has just made it.
            };
            let next = if target.starts_with(b"/") {
                caller.in_the_view(&target)
            } else {
                let (dir, _) = txos_engine::readset::split(&at)?;
                txos_engine::readset::join(dir, &target)
            };
            at = self.real_entry(call, &next)?;
        }
        None
    }

    /// The path for what is below a directory to which `/proc/PID/cwd`, `root` or `fd/N` leads.
    fn behind_proc(&self, call: &Call, path: &[u8]) -> Option<Vec<u8>> {
        let (dir, name) = txos_engine::readset::split(path)?;
        Some(txos_engine::readset::join(&self.through_proc(call.pid, dir)?, name))
    }

    /// The path of a name, with its directory as it is for the caller.
    fn real_entry(&mut self, call: &Call, path: &[u8]) -> Option<Vec<u8>> {
        let normal = self.path_classes.find(path).1;
        let (dir, name) = txos_engine::readset::split(&normal)?;
        // ".." behind a link is not what it is by the letter.
        let dir = if path.windows(3).any(|w| w == b"/..") {
            txos_engine::readset::split(path).map_or(dir, |(dir, _)| dir)
        } else {
            dir
        };
        let real = self.real_directory(call, dir)?;
        Some(txos_engine::readset::join(&real, name))
    }

    fn is_of_the_running_system(&self, path: &[u8]) -> bool {
        matches!(
            self.path_classes.find(path).0,
            PathClass::Proc | PathClass::Sys | PathClass::Device
        )
    }

    fn real_path(&mut self, call: &Call, path: &[u8], flags: OFlags) -> Option<Vec<u8>> {
        let found = self.opener(call)?.find(path, flags, ResolveFlags::empty()).ok()?;
        super::process::path_of(found.as_fd())
    }

    /// Where a directory of the view is. The last answers are remembered while nothing has moved.
    fn real_directory(&mut self, call: &Call, dir: &[u8]) -> Option<Vec<u8>> {
        let revision = self.renames.revision();
        if self.roots_differ || self.real_dirs.0 != revision || self.real_dirs.1.len() > DIRS_MAX {
            self.real_dirs = (revision, std::collections::HashMap::new());
        }
        if let Some(real) = self.real_dirs.1.get(dir) {
            return Some(real.clone());
        }
        let real = self.real_path(call, dir, OFlags::DIRECTORY)?;
        self.real_dirs.1.insert(dir.to_vec(), real.clone());
        Some(real)
    }

    /// A change where changes are live.
    fn live(
        &mut self,
        call: &Call,
        kind: WarningKind,
        path: &[u8],
        intent: Intent,
        why: &str,
    ) -> Verdict {
        if !self.asks(call, will_do(path, intent)) {
            return Verdict::Through;
        }
        let top = live_top(path);
        let shown = quoted_bytes(path);
        let text =
            format!("what the command changes below {top} takes effect at once{why} ({shown})");
        if self.strict {
            return Verdict::Stop(text);
        }
        self.warnings.warn_of(kind, &top, Some(path), text);
        Verdict::Through
    }

    fn kernel_setting(&mut self, call: &Call, path: &[u8], intent: Intent) -> Verdict {
        self.beyond_if(call, WarningKind::KernelSetting, will_do(path, intent), || {
            format!("the command sets {} of the running kernel", quoted_bytes(path))
        })
    }

    /// `/proc/PID/…` of the transaction's own processes is theirs; the rest is the kernel's.
    fn proc_file(&mut self, call: &Call, path: &[u8], intent: Intent) -> Verdict {
        let mut parts = path.split(|&b| b == b'/').skip(2);
        let first = parts.next().unwrap_or_default();
        if first == b"self" || first == b"thread-self" {
            return Verdict::Through;
        }
        let number = std::str::from_utf8(first).ok().and_then(|t| t.parse::<i32>().ok());
        match number {
            None => self.kernel_setting(call, path, intent),
            Some(other) if self.is_ours(call.pid, other) => Verdict::Through,
            Some(other) => {
                self.beyond_if(call, WarningKind::Process, will_do(path, intent), || {
                    format!("the command changes process {other} through {}", quoted_bytes(path))
                })
            }
        }
    }

    fn device(&mut self, call: &Call, path: &[u8], intent: Intent) -> Verdict {
        if !matches!(intent, Intent::Open | Intent::OpenOrMake) {
            return self.live(call, WarningKind::Live, path, intent, "");
        }
        if self.warnings.has(WarningKind::Device) && !self.strict {
            return Verdict::Through;
        }
        let Ok(stat) = rustix::fs::stat(path) else { return Verdict::Through };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::CharacterDevice | FileType::BlockDevice) {
            return Verdict::Through;
        }
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        let harmless = kind == FileType::CharacterDevice
            && HARMLESS_DEVICES.iter().any(|&(a, b)| a == major && b.is_none_or(|b| b == minor));
        if harmless {
            return Verdict::Through;
        }
        let owned = path.to_vec();
        self.beyond_if(
            call,
            WarningKind::Device,
            move || may_write(&owned),
            || format!("the command writes to the device {}", quoted_bytes(path)),
        )
    }

    /// [`Supervisor::beyond`], if the call is really going to do it.
    fn beyond_if(
        &mut self,
        call: &Call,
        kind: WarningKind,
        really: impl FnOnce() -> bool + Send + 'static,
        text: impl FnOnce() -> String,
    ) -> Verdict {
        if !self.strict && self.warnings.has(kind) {
            return Verdict::Through;
        }
        if self.asks(call, really) { self.beyond(kind, text) } else { Verdict::Through }
    }

    /// A call that can't be rolled back whatever its arguments.
    pub(super) fn always_beyond(&mut self, kind: WarningKind, what: &str) -> Verdict {
        let open_to_users = matches!(kind, WarningKind::SysvIpc | WarningKind::Keyring);
        if !open_to_users && !txos_engine::rights::is_privileged() {
            return Verdict::Through; // The kernel refuses it.
        }
        self.beyond(kind, || format!("the command {what}"))
    }

    /// Mounts made in a namespace of the command's own are nobody else's business.
    pub(super) fn mount(&mut self, call: &Call) -> Verdict {
        let flags = arg(call, 3);
        if i64::from(call.data.nr) == libc::SYS_mount
            && flags & libc::MS_REMOUNT != 0
            && flags & libc::MS_BIND == 0
        {
            return self.beyond(WarningKind::Remount, || {
                "the command remounts a file system; where that is not the view's own, it is so \
                 everywhere, and stays"
                    .into()
            });
        }
        let propagation = libc::MS_PRIVATE | libc::MS_SLAVE | libc::MS_SHARED | libc::MS_UNBINDABLE;
        if i64::from(call.data.nr) == libc::SYS_mount && flags & propagation != 0 {
            return Verdict::Through;
        }
        let own = self.processes.namespace(call.pid, "ns/mnt");
        if own.is_some_and(|ino| ino != self.mount_namespace) {
            return Verdict::Through;
        }
        self.beyond(WarningKind::Mount, || {
            "what the command mounts or unmounts is so only in its view, and ends with it".into()
        })
    }

    /// `adjtimex(2)` with no mode only reads.
    pub(super) fn adjust_clock(&mut self, call: &Call, at: usize) -> Verdict {
        match memory::read_exact::<4>(call.pid, arg(call, at)) {
            Ok(modes) if modes != [0; 4] => {
                self.always_beyond(WarningKind::Clock, "adjusts the clock")
            }
            _ => Verdict::Through,
        }
    }

    /// Credentials are taken or given up: from now on not everybody has ours.
    pub(super) fn new_ids(&mut self, call: &Call, ids: Ids) -> Verdict {
        let own = self.view.own();
        let ([_, user, ..], [_, group, ..]) = (own.users, own.groups);
        let same = |count: usize, own: u32| {
            (0..count).all(|i| [own, u32::MAX].contains(&int(call, i).cast_unsigned()))
        };
        let same = match ids {
            Ids::Users(count) => same(count, user),
            Ids::Groups(count) => same(count, group),
            Ids::Others => false,
        };
        if !same && self.view.own().can_switch() {
            self.somebody_differs();
            if let Some(recorder) = &mut self.recorder {
                recorder.renew(&mut self.reads);
            }
        }
        Verdict::Through
    }

    pub(super) fn trace(&mut self, call: &Call) -> Verdict {
        if !matches!(int(call, 0), ATTACH | SEIZE) {
            return Verdict::Through;
        }
        self.touch_outsider(call, int(call, 1), "traces")
    }

    pub(super) fn write_memory(&mut self, call: &Call) -> Verdict {
        self.touch_outsider(call, int(call, 0), "writes into the memory of")
    }

    fn touch_outsider(&mut self, call: &Call, target: i32, what: &str) -> Verdict {
        if self.is_ours(call.pid, target) {
            return Verdict::Through;
        }
        let Some(process) = tree::process(target) else { return Verdict::Through };
        self.beyond(WarningKind::Trace, || {
            format!("the command {what} process {target} ({})", process.name)
        })
    }

    /// Whether the process that `caller` means by this number belongs to the transaction.
    pub(super) fn is_ours(&mut self, caller: u32, number: i32) -> bool {
        // In a pid namespace of its own it can only see what was started there.
        let namespace = self.processes.namespace(caller, "ns/pid");
        namespace.is_some_and(|ino| ino != self.pid_namespace)
            || tree::descends_from(number, self.reaper.as_raw_nonzero().get())
    }
}

fn live_top(path: &[u8]) -> String {
    let end = path.iter().skip(1).position(|&b| b == b'/').map_or(path.len(), |i| i + 1);
    quoted_bytes(path.get(..end).unwrap_or(path))
}

/// Whether a call with this intent is going to change something, as far as is cheap to know.
fn will_do(path: &[u8], intent: Intent) -> impl FnOnce() -> bool + Send + 'static {
    let path = path.to_vec();
    move || is_done(&path, intent)
}

fn is_done(path: &[u8], intent: Intent) -> bool {
    let found = rustix::fs::statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
    let here = found.is_ok();
    if found.is_err_and(|e| e != Errno::NOENT) {
        return false;
    }
    let parent = txos_engine::readset::split(path).map_or(&b"/"[..], |(dir, _)| dir);
    match intent {
        Intent::Make => !here && may_write(parent),
        Intent::Alter => here && may_write(parent),
        Intent::Open => here && may_write(path),
        Intent::OpenOrMake if here => may_write(path),
        Intent::OpenOrMake => may_write(parent),
    }
}

fn may_write(path: &[u8]) -> bool {
    let r = rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS);
    !matches!(r, Err(Errno::NOENT | Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::NOTDIR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_going_to_fail() {
        assert!(!is_done(b"/dev/null/x", Intent::Make));
        assert!(!is_done(b"/run/no/such/dir/file", Intent::OpenOrMake));
        assert!(!is_done(b"/run/no-such-file", Intent::Alter));
        assert!(is_done(b"/dev/null", Intent::Open));
        assert_eq!(live_top(b"/run/lock/x"), "/run");
        assert_eq!(live_top(b"/run"), "/run");
    }
}
