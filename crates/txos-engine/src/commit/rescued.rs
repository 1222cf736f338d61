//! What others wrote to an object while it was being published is kept in the store's `rescued/`, where nothing deletes it.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::io::Errno;

use crate::id::TxId;
use crate::sys;

/// Most files of one name that one transaction keeps for others.
const MAX: u32 = 10_000;

/// Has `put` put something into a store's `rescued/`, under a name that is made of the transaction's and of `name`, until that
/// is one that nothing has there. Says where.
pub(super) fn keep(
    store: BorrowedFd<'_>,
    id: TxId,
    name: &[u8],
    mut put: impl FnMut(&Rc<OwnedFd>, &[u8]) -> Result<(), Errno>,
) -> Result<Vec<u8>, Errno> {
    match sys::mkdir(store, b"rescued", 0o700) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    let dir = Rc::new(sys::open_dir_beneath(store, b"rescued")?);
    let base = name.get(..200).unwrap_or(name);
    for n in 0..MAX {
        let name = [format!("{id}-{n}-").as_bytes(), base].concat();
        match put(&dir, &name) {
            Ok(()) => return Ok([&b"rescued/"[..], &name].concat()),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::EXIST)
}

/// What is said of an object at `path` that is kept `at` a place of the store.
pub(super) fn note(path: &[u8], at: &[u8]) -> String {
    format!(
        "{} was written by somebody else while it was being published; as they left it, it is {} in the store",
        crate::show::quoted_bytes(path),
        crate::show::quoted_bytes(at)
    )
}
