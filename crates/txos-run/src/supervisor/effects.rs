//! What can't be rolled back: changes where changes are live, devices, the running system.
//!
//! A call that is going to fail anyway should not be told of, where that is cheap to know: the
//! live places are the same objects inside and outside, so the front can look.

use rustix::fs::{Access, AtFlags, CWD, FileType, StatxFlags};
use rustix::io::Errno;

use super::places::Place;
use super::record::{arg, int};
use super::{Supervisor, Verdict};
use crate::session::tree;
use crate::sys::memory;
use crate::sys::seccomp::Call;
use crate::warning::WarningKind;
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

const ATTACH: i32 = libc::PTRACE_ATTACH as i32;
const SEIZE: i32 = 0x4206;

impl Supervisor {
    /// What changing a path of the view means for the world outside.
    pub(super) fn effect(&mut self, pid: u32, path: &[u8], intent: Intent) -> Verdict {
        // Most changes are to what is versioned; nothing that starts otherwise gets past this.
        let (place, path) = self.places.find(path);
        match place {
            Place::Versioned | Place::Excluded => Verdict::Through,
            Place::Live => {
                let top = live_top(&path);
                self.beyond_if(
                    WarningKind::Live,
                    || will_do(&path, intent),
                    || {
                        format!(
                            "what the command changes below {top} takes effect at once ({})",
                            quoted_bytes(&path)
                        )
                    },
                )
            }
            Place::Sys => self.kernel_setting(&path, intent),
            Place::Proc => self.proc_file(pid, &path, intent),
            Place::Device => self.device(&path, intent),
        }
    }

    fn kernel_setting(&mut self, path: &[u8], intent: Intent) -> Verdict {
        self.beyond_if(
            WarningKind::KernelSetting,
            || will_do(path, intent),
            || format!("the command sets {} of the running kernel", quoted_bytes(path)),
        )
    }

    /// `/proc/PID/…` of the transaction's own processes is theirs; the rest is the kernel's.
    fn proc_file(&mut self, pid: u32, path: &[u8], intent: Intent) -> Verdict {
        let mut parts = path.split(|&b| b == b'/').skip(2);
        let first = parts.next().unwrap_or_default();
        if first == b"self" || first == b"thread-self" {
            return Verdict::Through;
        }
        let number = std::str::from_utf8(first).ok().and_then(|t| t.parse::<i32>().ok());
        match number {
            None => self.kernel_setting(path, intent),
            Some(other) if self.is_ours(pid, other) => Verdict::Through,
            Some(other) => self.beyond_if(
                WarningKind::Process,
                || will_do(path, intent),
                || format!("the command changes process {other} through {}", quoted_bytes(path)),
            ),
        }
    }

    fn device(&mut self, path: &[u8], intent: Intent) -> Verdict {
        if !matches!(intent, Intent::Open | Intent::OpenOrMake) {
            return self.beyond_if(
                WarningKind::Live,
                || will_do(path, intent),
                || {
                    format!(
                        "what the command changes below /dev takes effect at once ({})",
                        quoted_bytes(path)
                    )
                },
            );
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
        self.beyond_if(
            WarningKind::Device,
            || may_write(path),
            || format!("the command writes to the device {}", quoted_bytes(path)),
        )
    }

    /// [`Supervisor::beyond`], if the call is really going to do it.
    fn beyond_if(
        &mut self,
        kind: WarningKind,
        really: impl FnOnce() -> bool,
        text: impl FnOnce() -> String,
    ) -> Verdict {
        if !self.strict && self.warnings.has(kind) {
            return Verdict::Through;
        }
        if really() { self.beyond(kind, text) } else { Verdict::Through }
    }

    /// A call that can't be rolled back whatever its arguments.
    pub(super) fn always_beyond(&mut self, kind: WarningKind, what: &str) -> Verdict {
        let open_to_users = matches!(kind, WarningKind::SysvIpc | WarningKind::Keyring);
        if !open_to_users && !rustix::process::geteuid().is_root() {
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
            return self.beyond(WarningKind::Mount, || {
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
            || tree::descends_from(number, self.keeper.as_raw_nonzero().get())
    }
}

fn live_top(path: &[u8]) -> String {
    let end = path.iter().skip(1).position(|&b| b == b'/').map_or(path.len(), |i| i + 1);
    quoted_bytes(path.get(..end).unwrap_or(path))
}

/// Whether a call with this intent is going to change something, as far as is cheap to know.
fn will_do(path: &[u8], intent: Intent) -> bool {
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
        assert!(!will_do(b"/dev/null/x", Intent::Make));
        assert!(!will_do(b"/run/no/such/dir/file", Intent::OpenOrMake));
        assert!(!will_do(b"/run/no-such-file", Intent::Alter));
        assert!(will_do(b"/dev/null", Intent::Open));
        assert_eq!(live_top(b"/run/lock/x"), "/run");
        assert_eq!(live_top(b"/run"), "/run");
    }
}
