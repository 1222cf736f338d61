//! What the transaction sets in the kernel at once, and an abort sets as it was: settings of pipes, sockets, devices and
//! terminals, and timers ([`super::timers`]). What it has read from counters is given back.
//!
//! What was there is asked for before the first call that sets it, and what is there then after each. An abort puts back, the last
//! first, what still is as the transaction has set it: what another thread or process has changed since stays.
//! So does what belongs to the books that a language's runtime keeps (TX_MANAGED), what a transaction of several threads or processes
//! sets, and what a command sets.
//!
//! | of a descriptor from before | set by | put back |
//! |---|---|---|
//! | status flags | `F_SETFL`, `FIONBIO`, `FIOASYNC` | each that still is as it was set |
//! | owner and signal | `F_SETOWN`, `F_SETOWN_EX`, `F_SETSIG`, `FIOSETOWN`, `SIOCSPGRP` | yes |
//! | size of a pipe | `F_SETPIPE_SZ` | if what is in it fits |
//! | options of a socket | `setsockopt` | those in [`OPTIONS`] |
//! | settings of a terminal, also of one that the transaction has opened | `tcsetattr` | yes, but for the master of a pseudo-terminal |
//! | a counter (`eventfd`), the expirations of a timer (`timerfd`) | `read` | what was read, unless the transaction has written there |
//!
//! Signals that were read from a `signalfd` are given back with those that were taken otherwise ([`Tx::take_signals`]).

use txos_engine::object::{FileId, FileKind};

use super::files::{Descriptor, File};
use super::kernel::{self, Errno, Info, OwnedFd, Setting, Sys};
use super::timers::Timers;
use super::{Tx, flags, say};
use crate::call::Call;

/// The sizes of a socket's buffers that were asked for, and are not to be changed by the kernel (Linux 5.14).
const SO_BUF_LOCK: i32 = 72;

/// Options that `getsockopt` tells as `setsockopt` takes them, and that have no other effect. What else there is stays as it was set.
const OPTIONS: [(i32, &[i32]); 5] = [
    (
        libc::SOL_SOCKET,
        &[
            libc::SO_BROADCAST,
            libc::SO_BUSY_POLL,
            libc::SO_DEBUG,
            libc::SO_DONTROUTE,
            libc::SO_KEEPALIVE,
            libc::SO_LINGER,
            libc::SO_MARK,
            libc::SO_OOBINLINE,
            libc::SO_PASSCRED,
            libc::SO_PASSSEC,
            libc::SO_PRIORITY,
            libc::SO_RCVBUF,
            libc::SO_RCVLOWAT,
            libc::SO_RCVTIMEO,
            libc::SO_REUSEADDR,
            libc::SO_REUSEPORT,
            libc::SO_RXQ_OVFL,
            libc::SO_SNDBUF,
            libc::SO_SNDTIMEO,
            SO_BUF_LOCK,
        ],
    ),
    (
        libc::IPPROTO_TCP,
        &[
            libc::TCP_CONGESTION,
            libc::TCP_CORK,
            libc::TCP_DEFER_ACCEPT,
            libc::TCP_KEEPCNT,
            libc::TCP_KEEPIDLE,
            libc::TCP_KEEPINTVL,
            libc::TCP_LINGER2,
            libc::TCP_NODELAY,
            libc::TCP_NOTSENT_LOWAT,
            libc::TCP_SYNCNT,
            libc::TCP_USER_TIMEOUT,
        ],
    ),
    (
        libc::IPPROTO_IP,
        &[
            libc::IP_BIND_ADDRESS_NO_PORT,
            libc::IP_FREEBIND,
            libc::IP_MTU_DISCOVER,
            libc::IP_MULTICAST_ALL,
            libc::IP_MULTICAST_LOOP,
            libc::IP_MULTICAST_TTL,
            libc::IP_PKTINFO,
            libc::IP_RECVERR,
            libc::IP_RECVTOS,
            libc::IP_RECVTTL,
            libc::IP_TOS,
            libc::IP_TRANSPARENT,
            libc::IP_TTL,
        ],
    ),
    (
        libc::IPPROTO_IPV6,
        &[
            libc::IPV6_DONTFRAG,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_MULTICAST_HOPS,
            libc::IPV6_MULTICAST_LOOP,
            libc::IPV6_RECVERR,
            libc::IPV6_RECVHOPLIMIT,
            libc::IPV6_RECVPKTINFO,
            libc::IPV6_RECVTCLASS,
            libc::IPV6_TCLASS,
            libc::IPV6_UNICAST_HOPS,
            libc::IPV6_V6ONLY,
        ],
    ),
    (libc::IPPROTO_UDP, &[libc::UDP_GRO, libc::UDP_SEGMENT]),
];

