//! Sizes as options take them (`10G`).

use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "{text:?} is no size: a whole number and one of K, M, G, T (of 1024), such as 500M or 10G"
            )
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.strip_suffix("iB").unwrap_or(unit);
        let shift = match unit {
            "" | "B" => 0,
            "K" | "k" => 10,
            "M" => 20,
            "G" => 30,
            "T" => 40,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(1 << shift).map(Size).ok_or_else(bad)
    }
}

/// A bound, or that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound(pub Option<Size>);

impl FromStr for Bound {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Bound(None)),
            text => text.parse().map(|size| Bound(Some(size))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let bytes = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("4K"), Ok(4096));
        assert_eq!(bytes("1k"), Ok(1024));
        assert_eq!(bytes("5MiB"), Ok(5 << 20));
        assert_eq!(bytes("10G"), Ok(10 << 30));
        assert_eq!(bytes("1T"), Ok(1 << 40));
        assert_eq!("none".parse(), Ok(Bound(None)));
        assert_eq!("1G".parse(), Ok(Bound(Some(Size(1 << 30)))));
        for bad in ["", "G", "-1", "1.5G", "1 G", "1X", "1MB", "99999999999T", "1mib"] {
            assert!(bad.parse::<Size>().is_err(), "{bad:?}");
        }
    }
}
