//! Names of the kernel's functions and data, from its `System.map`.

use std::collections::BTreeMap;

/// A map of addresses to names.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    by_address: BTreeMap<u64, String>,
    /// The bounds of the image.
    by_name: BTreeMap<&'static str, u64>,
}

impl Symbols {
    /// Reads a map: an address, a kind and a name in each line. Lines that are none are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Symbols {
        let (mut by_address, mut by_name) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            // What the assembler made for itself says nothing to people.
            if let (Ok(address), false, true) = (
                u64::from_str_radix(address, 16),
                name.starts_with('$') || name.starts_with(".L"),
                kind.len() == 1,
            ) {
                by_address.insert(address, name.to_owned());
                for bound in ["_start", "_end"].into_iter().filter(|b| *b == name) {
                    by_name.insert(bound, address);
                }
            }
        }
        Symbols { by_address, by_name }
    }

    /// The function at an address, with the distance from its start.
    #[must_use]
    pub fn name(&self, address: u64) -> String {
        match self.by_address.range(..=address).next_back() {
            Some((start, name)) if address - start < 1 << 16 => match address - start {
                0 => name.clone(),
                offset => format!("{name}+{offset:#x}"),
            },
            _ => format!("{address:#x}"),
        }
    }

    /// The kernel's static data at a physical address, if the kernel was loaded at `loaded`; the address itself for what the
    /// kernel has allocated.
    #[must_use]
    pub fn data(&self, at: u64, loaded: u64) -> String {
        let address = |name: &str| self.by_name.get(name).copied();
        let in_image = || {
            let (start, end) = (address("_start")?, address("_end")?);
            let at = start.checked_add(at.checked_sub(loaded)?)?;
            (at < end).then(|| self.name(at))
        };
        in_image().unwrap_or_else(|| format!("{at:#x}"))
    }

    /// The function at an address.
    #[must_use]
    pub fn function(&self, address: u64) -> String {
        let name = self.name(address);
        name.split('+').next().unwrap_or_default().to_owned()
    }

    /// Where functions begin and end whose names are wanted.
    #[must_use]
    pub fn ranges(&self, wanted: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
        let found = self.by_address.iter().filter(|(_, name)| wanted(name));
        found
            .filter_map(|(&start, _)| {
                let next = self.by_address.range(start + 1..).next();
                next.map(|(&end, _)| (start, end))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_the_image_has_a_name_and_what_is_allocated_has_none() {
        let map = "ffffffff80000000 T _start\nffffffff80001000 D table\nffffffff80002000 B _end\n";
        let map = Symbols::parse(map);
        assert_eq!(map.data(0x8020_1008, 0x8020_0000), "table+0x8");
        assert_eq!(map.data(0x8020_2000, 0x8020_0000), "0x80202000");
        assert_eq!(map.data(0x1000, 0x8020_0000), "0x1000");
        assert_eq!(Symbols::default().data(0x8020_0000, 0x8020_0000), "0x80200000");
    }

    #[test]
    fn an_address_has_the_name_before_it() {
        let map =
            Symbols::parse("ffffffff80000000 T first\nffffffff80000010 t second\nnonsense\n0 x\n");
        assert_eq!(map.name(0xffff_ffff_8000_0014), "second+0x4");
        assert_eq!(map.function(0xffff_ffff_8000_000f), "first");
        assert_eq!(map.name(5), "0x5");
        assert_eq!(map.ranges(|n| n == "first"), [(0xffff_ffff_8000_0000, 0xffff_ffff_8000_0010)]);
    }
}
