//! Attributes: stat, modes, owners, times, extended attributes.

use txos_engine::object::FileKind;
use txos_engine::version::Stamp;

use super::content::Data;
use super::kernel::{self, Errno, Stat, Sys};
use super::node::{Id, changed};
use super::parts::ProcessGlobals;
use super::perm::mask;
use super::tree::ShadowTree;
use super::walk::{Place, Spot};
use super::{Tx, now_after};
use crate::user::{UserPtr, UserSlice};

/// An object that a call names.
pub enum Object {
    /// A versioned one.
    Node(Id),
    /// Not versioned: by this path.
    Live(Vec<u8>),
    /// Not versioned: by this descriptor of the kernel's.
    Fd(i32),
}

impl Tx {
    /// The object of a `…at` call: by path, or with AT_EMPTY_PATH the descriptor itself.
    ///
    /// # Errors
    /// As path_resolution(7).
    pub fn object(&mut self, dirfd: i32, path: &[u8], flags: i32) -> Sys<Object> {
        if path.is_empty() {
            if flags & libc::AT_EMPTY_PATH == 0 {
                return Err(Errno::NOENT);
            }
            if dirfd == libc::AT_FDCWD {
                return self.cwd().map(Object::Node);
            }
            return self.object_of(dirfd);
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        if follow && let Some(number) = self.tree.descriptor_path(path) {
            return self.object_of(number).map_err(|_| Errno::NOENT);
        }
        let base = self.base(dirfd, path)?;
        match self.walk(base, path, follow)? {
            Place::At(Spot { node: Some(id), .. }) if self.tree.nodes[id].live => {
                Ok(Object::Live(self.tree.path_of(id)))
            }
            Place::At(Spot { node: Some(id), .. }) => Ok(Object::Node(id)),
            Place::At(_) => Err(Errno::NOENT),
            Place::Live(path) => {
                if follow && let Some(number) = super::open::descriptor_path(&path) {
                    return self.object_of(number).map_err(|_| Errno::NOENT);
                }
                Ok(Object::Live(if follow { followed(path) } else { path }))
            }
        }
    }

    /// The object of a descriptor.
    ///
    /// # Errors
    /// EBADF.
    pub fn object_of(&mut self, number: i32) -> Sys<Object> {
        let file = self.file(number)?;
        match self.fds.get(file).node {
            Some(id) if !self.tree.nodes[id].live => Ok(Object::Node(id)),
            _ => Ok(Object::Fd(self.real(number)?)),
        }
    }

    /// What stat shows of a versioned object.
    ///
    /// # Errors
    /// If it can't be asked; the transaction is doomed.
    pub fn stat(&mut self, id: Id) -> Sys<Stat> {
        self.touch_attrs(id)?;
        let node = &self.tree.nodes[id];
        let mut stat = node.stat;
        match &node.data {
            Data::Whole(backing) => {
                let real = kernel::as_owner(|| kernel::look(&backing.path))?;
                (stat.size, stat.blocks) = (real.size, real.blocks);
                (stat.atime, stat.mtime) = (real.atime, real.mtime);
                let real = Stat { ctime: backing.changed_at(real.ctime), ..real };
                // A name that came or went has changed the file, and not its private copy.
                let changed = node.stable.as_ref().is_none_or(|s| s.stat.ctime != stat.ctime);
                stat.ctime = if changed { stat.ctime.max(real.ctime) } else { real.ctime };
                stat.mode = stat.mode & !0o6000 | real.mode & stat.mode & 0o6000;
            }
            Data::Pages(pages) => {
                stat.blocks = pages.blocks(stat.size, stat.blocks);
                stat.size = pages.size;
            }
            Data::Stable => {}
        }
        Ok(stat)
    }

    /// `stat`, `lstat`, `fstat`, `newfstatat`.
    ///
    /// # Errors
    /// As the call.
    pub fn fstatat(
        &mut self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        out: UserPtr<libc::stat>,
    ) -> Sys<u64> {
        const KNOWN: i32 = libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH;
        if flags & !KNOWN != 0 {
            return Err(Errno::INVAL);
        }
        let object = self.object(dirfd, path, flags)?;
        self.stat_object(object, flags, out)
    }

    /// The same of an object that was found.
    ///
    /// # Errors
    /// As the call.
    pub fn stat_object(
        &mut self,
        object: Object,
        flags: i32,
        out: UserPtr<libc::stat>,
    ) -> Sys<u64> {
        let id = match object {
            Object::Node(id) => id,
            Object::Live(path) => return kernel::stat_to(&path, flags, out),
            Object::Fd(real) => return kernel::fstat_to(real, out),
        };
        out.write(self.stat(id)?.as_stat())?;
        Ok(0)
    }

    /// `statx(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn statx(
        &mut self,
        dirfd: i32,
        path: &[u8],
        flags: i32,
        wanted: u32,
        out: UserPtr<libc::statx>,
    ) -> Sys<u64> {
        const SYNC: i32 = 0x6000;
        const KNOWN: i32 =
            libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT | libc::AT_EMPTY_PATH | SYNC;
        if (flags & !KNOWN != 0 && !path.is_empty())
            || flags & SYNC == SYNC
            || wanted & 0x8000_0000 != 0
        {
            return Err(Errno::INVAL);
        }
        let id = match self.object(dirfd, path, flags)? {
            Object::Node(id) => id,
            Object::Live(path) => {
                return kernel::statx_to(libc::AT_FDCWD, &path, flags, wanted, out);
            }
            Object::Fd(real) => {
                return kernel::statx_to(real, b"", flags | libc::AT_EMPTY_PATH, wanted, out);
            }
        };
        out.write(self.stat(id)?.as_statx(wanted))?;
        Ok(0)
    }

