//! A change of a name that is the first call of a transaction: its answer is foreseen, and nothing else is done yet.
//!
//! Making, removing or linking a name in shadow walks to it, and looks at each directory on the way. A transaction of that
//! one call needs none of it. So the first call is answered by what the kernel says of the directory, of the name and of the
//! permission. Where that does not say that the call would succeed, it is made in shadow.
//!
//! - A second call makes the first in shadow: from then on the transaction is one of several calls. If the
//!   first would not succeed any more, somebody came in between, and the transaction is doomed.
//! - The end acquires the names and the object. Then it looks once more whether the path leads to the same
//!   directory, and the name to the same object, and makes the call in that directory.
//!
//! Why that is isolated: both looks lie between two equal numbers of [`txos_engine::realm::Realm::quiet`], so they see no
//! half of a commit. The second comes after all that the call changes was acquired: it is the instant at which the transaction takes
//! place. Who has looked at what it changes holds that, so none that has is still at work. The call goes by the
//! directory and not by the path, so who changes the way from there on comes after it.

use std::sync::Mutex;

use txos_engine::object::{FileId, FileKind};
use txos_engine::realm::{Access, Facet};
use txos_engine::scope::{self, NEVER};

use super::kernel::{self, CWD, Errno, Glance, OwnedFd, Sys};
use super::perm::mask;
use super::single_call::{Change, is_others, quiet};
use super::{Failure, Tx, reason};
use crate::call::Call;

/// How often the end looks whether all is as it was, while others publish. Then it is made in shadow.
const LOOKS: usize = 8;
/// A file of fewer names can have one more on every file system.
const LINKS: u32 = 1000;
/// The longest name.
const NAME_MAX: usize = 255;
/// What keeps a name or an object from being changed.
const FIXED: u64 = libc::STATX_ATTR_IMMUTABLE as u64 | libc::STATX_ATTR_APPEND as u64;

/// What the call is to do.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Makes a directory of this mode.
    Mkdir(u32),
    Symlink,
    Link,
    Unlink,
}

/// A name, and the directory that it is in.
#[derive(Debug)]
struct Name {
    dir: Vec<u8>,
    dir_id: FileId,
    dir_mnt: u64,
    name: Vec<u8>,
}

/// A call that would succeed by all that was looked at.
#[derive(Debug)]
pub struct Foreseen {
    /// As the program made it.
    pub change: Change,
    act: Act,
    /// The name that comes or goes.
    name: Name,
    /// What is removed, or what gets one more name: which object, of what kind.
    object: Option<(FileId, FileKind)>,
    /// The name that a link is made of.
    source: Option<Name>,
}

/// The directories of the name, and of the source where that is in another one.
type Places = (OwnedFd, Option<OwnedFd>);

/// How the end found what had been foreseen.
enum Now {
    Same(Places),
    /// Something else is there, or nothing.
    Other,
    /// Somebody publishes.
    Busy,
    /// It could not be looked at.
    Unknown,
}

impl Tx {
    /// Whether a call would succeed, by all that the kernel says of its paths.
    pub fn foresee(&self, change: &Change) -> Option<Foreseen> {
        let act = act_of(&change.call)?;
        // Whose rights count is the kernel's present answer. An attempt that follows another one takes the long way: if the two
        // ways come to different answers, that ends there.
        if self.process.who != 0 || self.how.attempt > 0 || !self.may_be_plain() {
            return None;
        }
        let (_, path) = change.paths.last()?;
        let (dir, name) = split(path)?;
        let before = quiet()?;
        let parent = self.directory_of_names(dir)?;
        kernel::access_at(CWD, dir, mask::W | mask::X, libc::AT_EACCESS).ok()?;
        let there = kernel::glance(CWD, path, libc::AT_SYMLINK_NOFOLLOW);
        if matches!(act, Act::Unlink) != there.is_ok() || there.is_err_and(|e| e != Errno::NOENT) {
            return None;
        }
        let mut foreseen = Foreseen {
            change: change.clone(),
            act,
            name: Name::of(dir, &parent, name),
            object: None,
            source: None,
        };
        match act {
            Act::Mkdir(_) => {}
            Act::Symlink => {
                let (_, target) = change.paths.first()?;
                (1..libc::PATH_MAX as usize).contains(&target.len()).then_some(())?;
            }
            Act::Unlink => {
                let object = there.ok().filter(|object| is_plain_in(object, &parent))?;
                if parent.mode & libc::S_ISVTX != 0 || object.kind() == FileKind::Dir {
                    return None;
                }
                foreseen.object = Some((object.id, object.kind()));
            }
            Act::Link => {
                let (_, path) = change.paths.first()?;
                let (dir, name) = split(path)?;
                let from =
                    if dir == foreseen.name.dir { parent } else { self.directory_of_names(dir)? };
                let file = kernel::glance(CWD, path, libc::AT_SYMLINK_NOFOLLOW).ok()?;
                let is_plain = is_plain_in(&file, &from) && is_plain_in(&file, &parent);
                if !is_plain || file.kind() != FileKind::File || !(1..LINKS).contains(&file.nlink) {
                    return None;
                }
                if super::settings::protected_hardlinks() && kernel::file_user() != file.uid {
                    return None;
                }
                foreseen.object = Some((file.id, FileKind::File));
                foreseen.source = Some(Name::of(dir, &from, name));
            }
        }
        (quiet() == Some(before)).then_some(foreseen)
    }

