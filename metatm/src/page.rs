//! The report as one page: tables and plots beside the paper's figures.

use std::fmt::Write;

use metatm::machine::Config;

use crate::evaluate::{Results, Row, System, WORKLOADS};
use crate::experiment::Result as Figures;

/// Tables 2 and 3 of the paper: system time on Linux and TxLinux in seconds, restarts in per cent.
const PAPER: [(&str, f64, f64, f64); 6] = [
    ("counter", 11.68, 6.42, 21.9),
    ("pmake", 0.66, 0.67, 2.6),
    ("netcat", 11.20, 11.12, 3.1),
    ("mab", 2.48, 2.47, 1.7),
    ("configure", 5.04, 5.09, 2.1),
    ("find", 0.93, 0.93, 10.2),
];

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:78em;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}\
td:first-child,th:first-child{text-align:left}.paper{color:#888}svg text{font:12px system-ui,sans-serif;fill:currentColor}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}td,th{border-color:#444}}";

const COLOURS: [&str; 8] =
    ["#4878a8", "#e08214", "#5aae61", "#c0504d", "#8073ac", "#8c6d31", "#d175b7", "#7f7f7f"];

/// Makes the page.
pub fn page(results: &Results, config: &Config) -> String {
    let mut out = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>MetaTM</title><style>{STYLE}</style>\
         <h1>MetaTM and TxLinux</h1><p>{} harts of {} MHz, {} MiB; policy {:?}, conflicts by {} byte{}. Figures of the \
         paper (Ramadan et al., IEEE Micro 2008: eight x86 processors, Linux 2.6.16, larger workloads) are grey: \
         ratios can be compared, seconds can't.</p>",
        config.harts,
        config.hertz / 1_000_000,
        config.memory >> 20,
        config.tm.policy,
        config.tm.granularity,
        if config.tm.granularity == 1 { "" } else { "s" },
    );
    system_time(&mut out, results, config);
    transactions(&mut out, results);
    policies(&mut out, results);
    synchronizing(&mut out, results);
    penalties(&mut out, results);
    if !results.failed.is_empty() {
        out.push_str("<h2>Runs without an end</h2><ul>");
        for why in &results.failed {
            let _ = write!(out, "<li>{}", escaped(why));
        }
        out.push_str("</ul>");
    }
    if results.not_begun > 0 {
        let _ = write!(
            out,
            "<p>{} runs were not begun: <code>--resume</code> goes on.",
            results.not_begun
        );
    }
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

fn paper(workload: &str) -> Option<&'static (&'static str, f64, f64, f64)> {
    PAPER.iter().find(|p| p.0 == workload)
}

/// A workload's figures on one system.
fn of<'a>(results: &'a Results, system: System, workload: &str) -> Option<&'a Figures> {
    results.systems.get(&system)?.get(workload)
}

fn system_time(out: &mut String, results: &Results, config: &Config) {
    out.push_str(
        "<h2>Table 2: time in the kernel</h2><table><tr><th>workload<th>Linux, ms<th>TxLinux-ss, ms<th>ratio<th>TxLinux-cx, ms\
         <th>ratio<th class=paper>paper<th>user/kernel/idle, %<th>coherence, Linux<th>TxLinux-cx",
    );
    let ms = |f: &Figures| f.kernel_cycles as f64 * 1000.0 / config.hertz as f64;
    for workload in WORKLOADS {
        let all = [System::Linux, System::Ss, System::Cx].map(|s| of(results, s, workload));
        let [Some(linux), Some(ss), Some(cx)] = all else { continue };
        let whole = (cx.user + cx.system + cx.idle).max(0.01) / 100.0;
        let _ = write!(
            out,
            "<tr><td>{workload}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td>{:.2}<td class=paper>{}<td>{:.0}/{:.0}/{:.0}<td>{}<td>{}",
            ms(linux),
            ms(ss),
            ms(ss) / ms(linux),
            ms(cx),
            ms(cx) / ms(linux),
            paper(workload).map_or(String::new(), |p| format!("{:.2}", p.2 / p.1)),
            cx.user / whole,
            cx.system / whole,
            cx.idle / whole,
            linux.coherence,
            cx.coherence,
        );
    }
    out.push_str("</table>");
}

