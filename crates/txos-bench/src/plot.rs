//! Lines on two logarithmic axes, as SVG, with the growth fitted to them.

use std::fmt::Write as _;

/// A picture of how something grows.
#[derive(Debug)]
pub struct Plot {
    /// Above it.
    pub title: String,
    /// What goes to the right.
    pub across: String,
    /// What goes up.
    pub up: String,
    /// The lines.
    pub lines: Vec<Line>,
}

/// One line.
#[derive(Debug)]
pub struct Line {
    /// What it is of.
    pub name: String,
    /// Its points; both numbers above zero.
    pub points: Vec<(f64, f64)>,
}

/// How a line grows: `fixed + each · x^power`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// The power that fits the upper half of its points best (least squares of the logarithms).
    pub power: f64,
    /// What each one more adds there, in the unit of the line.
    pub each: f64,
}

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 260.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

impl Line {
    /// How it grows where it is large: below that, what is the same for all sizes hides it.
    pub fn growth(&self) -> Option<Growth> {
        let upper = self.points.get(self.points.len() / 2..).unwrap_or_default();
        let (first, last) = (upper.first()?, upper.last()?);
        if upper.len() < 2 || last.0 <= first.0 {
            return None;
        }
        let n = upper.len() as f64;
        let logs = || upper.iter().map(|(x, y)| (x.ln(), y.ln()));
        let (mx, my) = logs().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
        let (top, below) = logs()
            .fold((0.0, 0.0), |(a, b), (x, y)| (a + (x - mx) * (y - my), b + (x - mx) * (x - mx)));
        Some(Growth { power: top / below, each: (last.1 - first.1) / (last.0 - first.0) })
    }
}

/// The powers of ten between which values lie.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs = values.filter(|v| *v > 0.0).map(f64::log10);
    let (low, high) = logs.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
    if low > high { (0.0, 1.0) } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) }
}

/// `1k` for a thousand, and so on.
fn label(power: f64) -> String {
    let value = 10f64.powf(power);
    match power {
        p if p >= 6.0 => format!("{:.0}M", value / 1e6),
        p if p >= 3.0 => format!("{:.0}k", value / 1e3),
        p if p >= 0.0 => format!("{value:.0}"),
        _ => format!("{value}"),
    }
}

impl Plot {
    /// Draws it.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|l| &l.points);
        let (x0, x1) = decades(points().map(|p| p.0));
        let (y0, y1) = decades(points().map(|p| p.1));
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let x = |power: f64| LEFT + (power - x0) / (x1 - x0) * (right - LEFT);
        let y = |power: f64| bottom - (power - y0) / (y1 - y0) * (bottom - TOP);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let say = |at: (f64, f64), anchor: &str, more: &str, words: &str| {
            let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" {more}>{words}</text>\n",
                at.0, at.1
            )
        };
        svg += &say((LEFT, 28.0), "start", "font-size=\"17\" font-weight=\"bold\"", &self.title);
        for power in steps(x0, x1) {
            let at = x(power);
            let _ = writeln!(svg, "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#eee\"/>");
            svg += &say((at, bottom + 18.0), "middle", "", &label(power));
        }
        for power in steps(y0, y1) {
            let at = y(power);
            let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#eee\"/>");
            svg += &say((LEFT - 8.0, at + 4.5), "end", "", &label(power));
        }
        svg += &say(((LEFT + right) / 2.0, HEIGHT - 14.0), "middle", "", &self.across);
        let middle = (TOP + bottom) / 2.0;
        let turned = format!("transform=\"rotate(-90 22 {middle:.1})\"");
        svg += &say((22.0, middle), "middle", &turned, &self.up);
        for ((n, line), colour) in (0u32..).zip(&self.lines).zip(COLOURS.iter().cycle()) {
            let at = |p: &(f64, f64)| (x(p.0.log10()), y(p.1.log10()));
            let path: Vec<String> = line
                .points
                .iter()
                .filter(|p| p.0 > 0.0 && p.1 > 0.0)
                .map(at)
                .map(|(x, y)| format!("{x:.1},{y:.1}"))
                .collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
            for point in &path {
                if let Some((x, y)) = point.split_once(',') {
                    let _ =
                        writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
                }
            }
            let top = TOP + 12.0 + 38.0 * f64::from(n);
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
                right + 14.0,
                top - 10.0
            );
            svg += &say((right + 32.0, top), "start", "", &line.name);
            if let Some(growth) = line.growth() {
                let words = format!("grows with n^{:.2}", growth.power);
                svg += &say(
                    (right + 32.0, top + 15.0),
                    "start",
                    "font-size=\"11\" fill=\"#666\"",
                    &words,
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// The whole numbers from one to the other.
fn steps(from: f64, to: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(from), |p| Some(p + 1.0)).take_while(move |p| *p <= to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(f: impl Fn(f64) -> f64) -> Line {
        let points = [10.0, 100.0, 1e3, 1e4].map(|x| (x, f(x))).into();
        Line { name: "a < b".into(), points }
    }

    #[test]
    fn growth_is_fitted_where_it_is_large() {
        let growth = line(|x| 0.002 * x).growth().unwrap();
        assert!((growth.power - 1.0).abs() < 1e-9, "{growth:?}");
        assert!((growth.each - 0.002).abs() < 1e-9, "{growth:?}");
        let square = line(|x| 5.0 + x * x).growth().unwrap();
        assert!((square.power - 2.0).abs() < 0.01, "{square:?}");
        assert_eq!(Line { name: String::new(), points: vec![(1.0, 1.0)] }.growth(), None);
    }

    #[test]
    fn a_plot_has_all_its_points() {
        let plot = Plot {
            title: "t".into(),
            across: "x".into(),
            up: "y".into(),
            lines: vec![line(|x| x), Line { name: "none".into(), points: vec![] }],
        };
        let svg = plot.svg();
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(
            svg.contains("a &lt; b") && svg.contains("n^1.00") && svg.contains(">10k<"),
            "{svg}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