    /// A versioned directory in which names may come and go.
    fn directory_of_names(&self, path: &[u8]) -> Option<Glance> {
        let dir = kernel::glance(CWD, path, 0).ok()?;
        if !path.starts_with(b"/") && !leads_to_working_directory() {
            return None;
        }
        let versioned = self.copies.file_systems.contains(&((dir.id.dev, dir.mnt), true));
        // One without a name is not to get any.
        let plain = dir.kind() == FileKind::Dir && dir.nlink > 0 && dir.attributes & FIXED == 0;
        (versioned && plain && !may_be_never_versioned(&dir)).then_some(dir)
    }

    /// There is more than the one call: it is made in shadow.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub fn unfold(&mut self, foreseen: &Foreseen) -> Sys<()> {
        // Another thread may have changed the working directory.
        match foreseen.look() {
            Ok(None) => Err(self.changed_between(&shown(&foreseen.change.paths))),
            _ => self.make_in_shadow(&foreseen.change),
        }
    }

    fn make_in_shadow(&mut self, change: &Change) -> Sys<()> {
        match change.with_own_paths(|call| self.carry_out(call)) {
            Ok(_) => Ok(()),
            Err(_) if self.doom.is_some() => Err(super::acquire::DOOMED),
            Err(errno) if is_others(errno) || is_refused(errno) => {
                Err(self.changed_between(&shown(&change.paths)))
            }
            Err(errno) => {
                self.doom(Failure {
                    reason: reason::FAILED,
                    errno: errno.raw_os_error(),
                    what: format!(
                        "{}: what would have succeeded when it was called can't be made: {}",
                        String::from_utf8_lossy(&shown(&change.paths)),
                        std::io::Error::from(errno)
                    ),
                    ..Failure::default()
                });
                Err(super::acquire::DOOMED)
            }
        }
    }

    /// The end of a transaction of this one call. `None`: it has to be made in shadow.
    pub fn finish_foreseen(&mut self, foreseen: &Foreseen) -> Option<Result<(), Failure>> {
        if self.acquire_foreseen(foreseen).is_err() {
            return Some(Err(self.doom.take().unwrap_or_default()));
        }
        let mut now = look_again(foreseen);
        for _ in 1..LOOKS {
            if matches!(now, Now::Busy) {
                std::thread::yield_now();
                now = look_again(foreseen);
            }
        }
        let places = match now {
            Now::Same(places) => places,
            Now::Busy | Now::Unknown => return None,
            Now::Other => return Some(Err(self.changed_before_end(foreseen))),
        };
        // Both directories are on one mount: a link from one to the other that crosses something will again.
        let is_others = |errno| errno != Errno::XDEV && is_others(errno);
        let done = self.publish_alone(Ok(()), is_others, || foreseen.make(&places));
        let refused = |failure: &Failure| {
            failure.reason == reason::FAILED
                && is_refused(Errno::from_raw_os_error(failure.errno))
                && foreseen.name.is_closed()
        };
        Some(match done {
            // Somebody has taken a permission away: the next attempt's call is told so.
            Err(failure) if refused(&failure) => Err(self.changed_before_end(foreseen)),
            done => done,
        })
    }

    fn changed_before_end(&mut self, foreseen: &Foreseen) -> Failure {
        let path = shown(&foreseen.change.paths);
        let _ = self.changed_outside(&path, "it was changed between the call and the end");
        self.doom.take().unwrap_or_default()
    }

    fn acquire_foreseen(&mut self, foreseen: &Foreseen) -> Sys<()> {
        let paths = &foreseen.change.paths;
        let path = shown(paths);
        let Name { dir_id: dir, ref name, .. } = foreseen.name;
        self.acquire(&Facet::Entry { dir, name }, Access::Write, &path)?;
        self.acquire(&Facet::Listing(dir), Access::Insert, &path)?;
        let Some((id, kind)) = foreseen.object else { return Ok(()) };
        // Of a link, what gets one more name has another.
        let path = shown(paths.get(..1).unwrap_or_default());
        if let Some(Name { dir_id: dir, ref name, .. }) = foreseen.source {
            self.acquire(&Facet::Entry { dir, name }, Access::Write, &path)?;
        }
        self.acquire(&Facet::Attributes(id), Access::Write, &path)?;
        match kind {
            FileKind::File => self.acquire(&Facet::Extent(id), Access::Write, &path),
            _ => Ok(()),
        }
    }
}

