//! What all transactions of a process share: its door to the realm, and its store.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use txos_engine::commit;
use txos_engine::object::FileId;
use txos_engine::realm::{self, Realm};
use txos_engine::store::{self, Home};
use txos_engine::txn;

use super::{Failure, reason};

/// A process's realm and store, for one user.
#[derive(Clone, Copy)]
struct Place {
    uid: u32,
    realm: Option<&'static Realm>,
    home: Option<&'static Home>,
    /// A descriptor of ours, and what it is of: if it is that no more, the program has closed
    /// numbers that were not its own, the engine's among them.
    sentinel: Option<(i32, FileId)>,
}

static PLACE: Mutex<Option<Place>> = Mutex::new(None);

/// In a child that was forked: what it does is its own. As its parent's, its transactions would seem to go on as
/// long as the parent lives, whatever became of the child.
pub fn after_fork() {
    // Another thread may have held the lock when the process was copied.
    if let Ok(mut place) = PLACE.try_lock() {
        *place = None;
    }
}

/// In a child that goes on with its parent's transaction: it takes the parent's place.
pub fn moved_here() {
    if let Ok(place) = PLACE.try_lock()
        && let Some(realm) = place.as_ref().and_then(|place| place.realm)
    {
        let _ = realm.move_here();
    }
}

/// In the process whose transaction another one goes on with: what it has open for that is closed, and its children don't
/// inherit it. For a transaction of its own it joins again.
pub fn moved_away() {
    let place = PLACE.try_lock().ok().and_then(|mut place| place.take());
    let Some(place) = place else { return };
    if let Some(realm) = place.realm {
        realm.moved_away();
    }
    if let Some((number, _)) = place.sentinel.filter(|&sentinel| still_ours(sentinel)) {
        super::kernel::close(number);
    }
}

/// The realm that was joined last, to look at: whose it is was asked when it was joined.
pub fn realm_as_known() -> Option<&'static Realm> {
    let known = *PLACE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    match known {
        Some(place) => place.realm,
        None => realm(),
    }
}

/// The place of the present user. A program that becomes another user gets another one: it must not
/// go on with the rights that are in the descriptors of the first. (They are closed with the process;
/// nothing reaches them but by number.)
fn place(with_descriptors: bool) -> Place {
    // Also where the store is looked at before there is a transaction.
    txos_engine::sys::keep_descriptors_above(super::kernel::high_base());
    let uid = rustix::process::geteuid().as_raw();
    let mut place = PLACE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = *place
        && known.uid == uid
        && (!with_descriptors || known.sentinel.is_none_or(still_ours))
    {
        return known;
    }
    // A realm that was joined before is not dropped: its numbers may be the program's by now.
    let new = Place { uid, realm: join(), home: None, sentinel: sentinel() };
    *place = Some(new);
    new
}

fn sentinel() -> Option<(i32, FileId)> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let fd = super::kernel::move_high(super::kernel::open(b"/", flags, 0).ok()?).ok()?;
    Some((fd, super::kernel::look_fd(fd).ok()?.id))
}

fn still_ours((fd, id): (i32, FileId)) -> bool {
    super::kernel::look_fd(fd).is_ok_and(|stat| stat.id == id)
}

/// The process's door to its realm; `None` where there is none: conflicts are found at commit then.
pub fn realm() -> Option<&'static Realm> {
    place(false).realm
}

fn join() -> Option<&'static Realm> {
    if cfg!(test) {
        // A test of this crate takes no part in the machine's realm.
        return None;
    }
    let dir = realm::default_dir().ok()?;
    let home = store::default_dir().ok()?;
    let label = String::from_utf8_lossy(&super::staging::program_name()).into_owned();
    match txn::join(&dir, &label, &home) {
        Ok(realm) => Some(realm),
        Err(error) => {
            super::say(&format!(
                "{error}; conflicts with other transactions are found at commit only"
            ));
            None
        }
    }
}

/// Before a process's first transaction: what was committed before the machine went down is put in place, so that it reads
/// all of that.
///
/// # Errors
/// If it can't be: what is in the tree may be half of a commit.
pub fn be_in_order() -> Result<(), Failure> {
    /// The user whose store has nothing left to be recovered: in this boot that stays so, also in a child.
    static IN_ORDER: AtomicU64 = AtomicU64::new(u64::MAX);
    let user = u64::from(rustix::process::geteuid().as_raw());
    if IN_ORDER.load(Ordering::Relaxed) == user {
        return Ok(());
    }
    if let Ok(dir) = store::default_dir() {
        // (Where this user may not look, this user has not committed.)
        let recovered = match commit::is_left_from_an_earlier_boot(&dir).unwrap_or(false) {
            true => Home::open(&dir).and_then(|home| commit::recover(&home, &commit::Silent)),
            false => Ok(commit::Recovered::default()),
        };
        let recovered = recovered.map_err(|error| Failure {
            reason: reason::FAILED,
            errno: libc::EIO,
            what: format!("what the machine's end interrupted can't be recovered: {error}"),
            ..Failure::default()
        })?;
        recovered.notes.iter().for_each(|note| super::say(note));
    }
    IN_ORDER.store(user, Ordering::Relaxed);
    Ok(())
}

/// The home store.
///
/// # Errors
/// If there is no place for one, or it can't be opened.
pub fn home() -> Result<&'static Home, Failure> {
    let known = place(true);
    if let Some(home) = known.home {
        return Ok(home);
    }
    let failed = |e: txos_engine::Error| Failure {
        reason: reason::FAILED,
        errno: libc::EIO,
        what: e.to_string(),
        ..Failure::default()
    };
    let opened = store::default_dir().and_then(|dir| Home::open(&dir)).map_err(failed)?;
    let home: &'static Home = Box::leak(Box::new(opened));
    let mut place = PLACE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(place) = place.as_mut().filter(|place| place.uid == known.uid) {
        place.home.get_or_insert(home);
    }
    Ok(home)
}

/// Where a mount is mounted. The table is read once, and again when it does not know the mount or is
/// wrong about it.
pub fn mount_point(mnt: u64) -> Option<Vec<u8>> {
    static TABLE: Mutex<Vec<(u64, Vec<u8>)>> = Mutex::new(Vec::new());
    let mut table = TABLE.lock().ok()?;
    let known = |table: &[(u64, Vec<u8>)]| {
        let point = table.iter().find(|(id, _)| *id == mnt).map(|(_, point)| point.clone())?;
        let there = super::kernel::look(&point).is_ok_and(|stat| stat.mnt == mnt);
        there.then_some(point)
    };
    if let Some(point) = known(&table) {
        return Some(point);
    }
    *table = txos_engine::mounts::table()
        .ok()?
        .into_iter()
        .map(|m| (m.id, m.point.into_os_string().into_encoded_bytes()))
        .collect();
    known(&table)
}

static FILE_SYSTEMS: Mutex<Vec<((u64, u64), bool)>> = Mutex::new(Vec::new());

/// Which file systems, by device and mount, earlier transactions found to be versioned.
pub fn file_systems() -> Vec<((u64, u64), bool)> {
    FILE_SYSTEMS.lock().map(|known| known.clone()).unwrap_or_default()
}

/// Remembers them for later transactions.
pub fn remember_file_systems(known: &[((u64, u64), bool)]) {
    if let Ok(mut all) = FILE_SYSTEMS.lock()
        && known.len() > all.len()
        && known.len() < 64
    {
        *all = known.to_vec();
    }
}

/// Whether this process runs in the view of a `txos run`, where everything is that transaction's.
pub fn in_a_view() -> bool {
    txos_engine::nesting::inside().is_some()
}
