//! Listing directories: what is in the stable one, without what the transaction took away, with what
//! it put there.

use txos_engine::object::FileKind;
use txos_engine::readset::ListingDigest;

use super::Tx;
use super::files::FdTable;
use super::kernel::{self, Errno, Listed, OwnedFd, Sys};
use super::node::Id;
use super::tree::ShadowTree;
use crate::call::Call;

/// How far a descriptor has listed.
#[derive(Debug, Default)]
pub struct Cursor {
    entries: Option<Vec<Listed>>,
    at: usize,
}

impl Tx {
    /// The names in the stable directory of a node, which is part of the read set then.
    ///
    /// # Errors
    /// As `open(2)` and `getdents64(2)`; the transaction is doomed.
    pub fn stable_names(&mut self, id: Id) -> Sys<Vec<Listed>> {
        self.touch_listing(id)?;
        let Some(stable) = self.tree.nodes[id].stable.as_ref() else { return Ok(Vec::new()) };
        let (path, file) = (stable.path.clone(), stable.stat.id);
        // What has no name is reached by a magic link, which has to be followed.
        let link = if kernel::is_magic(&path) { 0 } else { libc::O_NOFOLLOW };
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | link;
        // Whether it may be listed was judged when it was opened.
        let opened = match kernel::as_owner(|| kernel::open(&path, flags, 0)) {
            // rmdir(2) asks for no permission to list.
            Err(Errno::ACCESS) => self.readable_descriptor(id).ok_or(Errno::ACCESS),
            other => other,
        };
        let fd = OwnedFd::of(opened?);
        let is_same = kernel::identify_fd(fd.number()).is_ok_and(|s| s.id == file);
        let names = kernel::list(fd.number());
        drop(fd);
        if !is_same && !self.tree.nodes[id].live {
            return Err(self.changed_outside(&path, "the directory was replaced by another"));
        }
        let names = names?;
        // What is not versioned may have other names at any time, also by this transaction itself.
        if self.tree.nodes[id].live {
            return Ok(names);
        }
        self.note(id, txos_engine::object::Facets::ENTRY);
        let stable = self.tree.nodes[id].stable.as_ref().ok_or(Errno::IO)?;
        let mut set = ListingDigest::default();
        names.iter().for_each(|n| set.add(&n.name));
        if !self.locks.reads.note_names(&stable.dir, &stable.name, set) {
            return Err(
                self.changed_outside(&path, "its names are not those that were listed before")
            );
        }
        Ok(names)
    }

    /// All names in a directory as the transaction sees it, with `.` and `..` first.
    fn listing(&mut self, id: Id) -> Sys<Vec<Listed>> {
        let mut out = Vec::new();
        let parent = self.tree.parent(id);
        for (name, dir) in [(&b"."[..], id), (b"..", parent)] {
            let ino = self.tree.nodes[dir].stat.id.ino;
            out.push(Listed { name: name.to_vec(), ino, kind: libc::DT_DIR });
        }
        let stable = self.stable_names(id)?;
        let node = &self.tree.nodes[id];
        let shadow = node.dir()?;
        let shown = |name: &[u8], id: Id| {
            let stat = &self.tree.nodes[id].stat;
            Listed { name: name.to_vec(), ino: stat.id.ino, kind: kind_of(stat.kind()) }
        };
        for entry in stable {
            match shadow.entries.get(&entry.name[..]) {
                None => out.push(entry),
                Some(known) => out.extend(known.now.map(|id| shown(&entry.name, id))),
            }
        }
        let mut new: Vec<Listed> = shadow
            .entries
            .iter()
            .filter(|(_, e)| e.base.is_none())
            .filter_map(|(name, e)| e.now.map(|id| shown(name, id)))
            .collect();
        new.sort_by(|a, b| a.name.cmp(&b.name));
        out.extend(new);
        Ok(out)
    }