fn transactions(out: &mut String, results: &Results) {
    for system in [System::Ss, System::Cx] {
        let _ = write!(
            out,
            "<h2>Table 3: transactions of {}</h2><table><tr><th>workload<th>transactions<th>a second<th>restarts<th>%\
             <th class=paper>paper, %<th>took the lock<th>restarted once or more, %<th>in interrupts, %<th>live stack\
             <th>interrupted<th>stack released, bytes",
            system.name()
        );
        for workload in WORKLOADS {
            let Some(f) = of(results, system, workload) else { continue };
            let t = &f.tm;
            let percent = |n: u64| 100.0 * n as f64 / t.begun.max(1) as f64;
            let _ = write!(
                out,
                "<tr><td>{workload}<td>{}<td>{:.0}<td>{}<td>{:.2}<td class=paper>{}<td>{}<td>{:.2}<td>{:.1}<td>{}<td>{}<td>{}",
                t.begun,
                t.begun as f64 * 1e6 / f.us.max(1) as f64,
                t.conflicts,
                100.0 * t.conflicts as f64 / (t.begun + t.conflicts).max(1) as f64,
                paper(workload).map_or(String::new(), |p| format!("{:.1}", p.3)),
                t.exclusive,
                percent(t.restarted),
                percent(t.in_interrupts),
                t.live_stack,
                t.interrupted,
                t.released_bytes,
            );
        }
        out.push_str("</table>");
    }
}

/// Bars for each workload: a figure of each row, as a share of the one of the row `base`.
fn shares<N: ToString + PartialEq>(
    out: &mut String,
    rows: Vec<(N, &Row)>,
    base: &N,
    figure: impl Fn(&Figures) -> f64,
) {
    let base = rows.iter().find(|(name, _)| name == base).map(|(_, row)| *row);
    let series: Vec<(String, Vec<Option<f64>>)> = rows
        .iter()
        .map(|(name, row)| {
            let values = WORKLOADS.iter().map(|w| {
                let base = figure(base?.get(*w)?);
                Some(figure(row.get(*w)?) / base.max(1.0))
            });
            (name.to_string(), values.collect())
        })
        .collect();
    bars(out, &WORKLOADS.map(str::to_owned), &series);
}

fn policies(out: &mut String, results: &Results) {
    if results.policies.is_empty() {
        return;
    }
    out.push_str("<h2>Figure 1: restarts by policy, SizeMatters = 1</h2>");
    let rows = results.policies.iter().map(|(name, row)| (name.as_str(), row)).collect();
    shares(out, rows, &"SizeMatters", |f| f.tm.conflicts as f64);
    out.push_str("<h2>Kernel time by policy, SizeMatters = 1</h2>");
    let rows = results.policies.iter().map(|(name, row)| (name.as_str(), row)).collect();
    shares(out, rows, &"SizeMatters", |f| f.kernel_cycles as f64);
    out.push_str("<h2>Kernel time by backoff, Exponential = 1</h2>");
    let rows = results.backoffs.iter().map(|(name, row)| (name.as_str(), row)).collect();
    shares(out, rows, &"Exponential", |f| f.kernel_cycles as f64);
}

