//! Permissions: the kernel is asked about objects that still have their own, and the rest is
//! decided as it would (credentials(7), capabilities(7), acl(5)).

use txos_engine::object::FileKind;

use super::Tx;
use super::kernel::{self, Errno, Sys};
use super::node::{Id, Node};
use super::parts::ProcessGlobals;
use super::tree::ShadowTree;

/// Read, write, execute or search, as in `access(2)`.
pub mod mask {
    /// Execute a file, search a directory.
    pub const X: u32 = 1;
    /// Write.
    pub const W: u32 = 2;
    /// Read.
    pub const R: u32 = 4;
}

/// Who the calling thread is to the file system.
#[derive(Clone, Debug)]
pub struct Cred {
    /// The user to file systems.
    pub uid: u32,
    /// The group to file systems.
    pub gid: u32,
    /// The other groups.
    pub groups: Vec<u32>,
    /// Effective capabilities.
    pub caps: u64,
}

const CAP_CHOWN: u32 = 0;
const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_FOWNER: u32 = 3;
const CAP_FSETID: u32 = 4;
const CAP_SYS_CHROOT: u32 = 18;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_MKNOD: u32 = 27;
const CAP_SETFCAP: u32 = 31;

impl Cred {
    fn of_thread() -> Cred {
        let kernel::Identity { uid, gid, groups, caps } = kernel::Identity::of_thread();
        Cred { uid, gid, groups, caps }
    }

    fn has(&self, cap: u32) -> bool {
        self.caps >> cap & 1 == 1
    }

    /// Whether it is in a group.
    #[must_use]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// May act as any file's owner.
    #[must_use]
    pub fn owns(&self, uid: u32) -> bool {
        self.uid == uid || self.has(CAP_FOWNER)
    }

    /// May give files away.
    #[must_use]
    pub fn may_chown(&self) -> bool {
        self.has(CAP_CHOWN)
    }

    /// Keeps set-group-id bits on files of foreign groups.
    #[must_use]
    pub fn keeps_setgid(&self, gid: u32) -> bool {
        self.in_group(gid) || self.has(CAP_FSETID)
    }

    /// May make device nodes.
    #[must_use]
    pub fn may_mknod(&self) -> bool {
        self.has(CAP_MKNOD)
    }

    /// May change its root directory.
    #[must_use]
    pub fn may_chroot(&self) -> bool {
        self.has(CAP_SYS_CHROOT)
    }

    /// May see and set `trusted.*` attributes.
    #[must_use]
    pub fn may_trust(&self) -> bool {
        self.has(CAP_SYS_ADMIN)
    }

    /// May give a file capabilities.
    #[must_use]
    pub fn may_setfcap(&self) -> bool {
        self.has(CAP_SETFCAP)
    }

    /// Keeps set-id bits when it writes.
    #[must_use]
    pub fn keeps_setid(&self) -> bool {
        self.has(CAP_FSETID)
    }

    /// Whether these mode bits grant `mask`.
    #[must_use]
    pub fn may(&self, mode: u32, uid: u32, gid: u32, mask: u32, acl: Option<&[u8]>) -> bool {
        let dir = FileKind::from_mode(mode) == FileKind::Dir;
        let granted = if self.uid == uid {
            mode >> 6
        } else if let Some(acl) = acl.filter(|_| mode & 0o070 != 0) {
            // (With a mode that gives the group nothing the kernel does not look at the ACL.)
            acl_grants(acl, self, mode, gid, mask)
        } else if self.in_group(gid) {
            mode >> 3
        } else {
            mode
        } & 7;
        let missing = mask & !granted;
        if missing == 0 {
            return true;
        }
        // What a capability stands in for (generic_permission() in the kernel).
        let executable = dir || mode & 0o111 != 0;
        if self.has(CAP_DAC_OVERRIDE) && (mask & mask::X == 0 || executable) {
            return true;
        }
        self.has(CAP_DAC_READ_SEARCH) && (mask == mask::R || (dir && mask & mask::W == 0))
    }
}

