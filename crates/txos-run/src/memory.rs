//! A bound on the memory of a command with all that it starts: a cgroup of its own.
//!
//! It is made below the one that this process is in, so that what bounds this process bounds the command as well. Where that
//! can't be (cgroup v2 has no groups below one with processes), it is made beside that one, if that one has no bound of
//! its own. Its path is noted in the transaction's directory before it is made, so that
//! what a killed process leaves is removed later ([`remove_group`]).

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use txos_engine::TxId;
use txos_engine::show::{quoted, unquoted};
use txos_engine::store::Transaction;

use crate::warning::say;

/// In a transaction's directory: where its cgroup is.
const NOTE: &str = "cgroup";

/// How often the removal of a group is tried, whose last process has just ended: for ten seconds. On a loaded machine it
/// takes more than one for the kernel to let go of the process.
const REMOVALS_MAX: u32 = 2000;

/// The files of a memory cgroup.
struct Names {
    limit: &'static str,
    /// Of memory and swap space; 0 swap space in version 2.
    swap: &'static str,
    /// Has a line `oom_kill N`.
    events: &'static str,
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    swap: "memory.memsw.limit_in_bytes",
    events: "memory.oom_control",
};
const V2: Names = Names { limit: "memory.max", swap: "memory.swap.max", events: "memory.events" };

/// The cgroup of a command.
pub struct Group {
    dir: PathBuf,
    note: PathBuf,
    procs: Option<OwnedFd>,
    names: &'static Names,
}

/// A bound on the memory of a command, if one is asked for: as a cgroup, or else as one on the address space of each
/// process.
pub(crate) fn limit(tx: &Transaction, bytes: Option<u64>) -> (Option<Group>, Option<u64>) {
    let Some(bytes) = bytes else { return (None, None) };
    match Group::make(tx.id(), tx.dir(), bytes) {
        Ok(group) => (Some(group), None),
        Err(why) => {
            let _ = std::fs::remove_file(tx.dir().join(NOTE));
            say(&format!(
                "warning: --memory: no cgroup can be made here ({why}); instead, each process of the command \
                 by itself may have {bytes} bytes of address space"
            ));
            (None, Some(bytes))
        }
    }
}

impl Group {
    fn make(id: TxId, note_in: &Path, bytes: u64) -> std::result::Result<Group, String> {
        let (parent, names) = find_parent()?;
        let dir = parent.join(group_name(id));
        let failed = |what: &str, e: io::Error| format!("{what} {}: {e}", quoted(&dir));
        let note = note_in.join(NOTE);
        txos_engine::store::replace_file(&note, quoted(&dir).as_bytes(), false)
            .map_err(|e| e.to_string())?;
        // One of this name is this transaction's, from a run that was killed.
        let _ = std::fs::remove_dir(&dir);
        std::fs::create_dir(&dir).map_err(|e| failed("making", e))?;
        let mut group = Group { dir: dir.clone(), note, procs: None, names };
        let opened = group.set(bytes).and_then(|()| {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            Ok(rustix::fs::open(dir.join("cgroup.procs"), flags, Mode::empty())?)
        });
        match opened {
            Ok(procs) => {
                group.procs = Some(procs);
                Ok(group)
            }
            Err(e) => {
                let _ = std::fs::remove_dir(&dir);
                Err(failed("setting", e))
            }
        }
    }

    fn set(&self, bytes: u64) -> io::Result<()> {
        std::fs::write(self.dir.join(self.names.limit), bytes.to_string())?;
        // A kernel that does not count swap space has no such file.
        let swap = if self.names.limit == V1.limit { bytes } else { 0 };
        let _ = std::fs::write(self.dir.join(self.names.swap), swap.to_string());
        Ok(())
    }

    /// Where a process writes itself to.
    pub(crate) fn take_procs(&mut self) -> Option<OwnedFd> {
        self.procs.take()
    }

    /// Removes it; all of its processes have ended. Gives how many of them the kernel ended for want of memory.
    pub(crate) fn end(self) -> u64 {
        let events = std::fs::read_to_string(self.dir.join(self.names.events));
        events.map(|text| killed(&text)).unwrap_or_default()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if remove(&self.dir) {
            let _ = std::fs::remove_file(&self.note);
        }
    }
}

/// `oom_kill N` of a file with a line for each count.
fn killed(text: &str) -> u64 {
    let number = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(number).unwrap_or(0)
}

fn group_name(id: TxId) -> String {
    format!("txos-{id}")
}

/// Removes the cgroup that a killed process has left for a transaction, if it has left one. Its processes have ended.
pub fn remove_group(tx_dir: &Path, id: TxId) {
    let note = tx_dir.join(NOTE);
    let Ok(text) = txos_engine::sys::read_text(&note) else { return };
    let dir = unquoted(text.trim()).map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
    let is_named = |dir: &PathBuf| dir.file_name().is_some_and(|name| *name == *group_name(id));
    if dir.filter(is_named).is_none_or(|dir| remove(&dir)) {
        let _ = std::fs::remove_file(note);
    }
}

