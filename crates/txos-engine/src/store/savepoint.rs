//! Savepoints of a pending transaction: what its private copies are at one time, so that they can be made
//! that again.
//!
//! A savepoint is a list of every entry of the upper directories and of overlayfs's indexes, or of the private copies
//! of the library's view (a *manifest*), with the content of regular files beside it. Content is copied once: what has the inode
//! and the change time with which it was saved before is not copied again.
//!
//! # Invariants
//!
//! - No saved content shares an inode with an upper directory, in which overlayfs writes in place.
//! - Content that savepoint K was the first to need lies in the directory of K. So savepoints from the
//!   last one downwards can be removed without a look at the others.
//! - Going back ([`restore`]) can be interrupted at any step and repeated: what already is as the
//!   manifest says is known by its identity or made again.
//!
//! ```text
//! tx/ID/saved/K         manifest of savepoint K: the transaction with its first K layers
//! tx/ID/saved/K.reads   the read set then: another name of the file
//! tx/ID/saved/K.deltas  the recorded change set then, if there is one: another name of the file
//! tx/ID/saved/K.seen    the manifest of the last layer, K, as its command left it; its content is not saved yet
//! tx/ID/lN.saved/K/B    content B that savepoint K was the first to need
//! tx/ID/lN.saved/new    objects that are being made, while one goes back
//! ```

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Layer;
use crate::codec;
use crate::error::{Context, Error, Result};
use crate::object::FileKind;
use crate::path::layer::{child, split};
use crate::path::{from_bytes, is_at_or_below, join};
use crate::sys::{self, Sys};
use crate::version::{Stamp, Version, stat_at};

/// First bytes of a manifest.
const MAGIC: &[u8; 8] = b"TXOSSAVE";
/// Format of a manifest.
const FORMAT: u32 = 1;

/// First bytes of what a command left.
const SEEN_MAGIC: &[u8; 8] = b"TXOSSEEN";
/// Format of what a command left.
const SEEN_FORMAT: u32 = 1;

/// Marks of overlayfs that name an inode of the transaction itself: they stay with their inode.
const OF_THE_INODE: [&[u8]; 2] = [b"trusted.overlay.upper", b"user.overlay.upper"];

/// What a savepoint lists, below the layer's directory; `new` is there if the commands ran in the library's view.
const TOPS: [&[u8]; 3] = [b"upper", b"work/index", PRIVATE];

/// Where the private copies of the library's view lie.
const PRIVATE: &[u8] = b"new";

/// The entries of one layer: of the [`TOPS`], by path below the layer's directory.
pub(crate) type Tree = BTreeMap<Vec<u8>, Item>;

/// What a transaction's private copies are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// By number of the layer.
    pub trees: Vec<Tree>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Item {
    /// Type and permissions.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub mtime: Stamp,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub content: Content,
    /// Inode number and change time when it was looked at: they tell whether it is still that.
    pub ino: u64,
    pub ctime: Stamp,
    /// Whether it has several names.
    pub several: bool,
    /// Whether it may have changed since without another change time.
    pub racy: bool,
}

/// What an entry holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Content {
    /// Nothing that has to be saved, or nothing saved yet.
    None,
    /// A symbolic link's target.
    Link(Vec<u8>),
    /// That file of that savepoint.
    Saved {
        /// The savepoint that was the first to need it.
        savepoint: u32,
        /// Its name.
        number: u32,
    },
}

impl Item {
    pub(crate) fn kind(&self) -> FileKind {
        FileKind::from_mode(self.mode)
    }

    /// A character device 0:0: a name that is gone.
    pub(crate) fn is_whiteout(&self) -> bool {
        FileType::from_raw_mode(self.mode) == FileType::CharacterDevice && self.rdev == 0
    }

    /// Whether what was looked at is surely this very object, unchanged.
    fn is(&self, now: &Version) -> bool {
        (self.ino, self.ctime) == (now.id.ino, now.ctime)
            && (self.mode, self.size) == (now.mode, now.size)
            && !self.racy
    }

    /// Whether both are surely one object, unchanged.
    pub(crate) fn is_same(&self, now: &Item) -> bool {
        if self.is_whiteout() && now.is_whiteout() {
            return true; // overlayfs makes them links of one inode.
        }
        (self.ino, self.ctime, self.mode, self.size) == (now.ino, now.ctime, now.mode, now.size)
            && !self.racy
            && !now.racy
    }
}

