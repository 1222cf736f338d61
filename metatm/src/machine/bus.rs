//! What harts share: memory, devices, caches, transactional memory, reservations.

use super::cache::Caches;
use super::mmu::Kind;
use super::ram::Ram;
use super::watch::Watched;
use crate::devices::disk::{Disk, Writes};
use crate::devices::map;
use crate::devices::net::Net;
use crate::devices::plic::Plic;
use crate::devices::uart::Uart;
use crate::devices::virtio::Virtio;
use crate::tm::{Access, Refused, Tm};

/// Why an access was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An exception: its cause and `stval`.
    Trap(u64, u64),
    /// The transaction of the hart is doomed.
    Lost,
    /// The instruction is to be executed again after so many cycles.
    Stall(u64),
    /// The hart does nothing for now: it waits, or the machine ends.
    Yield,
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Stop {
        match refused {
            Refused::Lost => Stop::Lost,
            Refused::Stall(cycles) => Stop::Stall(cycles),
        }
    }
}

/// What the machine was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Power off.
    PowerOff,
    /// Start anew.
    Reboot,
    /// Power off after a failure.
    Failed,
}

/// What harts share.
#[derive(Debug)]
pub struct Bus {
    /// Main memory.
    pub ram: Ram,
    /// The interrupt controller.
    pub plic: Plic,
    /// The console.
    pub uart: Uart,
    /// The disk.
    pub disk: Disk,
    /// The network interfaces.
    pub nets: [Net; 2],
    /// Transactional memory.
    pub tm: Tm,
    /// Caches, if time is modelled.
    pub caches: Option<Caches>,
    /// The reservation of each hart.
    reservations: Vec<u64>,
    /// The harts that have one.
    reserved: u32,
    /// Harts that are to forget translations.
    pub flush: u32,
    /// Harts with a software interrupt.
    pub software: u32,
    /// Harts that are to be started: address and argument.
    pub start: Vec<Option<(u64, u64)>>,
    /// Cycles of a tick of the clock.
    pub tick: u64,
    /// Latency of the wire in cycles.
    pub wire: u64,
    /// Where the kernel waits for locks.
    pub watched: Watched,
    /// How the machine ends.
    pub ending: Option<Ending>,
    /// Whether devices may have something to do.
    pub device_work: bool,
}

const NO_RESERVATION: u64 = u64::MAX;

impl Bus {
    /// A bus for so many harts.
    #[must_use]
    pub fn new(ram: Ram, disk: Disk, tm: Tm, caches: Option<Caches>, harts: usize) -> Bus {
        Bus {
            ram,
            plic: Plic::new(harts),
            uart: Uart::default(),
            disk,
            nets: [Net::new(1), Net::new(2)],
            tm,
            caches,
            reservations: vec![NO_RESERVATION; harts],
            reserved: 0,
            flush: 0,
            software: 0,
            start: vec![None; harts],
            tick: 100,
            wire: 100_000,
            watched: Watched::default(),
            ending: None,
            device_work: true,
        }
    }

    /// Reserves a line for a hart (`lr`).
    pub fn reserve(&mut self, hart: usize, at: u64) {
        self.reservations[hart] = at & !63;
        self.reserved |= 1 << hart;
    }

    /// Takes a hart's reservation; whether it still had it for this address (`sc`).
    pub fn unreserve(&mut self, hart: usize, at: u64) -> bool {
        let had = self.reserved >> hart & 1 == 1 && self.reservations[hart] == at & !63;
        self.reserved &= !(1 << hart);
        had
    }

    /// Whether any hart has a reservation.
    #[must_use]
    #[inline(always)]
    pub fn is_reserved(&self) -> bool {
        self.reserved != 0
    }

    #[cold]
    fn break_reservations(&mut self, hart: usize, at: u64) {
        for other in 0..self.reservations.len() {
            if other != hart && self.reservations[other] == at & !63 {
                self.reserved &= !(1 << other);
            }
        }
    }

    /// What every access to memory does besides: transactions and time. Gives the cycles that it takes.
    ///
    /// # Errors
    /// [`Stop`], if a transaction is in the way.
    #[inline(always)]
    pub fn before<const MODEL: bool>(&mut self, access: &Access) -> Result<u64, Stop> {
        if self.tm.live > 0 {
            self.tm.access(&mut self.ram, access)?;
        }
        if access.write && self.reserved != 0 {
            self.break_reservations(access.hart, access.at);
        }
        if !MODEL {
            return Ok(0);
        }
        let kind = if access.write { Kind::Write } else { Kind::Read };
        Ok(self.caches.as_mut().map_or(0, |caches| caches.access(access.hart, kind, access.at)))
    }

