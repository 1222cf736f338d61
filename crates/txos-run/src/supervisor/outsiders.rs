//! What belongs to others on the machine: their processes, System V objects, the machine's namespaces.

use rustix::io::Errno;

use super::process::Link;
use super::record::int;
use super::{Supervisor, Verdict};
use crate::session::tree;
use crate::sys::seccomp::Call;
use crate::warning::WarningKind;
use txos_calls::{Sysv, Whose};

/// Commands of `shmctl(2)`, `msgctl(2)` and `semctl(2)` that change something, without the bit that
/// says which layout the structure has.
const CHANGES: [i32; 4] = [libc::IPC_RMID, libc::IPC_SET, libc::SETVAL, libc::SETALL];
const LAYOUT: i32 = 0x100;

/// One line of `/proc/sysvipc`.
struct Object {
    key: i32,
    id: i32,
    /// The process that made it, where that is told.
    maker: Option<i32>,
}

/// The objects of a kind that there are.
fn objects(kind: Sysv) -> Vec<Object> {
    let name = match kind {
        Sysv::Memory => "shm",
        Sysv::Semaphores => "sem",
        Sysv::Queue => "msg",
    };
    let text = std::fs::read_to_string(format!("/proc/sysvipc/{name}")).unwrap_or_default();
    let object = |line: &str| {
        let mut words = line.split_whitespace();
        let key = words.next()?.parse().ok()?;
        let id = words.next()?.parse().ok()?;
        let maker = if kind == Sysv::Memory { words.nth(2)?.parse().ok() } else { None };
        Some(Object { key, id, maker })
    };
    text.lines().skip(1).filter_map(object).collect()
}

fn name(kind: Sysv) -> &'static str {
    match kind {
        Sysv::Memory => "a shared memory segment",
        Sysv::Semaphores => "a set of semaphores",
        Sysv::Queue => "a message queue",
    }
}

impl Supervisor {
    /// Something of a process is changed or taken.
    pub(super) fn of_process(&mut self, call: &Call, whose: Whose, what: &str) -> Verdict {
        let target = match whose {
            Whose::Number(i) => int(call, i),
            Whose::Descriptor(i) => match self.process_of_descriptor(call.pid, int(call, i)) {
                Some(pid) => pid,
                None => return Verdict::Through,
            },
            Whose::Kind(kind, process, who) => match int(call, kind).wrapping_sub(process) {
                0 => int(call, who),
                1 if self.is_ours_all(call, int(call, who)) => return Verdict::Through,
                1 => return self.beyond_process(|| format!("{what} a process group outside")),
                2 => return self.beyond_process(|| format!("{what} all processes of a user")),
                _ => return Verdict::Through,
            },
        };
        if target <= 0 || self.is_ours(call.pid, target) {
            return Verdict::Through;
        }
        let Some(process) = tree::process(target) else { return Verdict::Through };
        self.beyond_process(|| format!("{what} process {target} ({})", process.name))
    }

    fn beyond_process(&mut self, text: impl FnOnce() -> String) -> Verdict {
        self.beyond(WarningKind::Process, || format!("the command {}", text()))
    }

    /// The process that a descriptor of `pidfd_open(2)` leads to.
    pub(super) fn process_of_descriptor(&mut self, caller: u32, number: i32) -> Option<i32> {
        let text = self.processes.text(caller, &format!("fdinfo/{number}"))?;
        let pid = text.lines().find_map(|l| l.strip_prefix("Pid:")?.trim().parse().ok());
        pid.filter(|&pid: &i32| pid > 0)
    }

    /// Whether the caller's System V objects are those that we see.
    fn shares_objects(&mut self, caller: u32) -> bool {
        let ours = rustix::fs::stat("/proc/self/ns/ipc").map(|stat| stat.st_ino).ok();
        self.processes.namespace(caller, "ns/ipc") == ours
    }

    /// One that exists is others' (or was told of); one that is made stays.
    pub(super) fn sysv_get(&mut self, call: &Call, kind: Sysv, flags: usize) -> Verdict {
        if self.warnings.has(WarningKind::SysvIpc) && !self.strict || !self.shares_objects(call.pid)
        {
            return Verdict::Through;
        }
        let key = int(call, 0);
        if int(call, flags) & libc::IPC_CREAT != 0 {
            self.beyond(WarningKind::SysvIpc, || format!("the command makes {}", name(kind)))
        } else if objects(kind).iter().any(|o| o.key == key) {
            let text = || format!("the command uses {} of others", name(kind));
            self.beyond(WarningKind::SysvIpc, text)
        } else {
            Verdict::Through // There is none.
        }
    }

    /// One without a key is nobody else's, unless somebody else has made it.
    pub(super) fn sysv_control(&mut self, call: &Call, kind: Sysv, command: usize) -> Verdict {
        let command = int(call, command) & !LAYOUT;
        let changes =
            CHANGES.contains(&command) && (kind == Sysv::Semaphores || command < libc::IPC_STAT);
        if !changes
            || self.warnings.has(WarningKind::SysvIpc) && !self.strict
            || !self.shares_objects(call.pid)
        {
            return Verdict::Through;
        }
        let id = int(call, 0);
        let Some(object) = objects(kind).into_iter().find(|o| o.id == id) else {
            return Verdict::Through;
        };
        let ours = match object.maker {
            Some(maker) => self.is_ours(call.pid, maker) || tree::process(maker).is_none(),
            None => true,
        };
        if object.key == libc::IPC_PRIVATE && ours {
            return Verdict::Through;
        }
        let text = || format!("the command changes or removes {}", name(kind));
        self.beyond(WarningKind::SysvIpc, text)
    }

    /// `setns(2)`: into the mounts of the machine, where every change is the stable tree's.
    pub(super) fn enter_namespaces(&mut self, call: &Call) -> Verdict {
        self.roots_differ = true;
        let (number, kinds) = (int(call, 0), int(call, 1));
        let leads_out = match self.process_of_descriptor(call.pid, number) {
            Some(pid) => kinds & libc::CLONE_NEWNS != 0 && !self.is_ours(call.pid, pid),
            None => self.is_our_own_mounts(call.pid, number).unwrap_or(false),
        };
        if !leads_out {
            return Verdict::Through;
        }
        self.beyond(WarningKind::Mount, || {
            "the command leaves its view (setns); what it changes from now on takes effect at once"
                .into()
        })
    }

    /// Whether a descriptor is of the namespace that we are in.
    fn is_our_own_mounts(&mut self, caller: u32, number: i32) -> Result<bool, Errno> {
        let ours = rustix::fs::stat("/proc/self/ns/mnt")?;
        let entered = self.processes.stat_through(caller, Link::Fd(number))?;
        Ok(entered.stx_ino == ours.st_ino
            && (entered.stx_dev_major, entered.stx_dev_minor)
                == (rustix::fs::major(ours.st_dev), rustix::fs::minor(ours.st_dev)))
    }
}
