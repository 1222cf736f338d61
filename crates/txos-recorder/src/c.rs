//! Numbers of the kernel and the C library (x86-64), as the crate `libc` has them: the library is
//! compiled without other crates.
#![allow(non_upper_case_globals)] // names of the kernel

macro_rules! numbers {
    ($($name:ident: $kind:ty = $value:expr;)*) => {
        $(pub const $name: $kind = $value;)*

        #[cfg(test)]
        #[test]
        fn numbers_are_those_of_libc() {
            $(assert_eq!(i128::from($name), i128::from(libc::$name), stringify!($name));)*
        }
    };
}

numbers! {
    SYS_lseek: i64 = 8;
    SYS_mmap: i64 = 9;
    SYS_mprotect: i64 = 10;
    SYS_munmap: i64 = 11;
    SYS_brk: i64 = 12;
    SYS_rt_sigprocmask: i64 = 14;
    SYS_fstat: i64 = 5;
    SYS_close: i64 = 3;
    SYS_access: i64 = 21;
    SYS_getcwd: i64 = 79;
    SYS_readlink: i64 = 89;
    SYS_getxattr: i64 = 191;
    SYS_lgetxattr: i64 = 192;
    SYS_listxattr: i64 = 194;
    SYS_llistxattr: i64 = 195;
    SYS_openat: i64 = 257;
    SYS_newfstatat: i64 = 262;
    SYS_readlinkat: i64 = 267;
    SYS_faccessat: i64 = 269;
    SYS_statx: i64 = 332;
    SYS_faccessat2: i64 = 439;
    AT_FDCWD: i32 = -100;
    AT_SYMLINK_NOFOLLOW: i32 = 0x100;
    AT_EACCESS: i32 = 0x200;
    AT_EMPTY_PATH: i32 = 0x1000;
    AT_STATX_DONT_SYNC: i32 = 0x4000;
    STATX_INO: u32 = 0x100;
    STATX_BTIME: u32 = 0x800;
    STATX_MNT_ID: u32 = 0x1000;
    S_IFMT: u32 = 0o170_000;
    S_IFDIR: u32 = 0o040_000;
    O_ACCMODE: i32 = 3;
    O_RDONLY: i32 = 0;
    O_RDWR: i32 = 2;
    O_CREAT: i32 = 0o100;
    O_TRUNC: i32 = 0o1000;
    O_DIRECTORY: i32 = 0o200_000;
    O_NOFOLLOW: i32 = 0o400_000;
    O_CLOEXEC: i32 = 0o2_000_000;
    O_PATH: i32 = 0o10_000_000;
    O_TMPFILE: i32 = 0o20_200_000;
    PROT_READ: i32 = 1;
    PROT_WRITE: i32 = 2;
    PROT_EXEC: i32 = 4;
    MAP_SHARED: i32 = 1;
    MAP_PRIVATE: i32 = 2;
    MAP_FIXED: i32 = 0x10;
    MAP_ANONYMOUS: i32 = 0x20;
    MAP_FIXED_NOREPLACE: i32 = 0x10_0000;
    SEEK_END: i32 = 2;
    ENOENT: i32 = 2;
    EINTR: i32 = 4;
    EACCES: i32 = 13;
    EFAULT: i32 = 14;
    ENOTDIR: i32 = 20;
    EINVAL: i32 = 22;
    ENOSYS: i32 = 38;
    PATH_MAX: i32 = 4096;
}

/// What `statx` answers, as far as it is looked at.
#[repr(C)]
pub struct Statx {
    pub mask: u32,
    pub block_size: u32,
    pub attributes: u64,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub mode: u16,
    pub spare: u16,
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub attributes_mask: u64,
    pub atime: [u64; 2],
    pub birth_seconds: i64,
    pub birth_nanos: u32,
    pub spare2: u32,
    pub ctime: [u64; 2],
    pub mtime: [u64; 2],
    pub rdev: [u32; 2],
    pub dev_major: u32,
    pub dev_minor: u32,
    pub mount: u64,
    pub rest: [u64; 13],
}

const _: () = assert!(size_of::<Statx>() == 256 && core::mem::offset_of!(Statx, mount) == 144);