fn synchronizing(out: &mut String, results: &Results) {
    for (harts, rows) in &results.harts {
        let share = |f: &Figures| 100.0 * f.sync_cycles as f64 / f.kernel_cycles.max(1) as f64;
        let series: Vec<_> = rows
            .iter()
            .map(|(system, row)| {
                let values = WORKLOADS.iter().map(|w| row.get(*w).map(share)).collect();
                (system.name().to_owned(), values)
            })
            .collect();
        let _ = write!(
            out,
            "<h2>Figure 2: per cent of kernel time spent synchronizing, {harts} harts</h2>"
        );
        bars(out, &WORKLOADS.map(str::to_owned), &series);
    }
    if results.harts.is_empty() {
        return;
    }
    out.push_str("<h2>Kernel time of TxLinux-cx by harts, Linux with as many = 1</h2>");
    let series: Vec<_> = results
        .harts
        .iter()
        .map(|(harts, rows)| {
            let values = WORKLOADS.iter().map(|w| {
                let time = |system| Some(rows.get(&system)?.get(*w)?.kernel_cycles as f64);
                Some(time(System::Cx)? / time(System::Linux)?.max(1.0))
            });
            (format!("{harts} harts"), values.collect())
        })
        .collect();
    bars(out, &WORKLOADS.map(str::to_owned), &series);
}

fn penalties(out: &mut String, results: &Results) {
    for (title, table) in [("commit", &results.commit), ("restart", &results.abort)] {
        if table.is_empty() {
            continue;
        }
        let _ = write!(
            out,
            "<h2>Kernel time by the cost of a {title} in cycles, without cost = 1</h2>"
        );
        let rows = table.iter().map(|(cycles, row)| (*cycles, row)).collect();
        shares(out, rows, &0, |f| f.kernel_cycles as f64);
    }
}

/// Groups of bars. A bar that is higher than the plot is cut, and its value stands above it.
fn bars(out: &mut String, groups: &[String], series: &[(String, Vec<Option<f64>>)]) {
    let (height, wide) = (200.0, 110.0);
    let values = || series.iter().flat_map(|s| s.1.iter().flatten().copied());
    let mut sorted: Vec<f64> = values().collect();
    sorted.sort_by(f64::total_cmp);
    let typical = sorted.get(sorted.len() * 9 / 10).copied().unwrap_or(1.0);
    let most = values().fold(0.0, f64::max).min(typical * 2.0).max(1e-9);
    let bar = (wide - 14.0) / series.len().max(1) as f64;
    let width = wide * groups.len() as f64 + 40.0;
    let _ = write!(out, "<svg viewBox='0 0 {width} {}' width='{width}' role=img>", height + 70.0);
    for (g, group) in groups.iter().enumerate() {
        let left = 30.0 + g as f64 * wide;
        for (s, (name, row)) in series.iter().enumerate() {
            let Some(Some(value)) = row.get(g) else { continue };
            let tall = (value / most).min(1.0) * height;
            let (x, y) = (left + s as f64 * bar, height + 20.0 - tall);
            let colour = COLOURS[s % COLOURS.len()];
            let _ = write!(
                out,
                "<rect x='{x:.1}' y='{y:.1}' width='{:.1}' height='{tall:.1}' fill='{colour}'><title>{group}, {name}: \
                 {value:.2}</title></rect>",
                bar - 1.0
            );
            if value > &most {
                let _ = write!(out, "<text x='{x:.1}' y='14'>{value:.0}</text>");
            }
        }
        let _ = write!(out, "<text x='{left}' y='{}'>{group}</text>", height + 36.0);
    }
    for (s, (name, _)) in series.iter().enumerate() {
        let x = 30.0 + s as f64 * 95.0;
        let _ = write!(
            out,
            "<rect x='{x}' y='{}' width='10' height='10' fill='{}'/><text x='{}' y='{}'>{name}</text>",
            height + 48.0,
            COLOURS[s % COLOURS.len()],
            x + 14.0,
            height + 58.0
        );
    }
    let _ = write!(
        out,
        "<line x1='25' x2='{width}' y1='{y}' y2='{y}' stroke='currentColor'/><text x='0' y='30'>{most:.1}</text></svg>",
        y = height + 20.0
    );
}
