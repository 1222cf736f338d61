//! The serial console: the part of a 16550 that a driver needs. What is written is gathered; input comes from the host.

use std::collections::VecDeque;

/// The console.
#[derive(Debug, Default)]
pub struct Uart {
    /// What was written and not taken yet.
    pub output: Vec<u8>,
    /// What can be read.
    pub input: VecDeque<u8>,
    enabled: u8,
    line_control: u8,
    modem_control: u8,
    scratch: u8,
    divisor: [u8; 2],
    /// The interrupt "empty" was not read yet.
    empty: bool,
}

impl Uart {
    /// Whether it asks for an interrupt.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.enabled & 1 != 0 && !self.input.is_empty() || self.enabled & 2 != 0 && self.empty
    }

    /// Reads a register.
    pub fn read(&mut self, at: u64) -> u8 {
        let latch = self.line_control & 0x80 != 0;
        match at {
            0 if latch => self.divisor[0],
            1 if latch => self.divisor[1],
            0 => self.input.pop_front().unwrap_or(0),
            1 => self.enabled,
            2 => {
                if self.enabled & 1 != 0 && !self.input.is_empty() {
                    0xc4
                } else if self.enabled & 2 != 0 && self.empty {
                    self.empty = false;
                    0xc2
                } else {
                    0xc1
                }
            }
            3 => self.line_control,
            4 => self.modem_control,
            5 => 0x60 | u8::from(!self.input.is_empty()),
            6 => 0xb0,
            7 => self.scratch,
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, at: u64, value: u8) {
        let latch = self.line_control & 0x80 != 0;
        match at {
            0 if latch => self.divisor[0] = value,
            1 if latch => self.divisor[1] = value,
            0 => {
                self.output.push(value);
                self.empty = true;
            }
            1 => {
                self.empty |= value & 2 != 0 && self.enabled & 2 == 0;
                self.enabled = value & 15;
            }
            3 => self.line_control = value,
            4 => self.modem_control = value,
            7 => self.scratch = value,
            _ => {}
        }
    }
}
