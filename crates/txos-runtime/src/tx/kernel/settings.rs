//! Settings of what a descriptor leads to: flags, owners, sizes of pipes, options of sockets, terminals.

use super::{Errno, Sys, sys};

/// A setting that can be asked for, and be set to what was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Status flags.
    Flags,
    /// Who gets its signals.
    Owner,
    /// Which signal that is.
    Signal,
    /// How much a pipe holds.
    PipeSize,
    /// An option of a socket: level and name.
    Option(i32, i32),
    /// What a terminal does with what goes through it.
    Terminal,
}

/// `fcntl(2)`: the signal for what happens to a descriptor.
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;
/// `fcntl(2)`: who gets it.
const F_SETOWN_EX: i32 = 15;
const F_GETOWN_EX: i32 = 16;
/// `struct f_owner_ex`.
const OWNER: usize = 8;
/// More than any option has that is asked for here.
const ROOM: usize = 64;

/// What a setting is.
///
/// # Errors
/// As `fcntl(2)`, `getsockopt(2)` and `ioctl(2)`.
pub fn setting(fd: i32, which: Setting) -> Sys<Vec<u8>> {
    let mut told = [0_u8; ROOM];
    let at = told.as_mut_ptr();
    // SAFETY: there is room for what each of them tells, and of an option its length is told.
    let len = unsafe {
        let number = match which {
            Setting::Flags => Some(libc::F_GETFL),
            Setting::Signal => Some(F_GETSIG),
            Setting::PipeSize => Some(libc::F_GETPIPE_SZ),
            _ => None,
        };
        if let Some(command) = number {
            let value = sys!(SYS_fcntl, fd, command, 0)? as i32;
            return Ok(value.to_ne_bytes().to_vec());
        }
        match which {
            Setting::Option(level, name) => {
                let mut len = ROOM as u32;
                sys!(SYS_getsockopt, fd, level, name, at, &raw mut len)?;
                len as usize
            }
            Setting::Terminal => {
                sys!(SYS_ioctl, fd, libc::TCGETS2, at)?;
                size_of::<libc::termios2>()
            }
            _ => {
                sys!(SYS_fcntl, fd, F_GETOWN_EX, at)?;
                OWNER
            }
        }
    };
    told.get(..len).map(<[u8]>::to_vec).ok_or(Errno::OVERFLOW)
}

/// Sets it to what [`setting`] has told.
///
/// # Errors
/// As `fcntl(2)`, `setsockopt(2)` and `ioctl(2)`.
pub fn set_setting(fd: i32, which: Setting, to: &[u8]) -> Sys<()> {
    let number = || to.try_into().map(i32::from_ne_bytes).map_err(|_| Errno::INVAL);
    // SAFETY: there is as much as the kernel reads: it has written that itself.
    unsafe {
        match which {
            Setting::Flags => sys!(SYS_fcntl, fd, libc::F_SETFL, number()?),
            Setting::Signal => sys!(SYS_fcntl, fd, F_SETSIG, number()?),
            Setting::PipeSize => sys!(SYS_fcntl, fd, libc::F_SETPIPE_SZ, number()?),
            Setting::Owner => sys!(SYS_fcntl, fd, F_SETOWN_EX, to.as_ptr()),
            Setting::Terminal => sys!(SYS_ioctl, fd, libc::TCSETS2, to.as_ptr()),
            Setting::Option(libc::SOL_SOCKET, libc::SO_SNDBUF) => {
                return set_buffer(fd, [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF], number()?);
            }
            Setting::Option(libc::SOL_SOCKET, libc::SO_RCVBUF) => {
                return set_buffer(fd, [libc::SO_RCVBUFFORCE, libc::SO_RCVBUF], number()?);
            }
            Setting::Option(level, name) => {
                const PRIORITY: Setting = Setting::Option(libc::SOL_SOCKET, libc::SO_PRIORITY);
                let sets_both = (level, name) == (libc::IPPROTO_IP, libc::IP_TOS);
                let kept = if sets_both { setting(fd, PRIORITY).ok() } else { None };
                let done = sys!(SYS_setsockopt, fd, level, name, to.as_ptr(), to.len());
                kept.map_or(Ok(()), |kept| set_setting(fd, PRIORITY, &kept)).and(done)
            }
        }
    }
    .map(drop)
}

/// Sets the size of a buffer, of which the kernel tells twice as much as it is asked for: beyond what is usual, if the process
/// may.
fn set_buffer(fd: i32, names: [i32; 2], told: i32) -> Sys<()> {
    let (size, level) = (told / 2, libc::SOL_SOCKET);
    // SAFETY: the kernel reads the one number.
    let set = |name| unsafe { sys!(SYS_setsockopt, fd, level, name, &raw const size, 4) };
    set(names[0]).or_else(|_| set(names[1])).map(drop)
}

/// Whether a descriptor is of the master of a pseudo-terminal.
#[must_use]
pub fn is_master(fd: i32) -> bool {
    let mut number = 0_i32;
    // SAFETY: the kernel writes a number.
    unsafe { sys!(SYS_ioctl, fd, libc::TIOCGPTN, &raw mut number) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_a_setting_was_it_can_be_again() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pipe, socket) = (reader.as_raw_fd(), socket.as_raw_fd());
        for (fd, kind) in [
            (pipe, Setting::Flags),
            (pipe, Setting::Owner),
            (pipe, Setting::Signal),
            (pipe, Setting::PipeSize),
            (socket, Setting::Option(libc::SOL_SOCKET, libc::SO_PASSCRED)),
            (socket, Setting::Option(libc::SOL_SOCKET, libc::SO_RCVTIMEO)),
            (socket, Setting::Option(libc::SOL_SOCKET, libc::SO_SNDBUF)),
        ] {
            let before = setting(fd, kind).unwrap();
            set_setting(fd, kind, &before).unwrap();
            assert_eq!(setting(fd, kind), Ok(before), "{kind:?}");
        }
        assert_eq!(setting(pipe, Setting::Terminal), Err(Errno::NOTTY));
        assert_eq!(setting(pipe, Setting::Option(0, 0)), Err(Errno::NOTSOCK));
    }
}
