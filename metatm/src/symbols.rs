//! Names of the kernel's functions, from its `System.map`.

use std::collections::BTreeMap;

/// A map of addresses to names.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    by_address: BTreeMap<u64, String>,
}

impl Symbols {
    /// Reads a map: an address, a kind and a name in each line. Lines that are none are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Symbols {
        let mut by_address = BTreeMap::new();
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
            }
        }
        Symbols { by_address }
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
    fn an_address_has_the_name_before_it() {
        let map =
            Symbols::parse("ffffffff80000000 T first\nffffffff80000010 t second\nnonsense\n0 x\n");
        assert_eq!(map.name(0xffff_ffff_8000_0014), "second+0x4");
        assert_eq!(map.function(0xffff_ffff_8000_000f), "first");
        assert_eq!(map.name(5), "0x5");
        assert_eq!(map.ranges(|n| n == "first"), [(0xffff_ffff_8000_0000, 0xffff_ffff_8000_0010)]);
    }
}