/// What setting an option changes, the last first to be put back; nothing: what can't be put back.
pub fn settings_of_option(level: i32, name: i32) -> Vec<Setting> {
    let of_socket = |name| Setting::Option(libc::SOL_SOCKET, name);
    let name = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE) => libc::SO_SNDBUF,
        (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE) => libc::SO_RCVBUF,
        _ => name,
    };
    let known = OPTIONS.iter().any(|(of, names)| *of == level && names.contains(&name));
    match (level, name) {
        _ if !known => Vec::new(),
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_RCVBUF) => {
            vec![of_socket(SO_BUF_LOCK), of_socket(name)]
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            vec![of_socket(libc::SO_PRIORITY), Setting::Option(level, name)]
        }
        _ => vec![Setting::Option(level, name)],
    }
}

/// What an `ioctl(2)` to what is no versioned file sets.
pub fn setting_of_request(request: u64) -> Option<Setting> {
    const FIOSETOWN: u64 = 0x8901;
    const SIOCSPGRP: u64 = 0x8902;
    match request {
        libc::FIONBIO | libc::FIOASYNC => Some(Setting::Flags),
        FIOSETOWN | SIOCSPGRP => Some(Setting::Owner),
        libc::TCSETS
        | libc::TCSETSW
        | libc::TCSETSF
        | libc::TCSETA
        | libc::TCSETAW
        | libc::TCSETAF
        | libc::TCSETS2
        | libc::TCSETSW2
        | libc::TCSETSF2 => Some(Setting::Terminal),
        _ => None,
    }
}

/// What a command of `fcntl(2)` sets, besides flags.
pub fn setting_of_command(command: i32) -> Option<Setting> {
    const F_SETSIG: i32 = 10;
    const F_SETOWN_EX: i32 = 15;
    match command {
        libc::F_SETOWN | F_SETOWN_EX => Some(Setting::Owner),
        F_SETSIG => Some(Setting::Signal),
        libc::F_SETPIPE_SZ => Some(Setting::PipeSize),
        _ => None,
    }
}

/// How an open file is reached at the end.
#[derive(Debug)]
enum Place {
    /// A pipe or a socket, by its number from before: who is at its other end is to feel when it is closed.
    Number(i32, FileId),
    /// Anything else, by a duplicate.
    Copy(OwnedFd),
}

impl Place {
    /// `real` is open on it; `older` is its number from before, if it has one.
    fn of(real: i32, older: Option<i32>) -> Sys<Place> {
        let stat = kernel::look_fd(real)?;
        match (stat.kind(), older) {
            (FileKind::Fifo | FileKind::Socket, Some(older)) => Ok(Place::Number(older, stat.id)),
            // Who has its terminal is to feel when it is closed.
            _ if kernel::is_master(real) => Err(Errno::NOTTY),
            _ => kernel::copy_high(real).map(|fd| Place::Copy(OwnedFd::of(fd))),
        }
    }

    /// The kernel's number, if it still is of this.
    fn number(&self) -> Option<i32> {
        match self {
            Place::Number(number, id) => {
                kernel::look_fd(*number).is_ok_and(|stat| stat.id == *id).then_some(*number)
            }
            Place::Copy(fd) => Some(fd.number()),
        }
    }
}

/// Something that was set.
#[derive(Debug)]
struct Old {
    file: File,
    place: Place,
    setting: Setting,
    before: Vec<u8>,
    set: Vec<u8>,
}

impl Old {
    fn put_back(&self) -> Sys<()> {
        let Some(fd) = self.place.number() else { return Ok(()) };
        let now = kernel::setting(fd, self.setting)?;
        match as_before(self.setting, &self.before, &self.set, &now) {
            Some(to) => kernel::set_setting(fd, self.setting, &to),
            None => Ok(()),
        }
    }

    fn name(&self) -> &'static str {
        match self.setting {
            Setting::Flags => "the status flags of a descriptor",
            Setting::Owner | Setting::Signal => "the owner of a descriptor, or its signal",
            Setting::PipeSize => "the size of a pipe",
            Setting::Option(..) => "an option of a socket",
            Setting::Terminal => "the settings of a terminal",
        }
    }
}

/// To what something is set that was `before`, and that the transaction has `set`, if it is that `now`.
fn as_before(setting: Setting, before: &[u8], set: &[u8], now: &[u8]) -> Option<Vec<u8>> {
    if setting != Setting::Flags {
        return (now == set && before != set).then(|| before.to_vec());
    }
    // Each flag is a setting of its own.
    let ours = |((before, set), now): ((&u8, &u8), &u8)| now ^ (before ^ set) & !(now ^ set);
    let to: Vec<u8> = before.iter().zip(set).zip(now).map(ours).collect();
    (to != now).then_some(to)
}

