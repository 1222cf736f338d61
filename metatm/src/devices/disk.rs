//! A disk (virtio-blk). Each request takes a latency, as the paper's disk does; requests go on side by side.

use super::virtio::{Request, Virtio};
use crate::machine::ram::Ram;

const SECTOR: u64 = 512;

/// The disk.
#[derive(Debug)]
pub struct Disk {
    /// Registers.
    pub virtio: Virtio,
    /// Contents.
    pub data: Vec<u8>,
    /// Cycles that a request takes.
    pub latency: u64,
    /// Requests under way, with the cycle of their end; in order.
    pending: Vec<(u64, Request)>,
}

/// What a device writes to memory.
pub type Writes = Vec<(u64, Vec<u8>)>;

impl Disk {
    /// A disk with contents.
    #[must_use]
    pub fn new(mut data: Vec<u8>, latency: u64) -> Disk {
        data.resize(data.len().next_multiple_of(SECTOR as usize), 0);
        let sectors = (data.len() as u64 / SECTOR).to_le_bytes().to_vec();
        // Flush.
        let features = 1 << 9;
        Disk { virtio: Virtio::new(2, features, 1, sectors), data, latency, pending: Vec::new() }
    }

    /// The driver has new requests.
    pub fn notify(&mut self, ram: &Ram, now: u64) {
        while let Some(request) = self.virtio.take(ram, 0) {
            self.pending.push((now + self.latency, request));
        }
    }

    /// When the next request ends.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.pending.first().map(|p| p.0)
    }

    /// Ends requests whose time has come.
    pub fn advance(&mut self, ram: &Ram, now: u64) -> Writes {
        let mut writes = Vec::new();
        while self.pending.first().is_some_and(|p| p.0 <= now) {
            let (_, request) = self.pending.remove(0);
            self.carry_out(ram, &request, &mut writes);
            // The next one's index follows from what this one has written.
            if self.pending.first().is_some_and(|p| p.0 <= now) {
                break;
            }
        }
        writes
    }

    fn carry_out(&mut self, ram: &Ram, request: &Request, writes: &mut Writes) {
        let parts = &request.parts;
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return };
        let header = ram.slice(first.at, 16).filter(|_| first.len >= 16);
        let (Some(header), true) = (header, last.for_device && last.len > 0) else {
            writes.extend(self.virtio.done(ram, 0, request.head, 0));
            return;
        };
        let word =
            |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or_default());
        let (kind, sector) = (word(0) as u32, word(8));
        let mut at = sector.saturating_mul(SECTOR) as usize;
        let (mut status, mut written) = (0u8, 1);
        for part in &parts[1..parts.len() - 1] {
            let len = part.len as usize;
            let range = at..at.saturating_add(len);
            match kind {
                0 if part.for_device => match self.data.get(range) {
                    Some(data) => {
                        writes.push((part.at, data.to_vec()));
                        written += part.len;
                    }
                    None => status = 1,
                },
                1 if !part.for_device => {
                    match (self.data.get_mut(range), ram.slice(part.at, part.len.into())) {
                        (Some(data), Some(from)) => data.copy_from_slice(from),
                        _ => status = 1,
                    }
                }
                4 | 8 => {}
                _ => status = 2,
            }
            at = at.saturating_add(len);
        }
        writes.push((last.at, vec![status]));
        writes.extend(self.virtio.done(ram, 0, request.head, written));
    }
}
