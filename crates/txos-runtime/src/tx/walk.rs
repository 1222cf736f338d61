//! Path walk: as the kernel's (path_resolution(7)), over shadow and stable entries.

use std::rc::Rc;

use txos_engine::object::FileKind;
use txos_engine::readset::join;

use super::kernel::{Errno, OwnedFd, Stat, Sys, read_link};
use super::node::{Entry, Id, Node, Stable};
use super::tree::ShadowTree;
use super::{Tx, kernel};

/// Symbolic links that a walk may pass, as in the kernel.
const LINKS_MAX: u32 = 40;

/// How often a walk may lead up from directories that are not versioned: a path has no room for more.
const UPWARDS_MAX: usize = libc::PATH_MAX as usize;

/// How the last component of a path looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The path is `/`.
    Root,
}

/// Where a walk ended.
#[derive(Clone, Debug)]
pub struct Spot {
    /// The directory.
    pub dir: Id,
    /// The name in it.
    pub name: Vec<u8>,
    /// What is there.
    pub node: Option<Id>,
    /// How the path ended.
    pub last: Last,
    /// The path ended in a slash.
    pub slash: bool,
}

/// Where a path leads.
#[derive(Clone, Debug)]
pub enum Place {
    /// To a versioned place.
    At(Spot),
    /// To something that is not versioned: this path reaches it.
    Live(Vec<u8>),
}

/// How a walk goes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// Up to the directory of the last name, which is looked up and not followed.
    pub parent: bool,
    /// And the last name is not looked up.
    pub blind: bool,
    /// Symbolic links end it.
    pub no_links: bool,
    /// The links of `/proc` that lead to objects do.
    pub no_magic: bool,
    /// Mount points end it.
    pub no_mounts: bool,
}

