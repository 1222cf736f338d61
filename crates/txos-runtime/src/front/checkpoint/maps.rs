//! What is mapped where: `/proc/PID/smaps`, and sets of addresses.

use std::ops::Range;

/// Addresses.
pub type Span = Range<u64>;

/// One mapping, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Where it is.
    pub span: Span,
    /// `PROT_*`.
    pub prot: u64,
    /// Stores are everybody's.
    pub shared: bool,
    /// Of which file: device and inode; both 0 for memory without a file.
    pub file: (u64, u64),
    /// Where in the file it starts.
    pub offset: u64,
    /// The file's path, as the kernel tells it, or a name in brackets.
    pub path: Vec<u8>,
    /// It has pages of its own, in memory or swapped out (as a whole, not the part).
    pub has_pages: bool,
    /// `VmFlags`.
    pub flags: Flags,
}

/// What the kernel says of a mapping besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Not copied into a child (`MADV_DONTFORK`).
    pub not_copied: bool,
    /// Zeroed in a child (`MADV_WIPEONFORK`).
    pub wiped: bool,
    /// Pages of the same content may become one (KSM).
    pub merged: bool,
    /// Huge pages of hugetlbfs, or a device.
    pub odd: bool,
}

impl Mapping {
    /// The kernel's own pages, which look the same in every process.
    pub fn is_kernels(&self) -> bool {
        self.path.starts_with(b"[v") || self.path == b"[uprobes]"
    }

    /// A part of it.
    pub fn part(&self, span: Span) -> Mapping {
        let offset = self.offset.wrapping_add(span.start - self.span.start);
        Mapping { offset: if self.file == (0, 0) { 0 } else { offset }, span, ..self.clone() }
    }

    /// Whether the same thing is mapped in the same way, but for the protection.
    pub fn is_like(&self, other: &Mapping) -> bool {
        let at = |mapping: &Mapping| mapping.offset.wrapping_sub(mapping.span.start);
        self.shared == other.shared
            && self.file == other.file
            && (self.file == (0, 0) || at(self) == at(other))
    }
}

/// Reads `smaps` (or `maps`, which says less: then every mapping counts as having pages).
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    let mut detailed = false;
    for line in text.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        if let Some(mapping) = header(line) {
            all.push(mapping);
        } else if let Some(last) = all.last_mut() {
            if !detailed {
                detailed = true;
                last.has_pages = false;
            }
            detail(line, last);
        }
    }
    if detailed {
        return all;
    }
    for mapping in &mut all {
        mapping.has_pages = true;
    }
    all
}

fn header(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after.trim_ascii_start();
        word
    };
    let (addresses, perms) = (word(), word());
    let dash = addresses.iter().position(|&b| b == b'-')?;
    let span = number(&addresses[..dash], 16)?..number(&addresses[dash + 1..], 16)?;
    let &[r, w, x, s] = perms else { return None };
    let offset = number(word(), 16)?;
    let device = word();
    let colon = device.iter().position(|&b| b == b':')?;
    let device = number(&device[..colon], 16)? << 32 | number(&device[colon + 1..], 16)?;
    let inode = number(word(), 10)?;
    let bit = |letter: u8, set: u8, bit: i32| if letter == set { bit as u64 } else { 0 };
    Some(Mapping {
        span,
        prot: bit(r, b'r', libc::PROT_READ)
            | bit(w, b'w', libc::PROT_WRITE)
            | bit(x, b'x', libc::PROT_EXEC),
        shared: s == b's',
        file: if inode == 0 { (0, 0) } else { (device, inode) },
        offset,
        path: rest.to_vec(),
        has_pages: false,
        flags: Flags::default(),
    })
}

fn detail(line: &[u8], mapping: &mut Mapping) {
    if let Some(flags) = line.strip_prefix(b"VmFlags:") {
        for flag in flags.split(|&b| b == b' ') {
            let all = &mut mapping.flags;
            match flag {
                b"dc" => all.not_copied = true,
                b"wf" => all.wiped = true,
                b"mg" => all.merged = true,
                b"ht" | b"io" | b"pf" => all.odd = true,
                _ => {}
            }
        }
        return;
    }
    let sizes = [&b"Anonymous:"[..], b"Swap:"];
    let Some(text) = sizes.iter().find_map(|name| line.strip_prefix(*name)) else { return };
    let text = text.trim_ascii();
    let end = text.iter().position(|&b| b == b' ').unwrap_or(text.len());
    mapping.has_pages |= number(&text[..end], 10) != Some(0);
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()
}

/// Addresses, in order and without gaps or overlaps among neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans(Vec<Span>);

impl Spans {
    /// Of any spans.
    pub fn of(all: impl IntoIterator<Item = Span>) -> Spans {
        let mut spans = Spans::default();
        let mut list: Vec<Span> = all.into_iter().filter(|span| span.start < span.end).collect();
        list.sort_by_key(|span| span.start);
        for span in list {
            match spans.0.last_mut() {
                Some(last) if last.end >= span.start => last.end = last.end.max(span.end),
                _ => spans.0.push(span),
            }
        }
        spans
    }

    /// All of them.
    pub fn list(&self) -> &[Span] {
        &self.0
    }

    /// These, and another.
    pub fn add(&mut self, span: Span) {
        let all = std::mem::take(&mut self.0);
        *self = Spans::of(all.into_iter().chain([span]));
    }

    /// These without the addresses of another.
    pub fn remove(&mut self, span: &Span) {
        let cut = Spans::of([span.clone()]);
        self.0 = self.0.iter().flat_map(|own| cut.outside(own)).collect();
    }

