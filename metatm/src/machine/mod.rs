//! The machine: harts, what they share, and whose turn it is.
//!
//! The simulation is one thread. The hart whose clock is furthest behind executes until it is ahead of the next one by a slice; so
//! the same images, parameters and seed give the same run, cycle by cycle.
//!
//! | module | what lives there |
//! |---|---|
//! | [`ram`] | main memory, with decoded instructions |
//! | [`hart`] | registers |
//! | [`csr`] | control registers |
//! | [`debug`] | breakpoints and single steps |
//! | [`mmu`] | translation of addresses |
//! | [`cache`] | caches and their coherence, as time |
//! | [`bus`] | what harts share |
//! | [`memory`] | loads, stores, fetches |
//! | [`burst`], [`execute`], [`special`], [`trap`] | instructions and traps |
//! | [`watch`] | cycles in which harts wait for locks |
//! | [`sbi`], [`boot`] | the firmware and the device tree |

pub mod boot;
pub mod burst;
pub mod bus;
pub mod cache;
pub mod csr;
pub mod debug;
pub mod execute;
pub mod hart;
pub mod memory;
pub mod mmu;
pub mod ram;
pub mod sbi;
pub mod special;
pub mod trap;
pub mod watch;

use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::devices::disk::Disk;
use crate::tm::{self, Tm};
use bus::{Bus, Ending};
use cache::Caches;
use hart::{Hart, Mode, State};
use ram::Ram;
use sbi::Others;

/// Most harts.
pub const HARTS_MAX: usize = 32;

/// A machine's parameters.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Config {
    /// Harts, 1 to 32.
    pub harts: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// Cycles a second.
    pub hertz: u64,
    /// Caches, if time is modelled; without them each instruction takes a cycle.
    pub caches: Option<cache::Config>,
    /// Cycles that a hart may be ahead of the others.
    pub slice: u64,
    /// Microseconds that a request of the disk takes.
    pub disk_us: u64,
    /// Microseconds that a frame is on the wire.
    pub wire_us: u64,
    /// Transactional memory.
    pub tm: tm::Config,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            harts: 8,
            memory: 1 << 30,
            hertz: 1_000_000_000,
            caches: Some(cache::Config::default()),
            slice: 50,
            disk_us: 5500,
            wire_us: 100,
            tm: tm::Config::default(),
        }
    }
}

/// Why a machine can't be made or booted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A parameter is out of range.
    #[error("{0}")]
    Parameter(String),
    /// An image does not fit, or is not what it should be.
    #[error("{0}")]
    Image(String),
    /// The device tree could not be made.
    #[error("the device tree could not be made: {0}")]
    Tree(#[from] vm_fdt::Error),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As the guest has asked.
    Asked(Ending),
    /// After as many cycles as were allowed.
    Cycles,
    /// After as much real time as was allowed.
    TimeUp,
    /// No hart runs and nothing will wake one.
    Asleep,
    /// The debugger's: at a breakpoint, after a step, or because it asked.
    Debugger,
}

/// What the kernel is started with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Images<'a> {
    /// The kernel: an Image, as `make Image` builds it.
    pub kernel: &'a [u8],
    /// The initial file system.
    pub initrd: &'a [u8],
    /// The command line.
    pub command_line: &'a str,
}

impl Config {
    /// The longest latency, in whatever it is given.
    fn longest(&self) -> u64 {
        let figures = &self.tm.figures;
        let doubled = figures.backoff_cycles.checked_shl(figures.backoff_doublings);
        let caches = self.caches.iter().flat_map(|c| [c.l1_miss, c.l2_miss, c.upgrade]);
        let tm = [self.tm.commit_cycles, self.tm.abort_cycles, figures.stall_cycles];
        let wait = doubled.filter(|d| d >> figures.backoff_doublings == figures.backoff_cycles);
        caches
            .chain(tm)
            .chain([self.slice, self.disk_us, self.wire_us, wait.unwrap_or(u64::MAX)])
            .max()
            .unwrap_or(0)
    }
}

