//! What was measured, as data: figures, each of a subject against what it is compared with, and the
//! sections of a report that they belong to.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cases::multiple;
use crate::chart::{Chart, Group, Panel};
use crate::measure::{Stats, time};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Less is better.
    Seconds,
    /// Less is better.
    Bytes,
    /// More is better.
    PerSecond,
}

/// One subject, measured side by side with what it is compared with.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Where: the file system, whether it was flushed.
    pub place: String,
    /// What was done.
    pub what: String,
    /// Who did it.
    pub subject: String,
    /// What is counted.
    pub unit: Unit,
    /// What it is compared with, by round.
    pub base: Vec<f64>,
    /// What the subject took, by round.
    pub values: Vec<f64>,
    /// What the papers found for theirs: a multiple of what theirs was compared with.
    pub papers: Option<f64>,
    /// What was asked for: a multiple as well.
    pub asked: Option<f64>,
}

impl Figure {
    /// As multiples of what it is compared with, round by round.
    pub fn ratio(&self) -> Stats {
        Stats::of(self.values.iter().zip(&self.base).map(|(value, base)| value / base))
    }

    /// The median of these, with its unit.
    fn show(&self, values: &[f64]) -> String {
        let median = Stats::of(values.iter().copied()).median;
        match self.unit {
            Unit::Seconds if median < 9.95e-6 => format!("{:.0} ns", median * 1e9),
            Unit::Seconds if median < 9.95e-4 => format!("{:.1} µs", median * 1e6),
            Unit::Seconds => time(median),
            Unit::Bytes => format!("{:.1} MiB", median / f64::from(1 << 20)),
            Unit::PerSecond => format!("{median:.0}/s"),
        }
    }
}

/// A part of a report.
#[derive(Debug, Default, Serialize)]
pub struct Section {
    /// Its name on the command line.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What was done and how to read it, in Markdown.
    pub text: String,
    /// Whom the figures compare with.
    pub base: String,
    /// What was measured, in the order in which it is shown.
    pub figures: Vec<Figure>,
    /// More of it, in Markdown, behind the tables.
    pub more: String,
    /// Whether the tables of the figures are in there.
    #[serde(skip)]
    pub tabled: bool,
    /// Pictures besides those of the figures, as SVG.
    #[serde(skip)]
    pub pictures: Vec<String>,
}

/// In the order in which they come first.
fn firsts<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

impl Section {
    fn find(&self, place: &str, what: &str, subject: &str) -> Option<&Figure> {
        let is = |f: &&Figure| f.place == place && f.what == what && f.subject == subject;
        self.figures.iter().find(is)
    }

    fn places(&self) -> Vec<&str> {
        firsts(self.figures.iter().map(|f| &*f.place))
    }

    fn subjects(&self, place: &str) -> Vec<&str> {
        firsts(self.figures.iter().filter(|f| f.place == place).map(|f| &*f.subject))
    }

    fn whats(&self, place: &str) -> Vec<&str> {
        firsts(self.figures.iter().filter(|f| f.place == place).map(|f| &*f.what))
    }

    /// What the papers found, if it is the same for all subjects.
    fn papers(&self, place: &str, what: &str) -> Option<f64> {
        let of_all = self.figures.iter().filter(|f| f.place == place && f.what == what);
        let mut found = of_all.filter_map(|f| f.papers);
        let first = found.next()?;
        found.all(|papers| papers == first).then_some(first)
    }

