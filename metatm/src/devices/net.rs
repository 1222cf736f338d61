//! Two network interfaces (virtio-net) and a wire between them: what one sends, the other receives after a latency. A guest
//! that puts one of them into a network namespace of its own has two hosts.

use std::collections::VecDeque;

use super::disk::Writes;
use super::virtio::Virtio;
use crate::machine::ram::Ram;

/// Bytes before each frame.
const HEADER: usize = 12;
/// Most frames on the wire.
const FRAMES: usize = 1024;

/// An interface.
#[derive(Debug)]
pub struct Net {
    /// Registers.
    pub virtio: Virtio,
    /// Frames on their way to it, with the cycle of their arrival.
    arriving: VecDeque<(u64, Vec<u8>)>,
}

impl Net {
    /// An interface with the last byte of its address.
    #[must_use]
    pub fn new(number: u8) -> Net {
        // It has an address.
        let features = 1 << 5;
        let config = vec![0x52, 0x54, 0, 0, 0, number];
        Net { virtio: Virtio::new(1, features, 2, config), arriving: VecDeque::new() }
    }

    /// The driver has frames to send: gives one, and what is to be written.
    pub fn send(&mut self, ram: &Ram) -> Option<(Vec<u8>, Writes)> {
        let request = self.virtio.take(ram, 1)?;
        let mut frame = Vec::new();
        for part in request.parts.iter().filter(|p| !p.for_device) {
            frame.extend_from_slice(ram.slice(part.at, part.len.into())?);
        }
        let writes = self.virtio.done(ram, 1, request.head, 0);
        Some((frame.split_off(HEADER.min(frame.len())), writes))
    }

    /// A frame arrives at a cycle. Where the wire is full it is lost, as on a wire.
    pub fn arrive(&mut self, at: u64, frame: Vec<u8>) {
        if self.arriving.len() < FRAMES {
            self.arriving.push_back((at, frame));
        }
    }

    /// When the next frame arrives.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.arriving.front().map(|f| f.0)
    }

    /// Gives the driver a frame that has arrived. One for which it has no room is lost.
    pub fn advance(&mut self, ram: &Ram, now: u64) -> Writes {
        if self.next().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let Some((_, frame)) = self.arriving.pop_front() else { return Vec::new() };
        let Some(request) = self.virtio.take(ram, 0) else { return Vec::new() };
        let mut data = vec![0; HEADER];
        data[10] = 1;
        data.extend_from_slice(&frame);
        let (mut writes, mut at) = (Vec::new(), 0);
        for part in request.parts.iter().filter(|p| p.for_device) {
            let len = (part.len as usize).min(data.len() - at);
            writes.push((part.at, data[at..at + len].to_vec()));
            at += len;
        }
        writes.extend(self.virtio.done(ram, 0, request.head, at as u32));
        writes
    }
}
