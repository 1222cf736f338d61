//! Grouped bars as SVG: ratios on a logarithmic axis, so that twice as many and half as many look
//! alike. Bars rise and fall from the line at 1.

use std::fmt::Write as _;

/// A chart of ratios.
#[derive(Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// What the axis shows.
    pub axis: String,
    /// What the line at 1 is.
    pub line: String,
    /// Names of the bars of each group.
    pub series: Vec<String>,
    /// One below the other.
    pub panels: Vec<Panel>,
}

/// One set of axes.
#[derive(Debug)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// The groups, from left to right.
    pub groups: Vec<Group>,
}

/// Bars beside each other.
#[derive(Debug)]
pub struct Group {
    /// Below it.
    pub name: String,
    /// Below that: how much 1 is.
    pub unit: String,
    /// Its bars: ratios, or nothing where there is none.
    pub bars: Vec<Option<f64>>,
}

const WIDTH: f64 = 920.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const HEAD: f64 = 84.0;
/// Between two rows of names.
const ROW: f64 = 20.0;
const PLOT: f64 = 210.0;
const PANEL: f64 = PLOT + 122.0;
/// How wide a letter is, in the mean.
const LETTER: f64 = 7.2;
/// Ratios beyond 2 to this power are cut off; a number says how large they are.
const POWER_MAX: f64 = 6.0;
/// Colours that those who see few colours can tell apart (Okabe and Ito).
const COLOURS: [&str; 11] = [
    "#0072b2", "#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#000000", "#999933",
    "#882255", "#44aa99", "#999999",
];

impl Chart {
    /// Draws it.
    pub fn svg(&self) -> String {
        let (places, rows) = self.legend();
        let head = HEAD + ROW * (rows - 1.0);
        let height = head + PANEL * self.panels.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        text(&mut svg, LEFT, 28.0, "start", "font-size=\"17\" font-weight=\"bold\"", &self.title);
        for ((name, colour), (x, y)) in self.series.iter().zip(COLOURS).zip(&places) {
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>",
                y - 11.0
            );
            text(&mut svg, x + 17.0, *y, "start", "", name);
        }
        if let Some((x, y)) = places.last() {
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {:.1}h22\" stroke=\"#222\" stroke-width=\"2\"/>",
                y - 5.0
            );
            text(&mut svg, x + 28.0, *y, "start", "", &self.line);
        }
        let powers = self.powers();
        for (n, panel) in (0u32..).zip(&self.panels) {
            self.draw(panel, head + PANEL * f64::from(n), powers, &mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Where each series' name stands, and the line's; and in how many rows.
    fn legend(&self) -> (Vec<(f64, f64)>, f64) {
        let (mut x, mut row) = (LEFT, 0.0);
        let place = |name: &String| {
            let width = 38.0 + 7.6 * name.chars().count() as f64;
            if x + width > WIDTH - RIGHT {
                (x, row) = (LEFT, row + 1.0);
            }
            x += width;
            (x - width, 56.0 + ROW * row)
        };
        let places = self.series.iter().chain([&self.line]).map(place).collect();
        (places, row + 1.0)
    }

    /// The lowest and the highest power of two on the axis.
    fn powers(&self) -> (f64, f64) {
        let bars = self.panels.iter().flat_map(|p| &p.groups).flat_map(|g| &g.bars);
        let powers = bars.flatten().map(|b| b.log2().clamp(-POWER_MAX, POWER_MAX));
        powers.fold((-1.0, 1.0), |(low, high), p| (low.min(p.floor()), high.max(p.ceil())))
    }

    fn draw(&self, panel: &Panel, top: f64, (low, high): (f64, f64), svg: &mut String) {
        let (top, bottom) = (top + 22.0, top + 22.0 + PLOT);
        let y = |power: f64| bottom - (power.clamp(low, high) - low) / (high - low) * PLOT;
        let right = WIDTH - RIGHT;
        text(svg, LEFT, top - 9.0, "start", "font-weight=\"bold\"", &panel.title);
        let mut power = low;
        while power <= high {
            let _ = writeln!(svg, "<path d=\"M{LEFT} {0:.1}H{right}\" stroke=\"#ddd\"/>", y(power));
            let label = if power < 0.0 {
                format!("1/{}", (-power).exp2())
            } else {
                format!("{}", power.exp2())
            };
            text(svg, LEFT - 8.0, y(power) + 4.5, "end", "", &label);
            power += 1.0;
        }
        let middle = (top + bottom) / 2.0;
        let turned = format!("transform=\"rotate(-90 22 {middle:.1})\"");
        text(svg, 22.0, middle, "middle", &turned, &self.axis);
        let each = (right - LEFT) / panel.groups.len().max(1) as f64;
        for (n, group) in (0u32..).zip(&panel.groups) {
            let from = LEFT + each * f64::from(n);
            let width = each * 0.8 / group.bars.len().max(1) as f64;
            for ((m, bar), colour) in (0u32..).zip(&group.bars).zip(COLOURS) {
                let Some(ratio) = bar else { continue };
                let x = from + each * 0.1 + width * f64::from(m);
                let (end, one) = (y(ratio.log2()), y(0.0));
                let _ = writeln!(
                    svg,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                    x + 1.0,
                    end.min(one),
                    width - 2.0,
                    (end - one).abs().max(1.0)
                );
                let label = if ratio.log2().abs() > POWER_MAX { number(*ratio) } else { continue };
                let at = if end < one { end - 3.0 } else { end + 11.0 };
                text(svg, x + width / 2.0, at, "middle", "font-size=\"11\"", &label);
            }
            let centre = from + each / 2.0;
            let lines = lines(&group.name, (each / LETTER) as usize);
            let below = |n: usize| bottom + 24.0 + 15.0 * n as f64;
            for (n, line) in lines.iter().enumerate() {
                text(svg, centre, below(n), "middle", "", line);
            }
            text(
                svg,
                centre,
                below(lines.len()) + 2.0,
                "middle",
                "font-size=\"11\" fill=\"#666\"",
                &group.unit,
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {0:.1}H{right}\" stroke=\"#222\" stroke-width=\"2\"/>",
            y(0.0)
        );
    }
}

/// Words in lines of at most so many letters, where a word is not longer than that.
fn lines(words: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        let Some(line) = lines.last_mut() else { continue };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= letters {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// A ratio that is off the axis.
fn number(ratio: f64) -> String {
    match ratio {
        r if r.is_infinite() => "∞".into(),
        r if r >= 1.0 => format!("{r:.0}"),
        0.0 => "0".into(),
        r => format!("1/{:.0}", 1.0 / r),
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, more: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{words}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_beyond_the_axis_have_a_number() {
        let bars = vec![Some(1.0), Some(0.0), Some(4.0), Some(1000.0), None];
        let group = Group { name: "a < b".into(), unit: String::new(), bars };
        let chart = Chart {
            title: "t".into(),
            axis: "x".into(),
            line: "l".into(),
            series: vec!["s".into()],
            panels: vec![Panel { title: "p".into(), groups: vec![group] }],
        };
        assert_eq!(chart.powers(), (-6.0, 6.0));
        let svg = chart.svg();
        assert!(svg.contains("a &lt; b") && svg.contains(">1000<") && svg.contains(">0<"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
