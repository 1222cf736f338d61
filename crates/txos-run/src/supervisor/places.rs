//! Where a path of the view lies: in what is versioned, or where changes are live.

use std::path::Path;

use txos_engine::readset::is_at_or_below;

use super::process::lexically_normal;
use crate::view::plan::{NEVER, Plan};

/// What a change at a path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is private until the commit.
    Versioned,
    /// The user said that it is to be live.
    Excluded,
    /// The user left it out of the scope.
    OutOfScope,
    /// In `/dev`.
    Device,
    /// In `/proc`.
    Proc,
    /// In `/sys`.
    Sys,
    /// Anywhere else that is live: `/run`, `/dev/shm`, a file system that can't be versioned.
    Live,
}

/// What lies where.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Live trees, canonical.
    live: Vec<Vec<u8>>,
    excluded: Vec<Vec<u8>>,
    /// What is directly in these is live, unless it is a layer; and why.
    open: Vec<(Vec<u8>, String)>,
    layers: Vec<Vec<u8>>,
    /// Only these are versioned, if any.
    only: Vec<Vec<u8>>,
    /// Links into live trees that programs like to write through: as written, and where they lead.
    links: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Links that every distribution has.
const USUAL_LINKS: [&str; 2] = ["/var/run", "/var/lock"];

/// Memory shared between processes, in the shape of directories.
const SHARED: [&str; 3] = ["/dev/shm", "/dev/mqueue", "/dev/hugepages"];

impl Places {
    /// The places of a view.
    #[must_use]
    pub fn of_plan(plan: &Plan) -> Self {
        let bytes = |p: &std::path::PathBuf| p.as_os_str().as_encoded_bytes().to_vec();
        let mut live: Vec<Vec<u8>> = plan.live_places.iter().map(bytes).collect();
        live.extend(SHARED.iter().map(|s| s.as_bytes().to_vec()));
        live.push(b"/run".to_vec());
        let links = USUAL_LINKS
            .iter()
            .filter_map(|link| {
                let to = Path::new(link).canonicalize().ok()?;
                let to = to.as_os_str().as_encoded_bytes().to_vec();
                (to != link.as_bytes()).then(|| (link.as_bytes().to_vec(), to))
            })
            .collect();
        Places {
            live,
            excluded: plan.excluded.iter().map(bytes).collect(),
            open: plan.unversioned.iter().map(|(dir, why)| (bytes(dir), why.clone())).collect(),
            layers: plan.layers.iter().map(bytes).collect(),
            only: plan.coverage.only_under.clone(),
            links,
        }
    }

    /// A tree is live after all.
    pub fn is_live(&mut self, top: &[u8]) {
        self.live.push(top.to_vec());
    }

    /// Where a path lies, and its normal form.
    #[must_use]
    pub fn find(&self, path: &[u8]) -> (Place, Vec<u8>) {
        let mut path = lexically_normal(path);
        for (from, to) in &self.links {
            if is_at_or_below(&path, from) {
                path = [to, path.get(from.len()..).unwrap_or_default()].concat();
                break;
            }
        }
        (self.place(&path), path)
    }

    /// Why what is directly in the directory of a path could not be versioned, if it is so.
    #[must_use]
    pub fn why_open(&self, path: &[u8]) -> Option<&str> {
        let (dir, _) = txos_engine::readset::split(path)?;
        let (_, why) = self.open.iter().find(|(open, _)| open == dir)?;
        (!self.layers.iter().any(|l| l == path)).then_some(why)
    }

    fn place(&self, path: &[u8]) -> Place {
        let below = |tops: &[Vec<u8>]| tops.iter().any(|t| is_at_or_below(path, t));
        let [proc, sys, dev, _] = NEVER.map(str::as_bytes);
        if below(&self.excluded) {
            Place::Excluded
        } else if below(&self.live) {
            Place::Live
        } else if is_at_or_below(path, proc) {
            Place::Proc
        } else if is_at_or_below(path, sys) {
            Place::Sys
        } else if is_at_or_below(path, dev) {
            Place::Device
        } else if self.why_open(path).is_some() {
            Place::Live
        } else if !self.only.is_empty() && !below(&self.only) {
            Place::OutOfScope
        } else {
            Place::Versioned
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_where() {
        let places = Places {
            live: vec![b"/run".to_vec(), b"/dev/shm".to_vec(), b"/mnt/nfs".to_vec()],
            excluded: vec![b"/var/cache".to_vec()],
            only: Vec::new(),
            links: vec![(b"/var/run".to_vec(), b"/run".to_vec())],
            open: vec![(b"/home".to_vec(), "why".into())],
            layers: vec![b"/home/me".to_vec()],
        };
        let place = |p: &str| places.find(p.as_bytes()).0;
        assert_eq!(place("/etc/passwd"), Place::Versioned);
        assert_eq!(place("/runner"), Place::Versioned);
        assert_eq!(place("/var/run/x.pid"), Place::Live);
        assert_eq!(places.find(b"/var/run/x.pid").1, b"/run/x.pid");
        assert_eq!(place("/etc/../run/x"), Place::Live);
        assert_eq!(place("/mnt/nfs/f"), Place::Live);
        assert_eq!(place("/dev/shm/f"), Place::Live);
        assert_eq!(place("/dev/sda"), Place::Device);
        assert_eq!(place("/proc/sys/kernel/x"), Place::Proc);
        assert_eq!(place("/sys/power/state"), Place::Sys);
        assert_eq!(place("/var/cache/apt/x"), Place::Excluded);
        let scoped = Places { only: vec![b"/srv".to_vec()], ..Places::default() };
        assert_eq!(scoped.find(b"/srv/x").0, Place::Versioned);
        assert_eq!(scoped.find(b"/etc/x").0, Place::OutOfScope);
        assert_eq!(place("/home/x"), Place::Live);
        assert_eq!(place("/home/me"), Place::Versioned);
        assert_eq!(place("/home/me/x"), Place::Versioned);
    }
}
