//! `txos doctor`: is this machine fit, and is anything left lying about?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;
use txos_engine::commit::{self, interrupted};
use txos_engine::program::{SYSTEM_LINKER, refused_beside};
use txos_engine::realm::{self, Member, Realm, State};
use txos_engine::show::{quoted, quoted_bytes};
use txos_engine::store::Home;
use txos_engine::{Error, TxId};

use crate::app::App;
use crate::args::DoctorArgs;
use crate::exit::{Failure, PROBLEMS};
use crate::json;
use crate::list::find;
use crate::realm_view::{Counts, look};
use crate::status::is_in_memory;
use crate::style::Paint;
use crate::tx_status::TxStatus;
use crate::{in_process, runtime};

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
    if args.rebuild {
        return rebuild(app);
    }
    let mut checks: Vec<Finding> = txos_run::doctor()
        .into_iter()
        .map(|c| Finding { name: c.name, ok: c.ok, detail: c.detail, advice: c.advice })
        .collect();
    checks.extend(check_library());
    checks.extend(check_stores(app));
    checks.extend(check_realm(app));
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

/// Whether the library can load programs, where commands have its view.
fn check_library() -> Option<Finding> {
    let name = "library";
    let problem = match runtime::shared() {
        Ok(library) => {
            let Some((what, copies)) = in_process::lacks_c_library(&library) else {
                return refused_copy(name, &library);
            };
            let detail = format!("{}: {what}", quoted(&library));
            Finding::bad(name, detail, format!("For that, {copies}."))
        }
        Err(failure) => Finding::bad(name, failure.message().unwrap_or_default(), "Install it."),
    };
    // That starts a process to try namespaces.
    (txos_run::is_on_overlay(&[]) || txos_run::refuses_views().is_some()).then_some(problem)
}

/// A copy of the dynamic linker or the C library beside the library that is not taken: the system's are, whatever they are.
fn refused_copy(name: &'static str, library: &Path) -> Option<Finding> {
    let (path, why) = refused_beside(library)?;
    let detail = format!("{} is not used, as it {why}", quoted(&path));
    let advice = format!("Mend or remove it; until then the library uses {SYSTEM_LINKER}.");
    Some(Finding::bad(name, detail, advice))
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
    let mut findings = vec![match refuses_writing(home.dir()) {
        None => Finding::good("store", quoted(home.dir())),
        Some(error) => Finding::bad(
            "store",
            format!("{} can't be written to: {error}", quoted(home.dir())),
            "No transaction can run. Make room or let it be written to, or name another with --store.",
        ),
    }];
    findings.extend(check_side_stores(&home));
    findings.push(check_journal(&home));
    findings.extend(check_transactions(&home));
    findings.push(check_trash(&home));
    findings
}

/// Why nothing can be written into a directory. Tried with a file that never has a name.
fn refuses_writing(dir: &Path) -> Option<io::Error> {
    use rustix::fs::{Access, CWD, Mode, OFlags};
    use rustix::io::Errno;
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let written = match rustix::fs::openat(CWD, dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => rustix::io::write(file, &[0; 4096]).map(drop),
        // A file system without such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            rustix::fs::access(dir, Access::WRITE_OK | Access::EXEC_OK)
        }
        Err(error) => Err(error),
    };
    written.err().map(io::Error::from)
}

/// Side stores that are not there now, or can't be written to, and how much in them is of others.
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
        if let Some(error) = refuses_writing(store) {
            findings.push(Finding::bad(
                "side store",
                format!("{} can't be written to: {error}", quoted(store)),
                "What transactions change on that file system can't be published. Make room, or let it be \
                 written to.",
            ));
            continue;
        }
        let others = names
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<TxId>().ok())
            .filter(|id| !known.contains(id))
            .count();
        // All home stores of a user share it, and nothing in it says which one an entry is of.
        findings.push(Finding::good(
            "side store",
            match others {
                0 => quoted(store),
                _ => format!("{}, with {others} of other home stores", quoted(store)),
            },
        ));
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
    let of = |status| -> Vec<TxId> {
        all.iter().filter(|(_, s)| *s == status).map(|(meta, _)| meta.id).collect()
    };
    let mut dead = of(TxStatus::Dead);
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
    let lost = of(TxStatus::Lost);
    if let Some(id) = lost.first() {
        let detail = format!("{} was kept without flushing before a restart", ids(&lost));
        findings.push(Finding::bad("lost", detail, format!("Discard: txos abort {id}")));
    }
    if findings.is_empty() {
        findings.push(Finding::good("transactions", format!("{} on record", all.len())));
    }
    let active: BTreeSet<TxId> = of(TxStatus::Active).into_iter().collect();
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