/// What a POSIX ACL (`system.posix_acl_access`) grants somebody who is not the owner and wants `mask`: of groups, one has
/// to grant all of it.
fn acl_grants(acl: &[u8], cred: &Cred, mode: u32, group: u32, mask: u32) -> u32 {
    let entries = acl.get(4..).unwrap_or_default().chunks_exact(8).map(|e| {
        let half = |at: usize| u32::from(u16::from_le_bytes([e[at], e[at + 1]]));
        (half(0), half(2), u32::from_le_bytes([e[4], e[5], e[6], e[7]]))
    });
    const USER: u32 = 0x02;
    const GROUP_OBJ: u32 = 0x04;
    const GROUP: u32 = 0x08;
    const MASK: u32 = 0x10;
    let limit = entries.clone().find(|e| e.0 == MASK).map_or(7, |e| e.1);
    if let Some(entry) = entries.clone().find(|e| e.0 == USER && e.2 == cred.uid) {
        return entry.1 & limit;
    }
    let mut in_some = None;
    for (tag, perm, id) in entries {
        let member = match tag {
            GROUP_OBJ => cred.in_group(group),
            GROUP => cred.in_group(id),
            _ => false,
        };
        if member {
            // The mask limits what was found, not what is looked for.
            if perm & mask == mask {
                return perm & limit;
            }
            in_some = Some(0);
        }
    }
    in_some.unwrap_or(mode & 7)
}

impl Tx {
    /// Whether the thread has these permissions on an object.
    ///
    /// # Errors
    /// EACCES, EROFS, EPERM, as the kernel says.
    pub fn may(&mut self, id: Id, mask: u32) -> Sys<()> {
        let node = self.tree.judged_for(id, self.process.who);
        if mask & !node.may == 0 || node.live {
            return Ok(());
        }
        if node.may_not & mask != 0 {
            return Err(node.refusal);
        }
        let asked = if node.has_own_permissions() {
            let stat = node.stat;
            let acl = self.access_acl(id)?;
            if self.process.cred().may(stat.mode, stat.uid, stat.gid, mask, acl.as_deref()) {
                Ok(())
            } else {
                Err(Errno::ACCESS)
            }
        } else {
            let path = node.stable.as_ref().map(|s| s.path.clone()).unwrap_or_default();
            if mask & mask::W != 0 && node.is_dir() {
                self.note(id, txos_engine::object::Facets::ATTRS);
            }
            if kernel::is_magic(&path) {
                // It has no name: the magic link is what is to be followed.
                kernel_access_through(&path, mask)
            } else {
                let stable = self.tree.nodes[id].stable.as_ref();
                let (dir, path) = stable.map_or((libc::AT_FDCWD, &path[..]), |s| self.nearest(s));
                let flags = libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW;
                match kernel::access_at(dir, path, mask, flags) {
                    Err(Errno::ACCESS) if kernel::is_worn() => {
                        let place = self.tree.beyond(id)?;
                        let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
                        kernel::access_at(place.number(), b"", mask, flags).map(drop)
                    }
                    other => other.map(drop),
                }
            }
        };
        let node = &mut self.tree.nodes[id];
        match asked {
            Ok(()) => node.may |= mask,
            Err(e) => {
                if mask.count_ones() == 1 {
                    node.may_not |= mask;
                    node.refusal = e;
                }
            }
        }
        asked
    }

    /// The access ACL of an object, as the transaction sees it: until it has changed extended attributes, that of the stable
    /// object, also if mode or owner are others by now.
    ///
    /// # Errors
    /// As `getxattr(2)`; the transaction is doomed if another object has come in the place of the stable one.
    pub fn access_acl(&mut self, id: Id) -> Sys<Option<Vec<u8>>> {
        const NAME: &[u8] = b"system.posix_acl_access";
        let node = &self.tree.nodes[id];
        if let Some(xattrs) = &node.xattrs {
            return Ok(xattrs.get(NAME).cloned());
        }
        let Some(stable) = node.stable.as_ref().filter(|_| node.kind() != FileKind::Symlink) else {
            return Ok(None);
        };
        let path = stable.path.clone();
        // By its descriptor, so that nobody has another object judged in its place.
        let asked = self.tree.itself(id).and_then(|place| {
            kernel::as_owner(|| kernel::xattr(&kernel::magic_path(place.number()), NAME))
        });
        match asked {
            Err(Errno::OPNOTSUPP) => Ok(None),
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {
                Err(self.changed_outside(&path, "it was replaced or removed"))
            }
            asked => asked,
        }
    }