impl Tx {
    /// The directory from which a path of a call starts: `AT_FDCWD` or a descriptor.
    ///
    /// # Errors
    /// EBADF, ENOTDIR.
    pub fn base(&mut self, dirfd: i32, path: &[u8]) -> Sys<Id> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        if path.starts_with(b"/") {
            return Ok(self.tree.root);
        }
        if dirfd == libc::AT_FDCWD {
            return self.cwd();
        }
        let file = self.file(dirfd)?;
        let Some(node) = self.fds.get(file).node else { return Err(Errno::NOTDIR) };
        if self.tree.nodes[node].is_dir() { Ok(node) } else { Err(Errno::NOTDIR) }
    }

    /// The working directory.
    ///
    /// # Errors
    /// As `getcwd(2)` and `lstat(2)` of it.
    pub fn cwd(&mut self) -> Sys<Id> {
        if let Some(cwd) = self.tree.cwd {
            return Ok(cwd);
        }
        let stat = kernel::statx(libc::AT_FDCWD, b".", 0)?;
        let path = kernel::working_directory();
        let found = match &path {
            Ok(path) => self.stable_dir(path),
            Err(errno) => Err(*errno),
        };
        let node = match found {
            Ok(node) if self.tree.nodes[node].stat.id == stat.id => node,
            // Something was mounted over it, it was removed, or the way to it is closed.
            Ok(_) | Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::NAMETOOLONG) => {
                self.unreachable_cwd(path != Err(Errno::NOENT), stat)?
            }
            Err(errno) => return Err(errno),
        };
        self.tree.cwd = Some(node);
        Ok(node)
    }

    /// A node for a working directory that no path leads to: the kernel answers what is asked of it and
    /// of what is below it. One that was removed has nothing in it, and nothing can be put there.
    fn unreachable_cwd(&mut self, exists: bool, stat: Stat) -> Sys<Id> {
        if exists {
            let what = "what is done in a working directory that no path leads to";
            self.unsupported_call(what, b".")?;
        }
        let dir = Rc::from(&b""[..]);
        let stable =
            Stable { dir, dir_id: stat.id, name: Box::default(), path: b".".to_vec(), stat };
        let mut node = Node::new(stat, Some(stable));
        node.live = true;
        self.tree.nodes.push(node);
        self.tree.unreachable = Some(self.tree.nodes.len() - 1);
        Ok(self.tree.nodes.len() - 1)
    }

    /// The directory above an unreachable working directory, if a path leads to that one.
    fn above_unreachable(&mut self) -> Sys<Option<Id>> {
        let link = kernel::read_link(libc::AT_FDCWD, b"/proc/thread-self/cwd")?;
        let Some((above, _)) = txos_engine::readset::split(&link) else { return Ok(None) };
        let stat = kernel::statx(libc::AT_FDCWD, b"..", 0)?;
        match self.stable_dir(above) {
            Ok(id) if self.tree.nodes[id].stat.id == stat.id => Ok(Some(id)),
            Err(super::acquire::DOOMED) => Err(super::acquire::DOOMED),
            _ => Ok(None),
        }
    }

    /// The node of a directory of the stable tree, by its canonical path there.
    ///
    /// # Errors
    /// ENOENT if it is not there (any more).
    pub fn stable_dir(&mut self, path: &[u8]) -> Sys<Id> {
        match self.walk(self.tree.root, path, true)? {
            Place::At(Spot { node: Some(id), .. }) => Ok(id),
            Place::At(_) => Err(Errno::NOENT),
            Place::Live(path) => self.tree.live_dir(&path),
        }
    }

    /// Walks a path, following a symbolic link at its end if `follow` or a slash says so.
    ///
    /// # Errors
    /// As path_resolution(7).
    pub fn walk(&mut self, from: Id, path: &[u8], follow: bool) -> Sys<Place> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let start = if path.starts_with(b"/") { self.tree.root } else { from };
        let place = self.walk_on(start, path, follow, Rules::default());
        self.or_elsewhere(place)
    }

    /// Walks to the directory in which a name is to come or go: a link at the end is not followed,
    /// slash or not.
    ///
    /// # Errors
    /// As path_resolution(7).
    pub fn walk_parent(&mut self, from: Id, path: &[u8]) -> Sys<Place> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let start = if path.starts_with(b"/") { self.tree.root } else { from };
        let place = self.walk_on(start, path, false, Rules { parent: true, ..Rules::default() });
        self.or_elsewhere(place)
    }

    /// What is not versioned is left to the process that asks.
    fn or_elsewhere(&mut self, place: Sys<Place>) -> Sys<Place> {
        match place {
            Ok(Place::Live(path)) if self.process.delegates => {
                self.process.elsewhere = Some(path);
                Err(Errno::XDEV)
            }
            place => place,
        }
    }

    /// As [`Tx::walk`], by the rules that openat2(2) was given.
    ///
    /// # Errors
    /// As path_resolution(7); ELOOP for a link, EXDEV for a mount.
    pub fn walk_by(&mut self, from: Id, path: &[u8], follow: bool, rules: Rules) -> Sys<Place> {
        if path.is_empty() {
            return Err(Errno::NOENT);
        }
        let start = if path.starts_with(b"/") { self.tree.root } else { from };
        let place = self.walk_on(start, path, follow, rules);
        self.or_elsewhere(place)
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one loop over the components of a path; each of its steps may go on, begin again or end it"
    )]
    fn walk_on(&mut self, start: Id, path: &[u8], follow: bool, rules: Rules) -> Sys<Place> {
        let Rules { parent, blind, no_links, no_mounts, .. } = rules;
        let (mut links, mut upwards) = (0, 0);
        let mut here = start;
        let absolute = path.starts_with(b"/");
        // Where a symbolic link leads, once there is one.
        let mut target: Vec<u8>;
        let mut path = path;
        let mut at = 0;
        // What was not walked to has a node of its own, in which nothing is looked up.
        let mut is_walked = here == self.tree.top || !self.tree.nodes[here].live;
        let is_look = !(parent || blind || no_mounts);
        if absolute
            && is_look
            && let Some((dir, name)) = self.known_way(path)?
        {
            (here, at) = (dir, name);
        }
        loop {
            self.tree.trace.found = None;
            while path.get(at) == Some(&b'/') {
                at += 1;
            }
            if at >= path.len() {
                // Only slashes are left: the directory itself.
                self.note_passed(here);
                self.tree.trace.find(here);
                return Ok(Place::At(Spot {
                    dir: here,
                    name: b".".to_vec(),
                    node: Some(here),
                    last: Last::Root,
                    slash: true,
                }));
            }
            let end = path[at..].iter().position(|&b| b == b'/').map_or(path.len(), |n| at + n);
            let next = path[end..].iter().position(|&b| b != b'/').map_or(path.len(), |n| end + n);
            let (is_last, slash) = (next >= path.len(), end < path.len());
            if self.tree.unreachable == Some(here) {
                self.tree.trace.is_personal = true;
                if &path[at..end] == b".."
                    && let Some(above) = self.above_unreachable()?
                {
                    here = above;
                    if !is_last {
                        at = next;
                        continue;
                    }
                    return Ok(at_itself(here, b"..", slash));
                }
                return Ok(Place::Live(join(b".", &path[at..])));
            }
            if self.tree.nodes[here].live && &path[at..end] == b"." && !is_last {
                at = next;
                continue;
            }
            let leads_out = self.leads_out(here, &path[at..end]);
            let leads_back = leads_out && self.leads_back(here, &path[at..end]);
            if leads_out && !(leads_back && is_walked) {
                // What is not versioned changes without a call of the transaction's.
                self.tree.trace.is_personal = true;
                let way = self.tree.live_path(here, &path[at..]);
                let by_rules = no_links || no_mounts || self.tree.beneath;
                if by_rules || magic_link(&way).is_some() || self.is_of_who_asks(&way) {
                    return self.live(way, follow, rules);
                }
                // Above what is not versioned may be what is, and where its links lead.
                let again = match leads_back {
                    true => Some(way.clone()),
                    false => match out_of_live(&way)? {
                        Some(above) => Some(above),
                        None => self.by_link(&way, (follow, parent || blind), &mut links)?,
                    },
                };
                match again {
                    Some(way) => target = way,
                    None => return Ok(Place::Live(way)),
                }
                upwards += 1;
                if upwards > UPWARDS_MAX {
                    return Err(Errno::LOOP);
                }
                (here, path, at, is_walked) = (self.tree.top, &target, 0, true);
                continue;
            }
            if !self.tree.nodes[here].is_dir() {
                return Err(Errno::NOTDIR);
            }
            let name = &path[at..end];
            let at_name = |node| {
                Place::At(Spot { dir: here, name: name.to_vec(), node, last: Last::Name, slash })
            };
            if matches!(name, b"." | b"..") {
                self.may_search(here)?;
                if name == b".." {
                    self.unfold_ways()?;
                    self.tree.trace.passed.insert_name(here, name);
                    here = self.tree.above(here, no_mounts)?;
                }
                if is_last {
                    self.note_passed(here);
                    self.tree.trace.find(here);
                    return Ok(at_itself(here, name, slash));
                }
                at = next;
                continue;
            }
            if is_last && (parent || blind) && self.tree.nodes[here].live {
                // The name of what is versioned is not.
                return Ok(Place::Live(self.tree.live_path(here, &path[at..])));
            }
            if is_last && blind {
                self.may_search(here)?;
                self.note_passed(here);
                return Ok(at_name(None));
            }
            let found = self.step(here, name, !is_last)?;
            if is_last && parent {
                self.note_passed(here);
                return Ok(at_name(found));
            }
            let Some(found) = found else {
                if !is_last {
                    return Err(Errno::NOENT);
                }
                return Ok(at_name(None));
            };
            let kind = self.tree.nodes[found].kind();
            if no_mounts && self.tree.nodes[found].stat.mnt != self.tree.nodes[here].stat.mnt {
                return Err(Errno::XDEV);
            }
            if kind == FileKind::Symlink && (!is_last || follow || slash) {
                links += 1;
                if links > LINKS_MAX || no_links {
                    return Err(Errno::LOOP);
                }
                if self.tree.nodes[found].live {
                    return Ok(Place::Live(self.tree.live_path(here, &path[at..])));
                }
                let mut next = self.target(found)?;
                if next.is_empty() {
                    return Err(Errno::NOENT);
                }
                next.extend_from_slice(&path[end..]);
                target = next;
                if target.starts_with(b"/") {
                    if self.tree.beneath {
                        return Err(Errno::XDEV);
                    }
                    here = self.tree.root;
                }
                path = &target;
                at = 0;
                continue;
            }
            if is_last {
                if slash && kind != FileKind::Dir {
                    return Err(Errno::NOTDIR);
                }
                if self.tree.nodes[found].live {
                    return Ok(Place::Live(self.tree.live_path(here, &path[at..])));
                }
                if absolute && is_look && links == 0 {
                    self.learn_way(here);
                }
                return Ok(at_name(Some(found)));
            }
            here = found;
            at = next;
        }
    }

    /// Whether what is at a name of a directory is not versioned.
    pub fn leads_out(&self, dir: Id, name: &[u8]) -> bool {
        if self.tree.nodes[dir].live {
            return true;
        }
        !(self.copies.within.is_none() || matches!(name, b"." | b".."))
            && self.copies.within.leaves_out(&self.tree.live_path(dir, name))
    }

    /// Whether a name in a directory that is not versioned leads to something that is.
    pub fn leads_back(&self, dir: Id, name: &[u8]) -> bool {
        let Some(stable) = self.tree.nodes[dir].stable.as_ref() else { return false };
        name == b"shm" && stable.path == b"/dev"
            || !self.copies.within.is_none()
                && !matches!(name, b"." | b"..")
                && self.copies.within.leads_to_one(&join(&stable.path, name))
    }

    /// A path in what is not versioned, once the first link on it was followed. `None`: there is none that the walk follows.
    ///
    /// # Errors
    /// ELOOP: too many; EACCES: one that the system's rules for directories of all users forbid (`protected_symlinks`).
    fn by_link(
        &mut self,
        path: &[u8],
        (follow, is_for_name): (bool, bool),
        links: &mut u32,
    ) -> Sys<Option<Vec<u8>>> {
        let is_kernels =
            [&b"/proc/"[..], b"/sys/", b"/dev/"].iter().any(|top| path.starts_with(top));
        if is_kernels || self.tree.root != self.tree.top || !passes_link(path) {
            return Ok(None);
        }
        let mut end = 0;
        while end < path.len() {
            let start = path[end..].iter().position(|&b| b != b'/').map_or(path.len(), |n| end + n);
            end = path[start..].iter().position(|&b| b == b'/').map_or(path.len(), |n| start + n);
            let ((dir, _), (link, rest)) = (path.split_at(start), path.split_at(end));
            let is_last = rest.iter().all(|&byte| byte == b'/');
            // Who makes or takes a name means that, whatever slash comes after it.
            let follow = if rest.is_empty() { follow } else { !is_for_name };
            if start == end || is_last && !follow {
                break;
            }
            let Ok(target) = read_link(libc::AT_FDCWD, link) else { continue };
            *links += 1;
            if *links > LINKS_MAX {
                return Err(Errno::LOOP);
            }
            if is_last {
                self.protected_link(dir, link)?;
            }
            let whole = if target.starts_with(b"/") { target } else { [dir, &target].concat() };
            return Ok(Some([&whole, rest].concat()));
        }
        Ok(None)
    }

    /// Whether a path means the process that asks, by a name that means this one here.
    fn is_of_who_asks(&self, path: &[u8]) -> bool {
        let names = [&b"/proc/self/"[..], b"/proc/thread-self/"];
        self.process.delegates && names.iter().any(|name| path.starts_with(name))
    }

    /// A path into what is not versioned; the magic links of /proc lead back.
    fn live(&mut self, path: Vec<u8>, follow: bool, rules: Rules) -> Sys<Place> {
        let Some((link, rest)) = magic_link(&path) else { return Ok(Place::Live(path)) };
        self.tree.trace.is_personal = true;
        if rest.is_empty() && (!follow || rules.parent) {
            return Ok(Place::Live(path));
        }
        let node = match link {
            Magic::Cwd => Some(self.cwd()?),
            Magic::Root => Some(self.tree.root),
            Magic::Fd(number) => {
                let file = match self.file(number) {
                    Ok(file) => file,
                    // A number of the process that asks.
                    Err(_) if self.process.delegates => return Ok(Place::Live(path)),
                    Err(_) => return Err(Errno::NOENT),
                };
                // Above a directory that is not versioned may be what is.
                let leads_on = |id: Id| !self.tree.nodes[id].live || !rest.is_empty();
                self.fds.get(file).node.filter(|&id| leads_on(id))
            }
        };
        let Some(node) = node else { return Ok(Place::Live(path)) };
        if rules.no_links || rules.no_magic {
            return Err(Errno::LOOP);
        }
        if rest.is_empty() {
            let (dir, name) = match self.tree.nodes[node].names.first() {
                Some((dir, name)) => (*dir, name.to_vec()),
                None => (node, b".".to_vec()),
            };
            let spot = Spot { dir, name, node: Some(node), last: Last::Name, slash: false };
            return Ok(Place::At(spot));
        }
        if !self.tree.nodes[node].is_dir() {
            return Err(Errno::NOTDIR);
        }
        self.walk_on(node, rest, follow, rules)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// As `readlink(2)`.
    pub fn target(&mut self, link: Id) -> Sys<Vec<u8>> {
        if let Some(target) = &self.tree.nodes[link].target {
            return Ok(target.clone());
        }
        self.note(link, txos_engine::object::Facets::DATA);
        let path =
            self.tree.nodes[link].stable.as_ref().map(|s| s.path.clone()).unwrap_or_default();
        let target = match read_link(libc::AT_FDCWD, &path) {
            Err(Errno::ACCESS) if kernel::is_worn() => {
                read_link(self.tree.beyond(link)?.number(), b"")?
            }
            target => target?,
        };
        self.tree.nodes[link].target = Some(target.clone());
        Ok(target)
    }

    /// What is at a name of a directory.
    ///
    /// # Errors
    /// As `lstat(2)`; that nothing is there is no error.
    pub fn lookup(&mut self, dir: Id, name: &[u8]) -> Sys<Option<Id>> {
        self.step(dir, name, false)
    }

    /// [`Tx::lookup`] on the way to something else: a directory that is there is only passed. What keeps from
    /// going on is the last that was passed.
    fn step(&mut self, dir: Id, name: &[u8], passing: bool) -> Sys<Option<Id>> {
        let found = self.find(dir, name, passing);
        let trace = &mut self.tree.trace;
        trace.passed.insert_name(dir, name);
        trace.found = None;
        match found {
            Ok(Some(id)) if passing => trace.found = Some(id),
            Ok(Some(id)) => {
                trace.find(id);
                self.note_passed(id);
            }
            Ok(None) => {}
            Err(_) => self.note_passed(dir),
        }
        found
    }

    /// Whether a directory may be searched.
    fn may_search(&mut self, dir: Id) -> Sys<()> {
        self.may(dir, libc::X_OK as u32).inspect_err(|_| self.note_passed(dir))
    }

    fn find(&mut self, dir: Id, name: &[u8], passing: bool) -> Sys<Option<Id>> {
        let node = &self.tree.nodes[dir];
        let entries = node.dir()?;
        if let Some(entry) = entries.entries.get(name) {
            let found = entry.now;
            self.may(dir, libc::X_OK as u32)?;
            return Ok(found);
        }
        if node.stable.is_none() {
            self.may(dir, libc::X_OK as u32)?;
            return if name.len() > 255 { Err(Errno::NAMETOOLONG) } else { Ok(None) };
        }
        if node.has_own_permissions() {
            self.may(dir, libc::X_OK as u32)?;
        }
        let node = &mut self.tree.nodes[dir];
        let stable = node.stable.as_ref().ok_or(stable_gone())?;
        let (id, path) = (stable.stat.id, join(&stable.path, name));
        let place = &mut node.dir.as_deref_mut().ok_or(Errno::NOTDIR)?.place;
        let top = place.get_or_insert_with(|| Rc::from(&stable.path[..])).clone();
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        self.hold(dir);
        // A directory whose owner or mode the transaction has changed it has judged itself. The kernel would go by those from before.
        let judged = kernel::is_worn() && self.tree.nodes[dir].has_own_permissions();
        let found = match self.first_look(&top, id, name, &path, passing) {
            Err(Errno::ACCESS) => {
                let is_new = self.hold_beyond(dir)?;
                if judged && self.held_at(&top).is_some() {
                    kernel::as_owner(|| self.first_look(&top, id, name, &path, passing))?
                } else if is_new {
                    self.first_look(&top, id, name, &path, passing)?
                } else {
                    return Err(Errno::ACCESS);
                }
            }
            other => other?,
        };
        self.tree.judged_for(dir, self.process.who).may |= libc::X_OK as u32;
        let found = found.map(|(stat, looked)| {
            let known = self.tree.nodes.len();
            let id = self.adopt((&top, id), (dir, name), path, stat);
            if id >= known {
                let node = &mut self.tree.nodes[id];
                node.looked = looked;
                if !(passing && node.is_dir()) {
                    node.noted = txos_engine::object::Facets::ENTRY.0;
                }
            }
            id
        });
        let dir = self.tree.nodes[dir].dir_mut()?;
        dir.entries.insert(name.into(), Entry { now: found, base: found });
        Ok(found)
    }

    /// The node of a stable object that was just looked at.
    fn adopt(
        &mut self,
        (top, top_id): (&Rc<[u8]>, txos_engine::object::FileId),
        (dir, name): (Id, &[u8]),
        path: Vec<u8>,
        stat: Stat,
    ) -> Id {
        let key = (stat.id, stat.mnt);
        if let Some(&id) = self.tree.by_id.get(&key)
            && (!self.tree.nodes[id].is_dir()
                || self.tree.nodes[id].names.is_empty()
                || self.is_unfolded_by_name(id))
        {
            // Another name of it, or one that was reached by descriptor first.
            let node = &mut self.tree.nodes[id];
            if node.stable.as_ref().is_some_and(|s| s.dir.is_empty()) {
                let seen = node.stable.as_ref().map_or(stat, |s| s.stat);
                if let Some(dir) = &mut node.dir {
                    dir.place = None;
                }
                node.stable = Some(Stable {
                    dir: top.clone(),
                    dir_id: top_id,
                    name: name.into(),
                    path,
                    stat: seen,
                });
            }
            node.names.push((dir, name.into()));
            self.tree.libraries.found(name, id);
            return id;
        }
        let live = !self.copies.is_versioned(&path, &stat);
        let stable = Stable { dir: top.clone(), dir_id: top_id, name: name.into(), path, stat };
        let mut node = Node::new(stat, Some(stable));
        node.live = live;
        node.names.push((dir, name.into()));
        self.tree.nodes.push(node);
        let id = self.tree.nodes.len() - 1;
        self.tree.by_id.insert(key, id);
        self.tree.libraries.found(name, id);
        id
    }

    /// The node of an object that a descriptor leads to, and that may have no name any more.
    ///
    /// # Errors
    /// As path_resolution(7).
    pub fn adopt_fd(&mut self, fd: i32, stat: Stat) -> Sys<Id> {
        if let Some(&id) = self.tree.by_id.get(&(stat.id, stat.mnt)) {
            return Ok(id);
        }
        if let Ok(path) = kernel::path_of_fd(fd)
            && path.starts_with(b"/")
            && !self.copies.is_in_store(&path)
        {
            // By its name, if that still leads to it.
            match self.walk(self.tree.top, &path, false) {
                Ok(Place::At(Spot { node: Some(id), .. }))
                    if self.tree.nodes[id]
                        .stable
                        .as_ref()
                        .is_some_and(|s| s.stat.id == stat.id) =>
                {
                    return Ok(id);
                }
                Err(super::acquire::DOOMED) => return Err(super::acquire::DOOMED),
                _ => {}
            }
        }
        let stable = Stable {
            dir: Rc::from(&b""[..]),
            dir_id: stat.id,
            name: Box::default(),
            path: kernel::magic_path(fd),
            stat,
        };
        let mut node = Node::new(stat, Some(stable));
        // What the kernel says of it.
        let known = kernel::path_of_fd(fd).ok();
        // By now its mount is known, if a path leads there. (A file of memory is on none.)
        node.live = !self.copies.is_versioned(b"", &stat)
            || known.as_ref().is_some_and(|path| self.copies.within.leaves_out(path));
        node.last_name = known.and_then(|p| Some(p.strip_suffix(b" (deleted)")?.to_vec()));
        self.tree.nodes.push(node);
        let id = self.tree.nodes.len() - 1;
        self.tree.by_id.insert((stat.id, stat.mnt), id);
        Ok(id)
    }
}

