//! The rows. One line or two each, by number within their group.

use super::{
    Aspects, At, Class, FLAGS, Follow, Group, Handler, IPC, Ids, LISTENER_FLAGS, NET, OTHER, OpenFlags, Row, System, Sysv,
    Unless, Whose,
};
use Class::{
    Absent as A, Action, AlternateStack, Clone3, Descriptor as D, Exec, Exit, ExitGroup, Fork, Harmless as H, Held, Map,
    Mask, Passed, Prctl, Refused, Restored, SignalReturn, Suspend, Transactional as T, Vfork, Wait,
};
use Follow::{If, No, Unless as But, Yes};
use Handler::{
    AdjustClock, Beyond, Bind, Change, Chroot, Connect, EnterNamespaces, Execute, Gone, Kill, KillDescriptor,
    KillThread, KillThreadOf, Link, List, Look, Make, Mount, NewIds, NewRoot, OfProcess, Open, Own, Queue,
    QueueThreadOf, Refuse, Rename, SendMessage, SendMessages, SendTo, Symlink, SysvControl, SysvGet, Trace, Unlink,
    View, WriteMemory,
};
use OpenFlags::{Arg, Creat, How};
use Unless::{Int, NoneOf, Null};

const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
/// `AT_SYMLINK_NOFOLLOW`.
const NOFOLLOW: u64 = 0x100;
/// `AT_SYMLINK_FOLLOW`.
const FOLLOW: u64 = 0x400;

const ENTRY: Aspects = Aspects::ENTRY;
const ATTRS: Aspects = ENTRY.and(Aspects::ATTRS);
const DATA: Aspects = ENTRY.and(Aspects::DATA);
const XATTRS: Aspects = ENTRY.and(Aspects::XATTRS);
const WRITE: Aspects = ENTRY.and(Aspects::WRITE);
const WRITE_XATTRS: Aspects = WRITE.and(Aspects::XATTRS);
const EMPTIED: Aspects = WRITE.and(Aspects::LISTING);

// Why a call is stopped.
const LOOKS: &str = "the outcome of the look-up is part of what was read";
const READS: &str = "what the file holds is part of what was read";
const LISTS: &str = "the names in it are part of what was read";
const CHANGES: &str = "the version it starts from is the base of the change";
const LEAVES: &str = "it leaves the machine or reaches a service; nobody can take it back";
const IDENTITY: &str = "what is done on its behalf is done with its credentials";
const RUNNING: &str = "it changes the running system at once";
const OUTSIDER: &str = "an outsider's process would be changed";
const NO_FLAGS: &str = "what is published has no file flags: they would be lost without a word";
const SIGNALS: &str = "a signal to a process outside is held until the commit";
const ELSEWHERE: &str = "absolute paths start elsewhere from then on";

const PRIORITY: &str = "changes the priority of";

// What the documentation notes of several calls.
const BOUND: &str = "of a path that a thread's transaction has bound, the place in the store after the commit";

// What a message of a thread's transaction says.
const LIMITS: &str = "a change of the process's limits, group or priority";
const CREDS: &str = "a change of credentials";
const NS: &str = "a change of namespaces";
const MACHINE: &str = "a call that concerns the whole machine";
const MOUNTS: &str = "a change of mounts or swap";
const ACCEPT: &str = "accepting a connection";
const SIGNAL: &str = "a signal";
const KERNEL: &str = "a change of the kernel";
const SETTINGS: &str = "a change of the machine's settings";
const KEYS: &str = "the kernel's keys";
const RING: &str = "io_uring";
const ASYNC: &str = "asynchronous I/O";
const FANOTIFY: &str = "fanotify";
/// What a thread may no longer do, its commit may not do either.
const SANDBOX: &str = "a sandbox of the program's own";

const fn at(path: usize) -> At {
    At { dir: None, path }
}

const fn under(dir: usize, path: usize) -> At {
    At { dir: Some(dir), path }
}

const fn call(number: i64, name: &'static str, handler: Handler, class: Class) -> Row {
    Row {
        number, name, handler, class, why: "", asks: &[], unless: &[], descriptors: 0, held_on_sockets: false,
        makes_descriptor: false, gated: false, i386: &[], note: "",
    }
}

