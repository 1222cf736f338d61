//! What a transaction answers, call by call, on a real directory and without a realm: the modules of `tx/` from
//! inside. Commits, and copies in the store, are tested with the built library (`txos-testkit`).
#![allow(unsafe_code)] // calls as a program makes them

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::node::changed;
use super::single_call::First;
use super::{How, Tx};
use crate::call::Call;

/// A directory, and a transaction that works in it.
struct Scene {
    dir: PathBuf,
    tx: Option<Box<Tx>>,
}

impl Scene {
    fn new() -> Scene {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("txos-runtime-unit-{}-{n}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        let dir = dir.canonicalize().unwrap();
        std::fs::write(dir.join("file"), "hello").unwrap();
        std::fs::create_dir(dir.join("d")).unwrap();
        std::fs::write(dir.join("d/inner"), "inner").unwrap();
        std::os::unix::fs::symlink("d", dir.join("link")).unwrap();
        Scene { dir, tx: Some(Tx::begin(How::default()).unwrap()) }
    }

    fn tx(&mut self) -> &mut Tx {
        self.tx.as_mut().unwrap()
    }

    fn call(&mut self, number: i64, words: [u64; 6]) -> i64 {
        // SAFETY: every caller below passes pointers to what lives until the answer.
        let call = unsafe { Call::new(number, words) };
        self.tx().call(&call)
    }

    /// Makes a call with paths in the directory as its first arguments.
    fn named(&mut self, number: i64, names: &[&str], more: &[u64]) -> i64 {
        let paths: Vec<CString> = names.iter().map(|name| c_path(&self.dir.join(name))).collect();
        let mut words = [0; 6];
        let all = paths.iter().map(|path| path.as_ptr() as u64).chain(more.iter().copied());
        words.iter_mut().zip(all).for_each(|(word, value)| *word = value);
        self.call(number, words)
    }

    /// `lstat`: the mode and the number of links.
    fn lstat(&mut self, name: &str) -> Result<(u32, u64), i64> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        match self.named(libc::SYS_lstat, &[name], &[stat.as_mut_ptr() as u64]) {
            // SAFETY: zeroes are a `stat`, and so is what the call has written.
            0 => Ok(unsafe { stat.assume_init() }).map(|stat| (stat.st_mode, stat.st_nlink)),
            errno => Err(errno),
        }
    }

    fn open(&mut self, name: &str, flags: i32) -> i64 {
        self.named(libc::SYS_open, &[name], &[flags as u64, 0o644])
    }

    fn read(&mut self, fd: i64) -> Vec<u8> {
        let mut room = [0_u8; 64];
        let got = self.call(libc::SYS_read, [fd as u64, room.as_mut_ptr() as u64, 64, 0, 0, 0]);
        room[..usize::try_from(got).unwrap()].to_vec()
    }

    /// The names that a listing tells, sorted.
    fn list(&mut self, fd: i64) -> Vec<String> {
        let mut names = Vec::new();
        loop {
            let mut room = [0_u8; 1024];
            let words = [fd as u64, room.as_mut_ptr() as u64, 1024, 0, 0, 0];
            let mut rest = match self.call(libc::SYS_getdents64, words) {
                0 => break,
                got => &room[..usize::try_from(got).unwrap()],
            };
            while !rest.is_empty() {
                let size = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
                let name = rest[19..size].split(|&b| b == 0).next().unwrap();
                names.push(String::from_utf8(name.to_vec()).unwrap());
                rest = &rest[size..];
            }
        }
        names.sort();
        names
    }

    /// The stable tree, as `find` would show it.
    fn stable(&self) -> Vec<String> {
        let mut found: Vec<String> = ["", "d"]
            .iter()
            .flat_map(|dir| std::fs::read_dir(self.dir.join(dir)).unwrap())
            .map(|entry| entry.unwrap().path().strip_prefix(&self.dir).unwrap().to_owned())
            .map(|path| path.to_str().unwrap().to_owned())
            .collect();
        found.sort();
        found
    }