impl Name {
    fn of(path: &[u8], dir: &Glance, name: &[u8]) -> Name {
        Name { dir: path.to_vec(), dir_id: dir.id, dir_mnt: dir.mnt, name: name.to_vec() }
    }

    /// Whether names may not come and go there now.
    fn is_closed(&self) -> bool {
        let may = mask::W | mask::X;
        kernel::access_at(CWD, &self.dir, may, libc::AT_EACCESS).is_err_and(is_refused)
            || kernel::glance(CWD, &self.dir, 0).is_ok_and(|dir| dir.attributes & FIXED != 0)
    }

    /// Its directory, if the path still leads to that. `None`: it leads elsewhere, or nowhere.
    fn open_directory(&self) -> Sys<Option<OwnedFd>> {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let dir = match kernel::open(&self.dir, flags, 0) {
            Ok(fd) => OwnedFd::of(fd),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        let now = kernel::identify_fd(dir.number())?;
        let is_it = now.id == self.dir_id && now.mnt == self.dir_mnt && now.nlink > 0;
        Ok(is_it.then_some(dir))
    }
}

impl Foreseen {
    /// Makes the call in the directories that were looked at.
    fn make(&self, (dir, source): &Places) -> Sys<()> {
        let at = (dir.number(), self.name.name.as_slice());
        match (self.act, self.change.paths.first(), &self.source) {
            (Act::Mkdir(mode), ..) => kernel::mkdir_at(at, mode),
            (Act::Unlink, ..) => kernel::unlink_at(at, 0),
            (Act::Symlink, Some((_, target)), _) => kernel::symlink_at(target, at),
            (Act::Link, _, Some(from)) => {
                let number = source.as_ref().unwrap_or(dir).number();
                kernel::link_at((number, &from.name), at, 0)
            }
            (Act::Symlink | Act::Link, ..) => Err(Errno::IO),
        }
        .map(drop)
    }