    /// `access(2)` and its relatives.
    ///
    /// # Errors
    /// As the call.
    pub fn access(&mut self, dirfd: i32, path: &[u8], wanted: u32, flags: i32) -> Sys<u64> {
        // The real user of this process is not the one for whom the call is made.
        let effective = if kernel::is_worn() { libc::AT_EACCESS } else { 0 };
        let id = match self.object(dirfd, path, flags)? {
            Object::Node(id) => id,
            Object::Live(path) => {
                let flags = flags | effective;
                return kernel::access_at(libc::AT_FDCWD, &path, wanted, flags);
            }
            Object::Fd(real) => {
                let flags = flags | effective | libc::AT_EMPTY_PATH;
                return kernel::access_at(real, b"", wanted, flags);
            }
        };
        self.touch_attrs(id)?;
        if wanted == 0 {
            return Ok(0);
        }
        if flags & libc::AT_EACCESS == 0 && !self.process.real_is_effective() {
            let node = &self.tree.nodes[id];
            // By the real user: what set-user-ID programs ask for.
            if node.has_own_permissions() {
                return self
                    .unsupported_errno("access(2) of a changed object in a set-user-ID program");
            }
            let path = node.stable.as_ref().map(|s| s.path.clone()).unwrap_or_default();
            let flags = flags & libc::AT_SYMLINK_NOFOLLOW;
            return kernel::access_at(libc::AT_FDCWD, &path, wanted, flags);
        }
        self.may(id, wanted)?;
        Ok(0)
    }

    /// `chmod(2)` of an object.
    ///
    /// # Errors
    /// As the call.
    pub fn chmod(&mut self, object: Object, mode: u32) -> Sys<u64> {
        let id = match object {
            Object::Node(id) => id,
            Object::Live(path) => {
                if kernel::stays_at_link(&path)
                    && kernel::look(&path).is_ok_and(|stat| stat.kind() == FileKind::Symlink)
                {
                    return Err(Errno::OPNOTSUPP);
                }
                return self.live_change(&path, |path| kernel::chmod_live(path, mode));
            }
            Object::Fd(real) => {
                self.unsupported_call("a change of mode of what is not versioned", b"")?;
                return kernel::fchmod(real, mode);
            }
        };
        if self.tree.nodes[id].kind() == FileKind::Symlink {
            return Err(Errno::OPNOTSUPP);
        }
        self.may_set_attrs(id)?;
        let cred = self.process.cred();
        let mut stat = self.tree.nodes[id].stat;
        let mut bits = mode & 0o7777;
        if !cred.keeps_setgid(stat.gid) {
            bits &= !libc::S_ISGID;
        }
        self.touch_write(id)?;
        if bits & (libc::S_ISUID | libc::S_ISGID) != 0 {
            // What a write takes away of that, the server tells.
            self.take_back(id);
        }
        let has_acl = self.access_acl(id)?.is_some();
        stat.mode = stat.mode & libc::S_IFMT | bits;
        let node = &mut self.tree.nodes[id];
        node.stat.mode = stat.mode;
        node.stat.ctime = now_after(node.stat.ctime);
        node.changed |= changed::MODE;
        if let Some(backing) = node.data.whole() {
            kernel::as_owner(|| kernel::chmod(&backing.path, bits))?;
        }
        if has_acl {
            self.mask_acl(id, bits)?;
        }
        self.tree.forget_permissions(id);
        Ok(0)
    }