    /// Aborts; the stable tree is as it was made.
    fn abort(mut self) {
        let _ = self.tx.take().unwrap().abort();
        assert_eq!(self.stable(), ["d", "d/inner", "file", "link"]);
        assert_eq!(std::fs::read(self.dir.join("file")).unwrap(), b"hello");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

const fn err(errno: i32) -> i64 {
    -(errno as i64)
}

const ENOENT: Result<(u32, u64), i64> = Err(err(libc::ENOENT));

#[test]
fn names_come_and_go_in_the_transaction_alone() {
    let mut scene = Scene::new();
    assert_eq!(scene.named(libc::SYS_mkdir, &["new"], &[0o700]), 0);
    assert_eq!(scene.named(libc::SYS_mkdir, &["new"], &[0o700]), err(libc::EEXIST));
    assert_eq!(scene.lstat("new"), Ok((libc::S_IFDIR | 0o700, 2)));
    assert_eq!(scene.named(libc::SYS_link, &["file", "new/second"], &[]), 0);
    assert_eq!(scene.lstat("file").unwrap().1, 2);
    assert_eq!(scene.named(libc::SYS_rmdir, &["new"], &[]), err(libc::ENOTEMPTY));
    assert_eq!(scene.named(libc::SYS_unlink, &["file"], &[]), 0);
    assert_eq!(scene.lstat("file"), ENOENT);
    assert_eq!(scene.lstat("new/second").unwrap().1, 1);
    assert_eq!(scene.named(libc::SYS_rename, &["new", "d/new"], &[]), 0);
    assert_eq!(scene.lstat("d/new/second").unwrap().1, 1);
    assert_eq!(scene.named(libc::SYS_rename, &["d", "d/new/below"], &[]), err(libc::EINVAL));
    assert_eq!(scene.named(libc::SYS_symlink, &["file", "dangling"], &[]), 0);
    assert_eq!(scene.lstat("dangling").unwrap().0 & libc::S_IFMT, libc::S_IFLNK);
    scene.abort();
}

#[test]
fn a_walk_passes_links_dots_and_what_was_made() {
    let mut scene = Scene::new();
    let root = scene.dir.clone();
    assert_eq!(scene.named(libc::SYS_mkdir, &["d/deep"], &[0o755]), 0);
    for path in ["link/deep", "link/../d/./deep", "d/deep/../deep/", "link//deep"] {
        assert_eq!(
            scene.lstat(path).map(|stat| stat.0 & libc::S_IFMT),
            Ok(libc::S_IFDIR),
            "{path}"
        );
    }
    assert_eq!(scene.lstat("file/x"), Err(err(libc::ENOTDIR)));
    assert_eq!(scene.lstat("none/x"), ENOENT);
    let loops = c_path(&root.join("loop"));
    let words = [c"loop".as_ptr() as u64, loops.as_ptr() as u64, 0, 0, 0, 0];
    assert_eq!(scene.call(libc::SYS_symlink, words), 0);
    assert_eq!(scene.lstat("loop/x"), Err(err(libc::ELOOP)));
    scene.abort();
}

#[test]
fn descriptors_have_the_lowest_number_that_the_program_sees_free() {
    let mut scene = Scene::new();
    let one = scene.open("file", libc::O_RDONLY);
    let two = scene.call(libc::SYS_dup, [one as u64, 0, 0, 0, 0, 0]);
    assert!(one >= 0 && two >= 0 && two != one, "{one} {two}");
    // One description: the offset is shared.
    assert_eq!(scene.read(one), b"hello");
    assert_eq!(scene.read(two), b"");
    assert_eq!(scene.call(libc::SYS_close, [one as u64, 0, 0, 0, 0, 0]), 0);
    let closed = scene.call(libc::SYS_read, [one as u64, 0, 0, 0, 0, 0]);
    assert_eq!(closed, err(libc::EBADF));
    let flags = |fd: i64, command: i32, more: u64| [fd as u64, command as u64, more, 0, 0, 0];
    assert_eq!(scene.call(libc::SYS_fcntl, flags(two, libc::F_GETFD, 0)), 0);
    let set = flags(two, libc::F_SETFD, libc::FD_CLOEXEC as u64);
    assert_eq!(scene.call(libc::SYS_fcntl, set), 0);
    assert_eq!(scene.call(libc::SYS_fcntl, flags(two, libc::F_GETFD, 0)), 1);
    assert_eq!(scene.call(libc::SYS_close, [two as u64, 0, 0, 0, 0, 0]), 0);
    assert_eq!(scene.call(libc::SYS_close, [two as u64, 0, 0, 0, 0, 0]), err(libc::EBADF));
    scene.abort();
}

#[test]
fn what_is_written_into_pages_is_read_again_and_the_file_stays() {
    let mut scene = Scene::new();
    let fd = scene.open("file", libc::O_RDWR);
    let bytes = *b"J";
    let write = [fd as u64, bytes.as_ptr() as u64, 1, 0, 0, 0];
    assert_eq!(scene.call(libc::SYS_pwrite64, write), 1);
    assert_eq!(scene.read(fd), b"Jello");
    assert_eq!(std::fs::read(scene.dir.join("file")).unwrap(), b"hello");
    let other = scene.open("file", libc::O_RDONLY);
    assert_eq!(scene.read(other), b"Jello");
    assert_eq!(
        scene.call(libc::SYS_pwrite64, [other as u64, bytes.as_ptr() as u64, 1, 0, 0, 0]),
        err(libc::EBADF)
    );
    scene.abort();
}

#[test]
fn a_listing_has_what_was_made_and_not_what_was_removed() {
    let mut scene = Scene::new();
    assert_eq!(scene.named(libc::SYS_mkdir, &["new"], &[0o755]), 0);
    assert_eq!(scene.named(libc::SYS_unlink, &["file"], &[]), 0);
    let fd = scene.open("", libc::O_RDONLY | libc::O_DIRECTORY);
    assert_eq!(scene.list(fd), [".", "..", "d", "link", "new"]);
    let fd = scene.open("new", libc::O_RDONLY | libc::O_DIRECTORY);
    assert_eq!(scene.list(fd), [".", ".."]);
    scene.abort();
}

#[test]
fn attributes_are_the_transactions() {
    let mut scene = Scene::new();
    assert_eq!(scene.named(libc::SYS_chmod, &["file"], &[0o600]), 0);
    assert_eq!(scene.lstat("file").unwrap().0, libc::S_IFREG | 0o600);
    let fd = scene.open("d", libc::O_RDONLY);
    assert_eq!(scene.call(libc::SYS_fchmod, [fd as u64, 0o500, 0, 0, 0, 0]), 0);
    assert_eq!(scene.lstat("d").unwrap().0, libc::S_IFDIR | 0o500);
    let changed_modes =
        scene.tx().tree.nodes.iter().filter(|node| node.changed & changed::MODE != 0).count();
    assert_eq!(changed_modes, 2);
    scene.abort();
}

#[test]
fn the_first_call_is_put_off_until_there_is_a_second() {
    let mut scene = Scene::new();
    assert!(scene.lstat("file").is_ok());
    assert!(matches!(scene.tx().start.first, First::Look(_)));
    assert!(scene.tx().tree.nodes.is_empty(), "the kernel has looked");
    assert!(scene.lstat("d").is_ok());
    assert!(matches!(scene.tx().start.first, First::Over));
    // Somebody changes what the first call has seen, before there is a second.
    let mut other = Scene::new();
    assert!(other.lstat("file").is_ok());
    std::fs::write(other.dir.join("file"), "somebody else").unwrap();
    let _ = other.lstat("d");
    assert_eq!(other.tx().doomed().map(|failure| failure.errno), Some(libc::ECANCELED));
    let _ = other.tx.take().unwrap().abort();
    scene.abort();
}

#[test]
fn two_names_changed_may_be_one_move() {
    let mut scene = Scene::new();
    assert_eq!(scene.named(libc::SYS_link, &["file", "d/moved"], &[]), 0);
    assert_eq!(scene.named(libc::SYS_unlink, &["file"], &[]), 0);
    assert!(scene.tx().only_move().is_some());
    assert_eq!(scene.named(libc::SYS_unlink, &["d/inner"], &[]), 0);
    assert!(scene.tx().only_move().is_none(), "a third name");
    scene.abort();
    let mut scene = Scene::new();
    assert!(scene.lstat("d").is_ok());
    assert_eq!(scene.named(libc::SYS_rename, &["file", "d/moved"], &[]), 0);
    assert!(scene.tx().only_move().is_none(), "it has looked at more than names");
    scene.abort();
}

#[test]
fn the_mask_and_the_directory_are_the_transactions() {
    let mut scene = Scene::new();
    let before = scene.call(libc::SYS_umask, [0o077, 0, 0, 0, 0, 0]);
    assert!(before >= 0);
    assert_eq!(scene.named(libc::SYS_mkdir, &["new"], &[0o777]), 0);
    assert_eq!(scene.lstat("new").unwrap().0, libc::S_IFDIR | 0o700);
    assert_eq!(scene.call(libc::SYS_umask, [before as u64, 0, 0, 0, 0, 0]), 0o077);
    let cwd = std::env::current_dir().unwrap();
    assert_eq!(scene.named(libc::SYS_chdir, &["new"], &[]), 0);
    let mut room = [0_u8; 4096];
    let got = scene.call(libc::SYS_getcwd, [room.as_mut_ptr() as u64, 4096, 0, 0, 0, 0]);
    let end = usize::try_from(got).unwrap() - 1;
    assert_eq!(&room[..end], scene.dir.join("new").as_os_str().as_bytes());
    assert_eq!(std::env::current_dir().unwrap(), cwd);
    scene.abort();
}

#[test]
fn a_change_is_not_stamped_before_the_one_before_it() {
    use txos_engine::version::Stamp;
    let stamp = |sec, nsec| Stamp { sec, nsec };
    let tick = super::not_before(stamp(7, 4_453_907), stamp(7, 0));
    assert_eq!(tick, stamp(7, 4_453_907));
    assert_eq!(super::not_before(stamp(6, 999_999_999), stamp(7, 0)), stamp(7, 0));
    // The clock was set back, or the time was set by hand: that is no reason to keep it.
    assert_eq!(super::not_before(stamp(8, 0), stamp(7, 0)), stamp(7, 0));
}