    fn look(&self) -> Sys<Option<Places>> {
        let Some(dir) = self.name.open_directory()? else { return Ok(None) };
        let source = match &self.source {
            Some(source) if source.dir != self.name.dir => match source.open_directory()? {
                Some(dir) => Some(dir),
                None => return Ok(None),
            },
            _ => None,
        };
        let Some(object) = self.object else { return Ok(Some((dir, source))) };
        let name = self.source.as_ref().unwrap_or(&self.name);
        let at = source.as_ref().unwrap_or(&dir).number();
        match kernel::glance(at, &name.name, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(now) if (now.id, now.kind()) == object => Ok(Some((dir, source))),
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// The last of some paths, for people.
fn shown(paths: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let path = paths.last().map(|(_, path)| path.clone()).unwrap_or_default();
    match path.first() {
        Some(b'/') => path,
        _ => match kernel::working_directory() {
            Ok(cwd) if cwd == b"/" => [cwd.as_slice(), &path].concat(),
            Ok(cwd) => [cwd.as_slice(), b"/", &path].concat(),
            Err(_) => path,
        },
    }
}

/// Whether all is as it was when the answer was foreseen.
fn look_again(foreseen: &Foreseen) -> Now {
    let Some(before) = quiet() else { return Now::Busy };
    let now = foreseen.look();
    if quiet() != Some(before) {
        return Now::Busy;
    }
    match now {
        Ok(Some(places)) => Now::Same(places),
        Ok(None) => Now::Other,
        Err(_) => Now::Unknown,
    }
}

/// Whether an object is on the mount of its directory, may be changed, and is not mounted upon.
fn is_plain_in(object: &Glance, dir: &Glance) -> bool {
    let fixed = FIXED | libc::STATX_ATTR_MOUNT_ROOT as u64;
    object.id.dev == dir.id.dev && object.mnt == dir.mnt && object.attributes & fixed == 0
}

/// What the kernel says where it permitted the call before.
fn is_refused(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM | Errno::ROFS)
}

fn act_of(call: &Call) -> Option<Act> {
    match call.number() {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => Some(Act::Mkdir(call.word(1) as u32)),
        libc::SYS_mkdirat => Some(Act::Mkdir(call.word(2) as u32)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_symlink => Some(Act::Symlink),
        libc::SYS_symlinkat => Some(Act::Symlink),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => Some(Act::Link),
        libc::SYS_linkat if call.int(4) == 0 => Some(Act::Link),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => Some(Act::Unlink),
        libc::SYS_unlinkat if call.int(2) == 0 => Some(Act::Unlink),
        _ => None,
    }
}

/// The directory of a path, and the name in it.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let never = super::open::leads_to_descriptor(path) || scope::is_never(path);
    if path.len() >= libc::PATH_MAX as usize || never {
        return None;
    }
    let (dir, name) = match path.iter().rposition(|&byte| byte == b'/') {
        None => (&b"."[..], path),
        Some(0) => (&b"/"[..], path.get(1..)?),
        Some(at) => (path.get(..at)?, path.get(at + 1..)?),
    };
    let plain = !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_MAX;
    plain.then_some((dir, name))
}

/// Whether a path leads to the working directory: what is done in any other is live.
fn leads_to_working_directory() -> bool {
    let there = kernel::working_directory().and_then(|path| kernel::glance(CWD, &path, 0));
    let here = kernel::glance(CWD, b".", 0);
    there.is_ok_and(|there| here.is_ok_and(|here| (there.id, there.mnt) == (here.id, here.mnt)))
}

/// Whether a directory may be in a tree that is never versioned: such a tree is on the mount of the root directory where it
/// is no mount itself. Then only the way to the directory says which it is in.
fn may_be_never_versioned(dir: &Glance) -> bool {
    /// Of the root directory that was asked about last: which one, on which mount, and whether such a tree is on that.
    static KNOWN: Mutex<Option<(FileId, u64, bool)>> = Mutex::new(None);
    let Ok(root) = kernel::glance(CWD, b"/", 0) else { return true };
    if dir.mnt != root.mnt {
        return false;
    }
    // In a child, a thread that is not there may have it.
    let mut known = KNOWN.try_lock().ok();
    match known.as_deref() {
        Some(&Some((id, mnt, has_some))) if (id, mnt) == (root.id, root.mnt) => has_some,
        _ => {
            // One that is not there may be made.
            let is_elsewhere = |tree: &str| {
                kernel::glance(CWD, tree.as_bytes(), 0).is_ok_and(|tree| tree.mnt != root.mnt)
            };
            let has_some = !NEVER.into_iter().all(is_elsewhere);
            if let Some(known) = known.as_deref_mut() {
                *known = Some((root.id, root.mnt, has_some));
            }
            has_some
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn the_last_name_of_a_path_is_a_plain_one() {
        assert_eq!(split(b"name"), Some((&b"."[..], &b"name"[..])));
        assert_eq!(split(b"/name"), Some((&b"/"[..], &b"name"[..])));
        assert_eq!(split(b"../a//name"), Some((&b"../a/"[..], &b"name"[..])));
        for path in [&b""[..], b"/", b"a/", b"a/.", b"..", b"/proc/self/cwd/name", b"/run/name"] {
            assert_eq!(split(path), None, "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(split(&[b'n'; 256]), None);
    }
}