/// Whether transactions can meet, and whether somebody is in the way of all others for good.
fn check_realm(app: &App) -> Vec<Finding> {
    let realm = match app.realm_existing() {
        Ok(Some(realm)) => realm,
        Ok(None) => {
            let dir = app.realm_dir().map(|d| quoted(&d)).unwrap_or_default();
            return vec![Finding::good("realm", format!("{dir} will be made when it is needed"))];
        }
        Err(failure) => {
            let message = failure.message().unwrap_or_default();
            return vec![Finding::bad("realm", message, "Until then nothing can be run.")];
        }
    };
    let members = look(&realm);
    let mut detail = format!("{}: {}", quoted(realm.path()), Counts::of(&members));
    if !is_in_memory(realm.path()) {
        detail.push_str("; it is not in memory (tmpfs), so its disk is written to now and then");
    }
    let mut findings = vec![Finding::good("realm", detail)];
    findings.extend(check_members(&members, is_stopped));
    findings
}

/// The dead are cleared away by whoever needs their place, or what they hold; whoever is stopped
/// while it publishes is waited for.
fn check_members(members: &[Member], is_stopped: impl Fn(u32) -> bool) -> Vec<Finding> {
    let named = |members: &[&Member]| members.iter().copied().map(name_of).collect::<Vec<_>>();
    let publishing = |m: &&Member| m.state == State::Publishing;
    let (half_done, dead): (Vec<&Member>, Vec<&Member>) =
        members.iter().filter(|m| m.dead).partition(publishing);
    let mut findings = Vec::new();
    if !half_done.is_empty() {
        let detail = format!("{} died while it published", named(&half_done).join(", "));
        findings.push(Finding::bad(
            "dead publish",
            detail,
            "It is finished or undone by whoever meets it, or now: txos recover",
        ));
    }
    if !dead.is_empty() {
        let detail = format!(
            "{} died; whoever needs what it held clears it away, as `txos gc` does",
            named(&dead).join(", ")
        );
        findings.push(Finding::good("dead members", detail));
    }
    for member in members.iter().filter(|m| !m.dead).filter(publishing) {
        if is_stopped(member.pid) {
            findings.push(Finding::bad(
                "stopped publish",
                format!("{} is stopped while it publishes; others wait", name_of(member)),
                format!("Let it go on: kill -CONT {}", member.pid),
            ));
        }
    }
    findings
}

/// `3kq9w2ma (process 12: make install)`.
fn name_of(member: &Member) -> String {
    let label = match member.label.as_str() {
        "" => String::new(),
        label => format!(": {label}"),
    };
    match member.id {
        Some(id) => format!("{id} (process {}{label})", member.pid),
        None => format!("process {}{label}", member.pid),
    }
}

/// Whether a process is stopped, by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with(['T', 't']))
}

/// Makes the realm anew, whatever it holds, if nobody uses it.
fn rebuild(app: &App) -> Result<u8, Failure> {
    let dir = app.realm_dir()?;
    // Nobody has it open here any more when it is made anew, or we would be in our own way.
    let there = Realm::join_existing(
        &dir,
        "txos",
        &app.store_dir()?,
        Box::new(commit::resolve_dead_publish),
    );
    let (path, members) = match there {
        Ok(None) => {
            app.say(format_args!("{} will be made when it is needed", quoted(&dir)));
            return Ok(0);
        }
        Ok(Some(realm)) => (Some(realm.path().to_owned()), look(&realm)),
        Err(Error::Format { path, .. }) => (Some(path), Vec::new()),
        Err(_) => (None, Vec::new()),
    };
    match realm::rebuild(&dir) {
        Ok(path) => {
            app.say(format_args!(
                "made the realm {} anew: its counters are 0, its policy is the default one",
                quoted(&path)
            ));
            Ok(0)
        }
        Err(error) => {
            let users = path.map(|path| users(&path, &members)).unwrap_or_default();
            let by = if users.is_empty() { "" } else { " It is used by " };
            Err(Failure::new(format!("{error}{by}{}", users.join(", "))))
        }
    }
}

