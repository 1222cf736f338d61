//! Shared libraries that a transaction changes (`ld.so(8)`).
//!
//! The kernel maps a program, and the program's dynamic linker its libraries, before ours is there: from the stable tree. If
//! the transaction has other ones, ours has to load the program. That takes longer, so it is known here whether there may be
//! any: by the names. Which libraries a program needs is not looked at, because those may need others in turn.

use txos_engine::object::FileKind;
use txos_engine::path::{join, lexically_normal};

use super::Tx;
use super::content::Data;
use super::kernel;
use super::node::{Id, changed};
use super::tree::ShadowTree;

/// What of a transaction the dynamic linker may look for.
#[derive(Debug, Default)]
pub struct Libraries {
    /// Some of it has another name, or none, or is where there was none.
    renamed: bool,
    /// Stable objects with names of libraries.
    known: Vec<Id>,
    /// Links that the transaction has put into a directory: that, and the link.
    links: Vec<(Id, Id)>,
    /// Those that were judged, and lead nowhere.
    judged: Vec<(Id, Id)>,
    /// One was found since somebody asked for that.
    has_found: bool,
}

/// Whether the dynamic linker may look for a name: a library's (`libc.so.6`), or one of its own files' (`ld.so.cache`).
fn is_looked_for(name: &[u8]) -> bool {
    name.windows(3).any(|part| part == b".so")
}

impl Libraries {
    /// A stable object has been looked up by a name.
    pub fn found(&mut self, name: &[u8], id: Id) {
        if is_looked_for(name) {
            self.known.push(id);
            self.has_found = true;
        }
    }
}

impl Tx {
    /// Whether a library was found since this was asked last.
    pub fn has_found_libraries(&mut self) -> bool {
        std::mem::take(&mut self.tree.libraries.has_found)
    }

    /// Whether the dynamic linker may find other libraries in the transaction than outside of it.
    pub fn has_other_libraries(&mut self) -> bool {
        self.tree.has_other_libraries()
    }
}

impl ShadowTree {
    /// A name is about to change.
    pub fn note_name(&mut self, dir: Id, name: &[u8], now: Option<Id>) {
        if self.libraries.renamed {
            return;
        }
        let node = now.map(|id| &self.nodes[id]);
        // A directory that comes from elsewhere brings what it has.
        let is_moved = node.is_some_and(|node| node.is_dir() && node.stable.is_some());
        self.libraries.renamed = is_moved || is_looked_for(name);
        // What is in a directory leads elsewhere when that moves.
        if node.and_then(|node| node.dir.as_ref()).is_some_and(|dir| !dir.entries.is_empty()) {
            let judged = &mut self.libraries.judged;
            self.libraries.links.append(judged);
        }
        if let Some(id) = now
            && self.nodes[id].kind() == FileKind::Symlink
        {
            self.libraries.links.push((dir, id));
        }
    }

    fn has_other_libraries(&mut self) -> bool {
        let is_changed = |id: &Id| {
            let node = &self.nodes[*id];
            !matches!(node.data, Data::Stable) || node.changed & !changed::ATIME != 0
        };
        if self.libraries.renamed || self.libraries.known.iter().any(is_changed) {
            return true;
        }
        for (dir, link) in std::mem::take(&mut self.libraries.links) {
            self.libraries.renamed |= self.leads_to_stable_directory(dir, link);
            self.libraries.judged.push((dir, link));
        }
        self.libraries.renamed
    }

    /// Whether a link leads to a directory of the stable tree, which may have libraries. What the transaction has put into
    /// one is known by its name.
    fn leads_to_stable_directory(&self, dir: Id, link: Id) -> bool {
        let Some(target) = &self.nodes[link].target else { return true };
        let whole = match target.first() {
            Some(b'/') => target.clone(),
            _ => join(&self.path_of(dir), target),
        };
        // A directory of the transaction is not there for the kernel to go up from.
        let path = lexically_normal(&whole);
        kernel::statx(libc::AT_FDCWD, &path, 0).is_ok_and(|stat| stat.kind() == FileKind::Dir)
    }
}

#[cfg(test)]
mod tests {
    use super::is_looked_for;

    #[test]
    fn libraries_are_known_by_name() {
        for name in ["libc.so.6", "libruby-3.1.so", "ld.so.cache~", "_x.cpython-311-x86_64.so"] {
            assert!(is_looked_for(name.as_bytes()), "{name}");
        }
        for name in ["so", "README.md", "something", ".s"] {
            assert!(!is_looked_for(name.as_bytes()), "{name}");
        }
    }
}
