//! What a pending transaction did to names so far: where its view leads elsewhere than the stable tree.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, OFlags};

use super::{overlay_xattr, redirect_source};
use crate::error::{Context, Result};
use crate::path::layer::child;
use crate::path::{self, join};
use crate::store::{Layer, Transaction};
use crate::sys;

/// Names under which a transaction's view leads elsewhere than the stable tree. Paths are absolute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Renamed {
    /// Directories that the transaction moved: from where in the stable tree, to where in the view. Those
    /// above come before those below.
    pub directories: Vec<(Vec<u8>, Vec<u8>)>,
    /// Symbolic links that the transaction made or changed.
    pub links: Vec<Vec<u8>>,
}

impl Renamed {
    /// Looks through the private copies of a transaction that nobody works in.
    ///
    /// # Errors
    /// [`crate::Error::Io`] if they can't be looked through.
    pub fn read(tx: &Transaction) -> Result<Renamed> {
        let _rights = crate::sys_owner::rights();
        let mut renamed = Renamed::default();
        for layer in tx.layers() {
            renamed.add(&layer)?;
        }
        renamed.directories.sort_by_key(|(_, to)| to.len());
        Ok(renamed)
    }

    fn add(&mut self, layer: &Layer) -> Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let upper =
            sys::open(layer.upper.as_os_str().as_bytes(), flags, 0).at("opening", &layer.upper)?;
        let absolute = |path: &[u8]| join(layer.target.as_os_str().as_bytes(), path);
        // Where each is in the upper, and where it was in the stable tree.
        let mut queue = vec![(Vec::new(), Vec::new())];
        while let Some((path, stable)) = queue.pop() {
            let shown = || layer.upper.join(path::from_bytes(&path));
            let dir = sys::open_dir_beneath(upper.as_fd(), &path).at("opening", shown())?;
            let readable = sys::open_at(dir.as_fd(), b".", OFlags::RDONLY | OFlags::DIRECTORY)
                .at("opening", shown())?;
            let mut below = Vec::new();
            sys::for_each_name(readable.as_fd(), |name, kind| match kind {
                FileType::Directory => below.push(name.to_vec()),
                FileType::Symlink => self.links.push(absolute(&child(&path, name))),
                _ => {}
            })
            .at("listing", shown())?;
            for name in below {
                let xattrs =
                    sys::xattrs_in(dir.as_fd(), &name).at("reading the attributes of", shown())?;
                let to = child(&path, &name);
                let from = match overlay_xattr(&xattrs, b"redirect") {
                    Some(redirect) => {
                        let from = redirect_source(&stable, redirect);
                        self.directories.push((absolute(&from), absolute(&to)));
                        from
                    }
                    None => child(&stable, &name),
                };
                queue.push((to, from));
            }
        }
        Ok(())
    }
}