/// Who uses a realm: transactions, and other processes that have it open.
fn users(path: &Path, members: &[Member]) -> Vec<String> {
    let living: Vec<&Member> = members.iter().filter(|m| !m.dead).collect();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holders = fs::metadata(path).map(|m| holders(&locks, m.dev(), m.ino()));
    let others =
        holders.unwrap_or_default().into_iter().filter(|pid| !living.iter().any(|m| m.pid == *pid));
    let named = others.map(|pid| {
        let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("process {pid}: {}", quoted_bytes(comm.trim_ascii_end()))
    });
    living.iter().map(|m| name_of(m)).chain(named).collect()
}

/// The processes that hold a flock(2) on a file, after `/proc/locks` (proc(5)).
fn holders(locks: &str, device: u64, inode: u64) -> BTreeSet<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let file = format!("{major:02x}:{minor:02x}:{inode}");
    // "1: FLOCK  ADVISORY  READ 8694 00:28:7 0 EOF"; who waits has "->" after the number.
    let holder = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let kind = words.next()?;
        let pid = words.nth(2)?.parse().ok()?;
        (kind == "FLOCK" && words.next()? == file).then_some(pid)
    };
    locks.lines().filter_map(holder).collect()
}

fn ids(ids: &[TxId]) -> String {
    ids.iter().map(TxId::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::realm_view::samples::crowd;

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

    #[test]
    fn what_can_not_be_written_to_is_known() {
        let dir = std::env::temp_dir().join(format!("txos-doctor-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        assert!(refuses_writing(&dir).is_none());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir(&dir).unwrap();
        assert!(refuses_writing(&dir).is_some());
    }

    #[test]
    fn holders_are_found_in_locks() {
        let locks = "1: FLOCK  ADVISORY  WRITE 9522 fe:00:10371090 0 EOF\n\
            2: FLOCK  ADVISORY  READ 8694 00:28:7 0 EOF\n\
            3: POSIX  ADVISORY  READ 8695 00:28:7 0 EOF\n\
            4: FLOCK  ADVISORY  READ 8693 00:28:7 0 EOF\n\
            4: -> FLOCK  ADVISORY  WRITE 8700 00:28:7 0 EOF\n\
            5: FLOCK  ADVISORY  READ 8696 00:28:77 0 EOF\n\
            6: FLOCK\n";
        let device = rustix::fs::makedev(0, 0x28);
        assert_eq!(holders(locks, device, 7), BTreeSet::from([8693, 8694]));
        assert!(holders(locks, device, 8).is_empty());
    }

    #[test]
    fn members_that_others_wait_for_in_vain() {
        let mut all = crowd();
        let of = |all: &[Member], stopped: bool| -> Vec<(&'static str, bool)> {
            check_members(all, |_| stopped).iter().map(|f| (f.name, f.ok)).collect()
        };
        // The third one died while it published.
        assert_eq!(of(&all, true), [("dead publish", false)]);
        all[2].state = State::Active;
        assert_eq!(of(&all, true), [("dead members", true)]);
        all[3].state = State::Publishing;
        assert_eq!(of(&all[3..], false), []);
        assert_eq!(of(&all[3..], true), [("stopped publish", false)]);
        let stopped = check_members(&all[3..], |pid| pid == 1009);
        assert_eq!(stopped[0].advice.as_deref(), Some("Let it go on: kill -CONT 1009"));
    }

    #[test]
    fn members_are_named() {
        let all = crowd();
        assert_eq!(name_of(&all[0]), "3kq9w2ma (process 1007: make install)");
        assert_eq!(name_of(&all[3]), "process 1009");
    }

    #[test]
    fn stopped_processes_are_known() {
        use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!is_stopped(child.id()));
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert!(is_stopped(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(child.id()));
    }
}
