//! The platform-level interrupt controller, with one context for each hart: its supervisor.
//!
//! Source: RISC-V Platform-Level Interrupt Controller Specification, version 1.0.

/// Interrupt lines; line 0 is none.
const LINES: usize = 32;

/// The controller.
#[derive(Debug)]
pub struct Plic {
    priority: [u32; LINES],
    /// Lines whose devices ask.
    level: u32,
    /// Lines that a hart handles.
    claimed: u32,
    enabled: Vec<u32>,
    threshold: Vec<u32>,
}

impl Plic {
    /// One for so many harts.
    #[must_use]
    pub fn new(harts: usize) -> Plic {
        Plic {
            priority: [0; LINES],
            level: 0,
            claimed: 0,
            enabled: vec![0; harts],
            threshold: vec![0; harts],
        }
    }

    /// A device's line rises or falls.
    pub fn set(&mut self, line: u32, up: bool) {
        let bit = 1 << line;
        self.level = if up { self.level | bit } else { self.level & !bit };
    }

    /// Whether no device asks for anything: then no hart needs a look.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.level & !self.claimed == 0
    }

    /// Whether a hart is asked.
    #[must_use]
    pub fn asks(&self, hart: usize) -> bool {
        self.best(hart).is_some()
    }

    fn best(&self, hart: usize) -> Option<usize> {
        let waiting = self.level & !self.claimed & self.enabled[hart];
        (1..LINES)
            .filter(|line| waiting >> line & 1 == 1 && self.priority[*line] > self.threshold[hart])
            .max_by_key(|line| (self.priority[*line], LINES - line))
    }

    /// Reads a register.
    pub fn read(&mut self, at: u64) -> u32 {
        match at {
            0..0x1000 => self.priority.get(at as usize / 4).copied().unwrap_or(0),
            0x1000 => self.level & !self.claimed,
            0x2000..0x20_0000 if at & 0x7f == 0 => {
                self.enabled.get((at as usize - 0x2000) / 0x80).copied().unwrap_or(0)
            }
            0x20_0000.. => {
                let hart = (at as usize - 0x20_0000) / 0x1000;
                match at & 0xfff {
                    0 => self.threshold.get(hart).copied().unwrap_or(0),
                    4 if hart < self.enabled.len() => self.best(hart).map_or(0, |line| {
                        self.claimed |= 1 << line;
                        line as u32
                    }),
                    _ => 0,
                }
            }
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, at: u64, value: u32) {
        match at {
            0..0x1000 => {
                if let Some(priority) = self.priority.get_mut(at as usize / 4) {
                    *priority = value & 7;
                }
            }
            0x2000..0x20_0000 if at & 0x7f == 0 => {
                if let Some(enabled) = self.enabled.get_mut((at as usize - 0x2000) / 0x80) {
                    *enabled = value & !1;
                }
            }
            0x20_0000.. => {
                let hart = (at as usize - 0x20_0000) / 0x1000;
                match at & 0xfff {
                    0 => {
                        if let Some(threshold) = self.threshold.get_mut(hart) {
                            *threshold = value & 7;
                        }
                    }
                    4 if (value as usize) < LINES => self.claimed &= !(1 << value),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_claimed_once() {
        let mut plic = Plic::new(2);
        plic.write(4 * 3, 1);
        plic.write(0x2080, 1 << 3);
        plic.set(3, true);
        assert!(!plic.asks(0) && plic.asks(1));
        assert_eq!(plic.read(0x20_1004), 3);
        assert!(!plic.asks(1));
        plic.write(0x20_1004, 3);
        assert!(plic.asks(1), "the device still asks");
    }
}