/// Removes a cgroup without processes. The kernel lets go of the last of them a moment after its end.
fn remove(dir: &Path) -> bool {
    for _ in 0..REMOVALS_MAX {
        match std::fs::remove_dir(dir) {
            Ok(()) => return true,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return true,
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => return false,
        }
    }
    false
}

/// Where the command's group is made, and how its files are named.
fn find_parent() -> std::result::Result<(PathBuf, &'static Names), String> {
    let mounts = txos_engine::mounts::visible().map_err(|e| format!("the mount table: {e}"))?;
    let text = std::fs::read_to_string("/proc/self/cgroup")
        .map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let mut why = "no cgroup file system with the memory controller is mounted".to_owned();
    for mount in mounts.iter().filter(|m| m.kind == "cgroup" || m.kind == "cgroup2") {
        for (controllers, path) in memberships(&text) {
            let v2 = mount.kind == "cgroup2";
            let fits = if v2 { controllers.is_empty() } else { controllers.contains(&"memory") };
            if !fits {
                continue;
            }
            let below = mount.point.join(path.trim_start_matches('/'));
            let Some(own) = [below, mount.point.clone()].into_iter().find(|dir| is_in(dir)) else {
                continue;
            };
            if !v2 {
                if own.join(V1.limit).exists() {
                    return Ok((own, &V1));
                }
                continue;
            }
            match parent_v2(&own, &mount.point) {
                Ok(parent) => return Ok((parent, &V2)),
                Err(reason) => why = reason,
            }
        }
    }
    Err(why)
}

/// Lines of `/proc/self/cgroup`: controllers (none in version 2) and path.
fn memberships(text: &str) -> impl Iterator<Item = (Vec<&str>, &str)> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some((controllers.split(',').filter(|c| !c.is_empty()).collect(), path))
    })
}

/// Whether this process is in a cgroup.
fn is_in(dir: &Path) -> bool {
    let me = std::process::id().to_string();
    std::fs::read_to_string(dir.join("cgroup.procs"))
        .is_ok_and(|text| text.lines().any(|line| line == me))
}

/// The group below which one with a bound of its memory can be made.
fn parent_v2(own: &Path, top: &Path) -> std::result::Result<PathBuf, String> {
    let gives = |dir: &Path| {
        std::fs::read_to_string(dir.join("cgroup.subtree_control"))
            .is_ok_and(|text| text.split_whitespace().any(|word| word == "memory"))
    };
    let enabled = gives(own)
        || std::fs::write(own.join("cgroup.subtree_control"), "+memory").is_ok() && gives(own);
    if enabled {
        return Ok(own.to_owned());
    }
    let unbounded =
        std::fs::read_to_string(own.join(V2.limit)).is_ok_and(|text| text.trim() == "max");
    match own.parent().filter(|parent| parent.starts_with(top) && gives(parent)) {
        Some(parent) if unbounded => Ok(parent.to_owned()),
        Some(_) => Err(format!("{} has processes and a bound of its own", quoted(own))),
        None => Err(format!("{} has no memory controller to give", quoted(own))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn texts_of_the_kernel() {
        let text = "4:memory:/a/b\n2:cpu,cpuacct:/\n0::/user.slice\nrubbish\n";
        let found: Vec<_> = memberships(text).collect();
        assert_eq!(found[0], (vec!["memory"], "/a/b"));
        assert_eq!(found[1], (vec!["cpu", "cpuacct"], "/"));
        assert_eq!(found[2], (vec![], "/user.slice"));
        assert_eq!(found.len(), 3);
        assert_eq!(killed("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), 2);
        assert_eq!(killed("low 0\nhigh 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(killed(""), 0);
    }

    /// Of version 2, files as the kernel shows them: a group is made below one that gives its memory controller
    /// away, or beside one that has processes and no bound.
    #[test]
    fn groups_of_version_2() {
        let top = std::env::temp_dir().join(format!("txos-cgroup-{}", std::process::id()));
        let own = top.join("slice/scope");
        std::fs::create_dir_all(&own).unwrap();
        let set =
            |dir: &Path, name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        // As in a group with processes: writing is refused.
        std::fs::create_dir(own.join("cgroup.subtree_control")).unwrap();
        assert!(parent_v2(&own, &top).unwrap_err().contains("no memory controller"));
        set(&top.join("slice"), "cgroup.subtree_control", "cpu memory pids\n");
        set(&own, V2.limit, "max\n");
        assert_eq!(parent_v2(&own, &top), Ok(top.join("slice")));
        set(&own, V2.limit, "1048576\n");
        assert!(parent_v2(&own, &top).unwrap_err().contains("bound of its own"));
        std::fs::remove_dir(own.join("cgroup.subtree_control")).unwrap();
        set(&own, "cgroup.subtree_control", "memory\n");
        assert_eq!(parent_v2(&own, &top), Ok(own));
        std::fs::remove_dir_all(&top).unwrap();
    }
}