impl Manifest {
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let body = postcard::to_stdvec(self)
            .map_err(|e| Error::io("encoding", "a savepoint", std::io::Error::other(e)))?;
        Ok(codec::seal(MAGIC, FORMAT, &body))
    }

    /// Reads what [`Manifest::to_bytes`] wrote. No path in it leads out of its layer.
    pub(crate) fn from_bytes(bytes: &[u8], path: &Path) -> Result<Manifest> {
        let bad = |problem: String| Error::Format {
            path: path.to_owned(),
            problem,
            advice: "The transaction can be committed or aborted, but not taken back to it.",
        };
        let (_, body) = codec::open(bytes, MAGIC, "a savepoint", FORMAT..=FORMAT).map_err(bad)?;
        let manifest: Manifest =
            postcard::from_bytes(body).map_err(|_| bad("is damaged (encoding)".into()))?;
        if manifest.is_sound() { Ok(manifest) } else { Err(bad("is damaged (paths)".into())) }
    }

    /// Whether no path in it leads out of its layer.
    fn is_sound(&self) -> bool {
        self.trees.iter().flat_map(BTreeMap::keys).all(|path| {
            TOPS.iter().any(|top| is_at_or_below(path, top))
                && path.split(|&b| b == b'/').all(|n| !matches!(n, b"" | b"." | b".."))
        })
    }
}

/// What the private copies were when a command had just ended in them: the next savepoint needs no other look.
///
/// It is a hint. One that is missing, damaged or another command's costs a look.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// When the command began: what tells it from one that was undone.
    pub begun: Option<Stamp>,
    /// The private copies.
    pub manifest: Manifest,
}

impl Seen {
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let body = postcard::to_stdvec(self)
            .map_err(|e| Error::io("encoding", "a savepoint", std::io::Error::other(e)))?;
        Ok(codec::seal(SEEN_MAGIC, SEEN_FORMAT, &body))
    }

    /// Reads what [`Seen::to_bytes`] wrote, if it is whole.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Seen> {
        let formats = SEEN_FORMAT..=SEEN_FORMAT;
        let (_, body) = codec::open(bytes, SEEN_MAGIC, "a look", formats).ok()?;
        let seen: Seen = postcard::from_bytes(body).ok()?;
        seen.manifest.is_sound().then_some(seen)
    }
}

