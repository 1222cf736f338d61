//! Main memory.

use crate::isa::Instr;

/// Where it begins.
pub const BASE: u64 = 0x8000_0000;
/// Bytes in a page.
pub const PAGE: u64 = 4096;

/// A page of decoded instructions, one for each 16 bits.
pub type CodePage = Box<[Instr; 2048]>;

/// Memory, and what was decoded of it. Addresses are physical; [`Ram::has`] says which are in it.
#[derive(Debug)]
pub struct Ram {
    bytes: Vec<u8>,
    code: Vec<Option<CodePage>>,
}

impl Ram {
    /// So many bytes, all 0.
    #[must_use]
    pub fn new(bytes: u64) -> Ram {
        let pages = bytes.div_ceil(PAGE) as usize;
        Ram { bytes: vec![0; pages * PAGE as usize], code: (0..pages).map(|_| None).collect() }
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether a range lies in it.
    #[must_use]
    #[inline(always)]
    pub fn has(&self, at: u64, len: u64) -> bool {
        at >= BASE && at - BASE <= self.bytes.len() as u64 - len.min(self.bytes.len() as u64)
    }

    /// Loads 1, 2, 4 or 8 bytes.
    #[must_use]
    #[inline(always)]
    pub fn load(&self, at: u64, len: u64) -> u64 {
        let at = (at - BASE) as usize;
        let bytes = &self.bytes;
        match len {
            1 => bytes[at].into(),
            2 => fixed(bytes, at).map_or(0, u16::from_le_bytes).into(),
            4 => fixed(bytes, at).map_or(0, u32::from_le_bytes).into(),
            _ => fixed(bytes, at).map_or(0, u64::from_le_bytes),
        }
    }

    /// Stores 1, 2, 4 or 8 bytes.
    #[inline(always)]
    pub fn store(&mut self, at: u64, len: u64, value: u64) {
        let (at, len) = ((at - BASE) as usize, len as usize);
        let value = value.to_le_bytes();
        match len {
            1 => self.bytes[at] = value[0],
            2 => self.bytes[at..at + 2].copy_from_slice(&value[..2]),
            4 => self.bytes[at..at + 4].copy_from_slice(&value[..4]),
            _ => self.bytes[at..at + 8].copy_from_slice(&value),
        }
    }

    /// A range, if it lies in memory.
    #[must_use]
    pub fn slice(&self, at: u64, len: u64) -> Option<&[u8]> {
        let start = usize::try_from(at.checked_sub(BASE)?).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(len).ok()?)?)
    }

    /// Writes a range, as a device or a loader does; what was decoded of it is forgotten. `None` if it lies outside.
    pub fn write(&mut self, at: u64, data: &[u8]) -> Option<()> {
        let start = usize::try_from(at.checked_sub(BASE)?).ok()?;
        self.bytes.get_mut(start..start.checked_add(data.len())?)?.copy_from_slice(data);
        let pages = start / PAGE as usize..=(start + data.len().max(1) - 1) / PAGE as usize;
        for page in pages {
            self.code[page] = None;
        }
        Some(())
    }

    /// The number of the page of an address.
    #[must_use]
    #[inline(always)]
    pub fn page(at: u64) -> usize {
        ((at - BASE) / PAGE) as usize
    }

    /// Whether instructions of a page were decoded.
    #[must_use]
    #[inline(always)]
    pub fn is_code(&self, page: usize) -> bool {
        self.code[page].is_some()
    }

    /// Forgets what was decoded of a page.
    pub fn changed(&mut self, page: usize) {
        self.code[page] = None;
    }

    /// The decoded instruction at an offset of a page.
    #[must_use]
    #[inline(always)]
    pub fn instr(&self, page: usize, offset: usize) -> Instr {
        match &self.code[page] {
            Some(code) => code[offset >> 1 & 2047],
            None => Instr::UNDECODED,
        }
    }

    /// Its bytes, and the decoded instructions of each page.
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut [u8], &[Option<CodePage>]) {
        (&mut self.bytes, &self.code)
    }

    /// Keeps a decoded instruction.
    pub fn keep(&mut self, page: usize, offset: usize, instr: Instr) {
        let code = self.code[page].get_or_insert_with(|| Box::new([Instr::UNDECODED; 2048]));
        code[offset >> 1 & 2047] = instr;
    }
}

#[inline(always)]
fn fixed<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