    /// All of it in Markdown; without its heading.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}\n", self.text.trim_end());
        let places = if self.tabled { Vec::new() } else { self.places() };
        for place in places {
            let subjects = self.subjects(place);
            let _ = writeln!(
                text,
                "\nOn {place}:\n\n| | {} | {} | papers |\n|---|---|{}---|",
                self.base,
                subjects.join(" | "),
                "---|".repeat(subjects.len())
            );
            for what in self.whats(place) {
                let figures: Vec<Option<&Figure>> =
                    subjects.iter().map(|subject| self.find(place, what, subject)).collect();
                let base = figures.iter().flatten().next().map(|f| f.show(&f.base));
                let cells: Vec<String> =
                    figures.iter().map(|f| f.map_or("–".into(), cell)).collect();
                let papers = self.papers(place, what);
                let _ = writeln!(
                    text,
                    "| {what} | {} | {} | {} |",
                    base.unwrap_or_default(),
                    cells.join(" | "),
                    papers.map_or("–".into(), |p| format!("{p}×"))
                );
            }
        }
        if !self.more.is_empty() {
            let _ = write!(text, "\n{}\n", self.more.trim_end());
        }
        text
    }

    /// A picture of the figures: bars on a logarithmic axis, one set of axes for each place.
    pub fn chart(&self) -> Option<Chart> {
        let places = self.places();
        if places.is_empty() {
            return None;
        }
        let mut series = firsts(self.figures.iter().map(|f| &*f.subject));
        if self.figures.iter().any(|f| self.papers(&f.place, &f.what).is_some()) {
            series.push("the papers'");
        }
        let panels = places.iter().map(|place| Panel {
            title: (*place).to_owned(),
            groups: self.whats(place).iter().map(|what| self.group(place, what, &series)).collect(),
        });
        Some(Chart {
            title: self.title.clone(),
            axis: format!("multiple of {}", self.base.replace('`', "")),
            line: self.base.replace('`', ""),
            series: series.iter().map(|s| s.replace('`', "")).collect(),
            panels: panels.collect(),
        })
    }

    fn group(&self, place: &str, what: &str, series: &[&str]) -> Group {
        let of_all = || self.figures.iter().filter(|f| f.place == place && f.what == what);
        let bars = series.iter().map(|subject| match *subject {
            "the papers'" => self.papers(place, what),
            subject => self.find(place, what, subject).map(|f| f.ratio().median),
        });
        Group {
            name: what.replace('`', ""),
            unit: of_all().next().map(|f| f.show(&f.base)).unwrap_or_default(),
            bars: bars.collect(),
        }
    }
}

/// `1.23× (1.10 … 1.31)`, and whether what was asked is kept.
fn cell(figure: &Figure) -> String {
    let ratio = figure.ratio();
    let spread = format!("{} … {}", multiple(ratio.min), multiple(ratio.max));
    let verdict = match (figure.asked, figure.unit) {
        (Some(asked), Unit::PerSecond) if ratio.median < asked => {
            format!(", asked ≥ {asked}×: **missed**")
        }
        (Some(asked), Unit::Seconds | Unit::Bytes) if ratio.median > asked => {
            format!(", asked ≤ {asked}×: **missed**")
        }
        (Some(asked), _) => format!(", asked {asked}×: kept"),
        (None, _) => String::new(),
    };
    format!("{} ({spread}{verdict})", multiple(ratio.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(what: &str, subject: &str, values: [f64; 3]) -> Figure {
        Figure {
            place: "ext4".into(),
            what: what.into(),
            subject: subject.into(),
            unit: Unit::Seconds,
            base: vec![1.0, 2.0, 1.0],
            values: values.into(),
            papers: Some(1.1),
            asked: Some(1.5),
        }
    }

    #[test]
    fn a_row_for_each_thing_and_a_column_for_each_subject() {
        let section = Section {
            base: "native".into(),
            figures: vec![
                figure("make", "overlayfs", [1.0, 2.2, 1.2]),
                figure("make", "txos run", [2.0, 4.0, 1.0]),
                figure("dpkg", "txos run", [1.0, 2.0, 1.0]),
            ],
            ..Section::default()
        };
        let text = section.markdown();
        let rows: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
        assert_eq!(rows[0], "| | native | overlayfs | txos run | papers |");
        assert!(rows[2].starts_with("| make | 1.00 s | 1.10× (1.00× … 1.20×"), "{}", rows[2]);
        assert!(rows[2].contains("2.00× (1.00× … 2.00×, asked ≤ 1.5×: **missed**)"), "{}", rows[2]);
        assert!(rows[3].starts_with("| dpkg | 1.00 s | – | 1.00×"), "{}", rows[3]);
        let chart = section.chart().unwrap();
        assert_eq!(chart.series, ["overlayfs", "txos run", "the papers'"]);
        assert_eq!(chart.panels[0].groups[1].bars, [None, Some(1.0), Some(1.1)]);
    }
}