/// Looks again at the entries of which a look can't say whether they changed since. `None` if any of them did, or may have
/// done so silently, or can't be looked at.
pub(crate) fn confirmed(layer: &Layer, mut tree: Tree) -> Option<Tree> {
    let top_fd = open(top(layer)).ok()?;
    if changes_silently(top_fd.as_fd()) {
        return None;
    }
    for (path, item) in tree.iter_mut().filter(|(_, item)| item.racy) {
        let (dir, name) = split(path);
        let dir = sys::open_dir_beneath(top_fd.as_fd(), dir).ok()?;
        let now = stat_at(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        item.racy = false;
        if !item.is(&now) {
            return None;
        }
        item.racy = now.is_racy(Stamp::now_coarse());
    }
    Some(tree)
}

/// The directory of a layer within its store.
pub(crate) fn top(layer: &Layer) -> &Path {
    layer.upper.parent().unwrap_or(&layer.upper)
}

/// Where a layer's saved content is.
pub(crate) fn place(layer: &Layer) -> PathBuf {
    let mut path = top(layer).as_os_str().to_owned();
    path.push(".saved");
    path.into()
}

/// Where the content of an entry can be read, if it was saved.
pub(crate) fn saved_content(layer: &Layer, item: &Item) -> Option<PathBuf> {
    match item.content {
        Content::Saved { savepoint, number } => {
            Some(place(layer).join(savepoint.to_string()).join(number.to_string()))
        }
        _ => None,
    }
}

fn shown(layer: &Layer, path: &[u8]) -> PathBuf {
    from_bytes(&join(top(layer).as_os_str().as_bytes(), path))
}

fn open(dir: &Path) -> Result<OwnedFd> {
    sys::open(dir.as_os_str().as_bytes(), OFlags::RDONLY | OFlags::DIRECTORY, 0).at("opening", dir)
}

/// Looks at all entries of a layer. Content is taken from `known` where it is the same object still.
pub(crate) fn look(layer: &Layer, known: Option<&Tree>) -> Result<Tree> {
    let top_fd = open(top(layer))?;
    let silent = changes_silently(top_fd.as_fd());
    let mut found = Tree::new();
    let of = |path: &[u8]| known.and_then(|known| known.get(path));
    for root in TOPS {
        let Some(item) = look_at_top(layer, top_fd.as_fd(), root, of(root))? else { continue };
        found.insert(root.to_vec(), item);
        let mut dirs = vec![root.to_vec()];
        while let Some(dir) = dirs.pop() {
            let fd = sys::open_dir_beneath(top_fd.as_fd(), &dir);
            let fd = fd.at("opening", shown(layer, &dir))?;
            let names = sys::names_in(fd.as_fd()).at("listing", shown(layer, &dir))?;
            for (name, _) in names {
                if dir == b"work/index" && name.starts_with(b"#") {
                    continue; // A whiteout in the making, which the next mount removes.
                }
                let path = child(&dir, &name);
                let looked = stat_at(fd.as_fd(), &name, AtFlags::SYMLINK_NOFOLLOW)
                    .and_then(|v| self::item(fd.as_fd(), &name, &v, of(&path)));
                let mut item = looked.at("looking at", shown(layer, &path))?;
                if silent && item.kind() == FileKind::File && item.size > 0 {
                    item.racy = true;
                    if let Some(known) = of(&path)
                        && holds_the_same(layer, &path, &item, known)
                    {
                        item.content = known.content.clone();
                    }
                }
                if item.kind() == FileKind::Dir {
                    dirs.push(path.clone());
                }
                found.insert(path, item);
            }
        }
    }
    Ok(found)
}

/// Whether a file can change there without another change time: on tmpfs a store to a shared mapping moves none, if the
/// page was only read before.
fn changes_silently(dir: BorrowedFd<'_>) -> bool {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    // Of what can't be asked nothing is taken for granted.
    let kind = rustix::fs::fstatfs(dir).map_or(TMPFS, |found| found.f_type as u32);
    [TMPFS, RAMFS].contains(&kind)
}

/// Whether a file holds what was saved of it, byte by byte.
fn holds_the_same(layer: &Layer, path: &[u8], item: &Item, known: &Item) -> bool {
    let alike = (known.ino, known.ctime, known.mode, known.size)
        == (item.ino, item.ctime, item.mode, item.size);
    let saved = saved_content(layer, known).filter(|_| alike);
    saved
        .is_some_and(|saved| super::merge::same_bytes(&shown(layer, path), &saved).unwrap_or(false))
}

/// Looks at one of the [`TOPS`]; nothing if there is no index.
fn look_at_top(
    layer: &Layer,
    top: BorrowedFd<'_>,
    root: &[u8],
    known: Option<&Item>,
) -> Result<Option<Item>> {
    let looked = stat_at(top, root, AtFlags::SYMLINK_NOFOLLOW);
    match looked.and_then(|version| item(top, root, &version, known)) {
        Ok(item) => Ok(Some(item)),
        Err(Errno::NOENT) if root != b"upper" => Ok(None),
        Err(e) => Err(Error::io("looking at", shown(layer, root), e)),
    }
}

fn item(dir: BorrowedFd<'_>, name: &[u8], version: &Version, known: Option<&Item>) -> Sys<Item> {
    let racy = version.is_racy(Stamp::now_coarse());
    if let Some(known) = known
        && known.is(version)
    {
        return Ok(Item { racy, several: version.nlink > 1, ..known.clone() });
    }
    let xattrs = sys::xattrs_in(dir, name)?;
    let content = match version.kind() {
        FileKind::Symlink => Content::Link(sys::look("readlink", || {
            let link = sys::open_at(dir, name, OFlags::PATH | OFlags::NOFOLLOW)?;
            rustix::fs::readlinkat(link, c"", Vec::new()).map(|t| t.into_bytes())
        })?),
        _ => Content::None,
    };
    Ok(Item {
        mode: version.mode,
        uid: version.uid,
        gid: version.gid,
        rdev: version.rdev,
        size: version.size,
        mtime: version.mtime,
        xattrs,
        content,
        ino: version.id.ino,
        ctime: version.ctime,
        several: version.nlink > 1 && version.kind() != FileKind::Dir,
        racy,
    })
}

/// Saves the content of a layer's regular files that is not saved yet, as that of savepoint `number`.
/// With `flush`, durably.
pub(crate) fn save_content(layer: &Layer, tree: &mut Tree, number: u32, flush: bool) -> Result<()> {
    /// From so many files on, the file system is flushed at once.
    const APART_MAX: usize = 16;
    let mut copied: HashMap<u64, Content> = HashMap::new();
    let wanted: Vec<Vec<u8>> = tree
        .iter()
        .filter(|(_, item)| item.kind() == FileKind::File && item.content == Content::None)
        .map(|(path, _)| path.clone())
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let place = place(layer);
    let (place_fd, name) = (open(&place)?, number.to_string());
    sys::mkdir(place_fd.as_fd(), name.as_bytes(), 0o700).at("creating", place.join(&name))?;
    let to = sys::open_dir_beneath(place_fd.as_fd(), name.as_bytes());
    let to = to.at("opening", place.join(&name))?;
    let top_fd = open(top(layer))?;
    let mut files = Vec::new();
    for path in wanted {
        let Some(item) = tree.get_mut(&path) else { continue };
        if let Some(content) = copied.get(&item.ino) {
            item.content = content.clone();
            continue;
        }
        let next = u32::try_from(copied.len()).unwrap_or(u32::MAX);
        let copy = || {
            let (dir, base) = split(&path);
            let dir = sys::open_dir_beneath(top_fd.as_fd(), dir)?;
            let from = sys::open_at(dir.as_fd(), base, OFlags::RDONLY | OFlags::NOFOLLOW)?;
            let file = sys::create(to.as_fd(), next.to_string().as_bytes())?;
            crate::sys_copy::content(&from, &file)?;
            Ok::<_, Errno>(file)
        };
        let file = copy().at("saving", shown(layer, &path))?;
        if flush && files.len() <= APART_MAX {
            files.push(file);
        }
        item.content = Content::Saved { savepoint: number, number: next };
        copied.insert(item.ino, item.content.clone());
    }
    if !flush {
        return Ok(());
    }
    if files.len() > APART_MAX {
        return sys::syncfs(place_fd.as_fd()).at("flushing", &place);
    }
    let flushed = files.iter().try_for_each(|file| sys::fdatasync(file.as_fd())).and_then(|()| {
        let readable = sys::open_at(to.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        sys::fsync(readable.as_fd())?;
        sys::fsync(place_fd.as_fd())
    });
    flushed.at("flushing", &place)
}

/// The entries of a layer whose transaction has just begun: the tops, with the attributes of what the layer
/// lies over, if that is still there.
pub(crate) fn beginning(layer: &Layer) -> Result<Tree> {
    if super::transaction::is_removed(&layer.target) {
        let (top_fd, mut tree) = (open(top(layer))?, Tree::new());
        for root in TOPS {
            if let Some(now) = look_at_top(layer, top_fd.as_fd(), root, None)? {
                tree.insert(root.to_vec(), now);
            }
        }
        return Ok(tree);
    }
    let place = place(layer);
    let (home, new) = (open(&place)?, place.join("new"));
    // Empty, if a process died here.
    let _ = sys::unlink(home.as_fd(), b"new", AtFlags::REMOVEDIR);
    sys::mkdir(home.as_fd(), b"new", 0o700).at("creating", &new)?;
    let fresh = super::copy_attributes(&layer.target, &new).and_then(|()| {
        let version = stat_at(home.as_fd(), b"new", AtFlags::SYMLINK_NOFOLLOW);
        version.and_then(|v| item(home.as_fd(), b"new", &v, None)).at("looking at", &new)
    });
    sys::unlink(home.as_fd(), b"new", AtFlags::REMOVEDIR).at("removing", &new)?;
    let mut fresh = fresh?;
    let (top_fd, mut tree) = (open(top(layer))?, Tree::new());
    for root in TOPS {
        let Some(now) = look_at_top(layer, top_fd.as_fd(), root, None)? else { continue };
        let item = if root == b"upper" {
            // By its marks overlayfs knows it again.
            fresh.xattrs.extend(now.xattrs.into_iter().filter(|(name, _)| is_mark(name)));
            fresh.clone()
        } else {
            now
        };
        tree.insert(root.to_vec(), item);
    }
    Ok(tree)
}

/// Whether a path is that of a directory that a savepoint begins at.
pub(super) fn is_top(path: &[u8]) -> bool {
    TOPS.contains(&path)
}

/// Whether an attribute names an inode of the transaction itself.
pub(super) fn is_of_the_inode(xattr: &[u8]) -> bool {
    OF_THE_INODE.contains(&xattr)
}

pub(super) fn is_mark(xattr: &[u8]) -> bool {
    xattr.starts_with(b"trusted.overlay.") || xattr.starts_with(b"user.overlay.")
}

/// Makes a layer's directories what `wanted` says. Gives the entries as they are then, with the same
/// content; `None` if nothing was to be done.
pub(crate) fn restore(layer: &Layer, wanted: &Tree) -> Result<Option<Tree>> {
    restore_from(layer, layer, wanted)
}

/// [`restore`], with what `from` has saved.
pub(crate) fn restore_from(layer: &Layer, from: &Layer, wanted: &Tree) -> Result<Option<Tree>> {
    make_as(layer, from, wanted, false)
}

/// [`restore`], with what `from` has now: `wanted` is what was seen when it was looked at. Processes may change it
/// meanwhile.
pub(crate) fn copy_from(layer: &Layer, from: &Layer, wanted: &Tree) -> Result<Option<Tree>> {
    make_as(layer, from, wanted, true)
}

fn make_as(layer: &Layer, from: &Layer, wanted: &Tree, live: bool) -> Result<Option<Tree>> {
    match make_once(layer, from, wanted, live) {
        Err(Error::Io { source, .. })
            if source.kind() == std::io::ErrorKind::PermissionDenied
                && wanted.contains_key(PRIVATE) =>
        {
            // An ordinary user's directory that its mode closes, where there is no helper with his rights: all is made anew.
            Restore::begin(layer, from)?.discard_private()?;
            make_once(layer, from, wanted, live)
        }
        done => done,
    }
}

fn make_once(layer: &Layer, from: &Layer, wanted: &Tree, live: bool) -> Result<Option<Tree>> {
    let now = look(layer, Some(wanted))?;
    let work = Restore { live, ..Restore::begin(layer, from)? };
    let changed = work.changed(wanted, &now);
    let gone = work.remove(wanted, &now)?;
    if changed.is_empty() && !gone && now.len() == wanted.len() && is_still(wanted, &now) {
        work.end()?;
        return Ok(None);
    }
    work.make(wanted, &now, &changed)?;
    work.directories(wanted)?;
    work.end()?;
    let mut after = look(layer, Some(wanted))?;
    let same = after.len() == wanted.len()
        && after.iter_mut().zip(wanted).all(|((path, item), (old, was))| {
            item.content = was.content.clone();
            let is_dir = item.kind() == FileKind::Dir;
            path == old && item.mode == was.mode && (is_dir || item.size == was.size)
        });
    if same {
        return Ok(Some(after));
    }
    let error = std::io::Error::other("it changes while it is taken back");
    Err(Error::io("taking back", &layer.upper, error))
}

/// Whether no directory has to be corrected either.
fn is_still(wanted: &Tree, now: &Tree) -> bool {
    wanted.iter().all(|(path, item)| now.get(path).is_some_and(|now| item.is_same(now)))
}

/// Going back, in one layer.
struct Restore<'a> {
    layer: &'a Layer,
    /// Where content is saved.
    from: &'a Layer,
    /// Content is what `from` has now, saved or not.
    live: bool,
    top: OwnedFd,
    place: PathBuf,
    new: OwnedFd,
    trash: OwnedFd,
    discarded: Cell<u32>,
}

impl<'a> Restore<'a> {
    fn begin(layer: &'a Layer, from: &'a Layer) -> Result<Self> {
        let (place, trash) = (place(layer), layer.store.join("trash"));
        let (new, parent) = (place.join("new"), open(&place)?);
        let mut work = Restore {
            layer,
            from,
            live: false,
            top: open(top(layer))?,
            new: open(&place)?,
            place,
            trash: open(&trash)?,
            discarded: Cell::new(0),
        };
        match work.discard(parent.as_fd(), b"new") {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(Error::io("discarding", &new, e)),
        }
        sys::mkdir(parent.as_fd(), b"new", 0o700).at("creating", &new)?;
        work.new = open(&new)?;
        Ok(work)
    }

    /// Moves an entry to the trash of its store.
    fn discard(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Sys<()> {
        let number = self.discarded.get();
        self.discarded.set(number + 1);
        let to = format!("back-{}-{}-{number}", std::process::id(), Stamp::now().as_ns());
        sys::rename(dir, name, self.trash.as_fd(), to.as_bytes(), RenameFlags::NOREPLACE)
    }

    /// Takes the private copies of the library's view away.
    fn discard_private(self) -> Result<()> {
        match self.discard(self.top.as_fd(), PRIVATE) {
            Ok(()) | Err(Errno::NOENT) => self.end(),
            Err(e) => Err(Error::io("discarding", self.shown(PRIVATE), e)),
        }
    }

    fn end(self) -> Result<()> {
        let parent = open(&self.place)?;
        sys::unlink(parent.as_fd(), b"new", AtFlags::REMOVEDIR)
            .at("removing", self.place.join("new"))
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        shown(self.layer, path)
    }

    fn dir_of<'p>(&self, path: &'p [u8]) -> Sys<(OwnedFd, &'p [u8])> {
        let (dir, name) = split(path);
        Ok((sys::open_dir_beneath(self.top.as_fd(), dir)?, name))
    }

    /// The entries other than directories that have to be made: all names of an object, or none.
    fn changed(&self, wanted: &Tree, now: &Tree) -> HashSet<Vec<u8>> {
        let files = || wanted.iter().filter(|(_, item)| item.kind() != FileKind::Dir);
        let differs =
            |(path, item): &(&Vec<u8>, &Item)| !now.get(*path).is_some_and(|now| item.is_same(now));
        let inodes: HashSet<u64> = files()
            .filter(|(_, item)| item.several && !item.is_whiteout())
            .filter(differs)
            .map(|(_, item)| item.ino)
            .collect();
        files()
            .filter(|entry| {
                let grouped = entry.1.several && !entry.1.is_whiteout();
                differs(entry) || grouped && inodes.contains(&entry.1.ino)
            })
            .map(|(path, _)| path.clone())
            .collect()
    }

    /// Takes away what is not wanted, or is of another kind. Whether there was any.
    fn remove(&self, wanted: &Tree, now: &Tree) -> Result<bool> {
        let is_dir = |item: &Item| item.kind() == FileKind::Dir;
        // Parents come before what is in them.
        let mut gone: HashSet<&[u8]> = HashSet::new();
        for (path, item) in now {
            let went_with = gone.contains(split(path).0);
            let stays = wanted.get(path).is_some_and(|wanted| is_dir(wanted) == is_dir(item));
            if stays && !went_with {
                continue;
            }
            gone.insert(path);
            if went_with {
                continue;
            }
            let remove = || {
                let (dir, name) = self.dir_of(path)?;
                match is_dir(item) {
                    true => self.discard(dir.as_fd(), name),
                    false => sys::unlink(dir.as_fd(), name, AtFlags::empty()),
                }
            };
            remove().at("removing", self.shown(path))?;
        }
        Ok(!gone.is_empty())
    }

    /// Makes what is wanted and not there, parents first.
    fn make(&self, wanted: &Tree, now: &Tree, changed: &HashSet<Vec<u8>>) -> Result<()> {
        let mut first: HashMap<u64, &[u8]> = HashMap::new();
        let is_dir = |item: &Item| item.kind() == FileKind::Dir;
        for (number, (path, item)) in wanted.iter().enumerate() {
            let name = number.to_string();
            let make = || -> Sys<()> {
                if is_dir(item) {
                    if now.get(path).is_some_and(is_dir) {
                        return Ok(());
                    }
                    sys::mkdir(self.new.as_fd(), name.as_bytes(), 0o700)?;
                } else if !changed.contains(path) {
                    return Ok(());
                } else if let Some(first) = first.get(&item.ino).filter(|_| item.several) {
                    let (dir, base) = self.dir_of(first)?;
                    sys::link(dir.as_fd(), base, self.new.as_fd(), name.as_bytes())?;
                } else {
                    self.object(name.as_bytes(), path, item)?;
                }
                let (dir, base) = self.dir_of(path)?;
                let flags = RenameFlags::empty();
                sys::rename(self.new.as_fd(), name.as_bytes(), dir.as_fd(), base, flags)
            };
            make().at("taking back", self.shown(path))?;
            if item.several && !is_dir(item) && !item.is_whiteout() && changed.contains(path) {
                first.entry(item.ino).or_insert(path);
            }
        }
        Ok(())
    }

    /// Makes an object that is no directory in the place for new ones.
    fn object(&self, name: &[u8], path: &[u8], item: &Item) -> Sys<()> {
        let new = self.new.as_fd();
        match (&item.content, FileType::from_raw_mode(item.mode)) {
            (Content::Link(target), FileType::Symlink) => {
                sys::step("save symlink", || rustix::fs::symlinkat(&target[..], new, name))?;
            }
            (_, FileType::RegularFile) => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
                let from = if self.live {
                    let (dir, base) = split(path);
                    let top = sys::open(top(self.from).as_os_str().as_bytes(), OFlags::PATH, 0)?;
                    sys::open_at(sys::open_dir_beneath(top.as_fd(), dir)?.as_fd(), base, flags)?
                } else {
                    let saved = saved_content(self.from, item).ok_or(Errno::NODATA)?;
                    sys::open(saved.as_os_str().as_bytes(), flags, 0)?
                };
                let to = sys::create(new, name)?;
                crate::sys_copy::content(&from, &to)?;
                if self.live && sys::size(&to)? > item.size {
                    // It has grown since it was looked at.
                    sys::truncate(to.as_fd(), item.size)?;
                }
            }
            (_, kind) => sys::step("save mknod", || {
                rustix::fs::mknodat(new, name, kind, Mode::RUSR | Mode::WUSR, item.rdev)
            })?,
        }
        attributes(new, name, item)
    }

    /// Corrects the directories, from below: what is made in one changes its times.
    fn directories(&self, wanted: &Tree) -> Result<()> {
        for (path, item) in wanted.iter().rev().filter(|(_, i)| i.kind() == FileKind::Dir) {
            let correct = || -> Sys<()> {
                let dir = sys::open_dir_beneath(self.top.as_fd(), path)?;
                let now = stat_at(dir.as_fd(), b"", AtFlags::EMPTY_PATH)?;
                if item.is(&now) {
                    return Ok(());
                }
                if now.mode & 0o700 != 0o700 {
                    // While its mode closes it, not every attribute can be set. It gets the mode last.
                    sys::chmod(dir.as_fd(), now.mode & 0o7777 | 0o700)?;
                }
                attributes(dir.as_fd(), b"", item)
            };
            correct().at("taking back", self.shown(path))?;
        }
        Ok(())
    }
}

