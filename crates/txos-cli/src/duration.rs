//! Lengths of time: as options take them (`30d`), and as lists show them (`3 days ago`).

use std::str::FromStr;
use std::time::Duration;

use txos_engine::version::Stamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const WEEK: u64 = 7 * DAY;

/// An age: a whole number and a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age(pub Duration);

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("{text:?} is no age: a number and one of s, m, h, d, w, such as 30d or 12h");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "s" => 1,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            "w" => WEEK,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        number.checked_mul(unit).map(|s| Age(Duration::from_secs(s))).ok_or_else(bad)
    }
}

/// How long something may last: a number, with a fraction perhaps, and a unit, as timeout(1) takes it. Seconds
/// without one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeLimit(pub Duration);

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "{text:?} is no time: a number above 0 and one of s, m, h, d, such as 90s or 1.5m"
            )
        };
        let (number, unit) = match text.char_indices().next_back() {
            Some((at, 's')) => (text.get(..at), 1),
            Some((at, 'm')) => (text.get(..at), MINUTE),
            Some((at, 'h')) => (text.get(..at), HOUR),
            Some((at, 'd')) => (text.get(..at), DAY),
            _ => (Some(text), 1),
        };
        let number = number.filter(|n| n.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
        let number: f64 = number.and_then(|n| n.parse().ok()).ok_or_else(bad)?;
        let time = Duration::try_from_secs_f64(number * unit as f64).ok();
        time.filter(|time| !time.is_zero()).map(TimeLimit).ok_or_else(bad)
    }
}

impl Age {
    /// Whether something that happened at `then` is at least this old at `now`.
    pub fn reached(self, then: Stamp, now: Stamp) -> bool {
        let limit = i64::try_from(self.0.as_nanos()).unwrap_or(i64::MAX);
        now.as_ns().saturating_sub(then.as_ns()) >= limit
    }
}

/// How long ago something was, to one unit: `5 s ago`, `3 days ago`.
pub fn ago(then: Stamp, now: Stamp) -> String {
    let seconds = u64::try_from(now.sec.saturating_sub(then.sec)).unwrap_or(0);
    format!("{} ago", length(Duration::from_secs(seconds)))
}

/// A length of time, to one unit: `5 s`, `3 days`.
pub fn length(time: Duration) -> String {
    let days = |n: u64| format!("{n} day{}", if n == 1 { "" } else { "s" });
    match time.as_secs() {
        seconds @ 0..MINUTE => format!("{seconds} s"),
        seconds @ MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        seconds @ HOUR..DAY => format!("{} h", seconds / HOUR),
        seconds => days(seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read() {
        let seconds = |text: &str| text.parse::<Age>().map(|a| a.0.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("45m"), Ok(2700));
        assert_eq!(seconds("12h"), Ok(43_200));
        assert_eq!(seconds("30d"), Ok(2_592_000));
        assert_eq!(seconds("0d"), Ok(0));
        assert_eq!(seconds("2w"), Ok(1_209_600));
        for bad in [
            "",
            "30",
            "d",
            "-1d",
            "1.5d",
            "30 d",
            "1mo",
            "99999999999999999999d",
            "9999999999999999999w",
        ] {
            assert!(bad.parse::<Age>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn limits_are_read() {
        let millis = |text: &str| text.parse::<TimeLimit>().map(|t| t.0.as_millis());
        assert_eq!(millis("90"), Ok(90_000));
        assert_eq!(millis("0.5s"), Ok(500));
        assert_eq!(millis("1.5m"), Ok(90_000));
        assert_eq!(millis("2h"), Ok(7_200_000));
        assert_eq!(millis("1d"), Ok(86_400_000));
        for bad in ["", "s", "0", "0s", "-1", "+1", "1w", "5 s", "inf", "nan", "1e400", "1e30"] {
            assert!(bad.parse::<TimeLimit>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ages_are_reached() {
        let at = |sec| Stamp { sec, nsec: 0 };
        let hour: Age = "1h".parse().unwrap();
        assert!(hour.reached(at(0), at(3600)));
        assert!(!hour.reached(at(1), at(3600)));
        assert!(!hour.reached(at(9000), at(3600)), "a clock set back makes nothing old");
    }

    #[test]
    fn ages_are_shown() {
        let shown = |sec| ago(Stamp { sec: 0, nsec: 0 }, Stamp { sec, nsec: 0 });
        assert_eq!(shown(5), "5 s ago");
        assert_eq!(shown(125), "2 min ago");
        assert_eq!(shown(7200), "2 h ago");
        assert_eq!(shown(86_400), "1 day ago");
        assert_eq!(shown(864_000), "10 days ago");
        assert_eq!(shown(-5), "0 s ago");
    }
}