    /// A change of mode changes the mask of an ACL.
    fn mask_acl(&mut self, id: Id, bits: u32) -> Sys<()> {
        const NAME: &[u8] = b"system.posix_acl_access";
        let mut xattrs = self.all_xattrs(id)?;
        if let Some(acl) = xattrs.get_mut(NAME) {
            set_acl_mode(acl, bits);
        }
        let node = &mut self.tree.nodes[id];
        node.xattrs = Some(xattrs);
        node.changed |= changed::XATTRS;
        Ok(())
    }

    /// Whether mode and times of an object may be set.
    fn may_set_attrs(&mut self, id: Id) -> Sys<()> {
        let stat = self.tree.nodes[id].stat;
        self.read_only(id)?;
        if !self.process.cred().owns(stat.uid) {
            return Err(Errno::PERM);
        }
        if stat.attributes & (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64 != 0 {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    /// EROFS on what is mounted so, before it is asked who may do what.
    ///
    /// # Errors
    /// EROFS.
    pub fn read_only(&mut self, id: Id) -> Sys<()> {
        if self.tree.nodes[id].has_own_permissions() {
            return Ok(());
        }
        match self.may(id, mask::W) {
            Err(Errno::ROFS) => Err(Errno::ROFS),
            // That it is not allowed to write hides that nobody may.
            Err(_) if self.tree.real_path(id).is_some_and(|path| kernel::is_read_only(&path)) => {
                Err(Errno::ROFS)
            }
            _ => Ok(()),
        }
    }

    /// `chown(2)` of an object.
    ///
    /// # Errors
    /// As the call.
    pub fn chown(&mut self, object: Object, uid: u32, gid: u32) -> Sys<u64> {
        let id = match object {
            Object::Node(id) => id,
            Object::Live(path) => {
                let flags = libc::AT_SYMLINK_NOFOLLOW;
                return self.live_change(&path, |path| kernel::chown_live(path, uid, gid, flags));
            }
            Object::Fd(real) => {
                self.unsupported_call("a change of owner of what is not versioned", b"")?;
                return kernel::fchown(real, uid, gid);
            }
        };
        self.read_only(id)?;
        let stat = self.tree.nodes[id].stat;
        let (new_uid, new_gid) = (
            if uid == u32::MAX { stat.uid } else { uid },
            if gid == u32::MAX { stat.gid } else { gid },
        );
        let cred = self.process.cred();
        if !cred.may_chown() {
            let own = cred.uid == stat.uid;
            let uid_fine = uid == u32::MAX || (own && uid == stat.uid);
            let gid_fine = gid == u32::MAX || (own && (gid == stat.gid || cred.in_group(gid)));
            if !uid_fine || !gid_fine {
                return Err(Errno::PERM);
            }
        }
        if stat.attributes & (libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND) as u64 != 0 {
            return Err(Errno::PERM);
        }
        self.touch_write(id)?;
        if self.tree.nodes[id].kind() == FileKind::File {
            self.drop_capabilities(id)?;
        }
        let node = &mut self.tree.nodes[id];
        let mut mode = node.stat.mode;
        if node.kind() != FileKind::Dir && node.kind() != FileKind::Symlink {
            // Set-id bits go, as always when a file changes hands.
            mode &= !libc::S_ISUID;
            if mode & libc::S_IXGRP != 0 {
                mode &= !libc::S_ISGID;
            }
        }
        (node.stat.uid, node.stat.gid) = (new_uid, new_gid);
        node.stat.ctime = now_after(node.stat.ctime);
        node.changed |= changed::OWNER;
        if mode != node.stat.mode {
            node.stat.mode = mode;
            node.changed |= changed::MODE;
        }
        if let Some(backing) = node.data.whole() {
            let path = backing.path.clone();
            kernel::as_owner(|| {
                kernel::chown(&path, new_uid, new_gid)?;
                kernel::chmod(&path, mode)
            })?;
        }
        self.tree.forget_permissions(id);
        Ok(0)
    }

    /// `utimensat(2)` of an object; a null pointer sets both to now.
    ///
    /// # Errors
    /// As the call.
    pub fn utimes(&mut self, object: Object, times: Option<[libc::timespec; 2]>) -> Sys<u64> {
        let both_now = [libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW }; 2];
        let times = times.unwrap_or(both_now);
        let valid = |t: &libc::timespec| {
            matches!(t.tv_nsec, 0..=999_999_999 | libc::UTIME_NOW | libc::UTIME_OMIT)
        };
        if !times.iter().all(valid) {
            return Err(Errno::INVAL);
        }
        if times.iter().all(|t| t.tv_nsec == libc::UTIME_OMIT) {
            return Ok(0);
        }
        let id = match object {
            Object::Node(id) => id,
            Object::Live(path) => {
                let stays = kernel::stays_at_link(&path);
                let flags = if stays { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
                return self.live_change(&path, |path| kernel::utimes_live(path, &times, flags));
            }
            Object::Fd(real) => {
                self.unsupported_call("a change of the times of what is not versioned", b"")?;
                return kernel::futimes(real, &times);
            }
        };
        let stat = self.tree.nodes[id].stat;
        self.read_only(id)?;
        let both_now = times.iter().all(|t| t.tv_nsec == libc::UTIME_NOW);
        if !self.process.cred().owns(stat.uid) {
            if !both_now {
                return Err(Errno::PERM);
            }
            self.may(id, mask::W)?;
        }
        let fixed = libc::STATX_ATTR_IMMUTABLE as u64
            | if both_now { 0 } else { libc::STATX_ATTR_APPEND as u64 };
        if stat.attributes & fixed != 0 {
            return Err(Errno::PERM);
        }
        self.touch_write(id)?;
        let node = &mut self.tree.nodes[id];
        let at = now_after(node.stat.ctime);
        let value = |t: &libc::timespec| match t.tv_nsec {
            libc::UTIME_OMIT => None,
            libc::UTIME_NOW => Some(at),
            nsec => Some(Stamp { sec: t.tv_sec, nsec: u32::try_from(nsec).unwrap_or(0) }),
        };
        let (atime, mtime) = (value(&times[0]), value(&times[1]));
        if let Some(atime) = atime {
            node.stat.atime = atime;
            node.changed |= changed::ATIME;
        }
        if let Some(mtime) = mtime {
            node.stat.mtime = mtime;
            node.changed |= changed::MTIME;
        }
        node.stat.ctime = at;
        if let Some(backing) = node.data.whole() {
            let path = backing.path.clone();
            kernel::as_owner(|| kernel::utimes(&path, atime, mtime))?;
        }
        Ok(0)
    }

    /// `setxattr(2)` and its relatives.
    ///
    /// # Errors
    /// As the call.
    pub fn set_xattr(&mut self, object: Object, name: &[u8], value: &[u8], flags: i32) -> Sys<u64> {
        let id = match self.xattr_node(object)? {
            Ok(id) => id,
            Err(path) => return kernel::set_xattr_live(&path, name, value, flags),
        };
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0
            || flags == libc::XATTR_CREATE | libc::XATTR_REPLACE
        {
            return Err(Errno::INVAL);
        }
        if value.len() > 65_536 {
            return Err(Errno::TOOBIG);
        }
        self.may_set_xattr(id, name)?;
        whole_name(name)?;
        let mut xattrs = self.all_xattrs(id)?;
        let there = xattrs.contains_key(name);
        if flags & libc::XATTR_CREATE != 0 && there {
            return Err(Errno::EXIST);
        }
        if flags & libc::XATTR_REPLACE != 0 && !there {
            return Err(Errno::NODATA);
        }
        self.touch_write(id)?;
        // The kernel knows best what a value must look like: it is tried on an object of ours.
        if let Some(backing) = self.tree.nodes[id].data.whole() {
            let path = backing.path.clone();
            kernel::as_owner(|| kernel::set_xattr(&path, name, value))?;
        } else {
            kernel::as_owner(|| self.try_xattr(id, name, value))?;
        }
        xattrs.insert(name.to_vec(), value.to_vec());
        self.tree.xattrs_changed(id, xattrs, name, Some(value));
        Ok(0)
    }

    /// Sets an attribute on a scratch object of the same kind and file system.
    fn try_xattr(&mut self, id: Id, name: &[u8], value: &[u8]) -> Sys<()> {
        let stat = self.tree.nodes[id].stat;
        let (_, path) = self.staged_path(stat.mnt)?;
        let is_dir = stat.kind() == FileKind::Dir;
        match stat.kind() {
            FileKind::Dir => kernel::mkdir(&path, 0o700)?,
            FileKind::Symlink => kernel::symlink(b"x", &path)?,
            _ => {
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_CLOEXEC;
                kernel::close(kernel::open(&path, flags, 0o600)?);
            }
        }
        let tried = kernel::set_xattr(&path, name, value);
        let flags = if is_dir { libc::AT_REMOVEDIR } else { 0 };
        let _ = kernel::unlink_live(&path, flags);
        tried
    }

    /// The node, or the path of what is not versioned.
    fn xattr_node(&mut self, object: Object) -> Sys<Result<Id, Vec<u8>>> {
        let path = match object {
            Object::Node(id) => return Ok(Ok(id)),
            Object::Live(path) => path,
            Object::Fd(real) => kernel::magic_path(real),
        };
        self.unsupported_call("extended attributes of what is not versioned", &path)?;
        Ok(Err(path))
    }

    fn may_set_xattr(&mut self, id: Id, name: &[u8]) -> Sys<()> {
        let stat = self.tree.nodes[id].stat;
        self.read_only(id)?;
        if name.starts_with(b"user.") {
            let is_shared = stat.kind() == FileKind::Dir && stat.mode & libc::S_ISVTX != 0;
            if !matches!(stat.kind(), FileKind::File | FileKind::Dir)
                || is_shared && !self.process.cred().owns(stat.uid)
            {
                return Err(Errno::PERM);
            }
            return self.may(id, mask::W);
        }
        if name.starts_with(b"trusted.") {
            return if self.process.cred().may_trust() { Ok(()) } else { Err(Errno::PERM) };
        }
        if name.starts_with(b"system.posix_acl_") {
            if stat.kind() == FileKind::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
            return if self.process.cred().owns(stat.uid) { Ok(()) } else { Err(Errno::PERM) };
        }
        if name == b"security.capability" {
            let may = self.process.cred().may_setfcap();
            return if may { Ok(()) } else { Err(Errno::PERM) };
        }
        if name.starts_with(b"security.") {
            return if self.process.cred().may_trust() { Ok(()) } else { Err(Errno::PERM) };
        }
        Err(Errno::OPNOTSUPP)
    }

    /// `removexattr(2)` and its relatives.
    ///
    /// # Errors
    /// As the call.
    pub fn remove_xattr(&mut self, object: Object, name: &[u8]) -> Sys<u64> {
        let id = match self.xattr_node(object)? {
            Ok(id) => id,
            Err(path) => return kernel::remove_xattr_live(&path, name),
        };
        self.may_set_xattr(id, name)?;
        whole_name(name)?;
        let mut xattrs = self.all_xattrs(id)?;
        if xattrs.remove(name).is_none() {
            return if name.starts_with(b"system.posix_acl_") { Ok(0) } else { Err(Errno::NODATA) };
        }
        self.touch_write(id)?;
        if let Some(backing) = self.tree.nodes[id].data.whole() {
            let path = backing.path.clone();
            kernel::as_owner(|| kernel::remove_xattr(&path, name))?;
        }
        self.tree.xattrs_changed(id, xattrs, name, None);
        Ok(0)
    }

    /// `getxattr(2)` and its relatives.
    ///
    /// # Errors
    /// As the call.
    pub fn get_xattr(&mut self, object: Object, name: &[u8], out: UserSlice) -> Sys<u64> {
        let id = match object {
            Object::Node(id) => id,
            Object::Live(path) => return kernel::xattr_to(&path, name, out),
            Object::Fd(real) => return kernel::fxattr_to(real, name, out),
        };
        if name.starts_with(b"user.") {
            let kind = self.tree.nodes[id].kind();
            if !matches!(kind, FileKind::File | FileKind::Dir) {
                return Err(Errno::NODATA);
            }
            self.may(id, mask::R)?;
        }
        whole_name(name)?;
        if name.starts_with(b"trusted.") && !self.process.cred().may_trust() {
            return Err(Errno::NODATA);
        }
        if let Some(xattrs) = &self.tree.nodes[id].xattrs {
            let value = match xattrs.get(name) {
                Some(value) => value.clone(),
                None => return Err(no_xattr(name)),
            };
            return give(&value, out);
        }
        self.touch_xattrs(id)?;
        let path = self.tree.real_path(id).ok_or(Errno::NODATA)?;
        if self.tree.nodes[id].data.whole().is_some() && !name.starts_with(b"trusted.") {
            return kernel::as_owner(|| kernel::xattr_to(&path, name, out));
        }
        self.tree.ask(id, &path, |path| kernel::xattr_to(path, name, out))
    }

    /// `listxattr(2)` and its relatives.
    ///
    /// # Errors
    /// As the call.
    pub fn list_xattrs(&mut self, object: Object, out: UserSlice) -> Sys<u64> {
        let id = match object {
            Object::Node(id) => id,
            Object::Live(path) => return kernel::xattr_names_to(&path, out),
            Object::Fd(real) => return kernel::fxattr_names_to(real, out),
        };
        let trusts = self.process.cred().may_trust();
        let xattrs = self.all_xattrs(id)?;
        let mut text = Vec::new();
        for name in xattrs.keys().filter(|n| trusts || !n.starts_with(b"trusted.")) {
            text.extend_from_slice(name);
            text.push(0);
        }
        give(&text, out)
    }

    /// A change of something that is not versioned, by a path from the working directory.
    ///
    /// # Errors
    /// As the call; under TX_STRICT the transaction is doomed.
    pub fn live_change(&mut self, path: &[u8], change: impl FnOnce(&[u8]) -> Sys<u64>) -> Sys<u64> {
        self.unsupported_call("a change outside of the versioned trees", path)?;
        change(path)
    }

    /// Whether what is not versioned may lose its name.
    ///
    /// # Errors
    /// EBUSY: where a tree begins that is named, or on the way there.
    pub fn is_free(&self, path: &[u8]) -> Sys<()> {
        if self.copies.within.is_fixed(path) { Err(Errno::BUSY) } else { Ok(()) }
    }

    /// A rename among what is not versioned.
    ///
    /// # Errors
    /// As the call; under TX_STRICT the transaction is doomed.
    pub fn live_rename(&mut self, from: &[u8], to: &[u8], flags: u32) -> Sys<u64> {
        self.is_free(from)?;
        self.is_free(to)?;
        self.unsupported_call("a rename outside of the versioned trees", from)?;
        let renamed = kernel::rename_live(from, to, flags)?;
        self.tree.follow_rename(from, to, flags & libc::RENAME_EXCHANGE != 0);
        Ok(renamed)
    }

    /// A link among what is not versioned, of a path or of a descriptor. `sem_open(3)` makes one.
    ///
    /// # Errors
    /// As the call; under TX_STRICT the transaction is doomed.
    pub fn live_link(&mut self, from: (i32, &[u8]), to: &[u8], flags: i32) -> Sys<u64> {
        self.unsupported_call("a link outside of the versioned trees", to)?;
        kernel::link_live(from, to, flags)
    }
}

impl ShadowTree {
    /// Directories that are not versioned, in which paths begin, are known by their paths.
    fn follow_rename(&mut self, from: &[u8], to: &[u8], exchange: bool) {
        let below = |path: &[u8], top: &[u8]| {
            txos_engine::readset::is_at_or_below(path, top).then(|| path[top.len()..].to_vec())
        };
        for node in self.nodes.iter_mut().filter(|node| node.live && node.dir.is_some()) {
            let Some(stable) = &mut node.stable else { continue };
            if let Some(rest) = below(&stable.path, from) {
                stable.path = [to, &rest].concat();
            } else if exchange && let Some(rest) = below(&stable.path, to) {
                stable.path = [from, &rest].concat();
            }
        }
    }

    fn xattrs_changed(
        &mut self,
        id: Id,
        mut xattrs: super::node::Xattrs,
        name: &[u8],
        value: Option<&[u8]>,
    ) {
        // One that says no more than the mode is the mode: there is none then.
        if name == b"system.posix_acl_access" && value.is_some_and(super::acl::is_plain) {
            xattrs.remove(name);
        }
        let node = &mut self.nodes[id];
        node.xattrs = Some(xattrs);
        node.changed |= changed::XATTRS;
        node.stat.ctime = now_after(node.stat.ctime);
        if name == b"system.posix_acl_access"
            && let Some(bits) = value.and_then(acl_mode)
        {
            let keep = node.stat.mode & !0o777;
            node.stat.mode = keep | bits;
            node.changed |= changed::MODE;
        }
        self.forget_permissions(id);
    }

    /// `statfs(2)`.
    ///
    /// # Errors
    /// As the call.
    pub fn statfs(&mut self, object: Object, out: UserPtr<libc::statfs>) -> Sys<u64> {
        let id = match object {
            Object::Fd(real) => return kernel::fstatfs_to(real, out),
            Object::Live(path) => return kernel::statfs_to(&path, out),
            Object::Node(mut id) => {
                while self.real_path(id).is_none() {
                    let parent = self.parent(id);
                    if parent == id {
                        break;
                    }
                    id = parent;
                }
                id
            }
        };
        let path = self.real_path(id).ok_or(Errno::NOENT)?;
        if self.nodes[id].data.whole().is_some() {
            return kernel::as_owner(|| kernel::statfs_to(&path, out));
        }
        self.ask(id, &path, |path| kernel::statfs_to(path, out))
    }
}

impl ProcessGlobals {
    fn real_is_effective(&mut self) -> bool {
        let same =
            || kernel::getuid() == kernel::geteuid() && kernel::getgid() == kernel::getegid();
        *self.own_user.get_or_insert_with(same)
    }
}

/// A prefix alone is no name; the kernel sees that after it has looked at the permissions.
fn whole_name(name: &[u8]) -> Sys<()> {
    if matches!(name, b"user." | b"trusted." | b"security.") { Err(Errno::INVAL) } else { Ok(()) }
}

/// What is said of an attribute that an object of ours has not: some names are not possible at all.
fn no_xattr(name: &[u8]) -> Errno {
    let known = [&b"user."[..], b"trusted.", b"security.", b"system.posix_acl_"];
    if known.iter().any(|k| name.starts_with(k)) { Errno::NODATA } else { Errno::OPNOTSUPP }
}

/// Gives a value as the xattr calls do: the length if no room is offered, ERANGE if too little.
fn give(value: &[u8], out: UserSlice) -> Sys<u64> {
    if out.is_empty() {
        return Ok(value.len() as u64);
    }
    if out.len() < value.len() as u64 {
        return Err(Errno::RANGE);
    }
    out.write(value)?;
    Ok(value.len() as u64)
}

/// What a link leads to that only the kernel follows, if a path ends with one.
fn followed(path: Vec<u8>) -> Vec<u8> {
    let is_link = || kernel::look(&path).is_ok_and(|stat| stat.kind() == FileKind::Symlink);
    if !kernel::stays_at_link(&path) || !is_link() {
        return path;
    }
    let found = kernel::OwnedFd::open(&path, libc::O_PATH | libc::O_CLOEXEC)
        .and_then(|fd| kernel::path_of_fd(fd.number()));
    found.ok().filter(|found| found.starts_with(b"/")).unwrap_or(path)
}

/// Applies mode bits to an ACL: owner, mask (or group), others.
fn set_acl_mode(acl: &mut [u8], bits: u32) {
    let has_mask = entries(acl).any(|(_, tag, _)| tag == 0x10);
    let places: Vec<(usize, u16, u16)> = entries(acl).collect();
    for (at, tag, _) in places {
        let value = match tag {
            0x01 => bits >> 6,
            0x10 => bits >> 3,
            0x04 if !has_mask => bits >> 3,
            0x20 => bits,
            _ => continue,
        };
        acl[at + 2] = (value & 7) as u8;
    }
}

/// The mode bits that an ACL stands for.
fn acl_mode(acl: &[u8]) -> Option<u32> {
    let find = |wanted: u16| entries(acl).find(|e| e.1 == wanted).map(|e| u32::from(e.2));
    let group = find(0x10).or_else(|| find(0x04))?;
    Some(find(0x01)? << 6 | group << 3 | find(0x20)?)
}

/// Place, tag and permissions of each entry.
fn entries(acl: &[u8]) -> impl Iterator<Item = (usize, u16, u16)> {
    let count = acl.len().saturating_sub(4) / 8;
    let half = |at: usize| u16::from_le_bytes([acl[at], acl[at + 1]]);
    let found: Vec<(usize, u16, u16)> =
        (0..count).map(|i| 4 + i * 8).map(|at| (at, half(at), half(at + 2))).collect();
    found.into_iter()
}
