//! `txos doctor`: is this machine fit, and is anything left lying about?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};

use serde::Serialize;
use txos_engine::TxId;
use txos_engine::commit::interrupted;
use txos_engine::show::quoted;
use txos_engine::store::Home;

use crate::app::App;
use crate::args::DoctorArgs;
use crate::exit::{Failure, PROBLEMS};
use crate::json;
use crate::list::find;
use crate::standing::Standing;
use crate::style::Paint;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    name: &'static str,
    ok: bool,
    detail: String,
    advice: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    checks: Vec<Finding>,
}

impl Finding {
    fn good(name: &'static str, detail: impl Into<String>) -> Self {
        Finding { name, ok: true, detail: detail.into(), advice: None }
    }

    fn bad(name: &'static str, detail: impl Into<String>, advice: impl Into<String>) -> Self {
        Finding { name, ok: false, detail: detail.into(), advice: Some(advice.into()) }
    }
}

/// Checks everything; the exit status says whether something is wrong.
pub fn doctor(app: &App, args: &DoctorArgs) -> Result<u8, Failure> {
    let mut checks: Vec<Finding> = txos_run::doctor()
        .into_iter()
        .map(|c| Finding { name: c.name, ok: c.ok, detail: c.detail, advice: c.advice })
        .collect();
    checks.extend(check_stores(app));
    let ok = checks.iter().all(|c| c.ok);
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.json {
        json::write(&mut out, Report { ok, checks })?;
    } else {
        for check in checks.iter().filter(|c| !c.ok || !app.quiet()) {
            write_finding(&mut out, check, app.out)?;
        }
    }
    out.flush()?;
    Ok(if ok { 0 } else { PROBLEMS })
}

fn write_finding(out: &mut dyn Write, finding: &Finding, paint: Paint) -> io::Result<()> {
    let (style, verdict) = if finding.ok { (paint.good(), "ok") } else { (paint.bad(), "problem") };
    writeln!(out, "{style}{verdict:7}{style:#}  {:20}  {}", finding.name, finding.detail)?;
    match &finding.advice {
        Some(advice) => writeln!(out, "{:31}{advice}", ""),
        None => Ok(()),
    }
}

fn check_stores(app: &App) -> Vec<Finding> {
    let home = match app.open_existing() {
        Ok(Some(home)) => home,
        Ok(None) => {
            let dir = app.store_dir().map(|d| quoted(&d)).unwrap_or_default();
            return vec![Finding::good("store", format!("{dir} will be made when it is needed"))];
        }
        Err(failure) => {
            let message = failure.message().unwrap_or_default();
            return vec![Finding::bad("store", message, "Nothing else of the store was checked.")];
        }
    };
    let mut findings = vec![Finding::good("store", quoted(home.dir()))];
    findings.extend(check_side_stores(&home));
    findings.push(check_journal(&home));
    findings.extend(check_transactions(&home));
    findings.push(check_trash(&home));
    findings
}

/// Side stores that are not there now, and what they hold of transactions nobody knows.
fn check_side_stores(home: &Home) -> Vec<Finding> {
    let stores = match home.stores() {
        Ok(stores) => stores,
        Err(error) => {
            return vec![Finding::bad("side stores", error.to_string(), "Make it readable again.")];
        }
    };
    let known: BTreeSet<TxId> = home.ids().unwrap_or_default().into_iter().collect();
    let mut findings = Vec::new();
    for store in stores.iter().skip(1) {
        let Ok(names) = fs::read_dir(store.join("tx")) else {
            let detail = format!("{} is not there now (not mounted?)", quoted(store));
            findings.push(Finding::good("side store", detail));
            continue;
        };
        let unknown: Vec<TxId> = names
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|id| !known.contains(id))
            .collect();
        findings.push(match unknown.first() {
            None => Finding::good("side store", quoted(store)),
            Some(id) => Finding::bad(
                "side store",
                format!(
                    "{} holds {} that this home store does not know",
                    quoted(store),
                    ids(&unknown)
                ),
                format!("If no other home store uses it: txos gc --force {id}"),
            ),
        });
    }
    findings
}

/// A publish that was interrupted, unless it is going on.
fn check_journal(home: &Home) -> Finding {
    match interrupted(home) {
        None => Finding::good("journal", "no publish was interrupted"),
        Some(id) if home.is_held(id) => {
            Finding::good("journal", format!("{id} is being published"))
        }
        Some(id) => Finding::bad(
            "journal",
            format!("the publish of {id} was interrupted; the tree may hold a part of it"),
            "Finish or undo it: txos recover",
        ),
    }
}

