//! Files that a program has mapped to memory (`MAP_SHARED`, mmap(2)) since before its transaction.
//!
//! Such a mapping is of the stable file. What the transaction writes by a descriptor is not to be seen there, and what the program
//! stores there is not rolled back: databases that do both (SQLite with a write-ahead log, LMDB) would mix the two, and be damaged.
//! So a transaction is aborted that changes a file with such a mapping, or that changes any file by a descriptor from before once
//! it has locked one with such a mapping for writing.
//!
//! The process's mappings are looked at once for each file: from then on its answer is known, and a light transaction pays nothing.

use std::sync::Mutex;

use txos_engine::object::FileId;

use super::kernel::Sys;
use super::messages::at_last;
use super::node::Id;
use super::{Failure, Tx, acquire, flags, reason};

/// What is known, by file. It is cut where a program has more files than this open.
static KNOWN: Mutex<Vec<(FileId, Mapping)>> = Mutex::new(Vec::new());
const KNOWN_MAX: usize = 256;

/// How a file is mapped, if it is shared with the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mapping {
    None,
    ToRead,
    ToWrite,
}

/// How a file is mapped by this process: by what the kernel says of its memory (proc_pid_maps(5)).
fn in_maps(maps: &[u8], inode: u64, path: &[u8]) -> Mapping {
    let each = maps.split(|&byte| byte == b'\n').map(|line| {
        let mut rest = line;
        let mut word = || {
            let trimmed = rest.trim_ascii_start();
            let end = trimmed.iter().position(u8::is_ascii_whitespace).unwrap_or(trimmed.len());
            let (word, after) = trimmed.split_at(end);
            rest = after;
            word
        };
        let [_, rights, _, _, number] = [(); 5].map(|()| word());
        // Some file systems have other device numbers there.
        let is_it = number == inode.to_string().as_bytes() && rest.trim_ascii_start() == path;
        match rights {
            [_, b'w', _, b's'] if is_it => Mapping::ToWrite,
            [_, _, _, b's'] if is_it => Mapping::ToRead,
            _ => Mapping::None,
        }
    });
    each.max().unwrap_or(Mapping::None)
}

fn mapping(file: FileId, path: &[u8]) -> Mapping {
    let Some(mut known) = at_last(&KNOWN) else { return Mapping::None };
    if known.iter().any(|&(known, mapping)| known == file && mapping == Mapping::None) {
        return Mapping::None;
    }
    // What was mapped may have been unmapped since.
    let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
    let found = in_maps(&maps, file.ino, path);
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.retain(|(known, _)| *known != file);
    known.push((file, found));
    found
}

impl Tx {
    /// Whether a file is open since before the transaction. A command has nothing from before.
    fn is_from_before(&self, id: Id) -> bool {
        let is_from_before = |file: usize| !self.fds.get(file).before.is_empty();
        self.how.flags & flags::COMMAND == 0 && self.fds.on(id).into_iter().any(is_from_before)
    }

    /// A file gets a record lock for writing.
    pub fn locks_mapped(&mut self, id: Id) {
        if self.locks.mapped.is_none()
            && self.is_from_before(id)
            && let Some(stable) = &self.tree.nodes[id].stable
            && mapping(stable.stat.id, &stable.path) == Mapping::ToWrite
        {
            self.locks.mapped = Some(stable.path.clone());
        }
    }

    /// A stable file is about to have content of the transaction's own.
    ///
    /// # Errors
    /// [`acquire::DOOMED`]: the program would go on with what is mapped.
    pub fn before_change_from_before(&mut self, id: Id) -> Sys<()> {
        if !self.is_from_before(id) {
            return Ok(());
        }
        let Some(stable) = &self.tree.nodes[id].stable else { return Ok(()) };
        super::messages::before_change(stable.stat.id);
        let is_mapped = mapping(stable.stat.id, &stable.path) != Mapping::None;
        let own = is_mapped.then(|| stable.path.clone());
        let Some(path) = own.or_else(|| self.locks.mapped.clone()) else { return Ok(()) };
        self.doom(Failure {
            reason: reason::UNSUPPORTED,
            errno: libc::ENOTSUP,
            what: format!(
                "{}: it is mapped to memory since before the transaction, which is not part of it: what the transaction writes \
                 is not seen there, and what is stored there can't be rolled back; open and map it within the transaction",
                String::from_utf8_lossy(&path)
            ),
            path,
            ..Failure::default()
        });
        Err(acquire::DOOMED)
    }
}

#[cfg(test)]
mod tests {
    use super::{Mapping, in_maps};

    #[test]
    fn mappings_are_found() {
        let maps = b"55e-55f r--p 00000000 fe:00 12                 /bin/x\n\
            7f0-7f1 rw-s 00000000 fe:00 77                 /d/a file-shm\n\
            7f2-7f3 r--s 00000000 fe:00 78                 /d/data\n\
            7f4-7f5 rw-p 00000000 fe:00 78                 /d/data\n\
            7f6-7f7 rw-p 00000000 00:00 0 \n";
        assert_eq!(in_maps(maps, 77, b"/d/a file-shm"), Mapping::ToWrite);
        assert_eq!(in_maps(maps, 78, b"/d/data"), Mapping::ToRead);
        assert_eq!(in_maps(maps, 12, b"/bin/x"), Mapping::None);
        assert_eq!(in_maps(maps, 77, b"/d/other"), Mapping::None);
        assert_eq!(in_maps(b"", 1, b"/"), Mapping::None);
    }
}