    /// `getdents64(2)` and the old `getdents(2)`.
    ///
    /// # Errors
    /// As the call; EINVAL if the buffer holds not even one entry.
    pub fn getdents(&mut self, call: &Call, old: bool) -> Sys<u64> {
        let (number, buffer) = (call.int(0), call.buffer(1, u64::from(call.uint(2))));
        let file = self.file(number)?;
        let open = self.fds.get(file);
        if open.flags & libc::O_PATH != 0 {
            return Err(Errno::BADF);
        }
        let Some(id) = open.node else {
            return self.on_descriptor(call);
        };
        if !self.tree.nodes[id].is_dir() {
            return Err(Errno::NOTDIR);
        }
        if self.tree.nodes[id].dir()?.removed {
            return Err(Errno::NOENT);
        }
        let cursor = self.fds.get_mut(file).cursor.take().unwrap_or_default();
        let mut cursor = *cursor;
        let entries = match cursor.entries.take() {
            Some(entries) => entries,
            None => self.listing(id)?,
        };
        let (mut out, mut place) =
            self.tree.encoded(id, &entries, cursor.at, buffer.len() as usize, old)?;
        let mut given = buffer.write(&out);
        if given.is_err() {
            // As many as there is room for before the bad address.
            let room = buffer.first(out.len() as u64).room();
            (out, place) = self.tree.encoded(id, &entries, cursor.at, room as usize, old)?;
            if !out.is_empty() {
                given = buffer.write(&out);
            }
        }
        if given.is_err() {
            place = cursor.at;
        }
        let short = out.is_empty() && place < entries.len();
        cursor = Cursor { entries: Some(entries), at: place };
        self.fds.get_mut(file).cursor = Some(Box::new(cursor));
        given?;
        if short { Err(Errno::INVAL) } else { Ok(out.len() as u64) }
    }
}

impl ShadowTree {
    /// As many entries from `place` on as there is room for, and the place after them.
    fn encoded(
        &self,
        id: Id,
        entries: &[Listed],
        mut place: usize,
        room: usize,
        old: bool,
    ) -> Sys<(Vec<u8>, usize)> {
        let mut out = Vec::new();
        while let Some(entry) = entries.get(place) {
            // What was taken away since is not shown any more.
            let known = self.nodes[id].dir()?.entries.get(&entry.name[..]);
            let shown = known.is_none_or(|e| e.now.is_some());
            if shown && !encode(entry, place + 1, &mut out, room, old) {
                break;
            }
            place += 1;
        }
        Ok((out, place))
    }
}

impl FdTable {
    /// `lseek(2)` in a directory: to where it was before, or to the beginning, which lists anew. Where the end
    /// is the file system of `real`, its descriptor, says: some have none.
    ///
    /// # Errors
    /// EINVAL.
    pub fn seek_dir(
        &mut self,
        file: super::files::File,
        real: i32,
        offset: i64,
        whence: i32,
    ) -> Sys<u64> {
        let mut end = 0;
        if whence == libc::SEEK_END {
            let was = kernel::seek(real, 0, libc::SEEK_CUR)?;
            end = kernel::seek(real, offset, libc::SEEK_END)?;
            kernel::seek(real, was as i64, libc::SEEK_SET)?;
        }
        let mut cursor = self.get_mut(file).cursor.take().unwrap_or_default();
        let target = match whence {
            libc::SEEK_SET => offset,
            libc::SEEK_CUR => offset.saturating_add(cursor.at as i64),
            libc::SEEK_END => end as i64,
            _ => -1,
        };
        let result = match usize::try_from(target) {
            Ok(0) => {
                cursor = Box::default();
                Ok(0)
            }
            Ok(at) => {
                cursor.at = at;
                Ok(at as u64)
            }
            Err(_) => Err(Errno::INVAL),
        };
        self.get_mut(file).cursor = Some(cursor);
        result
    }
}

/// `DT_*` of a type.
fn kind_of(kind: FileKind) -> u8 {
    match kind {
        FileKind::File => libc::DT_REG,
        FileKind::Dir => libc::DT_DIR,
        FileKind::Symlink => libc::DT_LNK,
        FileKind::Fifo => libc::DT_FIFO,
        FileKind::Socket => libc::DT_SOCK,
        FileKind::CharDevice => libc::DT_CHR,
        FileKind::BlockDevice => libc::DT_BLK,
    }
}

/// Adds one entry; `false` if there is no room.
fn encode(entry: &Listed, next: usize, all: &mut Vec<u8>, room: usize, old: bool) -> bool {
    let head = if old { 18 } else { 19 };
    let needed = (head + entry.name.len() + 1 + usize::from(old)).next_multiple_of(8);
    let (start, Ok(length)) = (all.len(), u16::try_from(needed)) else { return false };
    if needed > room.saturating_sub(start) {
        return false;
    }
    all.resize(start + needed, 0);
    let out = &mut all[start..];
    out[..8].copy_from_slice(&entry.ino.to_le_bytes());
    out[8..16].copy_from_slice(&(next as u64).to_le_bytes());
    out[16..18].copy_from_slice(&length.to_le_bytes());
    if old {
        out[needed - 1] = entry.kind;
    } else {
        out[18] = entry.kind;
    }
    out[head..head + entry.name.len()].copy_from_slice(&entry.name);
    true
}