    /// What of a span is in them.
    pub fn inside(&self, span: &Span) -> Vec<Span> {
        self.near(span)
            .map(|own| own.start.max(span.start)..own.end.min(span.end))
            .filter(|both| both.start < both.end)
            .collect()
    }

    /// What of a span is not in them.
    pub fn outside(&self, span: &Span) -> Vec<Span> {
        let mut out = Vec::new();
        let mut from = span.start;
        for own in self.near(span) {
            if own.start > from {
                out.push(from..own.start.min(span.end));
            }
            from = from.max(own.end);
        }
        if from < span.end {
            out.push(from..span.end);
        }
        out
    }

    /// Whether one of a span's addresses is in them.
    pub fn meets(&self, span: &Span) -> bool {
        self.near(span).any(|own| own.start.max(span.start) < own.end.min(span.end))
    }

    fn near(&self, span: &Span) -> impl Iterator<Item = &Span> {
        let first = self.0.partition_point(|own| own.end <= span.start);
        let end = span.end;
        self.0[first..].iter().take_while(move |own| own.start < end)
    }
}

/// The parts of mappings that lie outside of some spans.
pub fn without(all: &[Mapping], spans: &Spans) -> Vec<Mapping> {
    let parts = |mapping: &Mapping| {
        let mapping = mapping.clone();
        spans.outside(&mapping.span).into_iter().map(move |span| mapping.part(span))
    };
    all.iter().filter(|mapping| !mapping.is_kernels()).flat_map(parts).collect()
}

/// Walks through two lists of mappings at once: each piece of memory with what was there, and what is.
pub fn together<'a>(
    before: &'a [Mapping],
    now: &'a [Mapping],
) -> Vec<(Span, Option<&'a Mapping>, Option<&'a Mapping>)> {
    let mut borders: Vec<u64> =
        before.iter().chain(now).flat_map(|m| [m.span.start, m.span.end]).collect();
    borders.sort_unstable();
    borders.dedup();
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    for pair in borders.windows(2) {
        let at = |list: &'a [Mapping], index: &mut usize| {
            while list.get(*index).is_some_and(|m| m.span.end <= pair[0]) {
                *index += 1;
            }
            list.get(*index).filter(|m| m.span.start <= pair[0])
        };
        let (was, is) = (at(before, &mut i), at(now, &mut j));
        if was.is_some() || is.is_some() {
            out.push((pair[0]..pair[1], was, is));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &[u8] = b"\
55a267769000-55a26776b000 r--p 00001000 fe:00 247278                     /usr/bin/a program
Size:                  8 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd mr mw me 
7f0000000000-7f0000004000 rw-p 00000000 00:00 0 
Anonymous:             4 kB
VmFlags: rd wr mr mw me ac wf dc mg
7f0000004000-7f0000005000 rwxs 00000000 00:01 77                         /dev/zero (deleted)
Anonymous:             0 kB
Swap:                  8 kB
VmFlags: rd wr sh ht
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn what_the_kernel_tells_is_understood() {
        let all = parse(SMAPS);
        assert_eq!(all.len(), 4);
        assert_eq!(all[0].span, 0x55a2_6776_9000..0x55a2_6776_b000);
        assert_eq!((all[0].prot, all[0].shared, all[0].has_pages), (1, false, false));
        assert_eq!(all[0].file, (0xfe << 32, 247_278));
        assert_eq!((all[0].offset, &all[0].path[..]), (0x1000, &b"/usr/bin/a program"[..]));
        assert_eq!((all[1].prot, all[1].file, all[1].has_pages), (3, (0, 0), true));
        assert!(all[1].flags.not_copied && all[1].flags.wiped && all[1].flags.merged);
        assert!(all[2].shared && all[2].has_pages && all[2].flags.odd && all[2].prot == 7);
        assert!(all[3].is_kernels() && !all[2].is_kernels());
        let part = all[0].part(0x55a2_6776_a000..0x55a2_6776_b000);
        assert_eq!(part.offset, 0x2000);
        assert!(part.is_like(&all[0]) && !part.is_like(&all[1]));
        // Without the details nothing is left out.
        let plain: Vec<u8> = SMAPS
            .split_inclusive(|&b| b == b'\n')
            .filter(|l| l.contains(&b'-'))
            .flatten()
            .copied()
            .collect();
        assert!(parse(&plain).iter().all(|mapping| mapping.has_pages));
    }

    #[test]
    fn sets_of_addresses() {
        let mut spans = Spans::of([30..40, 10..20, 20..25, 50..50]);
        assert_eq!(spans.list(), [10..25, 30..40]);
        assert_eq!(spans.inside(&(0..35)), [10..25, 30..35]);
        assert_eq!(spans.outside(&(0..35)), [0..10, 25..30]);
        assert!(spans.outside(&(12..14)).is_empty());
        assert!(spans.meets(&(24..26)) && !spans.meets(&(25..30)));
        spans.remove(&(12..32));
        assert_eq!(spans.list(), [10..12, 32..40]);
        spans.add(12..33);
        assert!(spans.list().len() == 1 && spans.list()[0] == (10..40), "{spans:?}");
    }

    #[test]
    fn two_lists_are_walked_through_at_once() {
        let all = parse(SMAPS);
        let now = [all[1].part(0x7f00_0000_1000..0x7f00_0000_2000), all[2].clone()];
        let pieces = together(&all[1..2], &now);
        let seen: Vec<_> = pieces
            .iter()
            .map(|(span, was, is)| (span.start & 0xffff, was.is_some(), is.is_some()))
            .collect();
        assert_eq!(
            seen,
            [(0, true, false), (0x1000, true, true), (0x2000, true, false), (0x4000, false, true)]
        );
    }
}
