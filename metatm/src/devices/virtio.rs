//! What virtio devices share: the registers of a memory-mapped device and split queues.
//!
//! Source: Virtual I/O Device (VIRTIO) Version 1.1, sections 2.6 and 4.2. What the driver writes is not trusted: addresses outside of
//! memory and chains without an end make the device stop.

use crate::machine::ram::Ram;

/// Most entries of a queue.
const QUEUE_MAX: u16 = 256;

/// A queue.
#[derive(Clone, Debug, Default)]
struct Queue {
    size: u16,
    ready: bool,
    descriptors: u64,
    available: u64,
    used: u64,
    next: u16,
}

/// A part of a request.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it is.
    pub at: u64,
    /// Its size in bytes.
    pub len: u32,
    /// Whether the device writes it.
    pub for_device: bool,
}

/// A request: its first descriptor, and its parts.
#[derive(Clone, Debug)]
pub struct Request {
    /// Number of the first descriptor.
    pub head: u16,
    /// The parts, in order.
    pub parts: Vec<Part>,
}

/// Registers of a device.
#[derive(Debug)]
pub struct Virtio {
    kind: u32,
    features: u64,
    queues: Vec<Queue>,
    selected: usize,
    feature_word: u32,
    driver_features: u64,
    driver_word: u32,
    status: u32,
    interrupt: u32,
    config: Vec<u8>,
}

/// The device is of the version 1 of the standard.
const VERSION_1: u64 = 1 << 32;
/// Status: the device needs a reset.
const NEEDS_RESET: u32 = 64;
/// Flag of a queue's driver: it wants no interrupts for now.
const NO_INTERRUPT: u8 = 1;

impl Virtio {
    /// A device of a kind, with features, queues and a configuration.
    #[must_use]
    pub fn new(kind: u32, features: u64, queues: usize, config: Vec<u8>) -> Virtio {
        Virtio {
            kind,
            features: features | VERSION_1,
            queues: vec![Queue::default(); queues],
            selected: 0,
            feature_word: 0,
            driver_features: 0,
            driver_word: 0,
            status: 0,
            interrupt: 0,
            config,
        }
    }