impl ShadowTree {
    /// A node for a directory that is not versioned.
    ///
    /// # Errors
    /// As `lstat(2)`.
    pub fn live_dir(&mut self, path: &[u8]) -> Sys<Id> {
        let stat = kernel::statx(libc::AT_FDCWD, path, 0)?;
        let path = OwnedFd::open(path, libc::O_PATH | libc::O_CLOEXEC)
            .and_then(|fd| kernel::path_of_fd(fd.number()))
            .unwrap_or_else(|_| path.to_vec());
        let (dir, name) = txos_engine::readset::split(&path).unwrap_or((b"/", b"."));
        let stable = Stable {
            dir: Rc::from(dir),
            dir_id: stat.id,
            name: name.into(),
            path: path.clone(),
            stat,
        };
        let mut node = Node::new(stat, Some(stable));
        node.live = true;
        node.names.push((self.root, name.into()));
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    /// The directory above one, for a walk that passes `..` there: the root's own for the root.
    fn above(&self, dir: Id, no_mounts: bool) -> Sys<Id> {
        if dir == self.root {
            return if self.beneath { Err(Errno::XDEV) } else { Ok(dir) };
        }
        let above = self.parent(dir);
        if no_mounts && self.nodes[above].stat.mnt != self.nodes[dir].stat.mnt {
            return Err(Errno::XDEV);
        }
        Ok(above)
    }

    fn live_path(&self, dir: Id, rest: &[u8]) -> Vec<u8> {
        let base = match &self.nodes[dir].stable {
            Some(stable) => stable.path.clone(),
            None => self.path_of(dir),
        };
        join(&base, rest)
    }

    /// The directory above; its own for the root.
    #[must_use]
    pub fn parent(&self, dir: Id) -> Id {
        let node = &self.nodes[dir];
        let removed = || node.dir.as_ref().and_then(|dir| dir.above);
        node.names.first().map(|(parent, _)| *parent).or_else(removed).unwrap_or(self.root)
    }

    /// A path of an object as the transaction sees it.
    #[must_use]
    pub fn path_of(&self, id: Id) -> Vec<u8> {
        let (mut at, mut names) = (id, Vec::new());
        let top: &[u8] = loop {
            if at == self.top {
                break b"/";
            }
            let node = &self.nodes[at];
            match (node.names.first(), &node.stable) {
                (_, Some(stable)) if node.live => break &stable.path,
                (Some((dir, name)), _) => {
                    names.push(&name[..]);
                    at = *dir;
                }
                (None, _) => break b"(deleted)",
            }
        };
        let length = names.iter().map(|name| name.len() + 1).sum::<usize>();
        let mut path = Vec::with_capacity(top.len() + length);
        path.extend_from_slice(top);
        for name in names.into_iter().rev() {
            if !path.ends_with(b"/") {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }
}

/// A path that begins in what is not versioned, from the root on, once it has left the directory that its first `..` leads
/// out of. `None`: it leads down only.
///
/// # Errors
/// As `open(2)` of that directory.
fn out_of_live(path: &[u8]) -> Sys<Option<Vec<u8>>> {
    let mut end = 0;
    for part in path.split(|&byte| byte == b'/') {
        end += part.len();
        if part == b".." {
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
            let above = OwnedFd::open(&path[..end], flags)?;
            let above = kernel::path_of_fd(above.number())?;
            // At its end it is no name, as `..` was none.
            let rest = path.get(end..).filter(|rest| !rest.is_empty()).unwrap_or(b"/.");
            return Ok(above.starts_with(b"/").then(|| [&above[..], rest].concat()));
        }
        end += 1;
    }
    Ok(None)
}

/// Whether a link is on a path, or at its end.
fn passes_link(path: &[u8]) -> bool {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    match kernel::open_exact(path, flags).map(OwnedFd::of) {
        Ok(fd) => kernel::look_fd(fd.number()).is_ok_and(|stat| stat.kind() == FileKind::Symlink),
        Err(errno) => errno == Errno::LOOP,
    }
}

/// The end of a walk at `.` or `..`, which is this directory.
fn at_itself(dir: Id, name: &[u8], slash: bool) -> Place {
    let last = if name == b"." { Last::Dot } else { Last::DotDot };
    Place::At(Spot { dir, name: name.to_vec(), node: Some(dir), last, slash })
}

/// The links of /proc/self that lead to objects, not by paths.
#[derive(Clone, Copy, Debug)]
enum Magic {
    Cwd,
    Root,
    Fd(i32),
}

/// The magic link that a path passes, and what of it comes after (with its slash gone).
fn magic_link(path: &[u8]) -> Option<(Magic, &[u8])> {
    let own = std::process::id().to_string();
    let digits = |rest: &[u8]| rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let in_fd = |rest: &'_ [u8]| {
        let n = digits(rest);
        let number = std::str::from_utf8(&rest[..n]).ok()?.parse().ok()?;
        Some((Magic::Fd(number), n))
    };
    let (link, rest) = if let Some(rest) = path.strip_prefix(b"/dev/fd/") {
        let (link, n) = in_fd(rest)?;
        (link, &rest[n..])
    } else {
        let rest = path.strip_prefix(b"/proc/")?;
        let rest = rest
            .strip_prefix(b"self/")
            .or_else(|| rest.strip_prefix(b"thread-self/"))
            .or_else(|| rest.strip_prefix(own.as_bytes())?.strip_prefix(b"/"))?;
        if let Some(rest) = rest.strip_prefix(b"fd/") {
            let (link, n) = in_fd(rest)?;
            (link, &rest[n..])
        } else if let Some(rest) = rest.strip_prefix(b"cwd") {
            (Magic::Cwd, rest)
        } else {
            (Magic::Root, rest.strip_prefix(b"root")?)
        }
    };
    match rest {
        [] => Some((link, rest)),
        [b'/', more @ ..] => {
            let skip = more.iter().take_while(|&&b| b == b'/').count();
            // Only slashes: the directory itself.
            Some((link, if skip == more.len() { b"." } else { &more[skip..] }))
        }
        _ => None,
    }
}

/// A node of which it was known that it has a stable counterpart.
fn stable_gone() -> Errno {
    Errno::IO
}