/// Records, dead and lost transactions, and what the kernel still holds of them.
fn check_transactions(home: &Home) -> Vec<Finding> {
    let (all, unreadable) = match find(Some(home), |_| true) {
        Ok(found) => found,
        Err(failure) => {
            let message = failure.message().unwrap_or_default();
            return vec![Finding::bad("transactions", message, "Make the store readable again.")];
        }
    };
    let mut findings: Vec<Finding> = unreadable
        .into_iter()
        .map(|message| Finding::bad("record", message, "No other transaction is affected."))
        .collect();
    let of = |standing| -> Vec<TxId> {
        all.iter().filter(|(_, s)| *s == standing).map(|(meta, _)| meta.id).collect()
    };
    let mut dead = of(Standing::Dead);
    // One whose publish was interrupted has a line of its own, and must not be cleaned up.
    let half_published = interrupted(home);
    dead.retain(|id| half_published != Some(*id));
    if !dead.is_empty() {
        let detail = format!("{} ended without a decision: the txos process is gone", ids(&dead));
        findings.push(Finding::bad(
            "dead",
            detail,
            "Nothing of it is published. Clean up: txos gc",
        ));
    }
    let lost = of(Standing::Lost);
    if let Some(id) = lost.first() {
        let detail = format!("{} was kept without flushing before a restart", ids(&lost));
        findings.push(Finding::bad("lost", detail, format!("Discard: txos abort {id}")));
    }
    if findings.is_empty() {
        findings.push(Finding::good("transactions", format!("{} on record", all.len())));
    }
    let active: BTreeSet<TxId> = of(Standing::Active).into_iter().collect();
    findings.push(check_mounts());
    let known: BTreeSet<TxId> = all.iter().map(|(meta, _)| meta.id).collect();
    findings.push(check_processes(&active, &known));
    findings
}

/// No overlay of a transaction belongs into the mount namespace of everybody.
fn check_mounts() -> Finding {
    let text = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounted: Vec<TxId> = mounted_transactions(&text).into_iter().collect();
    if mounted.is_empty() {
        return Finding::good("mounts", "no overlay is left over");
    }
    Finding::bad(
        "mounts",
        format!("overlays of {} are mounted here", ids(&mounted)),
        "Unmount what `findmnt -t overlay` lists with a source that starts with txos-.",
    )
}

/// Processes that live in the view of a transaction that is not running.
///
/// Of transactions of this store, that is: what others run is theirs.
fn check_processes(active: &BTreeSet<TxId>, known: &BTreeSet<TxId>) -> Finding {
    let mut left: BTreeMap<TxId, Vec<u32>> = BTreeMap::new();
    let mut namespaces: BTreeMap<std::path::PathBuf, BTreeSet<TxId>> = BTreeMap::new();
    let own = fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        // Processes come and go, and those of others can't be looked into: both are none of ours.
        let Ok(namespace) = fs::read_link(entry.path().join("ns/mnt")) else { continue };
        if namespace == own {
            continue;
        }
        let transactions = namespaces.entry(namespace).or_insert_with(|| {
            mounted_transactions(&fs::read(entry.path().join("mountinfo")).unwrap_or_default())
        });
        for id in transactions.difference(active).filter(|id| known.contains(id)) {
            left.entry(*id).or_default().push(pid);
        }
    }
    if left.is_empty() {
        return Finding::good("processes", "none is left over");
    }
    let detail: Vec<String> = left
        .iter()
        .map(|(id, pids)| {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("{id}: {}", pids.join(" "))
        })
        .collect();
    Finding::bad("processes", format!("left over of {}", detail.join("; ")), "End them: txos gc")
}

/// The transactions of which an overlay is mounted, after a `mountinfo` text.
fn mounted_transactions(mountinfo: &[u8]) -> BTreeSet<TxId> {
    String::from_utf8_lossy(mountinfo)
        .lines()
        // "… - overlay txos-3kq9w2ma rw,…": type and source follow a lone dash.
        .filter_map(|line| line.split_once(" - ")?.1.strip_prefix("overlay txos-"))
        .filter_map(|rest| rest.split(' ').next()?.get(..TxId::LEN)?.parse().ok())
        .collect()
}

fn check_trash(home: &Home) -> Finding {
    let stores = home.stores().unwrap_or_default();
    let count = |s: &std::path::PathBuf| fs::read_dir(s.join("trash")).map_or(0, Iterator::count);
    match stores.iter().map(count).sum::<usize>() {
        0 => Finding::good("trash", "empty"),
        n => Finding::good("trash", format!("{n} entries to be deleted; `txos gc` does it")),
    }
}

fn ids(ids: &[TxId]) -> String {
    ids.iter().map(TxId::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlays_are_found_in_mountinfo() {
        let text = b"22 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw\n\
            90 22 0:50 / /mnt rw,relatime shared:9 - overlay txos-3kq9w2ma rw,lowerdir=/\n\
            91 22 0:51 / /x rw - overlay overlay rw\n\
            92 22 0:52 / /y rw - overlay txos-3kq9w2ma-l1 rw\n\
            93 22 0:53 / /z rw - tmpfs txos-00000000 rw\n\
            94 22 0:54 / /w rw - overlay txos-short rw\n\xff\n";
        let found: Vec<TxId> = mounted_transactions(text).into_iter().collect();
        assert_eq!(found, ["3kq9w2ma".parse().unwrap()]);
    }
}