/// What a counter of `eventfd(2)` or `timerfd_create(2)` is read and written by, bytes.
pub const COUNT: u64 = 8;
/// What a descriptor of `signalfd(2)` tells of each signal, bytes.
const SIGNAL: u64 = size_of::<Info>() as u64;

/// What an open file counts that is read from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counter {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// Nothing, or what the transaction has written there may be answered by.
    None,
    /// What others have written (`eventfd`).
    Events,
    /// How often it has expired (`timerfd`).
    Expirations,
    /// Signals (`signalfd`).
    Signals,
}

/// What was read from a counter.
#[derive(Debug)]
struct Taken {
    file: File,
    fd: OwnedFd,
    of_timer: bool,
    count: u64,
}

impl Taken {
    fn give_back(&self) -> Sys<()> {
        let fd = self.fd.number();
        match self.of_timer {
            _ if self.count == 0 => Ok(()),
            true => {
                let count = kernel::expirations(fd)?.saturating_add(self.count);
                kernel::set_expirations(fd, count)
            }
            false => kernel::add_to_counter(fd, self.count),
        }
    }
}

/// All that an abort puts back.
#[derive(Debug, Default)]
pub struct PutBack {
    old: Vec<Old>,
    taken: Vec<Taken>,
    signals: Vec<Info>,
    /// Timers.
    pub timers: Timers,
}

impl PutBack {
    /// Before something is set.
    fn before(&mut self, file: File, real: i32, older: Option<i32>, setting: Setting) {
        if self.old.iter().any(|old| old.file == file && old.setting == setting) {
            return;
        }
        let Ok(before) = kernel::setting(real, setting) else { return };
        let Ok(place) = Place::of(real, older) else { return };
        self.old.push(Old { file, place, setting, set: before.clone(), before });
    }

    /// It is set.
    fn after(&mut self, file: File, real: i32, setting: Setting) {
        let old = self.old.iter_mut().find(|old| old.file == file && old.setting == setting);
        if let (Some(old), Ok(now)) = (old, kernel::setting(real, setting)) {
            old.set = now;
        }
    }

    fn took(&mut self, file: File, real: i32, of_timer: bool, count: u64) {
        if let Some(taken) = self.taken.iter_mut().find(|taken| taken.file == file) {
            taken.count = taken.count.saturating_add(count);
        } else if let Ok(fd) = kernel::copy_high(real) {
            self.taken.push(Taken { file, fd: OwnedFd::of(fd), of_timer, count });
        }
    }

    /// Signals that were read since this was last asked for.
    pub fn take_signals(&mut self) -> Vec<Info> {
        std::mem::take(&mut self.signals)
    }

    /// What was read from a counter.
    #[must_use]
    pub fn has_taken(&self, file: File) -> u64 {
        self.taken.iter().find(|taken| taken.file == file).map_or(0, |taken| taken.count)
    }

    /// What was read from a counter is not given back by itself any more.
    pub fn forget_taken(&mut self, file: File) {
        self.taken.retain(|taken| taken.file != file);
    }

    /// The transaction is aborted.
    pub fn put_back(&mut self) {
        for old in std::mem::take(&mut self.old).into_iter().rev() {
            tell(old.put_back(), old.name());
        }
        self.timers.put_back();
        for taken in self.taken.drain(..) {
            let what = if taken.of_timer { "how often a timer has expired" } else { "a counter" };
            tell(taken.give_back(), what);
        }
    }

    /// The transaction is committed: what was set stays.
    pub fn committed(&mut self) {
        self.timers.committed();
        (self.old, self.taken) = (Vec::new(), Vec::new());
    }
}

/// Tells of what could not be put back.
pub fn tell(done: Sys<()>, what: &str) {
    if let Err(errno) = done {
        let why = std::io::Error::from(errno);
        say(&format!("the abort could not put back {what}: {why}"));
    }
}

impl Tx {
    /// Whether an abort puts back what the transaction sets at once.
    #[must_use]
    pub fn puts_back(&self) -> bool {
        !self.is_of_several() && self.how.flags & flags::MANAGED == 0
    }

    /// Sets something of what a descriptor leads to, which is no versioned file.
    ///
    /// # Errors
    /// As the call that sets it.
    pub fn set_at_once(
        &mut self,
        number: i32,
        settings: &[Setting],
        set: impl FnOnce(&mut Tx) -> Sys<u64>,
    ) -> Sys<u64> {
        let (file, real) = (self.file(number)?, self.real(number)?);
        let older = self.fds.get(file).older;
        // Of what it has made and opened, only terminals are others' as well.
        let is_others = older.is_some() || settings == [Setting::Terminal];
        if !is_others || settings.is_empty() || !self.puts_back() {
            return set(self);
        }
        self.fds.get_mut(file).stays = true;
        settings.iter().for_each(|&one| self.held.put_back_mut().before(file, real, older, one));
        let answer = set(self)?;
        settings.iter().for_each(|&one| self.held.put_back_mut().after(file, real, one));
        Ok(answer)
    }

