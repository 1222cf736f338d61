//! Access control lists: what a new object inherits from its directory's default ACL (acl(5), "Object
//! creation"), and which say no more than a mode.

const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The mode of the new object, and its access ACL unless the mode says it all.
#[must_use]
pub fn inherit(default: &[u8], mode: u32) -> (u32, Option<Vec<u8>>) {
    let mut acl = default.to_vec();
    let mut left = mode & 0o777;
    let mut extended = false;
    let (mut group_at, mut mask_at) = (None, None);
    let entries = acl.len().saturating_sub(4) / 8;
    for i in 0..entries {
        let at = 4 + i * 8;
        let tag = u16::from_le_bytes([acl[at], acl[at + 1]]);
        let perm = u32::from(u16::from_le_bytes([acl[at + 2], acl[at + 3]]));
        let mut set = |value: u32| acl[at + 2] = (value & 7) as u8;
        match tag {
            USER_OBJ => {
                set(perm & (mode >> 6));
                left &= 0o077 | ((perm & (mode >> 6)) << 6);
            }
            OTHER => {
                set(perm & mode);
                left &= 0o770 | (perm & mode & 7);
            }
            GROUP_OBJ => group_at = Some((at, perm)),
            MASK => {
                mask_at = Some((at, perm));
                extended = true;
            }
            _ => extended = true,
        }
    }
    if let Some((at, perm)) = mask_at.or(group_at) {
        let kept = perm & (mode >> 3) & 7;
        acl[at + 2] = kept as u8;
        left &= 0o707 | (kept << 3);
    }
    (mode & !0o777 | left, extended.then_some(acl))
}

/// Whether an access ACL says no more than a mode: the kernel stores none then.
#[must_use]
pub fn is_plain(acl: &[u8]) -> bool {
    let mut entries = acl.get(4..).unwrap_or_default().chunks_exact(8);
    entries.all(|e| matches!(u16::from_le_bytes([e[0], e[1]]), USER_OBJ | GROUP_OBJ | OTHER))
}
