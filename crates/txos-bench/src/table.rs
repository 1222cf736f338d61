//! The Markdown table, and the conditions under which it was made.

use std::fs;

use crate::bench::Bench;
use crate::measure::Row;

/// The load averages now.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Prints everything.
pub fn print(
    bench: &Bench,
    load_before: &str,
    rows: &[Row],
    sections: &[(&str, String)],
    skipped: &[String],
) {
    let (kernel, machine) = kernel();
    println!("- {}", bench.version());
    println!("- Linux {kernel} ({machine}), {}, {}", processors(), memory());
    println!("- {} on {}, the store on the same mount", bench.file_system(), bench.device());
    println!("- load average {load_before} at the beginning, {} at the end", load());
    println!("- {} pairs each; medians, and the spread over the pairs", bench.pairs());
    if bench.quick() {
        println!("- made with --quick: smaller trees, not comparable");
    }
    if !rows.is_empty() {
        println!();
        println!("| workload | plain | transaction | measured | spread | limit | |");
        println!("|---|---|---|---|---|---|---|");
    }
    for Row { what, plain, txos, figure, spread, limit, kept } in rows {
        let verdict = if *kept { "kept" } else { "**missed**" };
        println!("| {what} | {plain} | {txos} | {figure} | {spread} | {limit} | {verdict} |");
    }
    for (name, text) in sections {
        println!("\n## {name}\n\n{}", text.trim_end());
    }
    if !skipped.is_empty() {
        println!();
        skipped.iter().for_each(|why| println!("Not measured: {why}"));
    }
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