    /// Whether names in a directory may be changed.
    ///
    /// # Errors
    /// EACCES, EROFS.
    pub fn may_change_names(&mut self, dir: Id) -> Sys<()> {
        self.may(dir, mask::W | mask::X)?;
        if self.tree.nodes[dir].dir()?.removed {
            return Err(Errno::NOENT);
        }
        Ok(())
    }

    /// Whether a name may be taken away: the sticky bit, and immutable objects.
    ///
    /// # Errors
    /// EPERM, EACCES.
    pub fn may_remove(&mut self, dir: Id, node: Id) -> Sys<()> {
        self.may_change_names(dir)?;
        let (dir, node) = (self.tree.nodes[dir].stat, self.tree.nodes[node].stat);
        const FIXED: u64 = libc::STATX_ATTR_IMMUTABLE as u64 | libc::STATX_ATTR_APPEND as u64;
        if dir.attributes & libc::STATX_ATTR_APPEND as u64 != 0 || node.attributes & FIXED != 0 {
            return Err(Errno::PERM);
        }
        if dir.mode & libc::S_ISVTX != 0 {
            let cred = self.process.cred();
            if cred.uid != dir.uid && !cred.owns(node.uid) {
                return Err(Errno::PERM);
            }
        }
        Ok(())
    }
}

impl ShadowTree {
    /// A node with what is known of the permissions that somebody has on it.
    pub fn judged_for(&mut self, id: Id, who: u32) -> &mut Node {
        let node = &mut self.nodes[id];
        if node.judged_for != who {
            (node.may, node.may_not, node.judged_for) = (0, 0, who);
        }
        node
    }

    /// What the kernel answered about an object no longer holds.
    pub fn forget_permissions(&mut self, id: Id) {
        let node = &mut self.nodes[id];
        (node.may, node.may_not) = (0, 0);
    }
}

impl ProcessGlobals {
    /// Who the thread is.
    pub fn cred(&mut self) -> Cred {
        self.cred.get_or_insert_with(Cred::of_thread).clone()
    }
}

fn kernel_access_through(path: &[u8], mask: u32) -> Sys<()> {
    kernel::access_at(libc::AT_FDCWD, path, mask, libc::AT_EACCESS).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ACL of these entries: tag, permissions, id.
    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut all = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            all.extend_from_slice(&tag.to_le_bytes());
            all.extend_from_slice(&permissions.to_le_bytes());
            all.extend_from_slice(&id.to_le_bytes());
        }
        all
    }

    /// As posix_acl_permission() in the kernel: one of the groups grants all of it, and the mask limits that one.
    #[test]
    fn one_group_grants_all_of_it() {
        let cred = Cred { uid: 9, gid: 1, groups: vec![2], caps: 0 };
        let list = acl(&[(1, 7, 0), (4, 0, 0), (8, 4, 1), (8, 2, 2), (16, 7, 0), (32, 0, 0)]);
        let may = |mask| cred.may(0o100_670, 0, 0, mask, Some(&list));
        assert!(may(mask::R) && may(mask::W) && !may(mask::R | mask::W) && !may(mask::X));
        let limited = acl(&[(1, 7, 0), (4, 0, 0), (8, 6, 1), (8, 2, 2), (16, 4, 0), (32, 7, 0)]);
        let may = |mask| cred.may(0o100_647, 0, 0, mask, Some(&limited));
        assert!(may(mask::R) && !may(mask::W) && !may(mask::R | mask::W));
    }
}
