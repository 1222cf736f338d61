//! Looking at many files, each for the first time.

use super::{at, remove, thousands};
use crate::bench::Bench;
use crate::measure::{Limit, Row};
use crate::work;

const TIMES_MAX: f64 = 6.0;

/// `find` and `du`.
pub fn walk(bench: &Bench) -> Result<Vec<Row>, String> {
    let n = bench.files(10_000);
    let dir = bench.at("walk");
    at(&dir, work::tree(&dir, n))?;
    let mut rows = Vec::new();
    let commands: [(&str, &[&str]); 3] =
        [("find", &[]), ("find -newer /", &["-newer", "/"]), ("du -s", &["-s"])];
    for (name, options) in commands {
        let program = name.split(' ').next().unwrap_or(name);
        let mut words = vec![program.as_ref(), dir.as_os_str()];
        words.extend(options.iter().map(|o| std::ffi::OsStr::new(*o)));
        let pairs = bench.alternate("walk", false, || Ok(()), || bench.both(&words))?;
        let what = format!("`{name}` of {} files", thousands(n));
        rows.push(Row::new(what, &pairs, Limit::Times(TIMES_MAX)));
    }
    remove(&dir)?;
    Ok(rows)
}
