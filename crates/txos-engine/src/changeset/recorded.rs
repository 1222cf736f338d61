//! The change set of a pending transaction that has no overlay: its explicit deltas, in a file of its own.
//!
//! `txos run --view library` keeps its private view in memory. When its command has ended, and the transaction is
//! handed to another process or stays pending, the deltas are written beside the private copies that they name
//! (docs/store-format.md). Nothing that they name changes from then on.
//!
//! A patch is written where the record says when it is recorded, so that looking at the transaction writes nothing.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::delta::{Delta, What};
use super::patch::Patch;
use crate::codec;
use crate::error::{Context, Error, Result};
use crate::id::TxId;
use crate::path::join;
use crate::store::{self, Home, Layer, Transaction};
use crate::sys;
use crate::sys_tree::OpenTree;
use crate::version::{Version, stat_at};

const NAME: &str = store::DELTAS;
const MAGIC: &[u8; 8] = store::DELTAS_MAGIC;
const FORMAT: u32 = store::DELTAS_FORMAT;

/// The largest file that is written out as it will be, for those who look at the transaction, in bytes.
const SHOWN_MAX: u64 = 16 << 20;
/// Beginning of the name of a patch, and of the file as it will be.
const PATCH: &str = "new/patch-";
const SHOWN: &str = "new/shown-";

/// Where the patch of the delta with this number is, relative to the layer's directory in the store.
pub(super) fn patch_place(number: usize) -> Vec<u8> {
    format!("{PATCH}{number}").into_bytes()
}

/// Where the file is shown as it will be, if it is, by the place of its patch.
pub(super) fn shown_place(patch: &[u8]) -> Option<Vec<u8>> {
    let number = patch.strip_prefix(PATCH.as_bytes())?;
    Some([SHOWN.as_bytes(), number].concat())
}

/// Makes these deltas the change set of a transaction, from the next save of its record on. Patches are written into its
/// directories first.
///
/// # Errors
/// [`Error::Io`] with the step; the transaction is as it was.
pub fn record(tx: &mut Transaction, deltas: &[Delta], flush: bool) -> Result<()> {
    let layers = tx.layers();
    discard_unused(tx, deltas);
    for (number, delta) in deltas.iter().enumerate() {
        if let What::Patch { writes, size, .. } = &delta.what {
            let Some(layer) = layers.get(delta.layer) else { continue };
            let patch = Patch::new(writes.clone(), *size);
            let place = patch_place(number);
            write_beside(layer, &place, &patch.to_bytes())
                .map_err(|e| Error::io("writing a patch into", &layer.upper, e))?;
            if let (Some(place), Some(content)) =
                (shown_place(&place), patched(layer, delta, &patch))
            {
                // It is looked at only; without it the change is shown without its content.
                let _ = write_beside(layer, &place, &content);
            }
        }
    }
    store::replace_file(&tx.dir().join(NAME), &sealed(deltas)?, flush)?;
    tx.meta.recorded = true;
    Ok(())
}

/// The file, with these deltas.
pub(super) fn sealed(deltas: &[Delta]) -> Result<Vec<u8>> {
    let body = postcard::to_stdvec(deltas)
        .map_err(|e| Error::io("encoding", NAME, std::io::Error::other(e)))?;
    Ok(codec::seal(MAGIC, FORMAT, &body))
}

/// Removes private copies that no delta names: of what the transaction itself has removed, and patches that an earlier command's
/// record named, which are written anew. (A savepoint has copies.) Their links would count as names of what is published. What can't
/// be removed stays until the transaction is forgotten.
pub fn discard_unused(tx: &Transaction, deltas: &[Delta]) {
    let staged = |delta: &Delta| match &delta.what {
        What::Put { staged, .. } | What::Rewrite { staged, .. } | What::Data { staged, .. } => {
            let name = staged.strip_prefix(b"new/")?.split(|&b| b == b'/').next()?;
            Some((delta.layer, name.to_vec()))
        }
        _ => None,
    };
    let named: HashSet<(usize, Vec<u8>)> = deltas.iter().filter_map(staged).collect();
    for layer in tx.layers() {
        let new = layer.upper.parent().unwrap_or(&layer.upper).join("new");
        for entry in std::fs::read_dir(new).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if named.contains(&(layer.index, name.as_bytes().to_vec())) {
                continue;
            }
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let _ = sys::step("store unlink", || match is_dir {
                true => std::fs::remove_dir_all(entry.path()),
                false => std::fs::remove_file(entry.path()),
            });
        }
    }
}