/// Gives an entry the attributes that are wanted; the directory itself for an empty name.
pub(crate) fn attributes(dir: BorrowedFd<'_>, name: &[u8], item: &Item) -> Sys<()> {
    let path = sys::entry_path(dir, name);
    let now = match name {
        b"" => stat_at(dir, b"", AtFlags::EMPTY_PATH)?,
        name => stat_at(dir, name, AtFlags::SYMLINK_NOFOLLOW)?,
    };
    let is_link = item.kind() == FileKind::Symlink;
    // A directory that nobody may search is reached by what is open, not by a name in it.
    let own = match name {
        b"" => {
            format!("/proc/thread-self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&dir)).into_bytes()
        }
        _ => path.clone(),
    };
    if (now.uid, now.gid) != (item.uid, item.gid) {
        let follow = if name.is_empty() { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        sys::step("save chown", || {
            let (uid, gid) = (Uid::from_raw(item.uid), Gid::from_raw(item.gid));
            rustix::fs::chownat(CWD, &own[..], Some(uid), Some(gid), follow)
        })?;
    }
    // After the owner, whose change takes capabilities away; before the mode, which may take away the
    // right to set them.
    let there = sys::xattrs(&path)?;
    let ours = |attr: &[u8]| !OF_THE_INODE.contains(&attr);
    for (attr, _) in there.iter().filter(|(attr, _)| ours(attr)) {
        if !item.xattrs.iter().any(|(wanted, _)| wanted == attr) {
            sys::remove_xattr(dir, if name.is_empty() { b"." } else { name }, attr)?;
        }
    }
    for entry in item.xattrs.iter().filter(|(attr, _)| ours(attr)) {
        // A label that the system gives by itself is there already, and can't always be set.
        if !there.contains(entry) {
            sys::set_xattr(dir, if name.is_empty() { b"." } else { name }, &entry.0, &entry.1)?;
        }
    }
    if !is_link {
        let mode = Mode::from_raw_mode(item.mode & 0o7777);
        sys::step("save chmod", || rustix::fs::chmod(&own[..], mode))?;
    }
    let at = if name.is_empty() { &b"."[..] } else { name };
    sys::set_mtime(dir, at, item.mtime)
}
