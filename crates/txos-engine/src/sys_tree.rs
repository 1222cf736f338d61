//! A directory, and those below it that were opened a moment ago, for whatever is next to be done in them.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;

use crate::path::layer::is_at_or_below;
use crate::sys;

/// Most directories below that are kept open.
const KEPT_MAX: usize = 24;

/// An open directory with some of those below it, by path. Each is opened as [`sys::open_dir_beneath`] does, once:
/// that others move one meanwhile is found when the transaction validates.
#[derive(Debug)]
pub(crate) struct OpenTree {
    top: Rc<OwnedFd>,
    /// The last used is the last.
    kept: RefCell<Vec<(Vec<u8>, Rc<OwnedFd>)>>,
}

impl OpenTree {
    /// The tree below a directory.
    pub(crate) fn new(top: OwnedFd) -> OpenTree {
        OpenTree { top: Rc::new(top), kept: RefCell::default() }
    }

    /// The directory at a path below; the empty one is the top itself.
    ///
    /// # Errors
    /// As [`sys::open_dir_beneath`].
    pub(crate) fn dir(&self, path: &[u8]) -> Result<Rc<OwnedFd>, Errno> {
        if path.is_empty() {
            return Ok(self.top.clone());
        }
        let mut kept = self.kept.borrow_mut();
        if let Some(at) = kept.iter().rposition(|(p, _)| p == path) {
            let last = kept.len() - 1;
            kept.swap(at, last);
            return kept.last().map(|(_, fd)| fd.clone()).ok_or(Errno::NOENT);
        }
        let fd = match sys::open_dir_beneath(self.top.as_fd(), path) {
            Err(Errno::MFILE | Errno::NFILE) if !kept.is_empty() => {
                kept.clear();
                sys::open_dir_beneath(self.top.as_fd(), path)?
            }
            opened => opened?,
        };
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        let fd = Rc::new(fd);
        kept.push((path.to_vec(), fd.clone()));
        Ok(fd)
    }

    /// Closes all that is kept.
    pub(crate) fn forget(&self) {
        self.kept.borrow_mut().clear();
    }

    /// Closes what was at or below a path: another directory is there by now.
    pub(crate) fn forget_below(&self, path: &[u8]) {
        self.kept.borrow_mut().retain(|(kept, _)| !is_at_or_below(kept, path));
    }
}

impl AsFd for OpenTree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_opened_once_until_it_is_forgotten() {
        let top = std::env::temp_dir().join(format!("txos-open-tree-{}", std::process::id()));
        for n in 0..KEPT_MAX + 2 {
            std::fs::create_dir_all(top.join(format!("{n}/below"))).unwrap();
        }
        let root = sys::open_dir_canonical(top.as_os_str().as_encoded_bytes()).unwrap();
        let tree = OpenTree::new(root);
        let open = |path: &[u8]| tree.dir(path).unwrap();
        let (first, below) = (open(b"0"), open(b"0/below"));
        assert!(Rc::ptr_eq(&first, &open(b"0")) && Rc::ptr_eq(&below, &open(b"0/below")));
        tree.forget_below(b"0/bel");
        assert!(Rc::ptr_eq(&below, &open(b"0/below")), "that is another name");
        tree.forget_below(b"0");
        assert!(!Rc::ptr_eq(&first, &open(b"0")) && !Rc::ptr_eq(&below, &open(b"0/below")));
        let first = open(b"0");
        for n in 1..KEPT_MAX + 2 {
            open(n.to_string().as_bytes());
        }
        assert!(!Rc::ptr_eq(&first, &open(b"0")), "so many are not kept");
        assert_eq!(tree.dir(b"gone").unwrap_err(), Errno::NOENT);
        tree.forget();
        assert!(Rc::ptr_eq(&open(b""), &open(b"")), "the top stays");
        std::fs::remove_dir_all(&top).unwrap();
    }
}