/// Turns between two looks at the real time. A turn is at most 100,000 instructions.
const LOOKS: u32 = 64;

/// Most cycles or microseconds of a latency.
const LONGEST: u64 = 1_000_000_000;

/// Ticks a second of the clock that programs see.
const TICKS: u64 = 10_000_000;

/// A machine.
#[derive(Debug)]
pub struct Machine {
    /// Its harts.
    pub harts: Vec<Hart>,
    /// What they share.
    pub bus: Bus,
    /// What a debugger wants.
    pub debug: Option<debug::Debug>,
    /// When a run ends even if the guest goes on; what the guest does until then does not depend on it.
    pub deadline: Option<Instant>,
    /// Cycles by the address at which a turn began, if they are wanted; programs have the address 0.
    pub profile: Option<FxHashMap<u64, u64>>,
    states: Vec<State>,
    slice: u64,
}

impl Machine {
    /// A machine that is off. `disk` is what is on its disk.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub fn new(config: &Config, disk: Vec<u8>) -> Result<Machine, Error> {
        let wrong = |what: &str| Err(Error::Parameter(what.into()));
        if !(1..=HARTS_MAX).contains(&config.harts) {
            return wrong("a machine has 1 to 32 harts");
        }
        if config.memory < 16 << 20 || config.memory > 64 << 30 {
            return wrong("a machine has 16 MiB to 64 GiB of memory");
        }
        if !(TICKS..=100_000_000_000).contains(&config.hertz) || config.slice == 0 {
            return wrong("a machine has 10 to 100,000 MHz, and slices of at least a cycle");
        }
        if config.longest() > LONGEST {
            return wrong("a latency is at most 1,000,000,000 cycles or microseconds");
        }
        if ![1, 64].contains(&config.tm.granularity) || !config.tm.stack_bytes.is_power_of_two() {
            return wrong("conflicts are detected by 1 or 64 bytes, and stacks are powers of two");
        }
        let holds = |bytes: usize, ways: usize| ways > 0 && bytes / cache::LINE as usize >= ways;
        let fit = |c: &cache::Config| holds(c.l1_bytes, c.l1_ways) && holds(c.l2_bytes, c.l2_ways);
        if config.caches.as_ref().is_some_and(|caches| !fit(caches)) {
            return wrong("a cache has at least one set, of at least one line of 64 bytes");
        }
        let us = |us: u64| us * (config.hertz / 1_000_000).max(1);
        let caches = config.caches.clone().map(|c| Caches::new(c, config.harts));
        let tm = Tm::new(config.tm.clone(), config.harts);
        let mut bus = Bus::new(
            Ram::new(config.memory),
            Disk::new(disk, us(config.disk_us)),
            tm,
            caches,
            config.harts,
        );
        bus.tick = config.hertz / TICKS;
        bus.wire = us(config.wire_us);
        Ok(Machine {
            harts: (0..config.harts).map(Hart::new).collect(),
            bus,
            debug: None,
            deadline: None,
            profile: None,
            states: vec![State::Stopped; config.harts],
            slice: config.slice,
        })
    }

    /// Loads a kernel and starts hart 0 in it.
    ///
    /// # Errors
    /// [`Error::Image`] if the images are none or don't fit.
    pub fn boot(&mut self, images: &Images<'_>) -> Result<(), Error> {
        let kernel = images.kernel;
        if kernel.get(0x38..0x3c) != Some(b"RSC\x05") {
            return Err(Error::Image(
                "the kernel is no RISC-V Image (`make ARCH=riscv Image`)".into(),
            ));
        }
        let size = u64::from_le_bytes(kernel[16..24].try_into().unwrap_or_default())
            .max(kernel.len() as u64);
        let tree = |initrd| {
            boot::device_tree(&boot::Description {
                harts: self.harts.len(),
                memory: self.bus.ram.size(),
                ticks_per_second: TICKS as u32,
                command_line: images.command_line,
                initrd,
                seed: self.bus.tm.config.seed,
            })
        };
        let room = tree(Some((0, 0)))?.len() as u64 + 4096;
        let places = sbi::places(&self.bus.ram, size, images.initrd.len() as u64, room)
            .ok_or_else(|| Error::Image("the images don't fit into memory".into()))?;
        let end = places.initrd + images.initrd.len() as u64;
        let tree = tree((!images.initrd.is_empty()).then_some((places.initrd, end)))?;
        for (at, data) in [
            (places.kernel, kernel),
            (places.initrd, images.initrd),
            (places.tree, tree.as_slice()),
        ] {
            self.bus
                .ram
                .write(at, data)
                .ok_or_else(|| Error::Image("the images don't fit into memory".into()))?;
        }
        self.harts[0].start(places.kernel, places.tree);
        self.states[0] = State::Runs;
        Ok(())
    }

    /// The clock that is furthest behind, of the harts that are on; the last one's, if none is.
    #[must_use]
    pub fn now(&self) -> u64 {
        let on = self.harts.iter().filter(|h| h.state != State::Stopped).map(|h| h.clock).min();
        on.unwrap_or_else(|| self.harts.iter().map(|h| h.clock).max().unwrap_or(0))
    }

    /// Runs until the guest ends, `cycles` have gone by, or the deadline has come. What the console prints goes to `console`, which may say
    /// false to stop.
    pub fn run(&mut self, cycles: u64, mut console: impl FnMut(&[u8]) -> bool) -> Ended {
        let mut turns = 0u32;
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(LOOKS) && self.deadline.is_some_and(|at| Instant::now() >= at) {
                return Ended::TimeUp;
            }
            // A turn that the debugger has interrupted goes on first, so that the run is the same as without it.
            if let Some((hart, until)) = self.debug.as_mut().and_then(|d| d.turn.take()) {
                if !self.turn(hart, until) {
                    return Ended::Debugger;
                }
                continue;
            }
            if !self.bus.uart.output.is_empty() {
                let output = std::mem::take(&mut self.bus.uart.output);
                if !console(&output) {
                    return Ended::Cycles;
                }
            }
            if let Some(ending) = self.bus.ending {
                return Ended::Asked(ending);
            }
            self.changes();
            let Some((hart, limit)) = self.next() else {
                if !self.sleep() {
                    return Ended::Asleep;
                }
                continue;
            };
            let now = self.harts[hart].clock;
            if now >= cycles {
                return Ended::Cycles;
            }
            self.bus.devices(now);
            let until = limit.saturating_add(self.slice).min(now + 100_000);
            let until = self.bus.next_event().map_or(until, |at| until.min(at.max(now + 1)));
            let this = &mut self.harts[hart];
            // Its timer is looked at when a turn begins.
            let timer = this.csr.timer.saturating_mul(self.bus.tick);
            let until = if timer > now { until.min(timer) } else { until };
            this.look = true;
            if !self.turn(hart, until) {
                return Ended::Debugger;
            }
        }
    }

    /// A hart's turn. Gives false if the debugger has interrupted it.
    fn turn(&mut self, hart: usize, until: u64) -> bool {
        let this = &self.harts[hart];
        let (from, pc) = (this.clock, if this.mode == Mode::User { 0 } else { this.pc });
        let whole = match self.debug {
            None => {
                self.execute(hart, until);
                true
            }
            Some(_) => self.turn_debugged(hart, until),
        };
        self.states[hart] = self.harts[hart].state;
        if let Some(profile) = &mut self.profile {
            *profile.entry(pc).or_default() += self.harts[hart].clock - from;
        }
        whole
    }

    fn execute(&mut self, hart: usize, until: u64) -> bool {
        let this = &mut self.harts[hart];
        let others = Others { states: &self.states };
        if self.bus.caches.is_some() {
            execute::run::<true>(this, &mut self.bus, until, others)
        } else {
            execute::run::<false>(this, &mut self.bus, until, others)
        }
    }

    /// What harts have asked of others: to forget translations, to start, to look at an interrupt.
    fn changes(&mut self) {
        if self.bus.flush != 0 {
            let mask = std::mem::take(&mut self.bus.flush);
            for hart in self.harts.iter_mut().filter(|h| mask >> h.id & 1 == 1) {
                hart.tlb.flush();
            }
        }
        if self.bus.software != 0 {
            let mask = std::mem::take(&mut self.bus.software);
            for hart in self.harts.iter_mut().filter(|h| mask >> h.id & 1 == 1) {
                hart.software = true;
                hart.look = true;
            }
        }
        let now = self.now();
        for (id, start) in self.bus.start.iter_mut().enumerate() {
            if let Some((at, argument)) = start.take() {
                let hart = &mut self.harts[id];
                hart.clock = hart.clock.max(now);
                hart.start(at, argument);
                self.states[id] = State::Runs;
            }
        }
    }

    /// The hart whose turn it is, and the clock of the one after it.
    fn next(&mut self) -> Option<(usize, u64)> {
        let mut best: Option<(u64, usize)> = None;
        let mut second = u64::MAX;
        for hart in &self.harts {
            if hart.state != State::Runs {
                continue;
            }
            match best {
                Some((clock, _)) if clock <= hart.clock => second = second.min(hart.clock),
                _ => {
                    second = second.min(best.map_or(u64::MAX, |b| b.0));
                    best = Some((hart.clock, hart.id));
                }
            }
        }
        // Harts that wait are looked at as time goes by.
        let now = best.map(|b| b.0);
        if let Some(now) = now {
            self.wake(now);
        }
        best.map(|(_, id)| (id, second))
    }

    /// Wakes harts for which an interrupt has come until now.
    fn wake(&mut self, now: u64) {
        for hart in &mut self.harts {
            if hart.state != State::Waits {
                continue;
            }
            let external = !self.bus.plic.is_quiet() && self.bus.plic.asks(hart.id);
            let due =
                hart.csr.timer != u64::MAX && hart.csr.timer.saturating_mul(self.bus.tick) <= now;
            let due = due && hart.csr.sie & hart::interrupt::TIMER != 0;
            let asked = external && hart.csr.sie & hart::interrupt::EXTERNAL != 0;
            if due || asked || hart.software && hart.csr.sie & hart::interrupt::SOFTWARE != 0 {
                if hart.clock < now {
                    hart.idle += now - hart.clock;
                    hart.clock = now;
                }
                hart.state = State::Runs;
                self.states[hart.id] = State::Runs;
            }
        }
    }

    /// No hart runs: time goes to the next event. Gives whether there is one.
    fn sleep(&mut self) -> bool {
        let waits = |h: &&Hart| h.state == State::Waits;
        // One whose timer has fired, and who does not want to hear of it, stays asleep.
        let wants = |h: &&Hart| h.csr.sie & hart::interrupt::TIMER != 0 && h.csr.timer != u64::MAX;
        let timers = self.harts.iter().filter(waits).filter(wants);
        let timer = timers.map(|h| h.csr.timer.saturating_mul(self.bus.tick)).min();
        let here = self.harts.iter().filter(waits).map(|h| h.clock).max().unwrap_or(0);
        // What the last one has told a device may have an answer already.
        self.bus.devices(here);
        self.wake(here);
        if self.harts.iter().any(|h| h.state == State::Runs) {
            return true;
        }
        let Some(at) = [timer, self.bus.next_event()].into_iter().flatten().min() else {
            return false;
        };
        let at = at.max(here);
        self.bus.devices(at);
        self.wake(at);
        self.harts.iter().any(|h| h.state == State::Runs) || self.bus.next_event().is_some()
    }
}
