//! Processes that a transaction left behind because both monitor and reaper were killed.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal};
use txos_engine::store::Meta;

use crate::view::{mounts, nesting};

/// How often killing is repeated while processes keep appearing.
const ROUNDS_MAX: usize = 1000;

/// Kills every process that still lives in the view of a transaction whose monitor is gone (the
/// caller holds its lock, or nobody does). Gives how many.
///
/// A process is known by the mounts it sees, not by the number of its namespace: that number may
/// be another's by now.
///
/// # Errors
/// If `/proc` can't be read, or one of them can't be killed.
pub fn end_orphans(meta: &Meta) -> io::Result<usize> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    if boot.trim() != meta.boot || meta.mount_namespace.is_none() {
        return Ok(0);
    }
    let source = nesting::source_name(meta.id);
    let own = rustix::fs::stat("/proc/self/ns/mnt")?.st_ino;
    let mut ended = 0;
    for _ in 0..ROUNDS_MAX {
        let mut found = 0;
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let number = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            // Opened first: what is looked at and what is killed is the same process.
            let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if !lives_in(pid, own, source.as_ref()) {
                continue;
            }
            rustix::process::pidfd_send_signal(&fd, Signal::KILL)?;
            wait_for(&fd);
            found += 1;
        }
        ended += found;
        if found == 0 {
            break;
        }
    }
    Ok(ended)
}

fn lives_in(pid: Pid, own: u64, source: &std::ffi::OsStr) -> bool {
    let dir = format!("/proc/{}", pid.as_raw_nonzero());
    let namespace = rustix::fs::stat(format!("{dir}/ns/mnt")).map(|s| s.st_ino);
    if namespace.is_err() || namespace == Ok(own) {
        return false;
    }
    std::fs::read(format!("{dir}/mountinfo")).is_ok_and(|table| {
        mounts::parse(&table).iter().any(|m| m.kind == "overlay" && m.source == source)
    })
}

fn wait_for(fd: &std::os::fd::OwnedFd) {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    let patience = Timespec::try_from(Duration::from_secs(5)).ok();
    // One that does not end (in an uninterruptible wait) is found again in the next round.
    let _ = poll(&mut fds, patience.as_ref());
}
