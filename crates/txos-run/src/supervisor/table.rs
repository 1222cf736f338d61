//! The calls at which a process of a transaction is stopped, one row each, with the reason.
//!
//! A call that is not here goes to the kernel unseen and costs nothing: the kernel keeps a bitmap
//! of calls that the filter always allows. Calls on descriptors (`fchmod`, `ftruncate`, …) are not
//! here because the descriptor was opened, and that was seen.

use txos_engine::object::Facets;

use crate::warning::WarningKind;

/// Where a path comes from: the argument with the directory descriptor (none: the working
/// directory), and the argument with the path's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Argument with the directory's descriptor.
    pub dir: Option<usize>,
    /// Argument with the path's address.
    pub path: usize,
}

const fn at(path: usize) -> At {
    At { dir: None, path }
}

const fn under(dir: usize, path: usize) -> At {
    At { dir: Some(dir), path }
}

/// Whether a symbolic link at the end of the path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Always.
    Yes,
    /// Never.
    No,
    /// Unless this argument has this bit.
    Unless(usize, u64),
    /// If this argument has this bit.
    If(usize, u64),
}

/// Where an open call's flags are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenFlags {
    /// In this argument.
    Arg(usize),
    /// In the first word of the structure that this argument points to.
    How(usize),
    /// `creat(2)`: they are fixed.
    Creat,
}

/// What the supervisor does about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// A file is opened.
    Open(At, OpenFlags),
    /// Something is looked at.
    Look(At, Follow, Facets),
    /// Something is altered by its name.
    Change(At, Follow, Facets),
    /// Something is made.
    Make(At),
    /// `unlinkat(2)`: a file, or a directory, which then was empty.
    Unlink(At, Option<usize>),
    /// Something is moved; the argument with the flags.
    Rename(At, At, Option<usize>),
    /// A second name is made.
    Link(At, At, Follow),
    /// A symbolic link is made.
    Symlink(At),
    /// A program is executed.
    Execute(At),
    /// The directory open as this argument is listed.
    List(usize),
    /// The root directory changes.
    Chroot(At),
    /// Another mount namespace is entered, or the root of this one changed.
    NewRoot,
    /// Credentials are taken or given up.
    NewIds(Ids),
    /// A socket is connected.
    Connect,
    /// A socket is given a name.
    Bind,
    /// A datagram is sent to an address.
    SendTo,
    /// A message is sent, perhaps to an address.
    SendMessage,
    /// A signal to a process or a group: `kill(2)`.
    Kill,
    /// A signal with a value to a process: `rt_sigqueueinfo(2)`.
    Queue,
    /// A signal to a thread: `tkill(2)`.
    KillThread,
    /// A signal to a thread of a process: `tgkill(2)`.
    KillThreadOf,
    /// The same with a value: `rt_tgsigqueueinfo(2)`.
    QueueThreadOf,
    /// A signal through a descriptor.
    KillDescriptor,
    /// Messages are sent, perhaps to addresses.
    SendMessages,
    /// A process is traced.
    Trace,
    /// Something of a process is changed or taken, which is done how.
    OfProcess(Whose, &'static str),
    /// A System V object is got; the argument with the flags.
    SysvGet(Sysv, usize),
    /// The same is changed or removed; the argument with the command.
    SysvControl(Sysv, usize),
    /// Namespaces of a descriptor are entered.
    EnterNamespaces,
    /// Another process's memory is written.
    WriteMemory,
    /// Mounts are changed.
    Mount,
    /// A clock is adjusted, if the structure at this argument says so.
    AdjustClock(usize),
    /// Cannot be rolled back, whatever the arguments.
    Beyond(WarningKind, &'static str),
    /// Refused by the filter itself, with this errno.
    Refuse(i32),
}

/// Which process a call concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The one with this argument's number.
    Number(usize),
    /// A process, a group, or all of a user: the argument that says which, its value for a process (the
    /// others follow), and the argument with the number.
    Kind(usize, i32, usize),
    /// The one of this descriptor.
    Descriptor(usize),
}

/// Which credentials a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// The users in so many of its first arguments.
    Users(usize),
    /// The groups in so many of its first arguments.
    Groups(usize),
    /// Others.
    Others,
}

/// A kind of System V object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysv {
    /// A shared memory segment.
    Memory,
    /// A set of semaphores.
    Semaphores,
    /// A message queue.
    Queue,
}

