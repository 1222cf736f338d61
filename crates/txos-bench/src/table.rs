//! The Markdown table, and the conditions under which it was made.

use std::fmt::Write as _;
use std::fs;

use crate::bench::Bench;
use crate::measure::Row;

/// The load averages now.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Under which conditions it was measured, a line each; now is the end.
pub fn conditions(bench: &Bench, load_before: &str) -> Vec<String> {
    let (kernel, machine) = kernel();
    let mut lines = vec![
        bench.version(),
        format!("Linux {kernel} ({machine}), {}, {}", processors(), memory()),
        format!("{} on {}, the store on the same mount", bench.file_system(), bench.device()),
        format!("load average {load_before} at the beginning, {} at the end", load()),
        format!("{} pairs each; medians, and the spread over the pairs", bench.pairs()),
    ];
    lines.extend(bench.quick().then(|| "made with --quick: smaller trees, not comparable".into()));
    lines
}

/// The common table; nothing for no rows.
pub fn rows(rows: &[Row]) -> String {
    let mut text = String::new();
    if !rows.is_empty() {
        text.push_str("| workload | plain | transaction | measured | spread | limit | |\n");
        text.push_str("|---|---|---|---|---|---|---|\n");
    }
    for Row { what, plain, txos, figure, spread, limit, kept } in rows {
        let verdict = if *kept { "kept" } else { "**missed**" };
        let _ = writeln!(
            text,
            "| {what} | {plain} | {txos} | {figure} | {spread} | {limit} | {verdict} |"
        );
    }
    text
}

fn kernel() -> (String, String) {
    let uname = rustix::system::uname();
    (uname.release().to_string_lossy().into(), uname.machine().to_string_lossy().into())
}

fn processors() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("processor", |(_, model)| model);
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{count} × {model}")
}

fn memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok())
        .unwrap_or(0u64);
    format!("{} GiB", (kib + (1 << 19)) >> 20)
}