    /// The program has read so many bytes from what is no versioned file: from a counter perhaps.
    #[inline]
    pub fn has_read(&mut self, call: &Call, file: File, real: i32, bytes: u64) {
        let is_counted = bytes == COUNT || bytes > 0 && bytes.is_multiple_of(SIGNAL);
        if is_counted && call.number() == libc::SYS_read {
            self.has_read_counter(call, file, real, bytes);
        }
    }

    fn has_read_counter(&mut self, call: &Call, file: File, real: i32, bytes: u64) {
        if self.fds.get(file).counter == Counter::Unknown {
            self.fds.get_mut(file).counter = match self.puts_back() {
                true => counter_of(real),
                false => Counter::None,
            };
        }
        // What it has made itself is closed.
        let is_older = self.fds.get(file).older.is_some();
        let of_timer = match self.fds.get(file).counter {
            Counter::Events if is_older => false,
            Counter::Expirations if is_older => true,
            Counter::Signals => {
                let told = |at| call.pointer::<Info>(1).item(at).read().ok();
                let all = (0..bytes / SIGNAL).filter_map(told);
                let all = all.map(|told| kernel::told_by_descriptor(&told));
                return self.held.put_back_mut().signals.extend(all);
            }
            _ => return,
        };
        // What it has set itself expires for itself.
        if of_timer && self.held.put_back_mut().timers.has_set(file) {
            return;
        }
        if let Ok(count) = call.pointer::<u64>(1).read() {
            self.held.put_back_mut().took(file, real, of_timer, count);
        }
    }

    /// Signals that were read since this was last asked for.
    pub fn take_signals(&mut self) -> Vec<Info> {
        self.held.take_signals()
    }

    /// The program has written at once to what is no versioned file: what it reads there may be the answer, and what it has
    /// read may be what it has written in its place.
    pub fn has_written_counter(&mut self, number: i32) {
        if let Descriptor::Open { file, .. } = self.fds.descriptor(number) {
            self.has_written_open_counter(file);
        }
    }

    /// The same of an open file.
    pub fn has_written_open_counter(&mut self, file: File) {
        let counter = &mut self.fds.get_mut(file).counter;
        if std::mem::replace(counter, Counter::None) == Counter::Events {
            self.held.put_back_mut().forget_taken(file);
        }
    }
}

/// What a descriptor counts.
fn counter_of(number: i32) -> Counter {
    let has_no_type = kernel::look_fd(number).is_ok_and(|stat| stat.mode & libc::S_IFMT == 0);
    match kernel::path_of_fd(number).as_deref() {
        Ok(b"anon_inode:[eventfd]") if has_no_type => Counter::Events,
        Ok(b"anon_inode:[timerfd]") if has_no_type => Counter::Expirations,
        Ok(b"anon_inode:[signalfd]") if has_no_type => Counter::Signals,
        _ => Counter::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_goes_back_if_it_is_as_it_was_set() {
        let flags = |before: u8, set: u8, now: u8| {
            as_before(Setting::Flags, &[before], &[set], &[now]).map(|to| to[0])
        };
        assert_eq!(flags(0b00, 0b01, 0b01), Some(0b00));
        assert_eq!(flags(0b01, 0b00, 0b10), Some(0b11), "another one was set since, and stays");
        assert_eq!(flags(0b00, 0b01, 0b00), None, "it was taken back since");
        assert_eq!(flags(0b01, 0b01, 0b00), None, "the transaction has not changed it");
    }

    #[test]
    fn a_setting_goes_back_if_it_is_as_it_was_set() {
        let size =
            |before: &[u8], set: &[u8], now: &[u8]| as_before(Setting::PipeSize, before, set, now);
        assert_eq!(size(b"1", b"2", b"2"), Some(b"1".to_vec()));
        assert_eq!(size(b"1", b"2", b"3"), None);
        assert_eq!(size(b"1", b"1", b"1"), None);
    }

    #[test]
    fn options_that_change_others_are_known() {
        let of_socket = |name| Setting::Option(libc::SOL_SOCKET, name);
        let buffer = settings_of_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE);
        assert_eq!(buffer, [of_socket(SO_BUF_LOCK), of_socket(libc::SO_SNDBUF)]);
        let filter = settings_of_option(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        assert!(filter.is_empty());
        assert!(settings_of_option(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP).is_empty());
    }
}
