//! Lengths of time: as options take them (`30d`), and as lists show them (`3 days ago`).

use std::str::FromStr;
use std::time::Duration;

use txos_engine::show::stamp_of_local_time;
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

/// A point in time, as an age or as a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// So long ago.
    Ago(Age),
    /// Then.
    At(Stamp),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(age) = text.parse() {
            return Ok(Moment::Ago(age));
        }
        at(text).map(Moment::At).ok_or_else(|| {
            format!(
                "{text:?} is neither an age, such as 2h or 7d, nor a time, such as 2026-11-24, \
                 \"2026-11-24 14:53\" or 2026-11-24T14:53:00+01:00"
            )
        })
    }
}

impl Moment {
    /// Whether something that happened at `then` came at this moment or later, as it is `now`.
    pub fn is_reached_by(self, then: Stamp, now: Stamp) -> bool {
        match self {
            Moment::Ago(age) => !age.reached(then, now),
            Moment::At(at) => then >= at,
        }
    }
}

/// A date, a date and a time, or RFC 3339. Without a zone it is local, a date alone is its midnight.
fn at(text: &str) -> Option<Stamp> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, time.trim_start()),
        None => (text, "00:00"),
    };
    let number = |text: &str, digits: usize| -> Option<i32> {
        let is_number = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    let mut parts = date.splitn(3, '-');
    let year = number(parts.next()?, 4)?;
    let (month, day) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let time = time.trim_end().split_once('.').map_or(time.trim_end(), |(whole, _)| whole);
    let mut parts = time.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| number(second, 2))?;
    if zone.is_empty() {
        return stamp_of_local_time([year, month, day, hour, minute, second]);
    }
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let (hours, minutes) = zone.get(1..)?.split_once(':')?;
            let offset = i64::from(number(hours, 2)?) * 3600 + i64::from(number(minutes, 2)?) * 60;
            if zone.starts_with('-') { -offset } else { offset }
        }
    };
    let days_in = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let is_time = hour < 24 && minute < 60 && second <= 60 && (1..=days_in).contains(&day);
    let seconds = days(year, month, day) * 86_400
        + i64::from(hour) * 3600
        + i64::from(minute) * 60
        + i64::from(second)
        - offset;
    is_time.then_some(Stamp { sec: seconds, nsec: 0 })
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i32, month: i32, day: i32) -> i64 {
    let (year, month, day) = (i64::from(year), i64::from(month), i64::from(day));
    // Years begin in March, so that leap days come last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    year * 365 + leap + (153 * month + 2) / 5 + day - 1 - 719_468
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
    fn moments_are_read() {
        let sec = |text: &str| match text.parse() {
            Ok(Moment::At(stamp)) => Some(stamp.sec),
            _ => None,
        };
        assert_eq!("2h".parse::<Moment>(), Ok(Moment::Ago("2h".parse().unwrap())));
        assert_eq!(sec("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(sec("2026-11-24T14:53:00Z"), Some(1_795_531_980));
        assert_eq!(sec("2026-11-24T15:53:00.25+01:00"), sec("2026-11-24T14:53:00Z"));
        assert_eq!(sec("2026-11-24 12:53:00-02:00"), sec("2026-11-24T14:53:00Z"));
        assert_eq!(sec("2024-02-29T00:00:00Z"), Some(1_709_164_800));
        assert_eq!(sec("2026-11-24"), sec("2026-11-24 00:00:00"));
        assert_eq!(
            sec("2026-11-24 14:53").zip(sec("2026-11-24")).map(|(a, b)| a - b),
            Some(53_580)
        );
        for bad in [
            "2026-02-29",
            "2026-02-29T00:00:00Z",
            "2026-13-01",
            "24.11.2026",
            "2026-11-24 25:00",
            "2026-11-24T1Z",
            "",
            "yesterday",
            "2026-11",
            "2026-11-24T10:00:00+1",
            "2026-11-24 10:61",
        ] {
            assert!(bad.parse::<Moment>().is_err(), "{bad:?}");
        }
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
