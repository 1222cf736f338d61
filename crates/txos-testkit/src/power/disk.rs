//! A disk with a volatile write cache: what was written since the last flush may be kept, lost, or
//! kept in part when the power goes, sector by sector, as real disks do.
//!
//! QEMU reaches it by the NBD protocol over a socket pair. Of that protocol there is what QEMU
//! needs: the fixed newstyle handshake, simple replies, READ, WRITE (with FUA), FLUSH, DISC.
//!
//! # Invariants
//!
//! - A write is in the cache before it is answered; a flush is answered when everything that was
//!   answered before is in the file. Requests are served one after the other.
//! - The file changes by flushes, by writes with FUA, and by [`Disk::cut`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Result, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::random::Random;

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// Where ext4's superblock is: two sectors, but ext4 relies on their not being torn.
const SUPERBLOCK: std::ops::Range<u64> = 2..4;

/// What becomes of writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All are there: only what was on its way is lost.
    Nothing,
    /// None is there.
    Everything,
    /// The first of them are there, the last of these in part.
    Tail,
    /// Each sector is as one of its writes left it, or as before them, independently of the others;
    /// but for a superblock, which is never torn.
    Scattered,
}

impl Loss {
    /// All of them.
    pub const ALL: [Loss; 4] = [Loss::Scattered, Loss::Everything, Loss::Tail, Loss::Nothing];
}

/// What a cut has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cut {
    /// Sectors that had been written and not flushed.
    pub unflushed: usize,
    /// Of these, how many have not become what was written last.
    pub lost: usize,
}

#[derive(Debug)]
struct State {
    file: File,
    size: u64,
    /// By sector, what was written since the last flush, oldest first.
    cache: BTreeMap<u64, Vec<(u64, [u8; SECTOR])>>,
    /// Number of the last write.
    writes: u64,
    flushes: u64,
}

/// A disk.
#[derive(Debug)]
pub struct Disk {
    state: Arc<Mutex<State>>,
    server: Option<JoinHandle<()>>,
}

impl Disk {
    /// From an image file.
    ///
    /// # Panics
    /// If it can't be opened.
    #[must_use]
    pub fn open(image: &Path) -> Disk {
        let file = File::options().read(true).write(true).open(image).expect("opening an image");
        let size = file.metadata().expect("looking at an image").len();
        let state = State { file, size, cache: BTreeMap::new(), writes: 0, flushes: 0 };
        Disk { state: Arc::new(Mutex::new(state)), server: None }
    }

    /// Plugs it in: the socket is for QEMU.
    ///
    /// # Panics
    /// If there is no socket.
    pub fn connect(&mut self) -> OwnedFd {
        self.disconnected();
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let state = Arc::clone(&self.state);
        // It ends when the machine has: an error is the end of the connection.
        self.server = Some(std::thread::spawn(move || drop(serve(ours, &state))));
        theirs.into()
    }

    /// Waits until the machine is gone.
    fn disconnected(&mut self) {
        if let Some(server) = self.server.take() {
            server.join().expect("the disk's server");
        }
    }

    /// The machine was shut down properly: everything is kept.
    ///
    /// # Panics
    /// If the image can't be written.
    pub fn shut_down(&mut self) {
        self.disconnected();
        lock(&self.state).flush().expect("writing the image");
    }

    /// The power is gone (the machine must be, too).
    ///
    /// # Panics
    /// If the image can't be written.
    pub fn cut(&mut self, loss: Loss, random: &mut Random) -> Cut {
        self.disconnected();
        let mut state = lock(&self.state);
        let cache = std::mem::take(&mut state.cache);
        let mut cut = Cut { unflushed: cache.len(), lost: 0 };
        let first = cache.values().flatten().map(|w| w.0).min().unwrap_or(0);
        let last = first + random.below(state.writes.saturating_sub(first) + 2);
        let mut superblock = None;
        for (sector, writes) in cache {
            let chosen = match loss {
                Loss::Nothing => writes.len(),
                Loss::Everything => 0,
                Loss::Tail => writes
                    .iter()
                    .filter(|w| w.0 < last || w.0 == last && random.below(2) == 0)
                    .count(),
                Loss::Scattered => {
                    usize::try_from(random.below(writes.len() as u64 + 1)).unwrap_or(0)
                }
            };
            let together = superblock.filter(|_| SUPERBLOCK.contains(&sector));
            let kept = together.map_or(chosen, |kept: usize| kept.min(writes.len()));
            if SUPERBLOCK.contains(&sector) {
                superblock = Some(kept);
            }
            cut.lost += usize::from(kept < writes.len());
            if let Some((_, bytes)) = kept.checked_sub(1).and_then(|index| writes.get(index)) {
                state.file.write_all_at(bytes, sector * SECTOR as u64).expect("writing the image");
            }
        }
        cut
    }