/// When the filter lets a call through without asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unless {
    /// The low half of the argument is this.
    Int(usize, u32),
    /// The argument is a null pointer (or zero in all 64 bits).
    Null(usize),
    /// The low half of the argument is none of these.
    NoneOf(usize, &'static [u32]),
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number on this machine.
    pub number: i64,
    /// What is done about it.
    pub handler: Handler,
    /// When it is let through unseen.
    pub unless: &'static [Unless],
    /// Why it is here.
    pub why: &'static str,
}

const fn row(number: i64, handler: Handler, unless: &'static [Unless], why: &'static str) -> Row {
    Row { number, handler, unless, why }
}

const NOFOLLOW: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;
const FOLLOW: u64 = libc::AT_SYMLINK_FOLLOW as u64;
const ENTRY: Facets = Facets::ENTRY;
const ATTRS: Facets = Facets(Facets::ENTRY.0 | Facets::ATTRS.0);
const DATA: Facets = Facets(Facets::ENTRY.0 | Facets::DATA.0);
const XATTRS: Facets = Facets(Facets::ENTRY.0 | Facets::XATTRS.0);
const WRITE: Facets = Facets(Facets::ENTRY.0 | Facets::WRITE.0);
const WRITE_XATTRS: Facets = Facets(WRITE.0 | Facets::XATTRS.0);
const EMPTIED: Facets = Facets(WRITE.0 | Facets::LISTING.0);

const LOOKS: &str = "the outcome of the look-up is part of what was read";
const READS: &str = "what the file holds is part of what was read";
const CHANGES: &str = "the version it starts from is the base of the change";
const LEAVES: &str = "it leaves the machine or reaches a service; nobody can take it back";
const IDENTITY: &str = "what is done on its behalf is done with its credentials";
const RUNNING: &str = "it changes the running system at once";
const OUTSIDER: &str = "an outsider's process would be changed";
const PRIORITY: &str = "changes the priority of";
const FLAGS: &str = "what is published has no file flags: they would be lost without a word";
const SIGNALS: &str = "a signal to a process outside is held until the commit";

use Handler as H;

/// Numbers that the C library's bindings do not name on every architecture.
mod number {
    pub const QUOTACTL_FD: i64 = 443;
    pub const FCHMODAT2: i64 = 452;
    pub const SETXATTRAT: i64 = 463;
    pub const GETXATTRAT: i64 = 464;
    pub const LISTXATTRAT: i64 = 465;
    pub const REMOVEXATTRAT: i64 = 466;
    pub const OPEN_TREE_ATTR: i64 = 467;
    pub const FILE_GETATTR: i64 = 468;
    pub const FILE_SETATTR: i64 = 469;
}

