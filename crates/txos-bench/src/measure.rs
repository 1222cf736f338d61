//! Pairs of measurements, and what is said of them.

use std::time::Duration;

/// One pair, measured one right after the other.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// What it is compared with: mostly the plain command.
    pub plain: Duration,
    /// The transaction.
    pub txos: Duration,
}

/// What a benchmark has to keep.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// At most this many times the plain command.
    Times(f64),
    /// At most this much more than the plain command.
    Plus(Duration),
    /// At most this long.
    Total(Duration),
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Median of the plain command.
    pub plain: String,
    /// Median of the transaction.
    pub txos: String,
    /// The figure that the limit is about.
    pub figure: String,
    /// Smallest and largest of that figure.
    pub spread: String,
    /// The limit.
    pub limit: String,
    /// Whether the limit is kept.
    pub kept: bool,
}

impl Row {
    /// From what was measured; at least one pair.
    pub fn new(what: impl Into<String>, pairs: &[Pair], limit: Limit) -> Self {
        let seconds = |d: Duration| d.as_secs_f64();
        let plain = Stats::of(pairs.iter().map(|p| seconds(p.plain)));
        let txos = Stats::of(pairs.iter().map(|p| seconds(p.txos)));
        let of = |f: fn(f64, f64) -> f64| {
            Stats::of(pairs.iter().map(|p| f(seconds(p.plain), seconds(p.txos))))
        };
        let times = of(|a, b| b / a);
        let (stats, max, show): (Stats, f64, fn(f64) -> String) = match limit {
            Limit::Times(max) => (times, max, ratio),
            Limit::Plus(max) => (of(|a, b| b - a), seconds(max), more),
            Limit::Total(max) => (txos, seconds(max), time),
        };
        let mut figure = show(stats.median);
        if matches!(limit, Limit::Total(_)) {
            figure = format!("{figure} ({})", ratio(times.median));
        }
        Row {
            what: what.into(),
            plain: time(plain.median),
            txos: time(txos.median),
            figure,
            spread: format!("{} … {}", show(stats.min), show(stats.max)),
            limit: show(max),
            kept: stats.median <= max,
        }
    }
}

/// Median and extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats {
    /// The middle one (the mean of the middle two).
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Stats {
    /// Of these; all zero if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let n = sorted.len();
        let median =
            if n % 2 == 1 { at(n / 2) } else { (at(n / 2) + at((n / 2).max(1) - 1)) / 2.0 };
        Stats { median, min: at(0), max: at(n.max(1) - 1) }
    }
}

fn ratio(x: f64) -> String {
    format!("{x:.2}×")
}

fn more(seconds: f64) -> String {
    format!("{}{}", if seconds < 0.0 { "−" } else { "+" }, time(seconds.abs()))
}

/// A time with three digits or so.
pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 0.0995 => format!("{:.1} ms", s * 1e3),
        s if s < 0.9995 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(plain: u64, txos: u64) -> Pair {
        Pair { plain: Duration::from_millis(plain), txos: Duration::from_millis(txos) }
    }

    #[test]
    fn medians() {
        let of = |values: &[f64]| Stats::of(values.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Stats { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(of(&[4.0, 1.0]).median, 2.5);
        assert_eq!(of(&[7.0]).median, 7.0);
        assert_eq!(of(&[]).median, 0.0);
    }

    #[test]
    fn a_row_says_what_its_limit_is_about() {
        let pairs = [pair(100, 110), pair(100, 130), pair(100, 120)];
        let row = Row::new("x", &pairs, Limit::Times(1.15));
        assert_eq!((&*row.figure, &*row.spread), ("1.20×", "1.10× … 1.30×"));
        assert!(!row.kept);
        let row = Row::new("x", &pairs, Limit::Plus(Duration::from_millis(25)));
        assert_eq!((&*row.figure, &*row.limit, row.kept), ("+20.0 ms", "+25.0 ms", true));
        let row = Row::new("x", &pairs, Limit::Total(Duration::from_millis(800)));
        assert_eq!((&*row.figure, &*row.limit, row.kept), ("120 ms (1.20×)", "800 ms", true));
    }
}