/// The deltas that a transaction's commands have recorded so far, for the next one: it goes on from there.
///
/// # Errors
/// [`Error::Io`] if there are none, [`Error::Format`] if they are damaged, [`Error::Unsupported`] if they don't fit
/// together or lead out of their layers.
pub fn recorded_deltas(tx: &Transaction) -> Result<Vec<Delta>> {
    let deltas = recorded(tx.dir())?;
    super::delta::check(&tx.layers(), &deltas)?;
    Ok(deltas)
}

/// The deltas of a savepoint; `None` stands for the record as it is, and 0 for the beginning.
///
/// # Errors
/// As [`recorded_deltas`].
pub(super) fn deltas_at(tx: &Transaction, savepoint: Option<u32>) -> Result<Vec<Delta>> {
    let deltas = match savepoint {
        None => return recorded_deltas(tx),
        Some(0) => return Ok(Vec::new()),
        Some(number) => read(&store::deltas_of(&tx.dir().join("saved"), number))?,
    };
    super::delta::check(&tx.layers(), &deltas)?;
    Ok(deltas)
}

/// Publishing and undoing has moved the ctime of objects, from the first of each two versions to the second: the changes that a
/// pending transaction has recorded, and its savepoints, are of those objects as they are now.
///
/// # Errors
/// If a list can't be read or stored.
pub(crate) fn moved_on(home: &Home, id: TxId, versions: &[(Version, Version)]) -> Result<()> {
    let dir = home.tx_dir(id);
    let mut lists = vec![dir.join(NAME)];
    let saved = dir.join("saved");
    let names = sys::look("readdir", || std::fs::read_dir(&saved)).into_iter().flatten().flatten();
    lists.extend(
        names
            .map(|name| name.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == NAME)),
    );
    for path in lists {
        let mut deltas = match read(&path) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                continue;
            }
            deltas => deltas?,
        };
        if super::delta::move_on(&mut deltas, versions) {
            store::replace_file(&path, &sealed(&deltas)?, true)?;
        }
    }
    Ok(())
}

/// Writes a new file among the private copies of a layer.
fn write_beside(layer: &Layer, place: &[u8], bytes: &[u8]) -> std::result::Result<(), Errno> {
    let top = layer.upper.parent().unwrap_or(&layer.upper);
    let top = OpenTree::new(sys::open_dir_canonical(top.as_os_str().as_bytes())?);
    let (dir, name) = crate::path::layer::split(place);
    let file = sys::create(top.dir(dir)?.as_fd(), name)?;
    sys::write_all_at(file.as_fd(), bytes, 0)
}

/// What a small file will hold; none of one that can't be read, or is not what it was.
fn patched(layer: &Layer, delta: &Delta, patch: &Patch) -> Option<Vec<u8>> {
    let What::Patch { base, .. } = &delta.what else { return None };
    let len = patch.len_after(base.size);
    if len.max(base.size) > SHOWN_MAX {
        return None;
    }
    let path = join(layer.target.as_os_str().as_bytes(), &delta.stable_path);
    let file = sys::open(&path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK, 0).ok()?;
    let now = stat_at(file.as_fd(), b"", AtFlags::EMPTY_PATH).ok()?;
    if (now.id, now.size) != (base.id, base.size) {
        return None;
    }
    let mut content = vec![0; usize::try_from(base.size).ok()?];
    let read = rustix::io::pread(&file, &mut content[..], 0).ok()?;
    content.truncate(read);
    content.resize(usize::try_from(len).ok()?, 0);
    for (at, bytes) in &patch.writes {
        let at = usize::try_from(*at).ok()?;
        content.get_mut(at..at.checked_add(bytes.len())?)?.copy_from_slice(bytes);
    }
    Some(content)
}

/// The recorded deltas of a transaction, by its directory.
///
/// # Errors
/// [`Error::Io`] if there are none, [`Error::Format`] if they are damaged.
pub(super) fn recorded(dir: &Path) -> Result<Vec<Delta>> {
    read(&dir.join(NAME))
}

fn read(path: &Path) -> Result<Vec<Delta>> {
    let bytes = sys::read_record(path).at("reading", path)?;
    let bad = |problem: &str| Error::Format {
        path: path.to_owned(),
        problem: problem.to_owned(),
        advice: "Abort the transaction with `txos abort`; it can't be committed safely.",
    };
    let (_, body) = codec::open(&bytes, MAGIC, "a list of changes", FORMAT..=FORMAT)
        .map_err(|problem| bad(&problem))?;
    postcard::from_bytes(body).map_err(|_| bad("is damaged (encoding)"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    /// The store writes an empty list itself.
    #[test]
    fn an_empty_list_is_as_the_store_writes_it() {
        assert_eq!(super::sealed(&[]).unwrap(), crate::store::no_deltas());
    }
}