    /// How many flushes there were.
    #[must_use]
    pub fn flushes(&self) -> u64 {
        lock(&self.state).flushes
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl State {
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, at)?;
        for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            let number = at / SECTOR as u64 + index as u64;
            if let Some((_, written)) = self.cache.get(&number).and_then(|w| w.last()) {
                sector.copy_from_slice(written);
            }
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.writes += 1;
        for (index, sector) in bytes.as_chunks::<SECTOR>().0.iter().enumerate() {
            let number = at / SECTOR as u64 + index as u64;
            self.cache.entry(number).or_default().push((self.writes, *sector));
        }
    }

    fn keep(&mut self, sectors: std::ops::Range<u64>) -> Result<()> {
        let numbers: Vec<u64> = self.cache.range(sectors).map(|(number, _)| *number).collect();
        for number in numbers {
            if let Some((_, bytes)) = self.cache.remove(&number).and_then(|mut w| w.pop()) {
                self.file.write_all_at(&bytes, number * SECTOR as u64)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.flushes += 1;
        self.keep(0..u64::MAX)
    }
}

// --- The protocol ----------------------------------------------------------------------------

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
/// Fixed newstyle, no zeroes.
const HANDSHAKE_FLAGS: u16 = 3;
/// Flags are valid; FLUSH and FUA exist.
const EXPORT_FLAGS: u16 = 1 | 4 | 8;
const FUA: u16 = 1;
/// The most that one request may carry.
const REQUEST_MAX: u32 = 32 << 20;

fn number<const N: usize>(from: &mut UnixStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn wrong(what: &str) -> std::io::Error {
    std::io::Error::other(format!("NBD: {what}"))
}

fn serve(mut peer: UnixStream, state: &Mutex<State>) -> Result<()> {
    let mut hello = MAGIC.to_be_bytes().to_vec();
    hello.extend(OPTION_MAGIC.to_be_bytes());
    hello.extend(HANDSHAKE_FLAGS.to_be_bytes());
    peer.write_all(&hello)?;
    let _client_flags = number::<4>(&mut peer)?;
    while !option(&mut peer, state)? {}
    while request(&mut peer, state)? {}
    Ok(())
}

/// One option of the handshake; whether it was the last one.
fn option(peer: &mut UnixStream, state: &Mutex<State>) -> Result<bool> {
    if u64::from_be_bytes(number(peer)?) != OPTION_MAGIC {
        return Err(wrong("an option without its magic"));
    }
    let option = u32::from_be_bytes(number(peer)?);
    let length = u32::from_be_bytes(number(peer)?);
    if length > REQUEST_MAX {
        return Err(wrong("an endless option"));
    }
    std::io::copy(&mut (&*peer).take(length.into()), &mut std::io::sink())?;
    let size = lock(state).size;
    let reply = |kind: u32, data: &[u8]| {
        let mut bytes = OPTION_REPLY.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    };
    let mut export = size.to_be_bytes().to_vec();
    export.extend(EXPORT_FLAGS.to_be_bytes());
    match option {
        // EXPORT_NAME
        1 => peer.write_all(&export).map(|()| true),
        // ABORT
        2 => Err(wrong("the client gave up")),
        // INFO, GO
        6 | 7 => {
            peer.write_all(&reply(3, &[&[0, 0], export.as_slice()].concat()))?;
            peer.write_all(&reply(1, &[]))?;
            Ok(option == 7)
        }
        // Not supported
        _ => peer.write_all(&reply(0x8000_0001, &[])).map(|()| false),
    }
}

/// One request; whether there may be more.
fn request(peer: &mut UnixStream, state: &Mutex<State>) -> Result<bool> {
    if u32::from_be_bytes(number(peer)?) != REQUEST {
        return Err(wrong("a request without its magic"));
    }
    let flags = u16::from_be_bytes(number(peer)?);
    let kind = u16::from_be_bytes(number(peer)?);
    let handle = number::<8>(peer)?;
    let at = u64::from_be_bytes(number(peer)?);
    let length = u32::from_be_bytes(number(peer)?);
    let inside = at.checked_add(length.into()).is_some_and(|end| end <= lock(state).size);
    let aligned = at.is_multiple_of(SECTOR as u64) && (length as usize).is_multiple_of(SECTOR);
    if length > REQUEST_MAX || !inside || !aligned {
        return Err(wrong("a request that can't be served"));
    }
    let mut data = vec![0; if kind < 2 { length as usize } else { 0 }];
    match kind {
        // READ
        0 => lock(state).read(at, &mut data)?,
        // WRITE
        1 => {
            peer.read_exact(&mut data)?;
            let mut state = lock(state);
            state.write(at, &data);
            if flags & FUA != 0 {
                let first = at / SECTOR as u64;
                state.keep(first..first + (data.len() / SECTOR) as u64)?;
            }
            data.clear();
        }
        // DISC
        2 => return Ok(false),
        // FLUSH
        3 => lock(state).flush()?,
        _ => return Err(wrong("a command that was not offered")),
    }
    let mut reply = SIMPLE_REPLY.to_be_bytes().to_vec();
    reply.extend(0_u32.to_be_bytes());
    reply.extend(handle);
    reply.extend(data);
    peer.write_all(&reply)?;
    Ok(true)
}
