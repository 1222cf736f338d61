//! Where a path of the view lies: in what is versioned, or where changes are live.

use std::path::Path;

use txos_engine::path::{is_at_or_below, lexically_normal};
use txos_engine::scope::NEVER;

use crate::view::plan::Plan;

/// What a change at a path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathClass {
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
pub struct PathClasses {
    /// Live trees, canonical.
    live: Vec<Vec<u8>>,
    excluded: Vec<Vec<u8>>,
    /// What is directly in these is live, unless it is a layer; and why.
    open: Vec<(Vec<u8>, String)>,
    layers: Vec<Vec<u8>>,
    /// What is below none of the layers is live, where they are many and not all of the tree.
    layers_only: bool,
    /// Only these are versioned, if any.
    only: Vec<Vec<u8>>,
    /// Links into live trees that programs like to write through: as written, and where they lead.
    links: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Links that every distribution has.
const USUAL_LINKS: [&str; 2] = ["/var/run", "/var/lock"];

/// Memory shared between processes, in the shape of directories.
const SHARED: [&str; 3] = ["/dev/shm", "/dev/mqueue", "/dev/hugepages"];

impl PathClasses {
    /// The classes of the paths of a view.
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
        PathClasses {
            live,
            excluded: plan.excluded.iter().map(bytes).collect(),
            open: plan.unversioned.iter().map(|(dir, why)| (bytes(dir), why.clone())).collect(),
            layers: plan.layers.iter().map(bytes).collect(),
            layers_only: plan.rootless,
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
    pub fn find(&self, path: &[u8]) -> (PathClass, Vec<u8>) {
        let mut path = lexically_normal(path);
        for (from, to) in &self.links {
            if is_at_or_below(&path, from) {
                path = [to, path.get(from.len()..).unwrap_or_default()].concat();
                break;
            }
        }
        (self.class(&path), path)
    }

    /// Why what is directly in the directory of a path could not be versioned, if it is so.
    #[must_use]
    pub fn why_open(&self, path: &[u8]) -> Option<&str> {
        let (dir, _) = txos_engine::readset::split(path)?;
        let (_, why) = self.open.iter().find(|(open, _)| open == dir)?;
        (!self.layers.iter().any(|l| l == path)).then_some(why)
    }

    fn class(&self, path: &[u8]) -> PathClass {
        let below = |tops: &[Vec<u8>]| tops.iter().any(|t| is_at_or_below(path, t));
        let [proc, sys, dev, _] = NEVER.map(str::as_bytes);
        if below(&self.excluded) {
            PathClass::Excluded
        } else if below(&self.live) {
            PathClass::Live
        } else if is_at_or_below(path, proc) {
            PathClass::Proc
        } else if is_at_or_below(path, sys) {
            PathClass::Sys
        } else if is_at_or_below(path, dev) {
            PathClass::Device
        } else if self.why_open(path).is_some() {
            PathClass::Live
        } else if !self.only.is_empty() && !below(&self.only) {
            PathClass::OutOfScope
        } else if self.layers_only && !below(&self.layers) {
            PathClass::Live
        } else {
            PathClass::Versioned
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_where() {
        let classes = PathClasses {
            live: vec![b"/run".to_vec(), b"/dev/shm".to_vec(), b"/mnt/nfs".to_vec()],
            excluded: vec![b"/var/cache".to_vec()],
            only: Vec::new(),
            links: vec![(b"/var/run".to_vec(), b"/run".to_vec())],
            open: vec![(b"/home".to_vec(), "why".into())],
            layers: vec![b"/home/me".to_vec()],
            layers_only: false,
        };
        let class = |p: &str| classes.find(p.as_bytes()).0;
        assert_eq!(class("/etc/passwd"), PathClass::Versioned);
        assert_eq!(class("/runner"), PathClass::Versioned);
        assert_eq!(class("/var/run/x.pid"), PathClass::Live);
        assert_eq!(classes.find(b"/var/run/x.pid").1, b"/run/x.pid");
        assert_eq!(class("/etc/../run/x"), PathClass::Live);
        assert_eq!(class("/mnt/nfs/f"), PathClass::Live);
        assert_eq!(class("/dev/shm/f"), PathClass::Live);
        assert_eq!(class("/dev/sda"), PathClass::Device);
        assert_eq!(class("/proc/sys/kernel/x"), PathClass::Proc);
        assert_eq!(class("/sys/power/state"), PathClass::Sys);
        assert_eq!(class("/var/cache/apt/x"), PathClass::Excluded);
        let scoped = PathClasses { only: vec![b"/srv".to_vec()], ..PathClasses::default() };
        assert_eq!(scoped.find(b"/srv/x").0, PathClass::Versioned);
        assert_eq!(scoped.find(b"/etc/x").0, PathClass::OutOfScope);
        assert_eq!(class("/home/x"), PathClass::Live);
        assert_eq!(class("/home/me"), PathClass::Versioned);
        assert_eq!(class("/home/me/x"), PathClass::Versioned);
        assert_eq!(class("/srv/x/y"), PathClass::Versioned);
        let covered = PathClasses { layers_only: true, ..classes.clone() };
        assert_eq!(covered.find(b"/srv/x/y").0, PathClass::Live, "no layer is there");
        assert_eq!(covered.find(b"/home/me/x").0, PathClass::Versioned);
    }
}