    /// Whether it asks for an interrupt.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.interrupt != 0
    }

    /// Reads a register.
    #[must_use]
    pub fn read(&self, at: u64, len: u64) -> u64 {
        let queue = self.queues.get(self.selected);
        let value = match at {
            0x00 => 0x7472_6976,
            0x04 => 2,
            0x08 => self.kind,
            0x0c => 0x4d54_4d54,
            0x10 if self.feature_word < 2 => (self.features >> (32 * self.feature_word)) as u32,
            0x34 => queue.map_or(0, |_| QUEUE_MAX.into()),
            0x44 => queue.map_or(0, |q| q.ready.into()),
            0x60 => self.interrupt,
            0x70 => self.status,
            0x100.. => {
                let bytes = (0..len)
                    .map(|i| self.config.get((at - 0x100 + i) as usize).copied().unwrap_or(0));
                return bytes.rev().fold(0, |value, byte| value << 8 | u64::from(byte));
            }
            _ => 0,
        };
        value.into()
    }

    /// Writes a register; gives the queue for which the driver has something.
    pub fn write(&mut self, at: u64, value: u32) -> Option<usize> {
        match at {
            0x14 => self.feature_word = value,
            0x20 if self.driver_word < 2 => {
                let shift = 32 * self.driver_word;
                self.driver_features =
                    self.driver_features & !(0xffff_ffff << shift) | u64::from(value) << shift;
            }
            0x24 => self.driver_word = value,
            0x30 => self.selected = value as usize,
            0x50 => return Some(value as usize).filter(|q| *q < self.queues.len()),
            0x64 => self.interrupt &= !value,
            0x70 if value == 0 => {
                self.status = 0;
                self.interrupt = 0;
                self.queues.fill(Queue::default());
            }
            0x70 => self.status = value,
            _ => self.write_queue(at, value),
        }
        None
    }

    fn write_queue(&mut self, at: u64, value: u32) {
        let Some(queue) = self.queues.get_mut(self.selected) else { return };
        let low = |old: u64| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match at {
            0x38 => queue.size = (value as u16).min(QUEUE_MAX),
            0x44 => queue.ready = value & 1 == 1 && queue.size.is_power_of_two(),
            0x80 => queue.descriptors = low(queue.descriptors),
            0x84 => queue.descriptors = high(queue.descriptors),
            0x90 => queue.available = low(queue.available),
            0x94 => queue.available = high(queue.available),
            0xa0 => queue.used = low(queue.used),
            0xa4 => queue.used = high(queue.used),
            _ => {}
        }
    }

    /// The next request of a queue.
    pub fn take(&mut self, ram: &Ram, queue: usize) -> Option<Request> {
        let (size, next) = self.queues.get(queue).filter(|q| q.ready).map(|q| (q.size, q.next))?;
        let taken = self.look(ram, queue, size, next);
        match taken {
            Some(Some(request)) => {
                self.queues[queue].next = next.wrapping_add(1);
                Some(request)
            }
            Some(None) => None,
            None => {
                self.status |= NEEDS_RESET;
                self.queues[queue].ready = false;
                None
            }
        }
    }

    /// `Some(None)` if there is no request, `None` if the driver has made nonsense.
    fn look(&self, ram: &Ram, queue: usize, size: u16, next: u16) -> Option<Option<Request>> {
        let queue = &self.queues[queue];
        let half = |at: u64| ram.slice(at, 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        if half(queue.available.checked_add(2)?)? == next {
            return Some(None);
        }
        let head = half(queue.available.checked_add(4 + 2 * u64::from(next % size))?)?;
        let mut parts = Vec::new();
        let mut at = head;
        loop {
            if at >= size || parts.len() >= usize::from(size) {
                return None;
            }
            let raw = ram.slice(queue.descriptors.checked_add(16 * u64::from(at))?, 16)?;
            let word = |from: usize| {
                u64::from_le_bytes(raw[from..from + 8].try_into().unwrap_or_default())
            };
            let (address, rest) = (word(0), word(8));
            let (len, flags, next) = (rest as u32, rest >> 32 & 0xffff, (rest >> 48) as u16);
            ram.slice(address, len.into())?;
            parts.push(Part { at: address, len, for_device: flags & 2 != 0 });
            if flags & 1 == 0 {
                return Some(Some(Request { head, parts }));
            }
            at = next;
        }
    }

    /// Says that a request is done, with so many bytes written. Gives what is to be written to memory.
    pub fn done(&mut self, ram: &Ram, queue: usize, head: u16, len: u32) -> Vec<(u64, Vec<u8>)> {
        let queue = &self.queues[queue];
        if !queue.ready {
            return Vec::new();
        }
        let Some(raw) = queue.used.checked_add(2).and_then(|at| ram.slice(at, 2)) else {
            return Vec::new();
        };
        let index = u16::from_le_bytes([raw[0], raw[1]]);
        let entry = [u32::from(head).to_le_bytes(), len.to_le_bytes()].concat();
        let at = queue.used + 4 + 8 * u64::from(index % queue.size);
        // A driver that polls asks for no interrupts.
        let flags = ram.slice(queue.available, 2);
        if flags.is_none_or(|flags| flags[0] & NO_INTERRUPT == 0) {
            self.interrupt |= 1;
        }
        vec![(at, entry), (queue.used + 2, index.wrapping_add(1).to_le_bytes().to_vec())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ram::BASE;

    #[test]
    fn a_driver_that_polls_gets_no_interrupt() {
        let mut ram = Ram::new(16384);
        let mut device = Virtio::new(1, 0, 1, Vec::new());
        let (available, used) = (BASE + 4096, BASE + 8192);
        for (at, value) in [
            (0x30, 0),
            (0x38, 8),
            (0x80, BASE as u32),
            (0x90, available as u32),
            (0xa0, used as u32),
            (0x44, 1),
        ] {
            device.write(at, value);
        }
        for (flags, wanted) in [(1, 0), (0, 1)] {
            ram.store(available, 2, flags);
            assert!(!device.done(&ram, 0, 0, 4).is_empty());
            assert_eq!(device.interrupt, wanted, "flags {flags}");
        }
    }
}