    /// Stores to memory; decoded instructions there are forgotten.
    #[inline(always)]
    pub fn store(&mut self, at: u64, len: u64, value: u64) {
        let page = Ram::page(at);
        if self.ram.is_code(page) {
            self.ram.changed(page);
        }
        self.ram.store(at, len, value);
    }

    /// Reads a register of a device; `None` where there is none.
    pub fn device_read(&mut self, at: u64, len: u64, now: u64) -> Option<u64> {
        self.device_work = true;
        let within = |base: u64, size: u64| (at >= base && at < base + size).then(|| at - base);
        if let Some(at) = within(map::UART, 0x100) {
            return Some(self.uart.read(at).into());
        }
        if let Some(at) = within(map::PLIC, map::PLIC_SIZE) {
            return Some(self.plic.read(at & !3).into());
        }
        if let Some(at) = within(map::VIRTIO, map::VIRTIO_SIZE * map::VIRTIOS) {
            return Some(self.virtio(at / map::VIRTIO_SIZE).read(at % map::VIRTIO_SIZE, len));
        }
        match within(map::CLINT, map::CLINT_SIZE)? {
            0xbff8 => Some(now / self.tick),
            at @ 0..0x4000 => Some((self.software >> (at / 4).min(31) & 1).into()),
            _ => Some(0),
        }
    }

    /// Writes a register of a device; `None` where there is none.
    pub fn device_write(&mut self, at: u64, value: u64, now: u64) -> Option<()> {
        self.device_work = true;
        let within = |base: u64, size: u64| (at >= base && at < base + size).then(|| at - base);
        if let Some(at) = within(map::UART, 0x100) {
            self.uart.write(at, value as u8);
            return Some(());
        }
        if let Some(at) = within(map::PLIC, map::PLIC_SIZE) {
            self.plic.write(at & !3, value as u32);
            return Some(());
        }
        if let Some(at) = within(map::VIRTIO, map::VIRTIO_SIZE * map::VIRTIOS) {
            let device = at / map::VIRTIO_SIZE;
            if let Some(queue) = self.virtio(device).write(at % map::VIRTIO_SIZE, value as u32) {
                self.notified(device, queue, now);
            }
            return Some(());
        }
        if let 0..0x4000 = within(map::CLINT, map::CLINT_SIZE)? {
            let bit = 1 << ((at - map::CLINT) / 4).min(31);
            self.software = if value & 1 == 1 { self.software | bit } else { self.software & !bit };
        }
        Some(())
    }

    fn virtio(&mut self, number: u64) -> &mut Virtio {
        match number {
            0 => &mut self.disk.virtio,
            1 => &mut self.nets[0].virtio,
            _ => &mut self.nets[1].virtio,
        }
    }

    fn notified(&mut self, device: u64, queue: usize, now: u64) {
        match (device, queue) {
            (0, _) => self.disk.notify(&self.ram, now),
            (1 | 2, 1) => {
                let (from, to) = (device as usize - 1, 2 - device as usize);
                while let Some((frame, writes)) = self.nets[from].send(&self.ram) {
                    self.dma(writes);
                    self.nets[to].arrive(now + self.wire, frame);
                }
            }
            _ => {}
        }
    }

    /// When a device has something to do by itself.
    #[must_use]
    pub fn next_event(&self) -> Option<u64> {
        [self.disk.next(), self.nets[0].next(), self.nets[1].next()].into_iter().flatten().min()
    }

    /// Devices do what they have to do until now, and raise their lines.
    pub fn devices(&mut self, now: u64) {
        while self.next_event().is_some_and(|at| at <= now) {
            self.device_work = true;
            let writes = if self.disk.next().is_some_and(|at| at <= now) {
                self.disk.advance(&self.ram, now)
            } else {
                let first = usize::from(self.nets[0].next().is_none_or(|at| at > now));
                self.nets[first].advance(&self.ram, now)
            };
            self.dma(writes);
        }
        if !std::mem::take(&mut self.device_work) {
            return;
        }
        self.plic.set(map::UART_LINE, self.uart.asks());
        for (number, line) in (0..map::VIRTIOS).zip(map::VIRTIO_LINE..) {
            let asks = self.virtio(number).asks();
            self.plic.set(line, asks);
        }
    }

    /// A device writes to memory. What lies outside is left alone.
    fn dma(&mut self, writes: Writes) {
        for (at, data) in writes {
            if self.ram.slice(at, data.len() as u64).is_some() {
                self.tm.device_writes(&mut self.ram, at, data.len() as u64);
                self.ram.write(at, &data);
                if self.reserved != 0 {
                    for line in (at & !63..at + data.len() as u64).step_by(64) {
                        self.break_reservations(usize::MAX, line);
                    }
                }
            }
        }
    }
}
