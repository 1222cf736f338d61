//! What a program is to the kernel: whether a library can be loaded into it (ld.so(8), `LD_PRELOAD`).

/// What a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A script: its interpreter, and the argument for that.
    Script(Vec<u8>, Vec<u8>),
    /// A 64-bit program that is dynamically linked.
    Dynamic,
    /// Another one.
    Static,
    /// None.
    Unknown,
}

/// Looks at the beginning of a program. `read_at` reads from it at an offset, and answers how many bytes it has read: 0 also
/// for an error.
pub fn kind(read_at: impl Fn(&mut [u8], u64) -> usize) -> Kind {
    const PT_INTERP: u64 = 3;
    let mut head = [0; 512];
    let size = read_at(&mut head, 0).min(head.len());
    let head = &head[..size];
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default().trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let (interpreter, argument) = line.split_at(end);
        return match interpreter {
            [] => Kind::Unknown,
            _ => Kind::Script(interpreter.to_vec(), argument.trim_ascii().to_vec()),
        };
    }
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |value, b| value << 8 | u64::from(*b));
    if !head.starts_with(b"\x7fELF") || size < 64 {
        return Kind::Unknown;
    }
    if head.get(4..6) != Some(&[2, 1]) {
        return Kind::Static;
    }
    let (start, size, count) = (word(&head[32..40]), word(&head[54..56]), word(&head[56..58]));
    let is_dynamic = (0..count).any(|index| {
        let mut kind = [0; 4];
        let at = start.saturating_add(index * size);
        read_at(&mut kind, at) == kind.len() && word(&kind) == PT_INTERP
    });
    if is_dynamic { Kind::Dynamic } else { Kind::Static }
}

/// Whether a program of this mode, owner and group runs with other rights than those of a process with this effective user and
/// group, so that the dynamic linker loads nothing into it.
#[must_use]
pub fn changes_ids(mode: u32, owner: (u32, u32), effective: (u32, u32)) -> bool {
    mode & 0o4000 != 0 && owner.0 != effective.0
        || mode & 0o2010 == 0o2010 && owner.1 != effective.1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Kind {
        kind(|room, at| {
            let rest = bytes.get(at as usize..).unwrap_or_default();
            let size = rest.len().min(room.len());
            room[..size].copy_from_slice(&rest[..size]);
            size
        })
    }

    #[test]
    fn programs_are_told_apart() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(of(&own), Kind::Dynamic);
        assert_eq!(of(&own[..600]), Kind::Dynamic);
        let mut other = own[..64].to_vec();
        other[4] = 1;
        assert_eq!(of(&other), Kind::Static);
        assert_eq!(of(&own[..64]), Kind::Static);
        for (text, expected) in [
            (&b"#! /bin/sh -e\nexit\n"[..], Kind::Script(b"/bin/sh".into(), b"-e".into())),
            (b"#!/usr/bin/env python3", Kind::Script(b"/usr/bin/env".into(), b"python3".into())),
            (b"#!\n", Kind::Unknown),
            (b"exit", Kind::Unknown),
            (b"\x7fELF", Kind::Unknown),
            (b"", Kind::Unknown),
        ] {
            assert_eq!(of(text), expected);
        }
    }

    #[test]
    fn ids_change_by_the_mode() {
        assert!(changes_ids(0o4755, (0, 0), (1, 1)) && !changes_ids(0o4755, (1, 0), (1, 1)));
        assert!(changes_ids(0o2755, (0, 0), (0, 1)) && !changes_ids(0o2745, (0, 0), (0, 1)));
        assert!(!changes_ids(0o755, (0, 0), (1, 1)));
    }
}