/// The calls of every architecture, the frequent ones first.
pub const COMMON: &[Row] = &[
    row(libc::SYS_openat, H::Open(under(0, 1), OpenFlags::Arg(2)), &[], READS),
    row(
        libc::SYS_newfstatat,
        H::Look(under(0, 1), Follow::Unless(3, NOFOLLOW), ATTRS),
        &[Unless::Null(1)],
        LOOKS,
    ),
    row(
        libc::SYS_statx,
        H::Look(under(0, 1), Follow::Unless(2, NOFOLLOW), ATTRS),
        &[Unless::Null(1)],
        LOOKS,
    ),
    row(libc::SYS_getdents64, H::List(0), &[], "the names in it are part of what was read"),
    row(libc::SYS_readlinkat, H::Look(under(0, 1), Follow::No, DATA), &[], LOOKS),
    row(libc::SYS_faccessat, H::Look(under(0, 1), Follow::Yes, ATTRS), &[], LOOKS),
    row(libc::SYS_faccessat2, H::Look(under(0, 1), Follow::Unless(3, NOFOLLOW), ATTRS), &[], LOOKS),
    row(libc::SYS_openat2, H::Open(under(0, 1), OpenFlags::How(2)), &[], READS),
    row(libc::SYS_execve, H::Execute(at(0)), &[], READS),
    row(libc::SYS_execveat, H::Execute(under(0, 1)), &[], READS),
    row(libc::SYS_chdir, H::Look(at(0), Follow::Yes, ENTRY), &[], LOOKS),
    row(libc::SYS_unlinkat, H::Unlink(under(0, 1), Some(2)), &[], CHANGES),
    row(libc::SYS_renameat2, H::Rename(under(0, 1), under(2, 3), Some(4)), &[], CHANGES),
    row(libc::SYS_renameat, H::Rename(under(0, 1), under(2, 3), None), &[], CHANGES),
    row(libc::SYS_mkdirat, H::Make(under(0, 1)), &[], CHANGES),
    row(libc::SYS_linkat, H::Link(under(0, 1), under(2, 3), Follow::If(4, FOLLOW)), &[], CHANGES),
    row(libc::SYS_symlinkat, H::Symlink(under(1, 2)), &[], CHANGES),
    row(libc::SYS_mknodat, H::Make(under(0, 1)), &[], CHANGES),
    row(libc::SYS_fchmodat, H::Change(under(0, 1), Follow::Yes, WRITE), &[], CHANGES),
    row(
        number::FCHMODAT2,
        H::Change(under(0, 1), Follow::Unless(3, NOFOLLOW), WRITE),
        &[],
        CHANGES,
    ),
    row(
        libc::SYS_fchownat,
        H::Change(under(0, 1), Follow::Unless(4, NOFOLLOW), WRITE),
        &[],
        CHANGES,
    ),
    row(
        libc::SYS_utimensat,
        H::Change(under(0, 1), Follow::Unless(3, NOFOLLOW), WRITE),
        &[Unless::Null(1)],
        CHANGES,
    ),
    row(libc::SYS_truncate, H::Change(at(0), Follow::Yes, WRITE), &[], CHANGES),
    row(libc::SYS_setxattr, H::Change(at(0), Follow::Yes, WRITE_XATTRS), &[], CHANGES),
    row(libc::SYS_lsetxattr, H::Change(at(0), Follow::No, WRITE_XATTRS), &[], CHANGES),
    row(libc::SYS_removexattr, H::Change(at(0), Follow::Yes, WRITE_XATTRS), &[], CHANGES),
    row(libc::SYS_lremovexattr, H::Change(at(0), Follow::No, WRITE_XATTRS), &[], CHANGES),
    row(
        number::SETXATTRAT,
        H::Change(under(0, 1), Follow::Unless(2, NOFOLLOW), WRITE_XATTRS),
        &[Unless::Null(1)],
        CHANGES,
    ),
    row(
        number::REMOVEXATTRAT,
        H::Change(under(0, 1), Follow::Unless(2, NOFOLLOW), WRITE_XATTRS),
        &[Unless::Null(1)],
        CHANGES,
    ),
    row(libc::SYS_getxattr, H::Look(at(0), Follow::Yes, XATTRS), &[], LOOKS),
    row(libc::SYS_lgetxattr, H::Look(at(0), Follow::No, XATTRS), &[], LOOKS),
    row(libc::SYS_listxattr, H::Look(at(0), Follow::Yes, XATTRS), &[], LOOKS),
    row(libc::SYS_llistxattr, H::Look(at(0), Follow::No, XATTRS), &[], LOOKS),
    row(
        number::GETXATTRAT,
        H::Look(under(0, 1), Follow::Unless(2, NOFOLLOW), XATTRS),
        &[Unless::Null(1)],
        LOOKS,
    ),
    row(
        number::LISTXATTRAT,
        H::Look(under(0, 1), Follow::Unless(2, NOFOLLOW), XATTRS),
        &[Unless::Null(1)],
        LOOKS,
    ),
    row(
        number::FILE_GETATTR,
        H::Look(under(0, 1), Follow::Unless(4, NOFOLLOW), ATTRS),
        &[Unless::Null(1)],
        LOOKS,
    ),
    row(number::FILE_SETATTR, H::Refuse(libc::EOPNOTSUPP), &[], FLAGS),
    row(libc::SYS_ioctl, H::Refuse(libc::EOPNOTSUPP), &[Unless::NoneOf(1, SETS_FLAGS)], FLAGS),
    row(
        libc::SYS_open_tree,
        H::Look(under(0, 1), Follow::Unless(2, NOFOLLOW), ENTRY),
        &[Unless::Null(1)],
        LOOKS,
    ),
    row(
        number::OPEN_TREE_ATTR,
        H::Look(under(0, 1), Follow::Unless(2, NOFOLLOW), ENTRY),
        &[Unless::Null(1)],
        LOOKS,
    ),
    row(libc::SYS_fspick, H::Look(under(0, 1), Follow::Unless(2, 2), ENTRY), &[], LOOKS),
    row(libc::SYS_statfs, H::Look(at(0), Follow::Yes, ENTRY), &[], LOOKS),
    row(libc::SYS_inotify_add_watch, H::Look(at(1), Follow::Yes, ENTRY), &[], LOOKS),
    row(
        libc::SYS_name_to_handle_at,
        H::Look(under(0, 1), Follow::If(4, FOLLOW), ENTRY),
        &[],
        LOOKS,
    ),
    row(libc::SYS_chroot, H::Chroot(at(0)), &[], "absolute paths start elsewhere from then on"),
    row(
        libc::SYS_setns,
        H::EnterNamespaces,
        &[],
        "absolute paths may start elsewhere from then on, even in the stable tree",
    ),
    row(libc::SYS_setuid, H::NewIds(Ids::Users(1)), &[], IDENTITY),
    row(libc::SYS_setgid, H::NewIds(Ids::Groups(1)), &[], IDENTITY),
    row(libc::SYS_setreuid, H::NewIds(Ids::Users(2)), &[], IDENTITY),
    row(libc::SYS_setregid, H::NewIds(Ids::Groups(2)), &[], IDENTITY),
    row(libc::SYS_setresuid, H::NewIds(Ids::Users(3)), &[], IDENTITY),
    row(libc::SYS_setresgid, H::NewIds(Ids::Groups(3)), &[], IDENTITY),
    row(libc::SYS_setfsuid, H::NewIds(Ids::Users(1)), &[], IDENTITY),
    row(libc::SYS_setfsgid, H::NewIds(Ids::Groups(1)), &[], IDENTITY),
    row(libc::SYS_setgroups, H::NewIds(Ids::Others), &[], IDENTITY),
    row(libc::SYS_capset, H::NewIds(Ids::Others), &[], IDENTITY),
    row(
        libc::SYS_prctl,
        H::NewIds(Ids::Others),
        &[Unless::NoneOf(0, LIMITS_CAPABILITIES)],
        IDENTITY,
    ),
    // Beyond files.
    row(
        libc::SYS_sendmsg,
        H::SendMessage,
        &[Unless::Int(2, crate::session::channel::LISTENER_FLAGS)],
        LEAVES,
    ),
    row(libc::SYS_sendmmsg, H::SendMessages, &[], LEAVES),
    row(libc::SYS_sendto, H::SendTo, &[Unless::Null(4)], LEAVES),
    row(libc::SYS_connect, H::Connect, &[], LEAVES),
    row(libc::SYS_bind, H::Bind, &[], CHANGES),
    row(libc::SYS_tgkill, H::KillThreadOf, &[Unless::Int(2, 0)], SIGNALS),
    row(libc::SYS_kill, H::Kill, &[Unless::Int(1, 0), Unless::Int(0, 0)], SIGNALS),
    row(libc::SYS_tkill, H::KillThread, &[Unless::Int(1, 0)], SIGNALS),
    row(libc::SYS_rt_sigqueueinfo, H::Queue, &[Unless::Int(1, 0)], SIGNALS),
    row(libc::SYS_rt_tgsigqueueinfo, H::QueueThreadOf, &[Unless::Int(2, 0)], SIGNALS),
    row(libc::SYS_pidfd_send_signal, H::KillDescriptor, &[Unless::Int(1, 0)], SIGNALS),
    row(libc::SYS_ptrace, H::Trace, &[Unless::Int(0, 0)], OUTSIDER),
    row(libc::SYS_process_vm_writev, H::WriteMemory, &[], OUTSIDER),
    row(
        libc::SYS_process_madvise,
        H::OfProcess(Whose::Descriptor(0), "gives advice on the memory of"),
        &[],
        OUTSIDER,
    ),
    row(
        libc::SYS_pidfd_getfd,
        H::OfProcess(Whose::Descriptor(0), "takes a descriptor from"),
        &[],
        "it leads past the view into the stable tree",
    ),
    row(
        libc::SYS_migrate_pages,
        H::OfProcess(Whose::Number(0), "moves the memory of"),
        &[Unless::Int(0, 0)],
        OUTSIDER,
    ),
    row(
        libc::SYS_move_pages,
        H::OfProcess(Whose::Number(0), "moves the memory of"),
        &[Unless::Int(0, 0)],
        OUTSIDER,
    ),
    row(
        libc::SYS_setpriority,
        H::OfProcess(Whose::Kind(0, 0, 1), PRIORITY),
        &[Unless::Int(1, 0)],
        OUTSIDER,
    ),
    row(
        libc::SYS_ioprio_set,
        H::OfProcess(Whose::Kind(0, 1, 1), PRIORITY),
        &[Unless::Int(1, 0)],
        OUTSIDER,
    ),
    row(
        libc::SYS_prlimit64,
        H::OfProcess(Whose::Number(0), "changes the limits of"),
        &[Unless::Int(0, 0), Unless::Null(2)],
        OUTSIDER,
    ),
    row(
        libc::SYS_sched_setaffinity,
        H::OfProcess(Whose::Number(0), "changes the processors of"),
        &[Unless::Int(0, 0)],
        OUTSIDER,
    ),
    row(
        libc::SYS_sched_setparam,
        H::OfProcess(Whose::Number(0), PRIORITY),
        &[Unless::Int(0, 0)],
        OUTSIDER,
    ),
    row(
        libc::SYS_sched_setscheduler,
        H::OfProcess(Whose::Number(0), PRIORITY),
        &[Unless::Int(0, 0)],
        OUTSIDER,
    ),
    row(
        libc::SYS_sched_setattr,
        H::OfProcess(Whose::Number(0), PRIORITY),
        &[Unless::Int(0, 0)],
        OUTSIDER,
    ),
    row(libc::SYS_mount, H::Mount, &[], RUNNING),
    row(libc::SYS_umount2, H::Mount, &[], RUNNING),
    row(libc::SYS_move_mount, H::Mount, &[], RUNNING),
    row(libc::SYS_mount_setattr, H::Mount, &[], RUNNING),
    row(libc::SYS_pivot_root, H::NewRoot, &[], "absolute paths start elsewhere from then on"),
    row(libc::SYS_adjtimex, H::AdjustClock(0), &[], RUNNING),
    row(libc::SYS_clock_adjtime, H::AdjustClock(1), &[], RUNNING),
    row(libc::SYS_settimeofday, H::Beyond(WarningKind::Clock, "sets the clock"), &[], RUNNING),
    row(libc::SYS_clock_settime, H::Beyond(WarningKind::Clock, "sets the clock"), &[], RUNNING),
    row(
        libc::SYS_reboot,
        H::Beyond(WarningKind::Reboot, "restarts or stops the machine"),
        &[Unless::Int(2, 0), Unless::Int(2, 0x89AB_CDEF)],
        RUNNING,
    ),
    row(
        libc::SYS_sethostname,
        H::Beyond(WarningKind::Hostname, "sets the name of the machine"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_setdomainname,
        H::Beyond(WarningKind::Hostname, "sets the domain of the machine"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_init_module,
        H::Beyond(WarningKind::Module, "loads a kernel module"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_finit_module,
        H::Beyond(WarningKind::Module, "loads a kernel module"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_delete_module,
        H::Beyond(WarningKind::Module, "removes a kernel module"),
        &[],
        RUNNING,
    ),
    row(libc::SYS_kexec_load, H::Beyond(WarningKind::Module, "loads another kernel"), &[], RUNNING),
    row(
        libc::SYS_kexec_file_load,
        H::Beyond(WarningKind::Module, "loads another kernel"),
        &[],
        RUNNING,
    ),
    row(libc::SYS_swapon, H::Beyond(WarningKind::Swap, "turns swap space on"), &[], RUNNING),
    row(libc::SYS_swapoff, H::Beyond(WarningKind::Swap, "turns swap space off"), &[], RUNNING),
    row(
        libc::SYS_quotactl,
        H::Beyond(WarningKind::Accounting, "changes or reads disk quotas"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_acct,
        H::Beyond(WarningKind::Accounting, "turns process accounting on or off"),
        &[],
        RUNNING,
    ),
    row(
        number::QUOTACTL_FD,
        H::Beyond(WarningKind::Accounting, "changes or reads disk quotas"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_syslog,
        H::Beyond(WarningKind::KernelSetting, "clears or sets up the kernel's log"),
        &[
            Unless::Int(0, 0),
            Unless::Int(0, 1),
            Unless::Int(0, 2),
            Unless::Int(0, 3),
            Unless::Int(0, 9),
            Unless::Int(0, 10),
        ],
        RUNNING,
    ),
    row(libc::SYS_vhangup, H::Beyond(WarningKind::Device, "hangs up its terminal"), &[], RUNNING),
    // Loading leaves nothing behind; attaching, pinning and changing what others use does.
    row(
        libc::SYS_bpf,
        H::Beyond(WarningKind::KernelSetting, "changes programs or tables in the kernel (bpf)"),
        BPF_LOOKS,
        RUNNING,
    ),
    row(
        libc::SYS_fsconfig,
        H::Beyond(WarningKind::Mount, "changes the settings of a mounted file system"),
        &[
            Unless::Int(1, 0),
            Unless::Int(1, 1),
            Unless::Int(1, 2),
            Unless::Int(1, 3),
            Unless::Int(1, 4),
            Unless::Int(1, 5),
            Unless::Int(1, 6),
            Unless::Int(1, 8),
        ],
        RUNNING,
    ),
    row(
        libc::SYS_add_key,
        H::Beyond(WarningKind::Keyring, "adds a key to the kernel's key store"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_request_key,
        H::Beyond(WarningKind::Keyring, "has a key made for the kernel's key store"),
        &[Unless::Null(2)],
        RUNNING,
    ),
    row(
        libc::SYS_keyctl,
        H::Beyond(WarningKind::Keyring, "changes the kernel's key store"),
        KEYCTL_LOOKS,
        RUNNING,
    ),
    row(libc::SYS_shmget, H::SysvGet(Sysv::Memory, 2), &[Unless::Int(0, 0)], RUNNING),
    row(libc::SYS_msgget, H::SysvGet(Sysv::Queue, 1), &[Unless::Int(0, 0)], RUNNING),
    row(libc::SYS_semget, H::SysvGet(Sysv::Semaphores, 2), &[Unless::Int(0, 0)], RUNNING),
    row(libc::SYS_shmctl, H::SysvControl(Sysv::Memory, 1), &[], RUNNING),
    row(libc::SYS_msgctl, H::SysvControl(Sysv::Queue, 1), &[], RUNNING),
    row(libc::SYS_semctl, H::SysvControl(Sysv::Semaphores, 2), &[], RUNNING),
    row(
        libc::SYS_mq_open,
        H::Beyond(WarningKind::SysvIpc, "makes or uses a message queue"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_mq_unlink,
        H::Beyond(WarningKind::SysvIpc, "removes a message queue"),
        &[],
        RUNNING,
    ),
    row(
        libc::SYS_io_uring_setup,
        H::Refuse(libc::ENOSYS),
        &[],
        "look-ups through a ring would go unseen; programs fall back to plain calls",
    ),
    row(
        libc::SYS_open_by_handle_at,
        H::Refuse(libc::EPERM),
        &[],
        "a handle leads past the view into the stable tree",
    ),
];

/// `PR_CAPBSET_DROP`, `PR_SET_SECUREBITS`: what is executed next may have fewer.
const LIMITS_CAPABILITIES: &[u32] = &[24, 28];

/// `FS_IOC_SETFLAGS`, the same of 32 bits, `FS_IOC_FSSETXATTR`.
const SETS_FLAGS: &[u32] = &[0x4008_6602, 0x4004_6602, 0x401c_5820];

/// Commands of `bpf(2)` that look, or make what ends with its descriptors.
const BPF_LOOKS: &[Unless] = &[
    Unless::Int(0, 0),  // making a table
    Unless::Int(0, 1),  // looking into it
    Unless::Int(0, 4),  // its next key
    Unless::Int(0, 5),  // loading a program
    Unless::Int(0, 7),  // opening what is pinned
    Unless::Int(0, 10), // trying a program
    Unless::Int(0, 11), // next program
    Unless::Int(0, 12), // next table
    Unless::Int(0, 13), // opening a program
    Unless::Int(0, 14), // opening a table
    Unless::Int(0, 15), // information
    Unless::Int(0, 16), // which programs are attached
    Unless::Int(0, 18), // loading types
    Unless::Int(0, 19), // opening types
    Unless::Int(0, 20), // what a task's descriptor is
    Unless::Int(0, 23), // next types
    Unless::Int(0, 24), // looking at many
    Unless::Int(0, 30), // opening a link
    Unless::Int(0, 31), // next link
];

/// Operations of `keyctl(2)` that look, compute, or are of the process alone.
const KEYCTL_LOOKS: &[Unless] = &[
    Unless::Int(0, 0),  // which keyring
    Unless::Int(0, 1),  // a session of its own
    Unless::Int(0, 6),  // describe
    Unless::Int(0, 10), // search
    Unless::Int(0, 11), // read
    Unless::Int(0, 14), // where requested keys go
    Unless::Int(0, 16), // assume authority
    Unless::Int(0, 17), // security label
    Unless::Int(0, 23), // Diffie-Hellman
    Unless::Int(0, 24), // public key: information
    Unless::Int(0, 25), // encrypt
    Unless::Int(0, 26), // decrypt
    Unless::Int(0, 27), // sign
    Unless::Int(0, 28), // verify
    Unless::Int(0, 31), // what the kernel can do
];

/// Calls of 32-bit programs that are not let through, as on x86 the kernel numbers them, and their native
/// numbers: nobody outside may be reached or changed by a program for its being old, and a 64-bit program may
/// make them as well (`int 0x80`). Each has its arguments where the native call has them.
#[cfg(target_arch = "x86_64")]
pub const FOREIGN: &[(u32, i64)] = &[
    (37, libc::SYS_kill),
    (238, libc::SYS_tkill),
    (270, libc::SYS_tgkill),
    (178, libc::SYS_rt_sigqueueinfo),
    (335, libc::SYS_rt_tgsigqueueinfo),
    (424, libc::SYS_pidfd_send_signal),
    (425, libc::SYS_io_uring_setup),
    (342, libc::SYS_open_by_handle_at),
    (5, libc::SYS_open),
    (295, libc::SYS_openat),
    (437, libc::SYS_openat2),
    (8, libc::SYS_creat),
    (33, libc::SYS_access),
    (307, libc::SYS_faccessat),
    (439, libc::SYS_faccessat2),
    (85, libc::SYS_readlink),
    (305, libc::SYS_readlinkat),
    (383, libc::SYS_statx),
    (10, libc::SYS_unlink),
    (301, libc::SYS_unlinkat),
    (40, libc::SYS_rmdir),
    (38, libc::SYS_rename),
    (302, libc::SYS_renameat),
    (353, libc::SYS_renameat2),
    (39, libc::SYS_mkdir),
    (296, libc::SYS_mkdirat),
    (9, libc::SYS_link),
    (303, libc::SYS_linkat),
    (83, libc::SYS_symlink),
    (304, libc::SYS_symlinkat),
    (14, libc::SYS_mknod),
    (297, libc::SYS_mknodat),
    (15, libc::SYS_chmod),
    (306, libc::SYS_fchmodat),
    (30, libc::SYS_utime),
    (271, libc::SYS_utimes),
    (299, libc::SYS_futimesat),
    (11, libc::SYS_execve),
    (358, libc::SYS_execveat),
    (61, libc::SYS_chroot),
    (217, libc::SYS_pivot_root),
    (141, libc::SYS_getdents),
    (220, libc::SYS_getdents64),
    (21, libc::SYS_mount),
    (52, libc::SYS_umount2),
    (346, libc::SYS_setns),
    (185, libc::SYS_capset),
    (229, libc::SYS_getxattr),
    (230, libc::SYS_lgetxattr),
    (232, libc::SYS_listxattr),
    (233, libc::SYS_llistxattr),
    (226, libc::SYS_setxattr),
    (227, libc::SYS_lsetxattr),
    (235, libc::SYS_removexattr),
    (236, libc::SYS_lremovexattr),
    (341, libc::SYS_name_to_handle_at),
    (99, libc::SYS_statfs),
    (362, libc::SYS_connect),
    (361, libc::SYS_bind),
    (26, libc::SYS_ptrace),
    (429, libc::SYS_move_mount),
    (428, libc::SYS_open_tree),
    (442, libc::SYS_mount_setattr),
    (18, libc::SYS_stat),
    (106, libc::SYS_stat),
    (195, libc::SYS_stat),
    (84, libc::SYS_lstat),
    (107, libc::SYS_lstat),
    (196, libc::SYS_lstat),
    (300, libc::SYS_newfstatat),
    (182, libc::SYS_chown),
    (212, libc::SYS_chown),
    (16, libc::SYS_lchown),
    (198, libc::SYS_lchown),
    (298, libc::SYS_fchownat),
    (92, libc::SYS_truncate),
    (193, libc::SYS_truncate),
    (320, libc::SYS_utimensat),
    (412, libc::SYS_utimensat),
    (23, libc::SYS_setuid),
    (213, libc::SYS_setuid),
    (46, libc::SYS_setgid),
    (214, libc::SYS_setgid),
    (70, libc::SYS_setreuid),
    (203, libc::SYS_setreuid),
    (71, libc::SYS_setregid),
    (204, libc::SYS_setregid),
    (164, libc::SYS_setresuid),
    (208, libc::SYS_setresuid),
    (170, libc::SYS_setresgid),
    (210, libc::SYS_setresgid),
    (81, libc::SYS_setgroups),
    (206, libc::SYS_setgroups),
    (138, libc::SYS_setfsuid),
    (215, libc::SYS_setfsuid),
    (139, libc::SYS_setfsgid),
    (216, libc::SYS_setfsgid),
];
/// The same: not known of other architectures.
#[cfg(not(target_arch = "x86_64"))]
pub const FOREIGN: &[(u32, i64)] = &[];

/// The calls that only older architectures have.
#[cfg(target_arch = "x86_64")]
pub const OLD: &[Row] = &[
    row(libc::SYS_open, H::Open(at(0), OpenFlags::Arg(1)), &[], READS),
    row(libc::SYS_stat, H::Look(at(0), Follow::Yes, ATTRS), &[], LOOKS),
    row(libc::SYS_lstat, H::Look(at(0), Follow::No, ATTRS), &[], LOOKS),
    row(libc::SYS_access, H::Look(at(0), Follow::Yes, ATTRS), &[], LOOKS),
    row(libc::SYS_readlink, H::Look(at(0), Follow::No, DATA), &[], LOOKS),
    row(libc::SYS_creat, H::Open(at(0), OpenFlags::Creat), &[], CHANGES),
    row(libc::SYS_getdents, H::List(0), &[], "the names in it are part of what was read"),
    row(libc::SYS_unlink, H::Unlink(at(0), None), &[], CHANGES),
    row(libc::SYS_rmdir, H::Change(at(0), Follow::No, EMPTIED), &[], CHANGES),
    row(libc::SYS_rename, H::Rename(at(0), at(1), None), &[], CHANGES),
    row(libc::SYS_mkdir, H::Make(at(0)), &[], CHANGES),
    row(libc::SYS_link, H::Link(at(0), at(1), Follow::No), &[], CHANGES),
    row(libc::SYS_symlink, H::Symlink(at(1)), &[], CHANGES),
    row(libc::SYS_mknod, H::Make(at(0)), &[], CHANGES),
    row(libc::SYS_chmod, H::Change(at(0), Follow::Yes, WRITE), &[], CHANGES),
    row(libc::SYS_chown, H::Change(at(0), Follow::Yes, WRITE), &[], CHANGES),
    row(libc::SYS_lchown, H::Change(at(0), Follow::No, WRITE), &[], CHANGES),
    row(libc::SYS_utime, H::Change(at(0), Follow::Yes, WRITE), &[], CHANGES),
    row(libc::SYS_utimes, H::Change(at(0), Follow::Yes, WRITE), &[], CHANGES),
    row(
        libc::SYS_futimesat,
        H::Change(under(0, 1), Follow::Yes, WRITE),
        &[Unless::Null(1)],
        CHANGES,
    ),
];

/// The calls that only older architectures have: none here.
#[cfg(not(target_arch = "x86_64"))]
pub const OLD: &[Row] = &[];

/// The calls that the recorder makes at its gate, when it knows that the supervisor was told of the same
/// look before: rows that only look, and an open for reading.
#[cfg(target_arch = "x86_64")]
const GATED: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_access,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
];
#[cfg(not(target_arch = "x86_64"))]
const GATED: &[i64] = &[];

/// Whether the recorder may make this call unseen.
#[must_use]
pub fn is_gated(number: i64) -> bool {
    GATED.contains(&number)
}

/// Every row.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    COMMON.iter().chain(OLD)
}

/// Finds the handler of a call by its number.
#[derive(Debug)]
pub struct Index {
    handlers: Vec<Option<Handler>>,
}

impl Index {
    /// The index of the table.
    #[must_use]
    pub fn new() -> Self {
        let mut handlers = Vec::new();
        for row in rows() {
            let Ok(at) = usize::try_from(row.number) else { continue };
            if handlers.len() <= at {
                handlers.resize(at + 1, None);
            }
            if let Some(slot) = handlers.get_mut(at) {
                *slot = Some(row.handler);
            }
        }
        Index { handlers }
    }

    /// The handler of a call of this architecture.
    #[must_use]
    pub fn of(&self, native: bool, number: i32) -> Option<Handler> {
        if native {
            return self.get(number);
        }
        let number = u32::try_from(number).ok()?;
        let (_, native) = FOREIGN.iter().find(|(foreign, _)| *foreign == number)?;
        self.get(i32::try_from(*native).ok()?)
    }

    /// The handler of this call, if it is in the table.
    #[must_use]
    pub fn get(&self, number: i32) -> Option<Handler> {
        *self.handlers.get(usize::try_from(number).ok()?)?
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_once_and_with_a_reason() {
        let mut numbers: Vec<i64> = rows().map(|r| r.number).collect();
        numbers.sort_unstable();
        let before = numbers.len();
        numbers.dedup();
        assert_eq!(numbers.len(), before);
        assert!(rows().all(|r| r.why.len() > 10));
    }

    #[test]
    fn the_index_finds_every_row() {
        let index = Index::new();
        for row in rows() {
            assert_eq!(index.get(i32::try_from(row.number).unwrap()), Some(row.handler));
        }
        assert_eq!(index.get(i32::try_from(libc::SYS_read).unwrap()), None);
        assert_eq!(index.get(-1), None);
        assert_eq!(index.get(i32::MAX), None);
    }
}