/// Sets fields of a row.
impl Row {
    const fn why(self, why: &'static str) -> Row { Row { why, ..self } }
    const fn asks(self, asks: &'static [Unless]) -> Row { Row { asks, ..self } }
    const fn unless(self, unless: &'static [Unless]) -> Row { Row { unless, ..self } }
    const fn held_on_sockets(self) -> Row { Row { held_on_sockets: true, ..self } }
    const fn makes(self) -> Row { Row { makes_descriptor: true, ..self } }
    const fn gated(self) -> Row { Row { gated: true, ..self } }
    const fn i386(self, i386: &'static [u32]) -> Row { Row { i386, ..self } }
    const fn note(self, note: &'static str) -> Row { Row { note, ..self } }
    const fn fds(self, arguments: &[usize]) -> Row {
        let (mut descriptors, mut i) = (0, 0);
        while i < arguments.len() {
            descriptors |= 1 << arguments[i];
            i += 1;
        }
        Row { descriptors, ..self }
    }
}

/// Every call of the kernel.
pub const GROUPS: &[Group] = &[
    Group { name: "Processes", supported: 51, known: 84, rows: PROCESSES },
    Group { name: "Memory", supported: 0, known: 15, rows: MEMORY },
    Group { name: "Filesystem", supported: 67, known: 96, rows: FILES },
    Group { name: "File descriptors", supported: 0, known: 14, rows: DESCRIPTORS },
    Group { name: "Communication", supported: 15, known: 23, rows: COMMUNICATION },
    Group { name: "Timers and signals", supported: 0, known: 12, rows: TIMERS },
    Group { name: "Administration", supported: 0, known: 22, rows: ADMINISTRATION },
    Group { name: "Misc", supported: 19, known: 37, rows: MISC },
];

const PROCESSES: &[Row] = &[
    call(24, "sched_yield", Own, H),
    call(39, "getpid", Own, H),
    call(56, "clone", View, Class::Clone)
        .note("the new thread is in its maker's transaction with TX_THREADS, the new process with TX_PROCESSES"),
    call(57, "fork", View, Fork).note("the child is in a thread's transaction with TX_PROCESSES"),
    call(58, "vfork", View, Vfork).note("the child is in a thread's transaction with TX_PROCESSES"),
    call(59, "execve", Execute(at(0)), Exec).why(READS).i386(&[11]).note("aborts a thread's transaction"),
    call(60, "exit", View, Exit).note("a member leaves; aborts the transaction of the thread that began it"),
    call(61, "wait4", Own, H),
    call(97, "getrlimit", Own, H),
    call(98, "getrusage", Own, H),
    call(101, "ptrace", Trace, Passed(OTHER)).why(OUTSIDER).unless(&[Int(0, 0)]).i386(&[26])
        .note("of a process outside"),
    call(102, "getuid", Own, H),
    call(104, "getgid", Own, H),
    call(105, "setuid", NewIds(Ids::Users(1)), Restored(CREDS)).why(IDENTITY).i386(&[23, 213]),
    call(106, "setgid", NewIds(Ids::Groups(1)), Restored(CREDS)).why(IDENTITY).i386(&[46, 214]),
    call(107, "geteuid", Own, H),
    call(108, "getegid", Own, H),
    call(109, "setpgid", Own, Restored(LIMITS)),
    call(110, "getppid", Own, H),
    call(111, "getpgrp", Own, H),
    call(112, "setsid", Own, Restored(LIMITS)),
    call(113, "setreuid", NewIds(Ids::Users(2)), Restored(CREDS)).why(IDENTITY).i386(&[70, 203]),
    call(114, "setregid", NewIds(Ids::Groups(2)), Restored(CREDS)).why(IDENTITY).i386(&[71, 204]),
    call(115, "getgroups", Own, H),
    call(116, "setgroups", NewIds(Ids::Others), Restored(CREDS)).why(IDENTITY).i386(&[81, 206]),
    call(117, "setresuid", NewIds(Ids::Users(3)), Restored(CREDS)).why(IDENTITY).i386(&[164, 208]),
    call(118, "getresuid", Own, H),
    call(119, "setresgid", NewIds(Ids::Groups(3)), Restored(CREDS)).why(IDENTITY).i386(&[170, 210]),
    call(120, "getresgid", Own, H),
    call(121, "getpgid", Own, H),
    call(122, "setfsuid", NewIds(Ids::Users(1)), Restored(CREDS)).why(IDENTITY).i386(&[138, 215]),
    call(123, "setfsgid", NewIds(Ids::Groups(1)), Restored(CREDS)).why(IDENTITY).i386(&[139, 216]),
    call(124, "getsid", Own, H),
    call(125, "capget", Own, H),
    call(126, "capset", NewIds(Ids::Others), Restored(CREDS)).why(IDENTITY).i386(&[185]),
    call(134, "uselib", Gone, A),
    call(135, "personality", Own, Restored(LIMITS)),
    call(140, "getpriority", Own, H),
    call(141, "setpriority", OfProcess(Whose::Kind(0, 0, 1), PRIORITY), Restored(LIMITS)).why(OUTSIDER)
        .unless(&[Int(1, 0)]).note("of a process outside"),
    call(142, "sched_setparam", OfProcess(Whose::Number(0), PRIORITY), Restored(LIMITS)).why(OUTSIDER)
        .unless(&[Int(0, 0)]).note("of a process outside"),
    call(143, "sched_getparam", Own, H),
    call(144, "sched_setscheduler", OfProcess(Whose::Number(0), PRIORITY), Restored(LIMITS)).why(OUTSIDER)
        .unless(&[Int(0, 0)]).note("of a process outside"),
    call(145, "sched_getscheduler", Own, H),
    call(146, "sched_get_priority_max", Own, H),
    call(147, "sched_get_priority_min", Own, H),
    call(148, "sched_rr_get_interval", Own, H),
    call(154, "modify_ldt", Own, H),
    call(157, "prctl", NewIds(Ids::Others), Prctl).why(IDENTITY).unless(&[NoneOf(0, LIMITS_CAPABILITIES)])
        .note("in a thread, seccomp filters and dispatch are refused"),
    call(158, "arch_prctl", Own, H),
    call(160, "setrlimit", Own, Restored(LIMITS)),
    call(172, "iopl", Own, H).note("the thread's own ports; what it writes to them is live"),
    call(173, "ioperm", Own, H).note("the thread's own ports; what it writes to them is live"),
    call(186, "gettid", Own, H),
    call(203, "sched_setaffinity", OfProcess(Whose::Number(0), "changes the processors of"), Restored(LIMITS)).why(OUTSIDER)
        .unless(&[Int(0, 0)]).note("of a process outside"),
    call(204, "sched_getaffinity", Own, H),
    call(205, "set_thread_area", Gone, A),
    call(211, "get_thread_area", Gone, A),
    call(218, "set_tid_address", Own, H),
    call(231, "exit_group", View, ExitGroup)
        .note("aborts a thread's transaction; commits that of `txos run --in-process`"),
    call(247, "waitid", Own, Wait).fds(&[1]),
    call(251, "ioprio_set", OfProcess(Whose::Kind(0, 1, 1), PRIORITY), Restored(LIMITS)).why(OUTSIDER)
        .unless(&[Int(1, 0)]).note("of a process outside"),
    call(252, "ioprio_get", Own, H),
    call(272, "unshare", Own, Passed(NS)),
    call(273, "set_robust_list", Own, H),
    call(274, "get_robust_list", Own, H),
    call(302, "prlimit64", OfProcess(Whose::Number(0), "changes the limits of"), Restored(LIMITS)).why(OUTSIDER)
        .asks(&[Null(2)]).unless(&[Int(0, 0)]).note("new limits of a process outside; asking is let through"),
    call(308, "setns", EnterNamespaces, Passed(NS))
        .why("absolute paths may start elsewhere from then on, even in the stable tree").fds(&[0])
        .i386(&[346]).note("into the machine's mount namespace"),
    call(309, "getcpu", Own, H),
    call(310, "process_vm_readv", Own, H),
    call(311, "process_vm_writev", WriteMemory, Held(OTHER)).why(OUTSIDER).note("of a process outside"),
    call(312, "kcmp", Own, D).fds(&[3, 4]),
    call(314, "sched_setattr", OfProcess(Whose::Number(0), PRIORITY), Restored(LIMITS)).why(OUTSIDER)
        .unless(&[Int(0, 0)]).note("of a process outside"),
    call(315, "sched_getattr", Own, H),
    call(317, "seccomp", Own, Refused(EINVAL, SANDBOX)).note("setting a filter; asking is let through"),
    call(322, "execveat", Execute(under(0, 1)), Exec).why(READS).i386(&[358])
        .note("aborts a thread's transaction"),
    call(334, "rseq", Own, H),
    call(434, "pidfd_open", Own, D).makes(),
    call(435, "clone3", View, Clone3)
        .note("the new thread is in its maker's transaction with TX_THREADS, the new process with TX_PROCESSES"),
    call(438, "pidfd_getfd", OfProcess(Whose::Descriptor(0), "takes a descriptor from"), Restored(OTHER))
        .why("it leads past the view into the stable tree").fds(&[0])
        .note("from a process outside; in a thread, an abort closes the descriptor"),
    call(440, "process_madvise", OfProcess(Whose::Descriptor(0), "gives advice on the memory of"), D)
        .why(OUTSIDER).fds(&[0]).note("of a process outside"),
    call(444, "landlock_create_ruleset", Own, Refused(EOPNOTSUPP, SANDBOX)),
    call(445, "landlock_add_rule", Own, Refused(EOPNOTSUPP, SANDBOX)),
    call(446, "landlock_restrict_self", Own, Refused(EOPNOTSUPP, SANDBOX)),
    call(448, "process_mrelease", Own, D).fds(&[0]).note("of a process that is dying already"),
    call(459, "lsm_get_self_attr", Own, H),
    call(460, "lsm_set_self_attr", Own, Passed(CREDS)),
    call(461, "lsm_list_modules", Own, H),
];

const MEMORY: &[Row] = &[
    call(9, "mmap", View, Map).fds(&[4]).note("of a file; anonymous memory is the process's own"),
    call(10, "mprotect", Own, H),
    call(11, "munmap", Own, H),
    call(12, "brk", Own, H),
    call(25, "mremap", Own, H),
    call(26, "msync", Own, H),
    call(27, "mincore", Own, H),
    call(28, "madvise", Own, H),
    call(149, "mlock", Own, H),
    call(150, "munlock", Own, H),
    call(151, "mlockall", Own, H),
    call(152, "munlockall", Own, H),
    call(216, "remap_file_pages", Own, H),
    call(237, "mbind", Own, H),
    call(238, "set_mempolicy", Own, H),
    call(239, "get_mempolicy", Own, H),
    call(256, "migrate_pages", OfProcess(Whose::Number(0), "moves the memory of"), Held(OTHER))
        .why(OUTSIDER).unless(&[Int(0, 0)]).note("of a process outside"),
    call(279, "move_pages", OfProcess(Whose::Number(0), "moves the memory of"), Held(OTHER)).why(OUTSIDER)
        .unless(&[Int(0, 0)]).note("of a process outside"),
    call(319, "memfd_create", Own, D).makes(),
    call(323, "userfaultfd", Own, D).makes(),
    call(324, "membarrier", Own, H),
    call(325, "mlock2", Own, H),
    call(329, "pkey_mprotect", Own, H),
    call(330, "pkey_alloc", Own, H),
    call(331, "pkey_free", Own, H),
    call(447, "memfd_secret", Own, D).makes(),
    call(450, "set_mempolicy_home_node", Own, H),
    call(453, "map_shadow_stack", Own, H),
    call(462, "mseal", Own, H),
];

const FILES: &[Row] = &[
    call(0, "read", View, T).fds(&[0]),
    call(1, "write", View, T).fds(&[0]).note("live on devices; on pipes, terminals and sockets, held in a thread and live under `txos run`"),
    call(2, "open", Open(at(0), Arg(1)), T).why(READS).i386(&[5]),
    call(3, "close", View, T),
    call(4, "stat", Look(at(0), Yes, ATTRS), T).why(LOOKS).i386(&[18, 106, 195]),
    call(5, "fstat", View, T),
    call(6, "lstat", Look(at(0), No, ATTRS), T).why(LOOKS).i386(&[84, 107, 196]),
    call(8, "lseek", View, T),
    call(16, "ioctl", Refuse(EOPNOTSUPP), T).why(NO_FLAGS).unless(&[NoneOf(1, SETS_FLAGS)]).fds(&[0])
        .note("file flags (chattr) are refused; in a thread, so is every request on a versioned file that does more than ask"),
    call(17, "pread64", View, T).fds(&[0]),
    call(18, "pwrite64", View, T).fds(&[0]),
    call(19, "readv", View, T).fds(&[0]),
    call(20, "writev", View, T).fds(&[0]),
    call(21, "access", Look(at(0), Yes, ATTRS), T).why(LOOKS).gated().i386(&[33]),
    call(32, "dup", Own, T),
    call(33, "dup2", Own, T),
    call(72, "fcntl", View, T).fds(&[0])
        .note("in a thread, leases are refused; owners and sizes of pipes are set at once, and put back by an abort"),
    call(73, "flock", View, T).note("under `txos run`, locks the private copy, and excludes no process outside; in a thread, in force at once, and an abort leaves it"),
    call(74, "fsync", View, T).fds(&[0]),
    call(75, "fdatasync", View, T).fds(&[0]),
    call(76, "truncate", Change(at(0), Yes, WRITE), T).why(CHANGES).i386(&[92, 193]),
    call(77, "ftruncate", View, T).fds(&[0]),
    call(78, "getdents", List(0), T).why(LISTS).fds(&[0]).i386(&[141]),
    call(79, "getcwd", View, T),
    call(80, "chdir", Look(at(0), Yes, ENTRY), T).why(LOOKS),
    call(81, "fchdir", View, T),
    call(82, "rename", Rename(at(0), at(1), None), T).why(CHANGES).i386(&[38]),
    call(83, "mkdir", Make(at(0)), T).why(CHANGES).i386(&[39]),
    call(84, "rmdir", Change(at(0), No, EMPTIED), T).why(CHANGES).i386(&[40]),
    call(85, "creat", Open(at(0), Creat), T).why(CHANGES).i386(&[8]),
    call(86, "link", Link(at(0), at(1), No), T).why(CHANGES).i386(&[9]),
    call(87, "unlink", Unlink(at(0), None), T).why(CHANGES).i386(&[10]),
    call(88, "symlink", Symlink(at(1)), T).why(CHANGES).i386(&[83]),
    call(89, "readlink", Look(at(0), No, DATA), T).why(LOOKS).gated().i386(&[85]),
    call(90, "chmod", Change(at(0), Yes, WRITE), T).why(CHANGES).i386(&[15]),
    call(91, "fchmod", View, T),
    call(92, "chown", Change(at(0), Yes, WRITE), T).why(CHANGES).i386(&[182, 212]),
    call(93, "fchown", View, T),
    call(94, "lchown", Change(at(0), No, WRITE), T).why(CHANGES).i386(&[16, 198]),
    call(95, "umask", Own, T),
    call(132, "utime", Change(at(0), Yes, WRITE), T).why(CHANGES).i386(&[30]),
    call(133, "mknod", Make(at(0)), T).why(CHANGES).i386(&[14]),
    call(136, "ustat", Own, H),
    call(137, "statfs", Look(at(0), Yes, ENTRY), T).why(LOOKS).i386(&[99]),
    call(138, "fstatfs", View, T),
    call(155, "pivot_root", NewRoot, Passed(MOUNTS)).why(ELSEWHERE)
        .i386(&[217]).note("changes the view only"),
    call(161, "chroot", Chroot(at(0)), T).why(ELSEWHERE).i386(&[61]),
    call(162, "sync", View, T),
    call(165, "mount", Mount, Passed(MOUNTS)).why(RUNNING).i386(&[21]),
    call(166, "umount2", Mount, Passed(MOUNTS)).why(RUNNING).i386(&[52]),
    call(187, "readahead", Own, D).fds(&[0]),
    call(188, "setxattr", Change(at(0), Yes, WRITE_XATTRS), T).why(CHANGES).i386(&[226]),
    call(189, "lsetxattr", Change(at(0), No, WRITE_XATTRS), T).why(CHANGES).i386(&[227]),
    call(190, "fsetxattr", View, T),
    call(191, "getxattr", Look(at(0), Yes, XATTRS), T).why(LOOKS).gated().i386(&[229]),
    call(192, "lgetxattr", Look(at(0), No, XATTRS), T).why(LOOKS).gated().i386(&[230]),
    call(193, "fgetxattr", View, T),
    call(194, "listxattr", Look(at(0), Yes, XATTRS), T).why(LOOKS).gated().i386(&[232]),
    call(195, "llistxattr", Look(at(0), No, XATTRS), T).why(LOOKS).gated().i386(&[233]),
    call(196, "flistxattr", View, T),
    call(197, "removexattr", Change(at(0), Yes, WRITE_XATTRS), T).why(CHANGES).i386(&[235]),
    call(198, "lremovexattr", Change(at(0), No, WRITE_XATTRS), T).why(CHANGES).i386(&[236]),
    call(199, "fremovexattr", View, T),
    call(206, "io_setup", Own, Refused(ENOSYS, ASYNC)).note("on descriptors that were opened in the view"),
    call(207, "io_destroy", Own, H),
    call(208, "io_getevents", Own, H),
    call(209, "io_submit", Own, Refused(ENOSYS, ASYNC)).note("on descriptors that were opened in the view"),
    call(210, "io_cancel", Own, H),
    call(212, "lookup_dcookie", Gone, A),
    call(217, "getdents64", List(0), T).why(LISTS).fds(&[0])
        .i386(&[220]),
    call(221, "fadvise64", Own, D).fds(&[0]),
    call(235, "utimes", Change(at(0), Yes, WRITE), T).why(CHANGES).i386(&[271]),
    call(253, "inotify_init", Own, D).makes(),
    call(254, "inotify_add_watch", Look(at(1), Yes, ENTRY), D).why(LOOKS),
    call(255, "inotify_rm_watch", Own, D).fds(&[0]),
    call(257, "openat", Open(under(0, 1), Arg(2)), T).why(READS).gated().i386(&[295]),
    call(258, "mkdirat", Make(under(0, 1)), T).why(CHANGES).i386(&[296]),
    call(259, "mknodat", Make(under(0, 1)), T).why(CHANGES).i386(&[297]),
    call(260, "fchownat", Change(under(0, 1), But(4, NOFOLLOW), WRITE), T).why(CHANGES).i386(&[298]),
    call(261, "futimesat", Change(under(0, 1), Yes, WRITE), T).why(CHANGES).unless(&[Null(1)]).i386(&[299]),
    call(262, "newfstatat", Look(under(0, 1), But(3, NOFOLLOW), ATTRS), T).why(LOOKS).unless(&[Null(1)])
        .gated().i386(&[300]),
    call(263, "unlinkat", Unlink(under(0, 1), Some(2)), T).why(CHANGES).i386(&[301]),
    call(264, "renameat", Rename(under(0, 1), under(2, 3), None), T).why(CHANGES).i386(&[302]),
    call(265, "linkat", Link(under(0, 1), under(2, 3), If(4, FOLLOW)), T).why(CHANGES).i386(&[303]),
    call(266, "symlinkat", Symlink(under(1, 2)), T).why(CHANGES).i386(&[304]),
    call(267, "readlinkat", Look(under(0, 1), No, DATA), T).why(LOOKS).gated().i386(&[305]),
    call(268, "fchmodat", Change(under(0, 1), Yes, WRITE), T).why(CHANGES).i386(&[306]),
    call(269, "faccessat", Look(under(0, 1), Yes, ATTRS), T).why(LOOKS).gated().i386(&[307]),
    call(277, "sync_file_range", View, T).fds(&[0]),
    call(280, "utimensat", Change(under(0, 1), But(3, NOFOLLOW), WRITE), T).why(CHANGES).unless(&[Null(1)])
        .i386(&[320, 412]),
    call(285, "fallocate", View, T).fds(&[0]),
    call(292, "dup3", Own, T),
    call(294, "inotify_init1", Own, D).makes(),
    call(295, "preadv", View, T).fds(&[0]),
    call(296, "pwritev", View, T).fds(&[0]),
    call(300, "fanotify_init", Own, Refused(ENOSYS, FANOTIFY)),
    call(301, "fanotify_mark", Own, Refused(ENOSYS, FANOTIFY)),
    call(303, "name_to_handle_at", Look(under(0, 1), If(4, FOLLOW), ENTRY), T)
        .why(LOOKS).fds(&[0]).i386(&[341])
        .note("in a thread, of what the transaction has made or written it is refused"),
    call(304, "open_by_handle_at", Refuse(EPERM), T)
        .why("a handle leads past the view into the stable tree").fds(&[0]).i386(&[342]),
    call(306, "syncfs", View, T).fds(&[0]),
    call(316, "renameat2", Rename(under(0, 1), under(2, 3), Some(4)), T).why(CHANGES).i386(&[353]),
    call(327, "preadv2", View, T).fds(&[0]),
    call(328, "pwritev2", View, T).fds(&[0]),
    call(332, "statx", Look(under(0, 1), But(2, NOFOLLOW), ATTRS), T).why(LOOKS).unless(&[Null(1)]).gated()
        .i386(&[383]),
    call(333, "io_pgetevents", Own, H),
    call(425, "io_uring_setup", Refuse(ENOSYS), Refused(ENOSYS, RING))
        .why("look-ups through a ring would go unseen; programs fall back to plain calls").i386(&[425]),
    call(426, "io_uring_enter", Own, Refused(ENOSYS, RING)).note("on an inherited ring"),
    call(427, "io_uring_register", Own, Refused(ENOSYS, RING)).note("on an inherited ring"),
    call(428, "open_tree", Look(under(0, 1), But(2, NOFOLLOW), ENTRY), Passed(MOUNTS)).why(LOOKS)
        .unless(&[Null(1)]).fds(&[0]).i386(&[428]),
    call(429, "move_mount", Mount, Passed(MOUNTS)).why(RUNNING).fds(&[0, 2]).i386(&[429]),
    call(430, "fsopen", Own, D).makes(),
    call(431, "fsconfig", Beyond(System::Mount, "changes the settings of a mounted file system"), Passed(MOUNTS))
        .why(RUNNING)
        .unless(&[Int(1, 0), Int(1, 1), Int(1, 2), Int(1, 3), Int(1, 4), Int(1, 5), Int(1, 6), Int(1, 8)])
        .fds(&[0]),
    call(432, "fsmount", Own, Passed(MOUNTS)).fds(&[0]),
    call(433, "fspick", Look(under(0, 1), But(2, 2), ENTRY), Passed(MOUNTS)).why(LOOKS).fds(&[0]).makes(),
    call(436, "close_range", View, T),
    call(437, "openat2", Open(under(0, 1), How(2)), T).why(READS).i386(&[437]),
    call(439, "faccessat2", Look(under(0, 1), But(3, NOFOLLOW), ATTRS), T).why(LOOKS).gated().i386(&[439]),
    call(442, "mount_setattr", Mount, Passed(MOUNTS)).why(RUNNING).fds(&[0]).i386(&[442]),
    call(451, "cachestat", Own, D).fds(&[0]),
    call(452, "fchmodat2", Change(under(0, 1), But(3, NOFOLLOW), WRITE), T).why(CHANGES),
    call(457, "statmount", Own, H),
    call(458, "listmount", Own, H),
    call(463, "setxattrat", Change(under(0, 1), But(2, NOFOLLOW), WRITE_XATTRS), T).why(CHANGES)
        .unless(&[Null(1)]),
    call(464, "getxattrat", Look(under(0, 1), But(2, NOFOLLOW), XATTRS), T).why(LOOKS).unless(&[Null(1)]),
    call(465, "listxattrat", Look(under(0, 1), But(2, NOFOLLOW), XATTRS), T).why(LOOKS).unless(&[Null(1)]),
    call(466, "removexattrat", Change(under(0, 1), But(2, NOFOLLOW), WRITE_XATTRS), T).why(CHANGES)
        .unless(&[Null(1)]),
    call(467, "open_tree_attr", Look(under(0, 1), But(2, NOFOLLOW), ENTRY), Passed(MOUNTS)).why(LOOKS)
        .unless(&[Null(1)]).fds(&[0]),
    call(468, "file_getattr", Look(under(0, 1), But(4, NOFOLLOW), ATTRS), T).why(LOOKS).unless(&[Null(1)]),
    call(469, "file_setattr", Refuse(EOPNOTSUPP), Refused(EOPNOTSUPP, FLAGS)).why(NO_FLAGS),
];

const DESCRIPTORS: &[Row] = &[
    call(7, "poll", Own, D),
    call(23, "select", Own, D),
    call(40, "sendfile", View, T).fds(&[0, 1]),
    call(213, "epoll_create", Own, D).makes(),
    call(214, "epoll_ctl_old", Gone, A),
    call(215, "epoll_wait_old", Gone, A),
    call(232, "epoll_wait", Own, D).fds(&[0]),
    call(233, "epoll_ctl", Own, D).fds(&[0, 2]),
    call(270, "pselect6", Own, D),
    call(271, "ppoll", Own, D),
    call(275, "splice", View, T).fds(&[0, 2]).note("between pipes, in a thread, held where a write to the pipe is, else live"),
    call(276, "tee", View, T).fds(&[0, 1]).note("works on pipes only: in a thread, held where a write to the pipe is, else live"),
    call(278, "vmsplice", View, T).fds(&[0]).note("works on pipes only: in a thread, held where a write to the pipe is, else live"),
    call(281, "epoll_pwait", Own, D).fds(&[0]),
    call(282, "signalfd", Own, D).fds(&[0]).makes(),
    call(283, "timerfd_create", Own, D).makes(),
    call(284, "eventfd", Own, D).makes(),
    call(286, "timerfd_settime", Own, D).fds(&[0]).note("in a thread, an abort puts back what was there"),
    call(287, "timerfd_gettime", Own, D).fds(&[0]),
    call(289, "signalfd4", Own, D).fds(&[0]).makes(),
    call(290, "eventfd2", Own, D).makes(),
    call(291, "epoll_create1", Own, D).makes(),
    call(326, "copy_file_range", View, T).fds(&[0, 2]),
    call(441, "epoll_pwait2", Own, D).fds(&[0]),
];

const COMMUNICATION: &[Row] = &[
    call(13, "rt_sigaction", Own, Action),
    call(14, "rt_sigprocmask", Own, Mask),
    call(15, "rt_sigreturn", Own, SignalReturn),
    call(22, "pipe", Own, T),
    call(29, "shmget", SysvGet(Sysv::Memory, 2), Restored(IPC)).why(RUNNING).unless(&[Int(0, 0)])
        .note("making an object with a key; in a thread, a new object is there for others at once, and an abort removes it"),
    call(30, "shmat", Own, Passed(IPC)).note("of a segment from `shmget`"),
    call(31, "shmctl", SysvControl(Sysv::Memory, 1), Held(IPC)).why(RUNNING)
        .note("changing or removing; asking is let through"),
    call(41, "socket", Own, T),
    call(42, "connect", Connect, Passed(NET)).why(LEAVES).fds(&[0]).i386(&[362])
        .note("to a peer outside the transaction"),
    call(43, "accept", Own, Passed(ACCEPT)).fds(&[0]).makes(),
    call(44, "sendto", SendTo, Passed(NET)).why(LEAVES).unless(&[Null(4)]).fds(&[0]).held_on_sockets()
        .note("to a peer outside the transaction"),
    call(45, "recvfrom", Own, Restored(NET)).fds(&[0])
        .note("in a thread, taken by the commit and given back by an abort; of a socket on which something was sent before, at once"),
    call(46, "sendmsg", SendMessage, Passed(NET)).why(LEAVES).unless(&[Int(2, LISTENER_FLAGS)]).fds(&[0])
        .held_on_sockets().note("to a peer outside the transaction; in a thread, no descriptor of a versioned file can be sent"),
    call(47, "recvmsg", Own, Restored(NET)).fds(&[0])
        .note("in a thread, taken by the commit and given back by an abort; of a socket on which something was sent before, at once"),
    call(48, "shutdown", Own, Passed(NET)).fds(&[0]).held_on_sockets(),
    call(49, "bind", Bind, Passed(NET)).why(CHANGES).fds(&[0]).i386(&[361])
        .note("to an address that is no path; in a thread, a path on a versioned file system is transactional"),
    call(50, "listen", Own, Passed(NET)).fds(&[0]),
    call(51, "getsockname", Own, D).fds(&[0]).note(BOUND),
    call(52, "getpeername", Own, D).fds(&[0]).note(BOUND),
    call(53, "socketpair", Own, T),
    call(54, "setsockopt", Own, D).fds(&[0]).note("in a thread, an abort puts back [many options](runtime.md#settings-of-descriptors)"),
    call(55, "getsockopt", Own, D).fds(&[0]),
    call(62, "kill", Kill, Held(SIGNAL)).why(SIGNALS).asks(&[Int(1, 0)]).unless(&[Int(0, 0)]).i386(&[37]),
    call(64, "semget", SysvGet(Sysv::Semaphores, 2), Restored(IPC)).why(RUNNING).unless(&[Int(0, 0)])
        .note("making an object with a key; in a thread, a new object is there for others at once, and an abort removes it"),
    call(65, "semop", Own, Held(IPC)).note("what is added; in a thread, what is taken is taken at once, and an abort gives it back"),
    call(66, "semctl", SysvControl(Sysv::Semaphores, 2), Held(IPC)).why(RUNNING)
        .note("changing or removing; asking is let through"),
    call(67, "shmdt", Own, H),
    call(68, "msgget", SysvGet(Sysv::Queue, 1), Restored(IPC)).why(RUNNING).unless(&[Int(0, 0)])
        .note("making an object with a key; in a thread, a new object is there for others at once, and an abort removes it"),
    call(69, "msgsnd", Own, Held(IPC)),
    call(70, "msgrcv", Own, Passed(IPC)),
    call(71, "msgctl", SysvControl(Sysv::Queue, 1), Held(IPC)).why(RUNNING)
        .note("changing or removing; asking is let through"),
    call(127, "rt_sigpending", Own, H),
    call(128, "rt_sigtimedwait", Own, H).note("in a thread, an abort gives back the signal that it took"),
    call(129, "rt_sigqueueinfo", Queue, Held(SIGNAL)).why(SIGNALS).asks(&[Int(1, 0)]).i386(&[178]),
    call(130, "rt_sigsuspend", Own, Suspend),
    call(181, "getpmsg", Gone, A),
    call(182, "putpmsg", Gone, A),
    call(200, "tkill", KillThread, Held(SIGNAL)).why(SIGNALS).asks(&[Int(1, 0)]).i386(&[238]),
    call(220, "semtimedop", Own, Held(IPC)).note("what is added; in a thread, what is taken is taken at once, and an abort gives it back"),
    call(234, "tgkill", KillThreadOf, Held(SIGNAL)).why(SIGNALS).asks(&[Int(2, 0)]).i386(&[270]),
    call(240, "mq_open", Beyond(System::Ipc, "makes or uses a message queue"), Restored(IPC)).why(RUNNING)
        .makes().note("making a queue or using one; in a thread, a new queue is there for others at once, and an abort removes it"),
    call(241, "mq_unlink", Beyond(System::Ipc, "removes a message queue"), Held(IPC)).why(RUNNING),
    call(242, "mq_timedsend", Own, Held(IPC)).fds(&[0]),
    call(243, "mq_timedreceive", Own, Passed(IPC)).fds(&[0]),
    call(244, "mq_notify", Own, Restored(IPC)).fds(&[0]).note("in a thread, at once, and taken back by an abort"),
    call(245, "mq_getsetattr", Own, Restored(IPC)).fds(&[0]).note("in a thread, at once, and taken back by an abort"),
    call(288, "accept4", Own, Passed(ACCEPT)).fds(&[0]).makes(),
    call(293, "pipe2", Own, T),
    call(297, "rt_tgsigqueueinfo", QueueThreadOf, Held(SIGNAL)).why(SIGNALS).asks(&[Int(2, 0)])
        .i386(&[335]),
    call(299, "recvmmsg", Own, Restored(NET)).fds(&[0])
        .note("in a thread, taken by the commit and given back by an abort; of a socket on which something was sent before, at once"),
    call(307, "sendmmsg", SendMessages, Passed(NET)).why(LEAVES).fds(&[0]).held_on_sockets()
        .note("to a peer outside the transaction"),
    call(424, "pidfd_send_signal", KillDescriptor, Held(SIGNAL)).why(SIGNALS).asks(&[Int(1, 0)]).fds(&[0])
        .i386(&[424]),
];

const TIMERS: &[Row] = &[
    call(34, "pause", Own, Suspend),
    call(35, "nanosleep", Own, H),
    call(36, "getitimer", Own, H),
    call(37, "alarm", Own, H).note("in a thread, an abort puts back what was there"),
    call(38, "setitimer", Own, H).note("in a thread, an abort puts back what was there"),
    call(131, "sigaltstack", Own, AlternateStack),
    call(219, "restart_syscall", Own, H),
    call(222, "timer_create", Own, H).note("in a thread, an abort deletes the timer"),
    call(223, "timer_settime", Own, H).note("in a thread, an abort puts back what was there"),
    call(224, "timer_gettime", Own, H),
    call(225, "timer_getoverrun", Own, H),
    call(226, "timer_delete", Own, H).note("in a thread, one from before is deleted by the commit"),
    call(230, "clock_nanosleep", Own, H),
];

const ADMINISTRATION: &[Row] = &[
    call(103, "syslog", Beyond(System::KernelSetting, "clears or sets up the kernel's log"), Held(MACHINE))
        .why(RUNNING).asks(SYSLOG_ASKS).note("changing; asking is let through"),
    call(153, "vhangup", Beyond(System::Device, "hangs up its terminal"), Held(MACHINE)).why(RUNNING),
    call(156, "_sysctl", Gone, A),
    call(159, "adjtimex", AdjustClock(0), Held(SETTINGS)).why(RUNNING)
        .note("setting; asking is let through"),
    call(163, "acct", Beyond(System::Accounting, "turns process accounting on or off"), Held(MACHINE))
        .why(RUNNING),
    call(164, "settimeofday", Beyond(System::Clock, "sets the clock"), Held(SETTINGS)).why(RUNNING),
    call(167, "swapon", Beyond(System::Swap, "turns swap space on"), Held(MOUNTS)).why(RUNNING),
    call(168, "swapoff", Beyond(System::Swap, "turns swap space off"), Held(MOUNTS)).why(RUNNING),
    call(169, "reboot", Beyond(System::Reboot, "restarts or stops the machine"), Held(KERNEL)).why(RUNNING)
        .unless(&[Int(2, 0), Int(2, 0x89AB_CDEF)]),
    call(170, "sethostname", Beyond(System::Hostname, "sets the name of the machine"), Held(SETTINGS))
        .why(RUNNING),
    call(171, "setdomainname", Beyond(System::Hostname, "sets the domain of the machine"), Held(SETTINGS))
        .why(RUNNING),
    call(174, "create_module", Gone, A),
    call(175, "init_module", Beyond(System::Module, "loads a kernel module"), Held(KERNEL)).why(RUNNING),
    call(176, "delete_module", Beyond(System::Module, "removes a kernel module"), Held(KERNEL))
        .why(RUNNING),
    call(177, "get_kernel_syms", Gone, A),
    call(178, "query_module", Gone, A),
    call(179, "quotactl", Beyond(System::Accounting, "changes or reads disk quotas"), Held(MACHINE))
        .why(RUNNING),
    call(180, "nfsservctl", Gone, A),
    call(227, "clock_settime", Beyond(System::Clock, "sets the clock"), Held(SETTINGS)).why(RUNNING),
    call(246, "kexec_load", Beyond(System::Module, "loads another kernel"), Held(KERNEL)).why(RUNNING),
    call(248, "add_key", Beyond(System::Keyring, "adds a key to the kernel's key store"), Passed(KEYS))
        .why(RUNNING),
    call(249, "request_key", Beyond(System::Keyring, "has a key made for the kernel's key store"), Passed(KEYS))
        .why(RUNNING).unless(&[Null(2)]).note("making a key; finding one is let through"),
    call(250, "keyctl", Beyond(System::Keyring, "changes the kernel's key store"), Passed(KEYS)).why(RUNNING)
        .unless(KEYCTL_LOOKS).note("changing; asking is let through"),
    call(298, "perf_event_open", Own, D).fds(&[3]).makes(),
    call(305, "clock_adjtime", AdjustClock(1), Held(SETTINGS)).why(RUNNING)
        .note("setting; asking is let through"),
    call(313, "finit_module", Beyond(System::Module, "loads a kernel module"), Held(KERNEL)).why(RUNNING)
        .fds(&[0]),
    call(320, "kexec_file_load", Beyond(System::Module, "loads another kernel"), Held(KERNEL)).why(RUNNING)
        .fds(&[0, 1]),
    call(321, "bpf", Beyond(System::KernelSetting, "changes programs or tables in the kernel (bpf)"), Passed(MACHINE))
        .why(RUNNING).unless(BPF_LOOKS).note("changing; asking is let through"),
    call(443, "quotactl_fd", Beyond(System::Accounting, "changes or reads disk quotas"), Held(MACHINE))
        .why(RUNNING).fds(&[0]),
];

const MISC: &[Row] = &[
    call(63, "uname", Own, H),
    call(96, "gettimeofday", Own, H),
    call(99, "sysinfo", Own, H),
    call(100, "times", Own, H),
    call(139, "sysfs", Own, H),
    call(183, "afs_syscall", Gone, A),
    call(184, "tuxcall", Gone, A),
    call(185, "security", Gone, A),
    call(201, "time", Own, H),
    call(202, "futex", Own, H),
    call(228, "clock_gettime", Own, H),
    call(229, "clock_getres", Own, H),
    call(236, "vserver", Gone, A),
    call(318, "getrandom", Own, H),
    call(335, "uretprobe", Gone, A).note("only code that the kernel has put there makes it"),
    call(336, "uprobe", Gone, A).note("only code that the kernel has put there makes it"),
    call(449, "futex_waitv", Own, H),
    call(454, "futex_wake", Own, H),
    call(455, "futex_wait", Own, H),
    call(456, "futex_requeue", Own, H),
];

/// `PR_CAPBSET_DROP`, `PR_SET_SECUREBITS`: what is executed next may have fewer.
const LIMITS_CAPABILITIES: &[u32] = &[24, 28];

/// `FS_IOC_SETFLAGS`, the same of 32 bits, `FS_IOC_FSSETXATTR`.
const SETS_FLAGS: &[u32] = &[0x4008_6602, 0x4004_6602, 0x401c_5820];

/// Commands of `bpf(2)` that look, or make what ends with its descriptors.
const BPF_LOOKS: &[Unless] = &[
    Int(0, 0),  // making a table
    Int(0, 1),  // looking into it
    Int(0, 4),  // its next key
    Int(0, 5),  // loading a program
    Int(0, 7),  // opening what is pinned
    Int(0, 10), // trying a program
    Int(0, 11), // next program
    Int(0, 12), // next table
    Int(0, 13), // opening a program
    Int(0, 14), // opening a table
    Int(0, 15), // information
    Int(0, 16), // which programs are attached
    Int(0, 18), // loading types
    Int(0, 19), // opening types
    Int(0, 20), // what a task's descriptor is
    Int(0, 23), // next types
    Int(0, 24), // looking at many
    Int(0, 30), // opening a link
    Int(0, 31), // next link
];

/// Operations of `keyctl(2)` that look, compute, or are of the process alone.
const KEYCTL_LOOKS: &[Unless] = &[
    Int(0, 0),  // which keyring
    Int(0, 1),  // a session of its own
    Int(0, 6),  // describe
    Int(0, 10), // search
    Int(0, 11), // read
    Int(0, 14), // where requested keys go
    Int(0, 16), // assume authority
    Int(0, 17), // security label
    Int(0, 23), // Diffie-Hellman
    Int(0, 24), // public key: information
    Int(0, 25), // encrypt
    Int(0, 26), // decrypt
    Int(0, 27), // sign
    Int(0, 28), // verify
    Int(0, 31), // what the kernel can do
];

/// Actions of `syslog(2)`: opening, reading without clearing, sizes.
const SYSLOG_ASKS: &[Unless] = &[Int(0, 0), Int(0, 1), Int(0, 2), Int(0, 3), Int(0, 9), Int(0, 10)];

#[cfg(test)]
pub fn constants_are_those_of_the_c_library() {
    let errnos = [libc::EPERM, libc::EINVAL, libc::ENOSYS, libc::EOPNOTSUPP];
    assert_eq!([EPERM, EINVAL, ENOSYS, EOPNOTSUPP], errnos);
    assert_eq!([NOFOLLOW, FOLLOW], [libc::AT_SYMLINK_NOFOLLOW as u64, libc::AT_SYMLINK_FOLLOW as u64]);
}
