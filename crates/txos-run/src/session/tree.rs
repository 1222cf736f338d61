//! Finding and ending the descendants of a process, by what `/proc` says.

use std::collections::{HashMap, HashSet};

use rustix::process::{Pid, Signal};

/// A process's short name, which may hold anything: it is shown quoted, and never otherwise.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Name(Box<[u8]>);

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&txos_engine::show::quoted_bytes(&self.0))
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The short name of a process; an empty one if it is gone.
#[must_use]
pub fn name(pid: i32) -> Name {
    process(pid).map(|p| p.name).unwrap_or_default()
}

/// One process of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its parent's number.
    pub parent: i32,
    /// Its process group.
    pub group: i32,
    /// Its short name.
    pub name: Name,
    /// It has ended but nobody has asked for its status yet.
    pub zombie: bool,
}

/// Reads `/proc/PID/stat`.
#[must_use]
pub fn process(pid: i32) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &stat)
}

/// `PID (name, which may hold anything) S PPID …`
pub(crate) fn parse_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    let open = stat.iter().position(|&b| b == b'(')?;
    let close = stat.iter().rposition(|&b| b == b')')?;
    let name = Name(stat.get(open + 1..close)?.into());
    let rest = std::str::from_utf8(stat.get(close + 2..)?).ok()?;
    let mut words = rest.split(' ');
    let state = words.next()?;
    let parent = words.next()?.parse().ok()?;
    let group = words.next()?.parse().ok()?;
    Some(Process { pid, parent, group, name, zombie: matches!(state, "Z" | "X") })
}

/// Every process that descends from `ancestor` (which is not included), in no order.
///
/// Quick where the kernel lists children; what is forked or orphaned meanwhile may be missed.
#[must_use]
pub fn descendants(ancestor: i32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        let Some(children) = children(pid) else { return descendants_by_scan(ancestor) };
        found.extend(children.iter().copied().filter_map(process));
        next.extend(children);
    }
    found
}

/// The direct children of a process; `None` if this kernel does not list them.
#[must_use]
pub fn children(pid: i32) -> Option<Vec<i32>> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Some(Vec::new()); // It has ended.
    };
    let mut all = Vec::new();
    for thread in threads.flatten() {
        match std::fs::read_to_string(thread.path().join("children")) {
            Ok(text) => all.extend(text.split_whitespace().filter_map(|w| w.parse::<i32>().ok())),
            Err(_) if thread.path().join("stat").exists() => return None,
            Err(_) => {}
        }
    }
    Some(all)
}

/// [`descendants`] from one pass over all of `/proc`: slower, and misses nobody who was there
/// before the pass and stays.
#[must_use]
pub fn descendants_by_scan(ancestor: i32) -> Vec<Process> {
    select(&all(), ancestor)
}

/// The members of a process group.
#[must_use]
pub fn group(group: i32) -> Vec<Process> {
    let mut found = all();
    found.retain(|p| p.group == group && !p.zombie);
    found
}

fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter_map(process)
        .collect()
}

fn select(all: &[Process], ancestor: i32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for p in all {
        children.entry(p.parent).or_default().push(p);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([ancestor]);
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(child.pid) {
                found.push((*child).clone());
                next.push(child.pid);
            }
        }
    }
    found
}

/// Whether `pid` descends from `ancestor`, or is it. Looks at its line of parents only.
#[must_use]
pub fn descends_from(pid: i32, ancestor: i32) -> bool {
    let mut at = pid;
    // A line of parents longer than the kernel's largest pid number would be a loop.
    for _ in 0..4_194_304u32 {
        if at == ancestor {
            return true;
        }
        if at <= 1 {
            return false;
        }
        match process(at) {
            Some(p) => at = p.parent,
            None => return false,
        }
    }
    false
}

/// Sends SIGKILL to every descendant of `ancestor` but those that descend from one of `spare`.
/// Gives how many were alive.
pub fn kill_descendants(ancestor: i32, spare: &[i32]) -> usize {
    let all = descendants_by_scan(ancestor);
    let spared: HashSet<i32> =
        spare.iter().flat_map(|&s| select(&all, s).into_iter().map(|p| p.pid).chain([s])).collect();
    let mut alive = 0;
    for p in all.iter().filter(|p| !p.zombie && !spared.contains(&p.pid)) {
        if let Some(pid) = Pid::from_raw(p.pid)
            && rustix::process::kill_process(pid, Signal::KILL).is_ok()
        {
            alive += 1;
        }
    }
    alive
}

/// Sends a signal to every descendant of `ancestor`.
pub fn signal_descendants(ancestor: i32, signal: Signal) {
    for p in descendants_by_scan(ancestor).iter().filter(|p| !p.zombie) {
        if let Some(pid) = Pid::from_raw(p.pid) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Asks for the status of orphans that came to `me`, this process; leaves its `others`, children that it had before, alone.
pub(crate) fn reap_orphans(me: i32, others: &[i32]) {
    for p in descendants_by_scan(me) {
        if p.parent == me
            && p.zombie
            && !others.contains(&p.pid)
            && let Some(pid) = Pid::from_raw(p.pid)
        {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_anything_in_them() {
        let p = parse_stat(7, b"7 (a) b (c) S 42 7 7 0").unwrap();
        assert_eq!((p.parent, p.name.to_string().as_str(), p.zombie), (42, "a) b (c", false));
        let hostile = parse_stat(7, b"7 (\x1b]0;x\x07\n\xff) S 42 7 7 0").unwrap().name;
        assert_eq!(
            format!("{hostile} {hostile:?}"),
            r#""\033]0;x\007\n\377" "\033]0;x\007\n\377""#
        );
        assert!(parse_stat(7, b"7 (x) Z 1 7").unwrap().zombie);
        assert_eq!(parse_stat(7, b"rubbish"), None);
    }

    #[test]
    fn lines_of_descent() {
        let p =
            |pid, parent| Process { pid, parent, group: 0, name: Name::default(), zombie: false };
        let all = [p(2, 1), p(3, 2), p(4, 3), p(5, 1)];
        let mut found: Vec<i32> = select(&all, 2).iter().map(|p| p.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
        let me = rustix::process::getpid().as_raw_nonzero().get();
        assert!(descends_from(me, me));
        assert!(!descends_from(1, me));
    }
}
